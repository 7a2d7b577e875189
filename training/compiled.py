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


def compiled(model: nn.Module, say: Callable[[str], None], cache: Path, **options) -> Callable:
    """`model`, compiled by torch.compile with `options`; what it makes is kept in `cache` for later
    processes. Where there is no C++ compiler (or no Triton) it says so once and is the model itself."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    forward = torch.compile(model, **options)

    def twin(*arguments, **keywords):
        nonlocal forward
        try:
            return forward(*arguments, **keywords)
        except torch._dynamo.exc.TorchDynamoException as error:
            if forward is model:
                raise
            say(f"not compiled, and slower for it: {' '.join(str(error).split()[:30])}")
            forward = model
            return model(*arguments, **keywords)

    return twin


def repays(model: GPT, texts: int, tokens: int) -> bool:
    """Whether writing so many tokens, for so many texts at once, is long enough for a cold compilation."""
    if tokens < 1000:
        return False
    started = time.perf_counter()
    for _ in generate(model, torch.zeros(texts, 1, dtype=torch.long, device=model.embed.weight.device), 16):
        pass
    return (time.perf_counter() - started) / 16 * tokens * SAVED > COLD
