"""A model's compiled twin: same arguments, same numbers to rounding, made on the first call."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from model.generate import generate
from model.gpt import GPT

# Measured on two cores (python -m benchmarks.sampling):
COLD = 20.0  # seconds at most, of the first call where nothing is cached
SAVED = 0.25  # share at least, of a token's time


class Compiled(nn.Module):
    """`model`, compiled by torch.compile with `options`; what it makes is kept in `cache` for later
    processes. Where there is no C++ compiler (or no Triton) it says so once and is the model itself."""

    def __init__(self, model: nn.Module, say: Callable[[str], None], cache: Path, **options) -> None:
        super().__init__()
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
        self.model, self.say = model, say
        self.twin: list[Callable] = [torch.compile(model, **options)]  # a list: no module, no parameters

    def forward(self, *arguments, **keywords):
        if not self.twin:
            return self.model(*arguments, **keywords)
        try:
            return self.twin[0](*arguments, **keywords)
        except (torch._dynamo.exc.TorchDynamoException, OSError) as error:  # OSError: no place for the cache
            self.twin.clear()
            self.say(f"not compiled, and slower for it: {' '.join(str(error).split()[:30])}")
            return self.model(*arguments, **keywords)


def repays(model: GPT, texts: int, tokens: int) -> bool:
    """Whether writing so many tokens, for so many texts at once, is long enough for a cold compilation."""
    if tokens < 1000:
        return False
    started = time.perf_counter()
    for _ in generate(model, torch.zeros(texts, 1, dtype=torch.long, device=model.embed.weight.device), 16):
        pass
    return (time.perf_counter() - started) / 16 * tokens * SAVED > COLD
