"""A model's compiled twin: same arguments, same numbers to rounding, made on the first call; and whether it
is worth the time that making it takes."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from model.generate import generate
from model.gpt import GPT
from training.config import LoopConfig
from training.distributed import World
from training.evaluate import loss_of
from training.products import compiler_pass

# Measured on two cores, tokens by python -m benchmarks.sampling:
COLD = {"token": 20.0, "step": 50.0}  # seconds at most, of the first call where nothing is cached
SAVED = {"token": 0.25, "step": 0.1}  # share of the eager time (a step of nano: 0.06, of small: 0.25)


def keep_in(folder: Path) -> None:
    """Let what is compiled stay there for later processes. To be said before an optimizer is made, which
    lets PyTorch settle for a folder that a restart clears."""
    with suppress(OSError):  # no place there: PyTorch's own folder will do
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


class Compiled(nn.Module):
    """`model`, compiled by torch.compile with the compiler's `options`, its products by `library`. Where
    there is no C++ compiler (or no Triton) it says so once and is the model itself."""

    def __init__(self, model: nn.Module, library: str, say: Callable, *, dynamic=None, **options) -> None:
        super().__init__()
        self.model, self.say = model, say
        if library == "oneDNN":
            options["post_grad_custom_post_pass"] = compiler_pass()
        twin = torch.compile(model, dynamic=dynamic, options=options)
        self.twin: list[Callable] = [twin]  # a list: no module, no parameters

    def forward(self, *arguments, **keywords):
        if not self.twin:
            return self.model(*arguments, **keywords)
        try:
            return self.twin[0](*arguments, **keywords)
        except (torch._dynamo.exc.TorchDynamoException, OSError) as error:  # OSError: no place for the cache
            self.twin.clear()
            self.say(f"not compiled, and slower for it: {' '.join(str(error).split()[:30])}")
            return self.model(*arguments, **keywords)


def decoder(model: GPT, library: str, say: Callable[[str], None]) -> Compiled:
    """The twin for one token at a time, whatever the length of the text so far. A wrapper in C++ makes
    small models faster; calls of oneDNN it makes slower."""
    return Compiled(model, library, say, dynamic=True, cpp_wrapper=library != "oneDNN")


def repays(what: str, times: int, seconds: float) -> bool:
    """Whether a cold compilation is worth it for so many tokens, or steps, of so many eager seconds."""
    return times * seconds * SAVED[what] > COLD[what]


def pays_for_text(model: GPT, texts: int, tokens: int) -> bool:
    """Whether to compile before writing so many tokens, for so many texts at once; by sixteen of them."""
    if tokens < 1000:
        return False
    started = time.perf_counter()
    for _ in generate(model, torch.zeros(texts, 1, dtype=torch.long, device=model.embed.weight.device), 16):
        pass
    return repays("token", tokens, (time.perf_counter() - started) / 16)


def settle(
    config: LoopConfig, model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, world: World
) -> LoopConfig:
    """`compile=auto` settled for so many more steps, by the quickest of at most three eager ones, whose
    gradients are thrown away: each that is too quick to repay it settles the question."""
    if config.compile != "auto":
        return config
    pays = steps > 0
    for _ in range(3):
        if not pays:
            break
        started = time.perf_counter()
        x, y = (world.share(ids.chunk(config.grad_accum)[0]).to(config.device) for ids in batch)
        loss_of(model, x, y, config.dtype).backward()
        model.zero_grad()
        if config.device == "cuda":
            torch.cuda.synchronize()
        pays = repays("step", steps, (time.perf_counter() - started) * config.grad_accum)
    return replace(config, compile="true" if world.told(pays) else "false")
