"""One step of training: gradients of a batch, clipped, then better weights."""

import math

import torch
from torch import Tensor, nn

from model.noise import mix
from training.distributed import World
from training.evaluate import loss_of


class NotFinite(ArithmeticError):
    """A loss or a gradient is no longer a number; the weights have not been touched."""


def train_step(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], x: Tensor, y: Tensor, *,
    step: int, seed: int, factor: float, grad_accum: int = 1, grad_clip: float | None = None,
    dtype: str = "float32", world: World | None = None,
) -> tuple[float, float]:
    """The loss of the guesses for y (B, T) after x (B, T), and its gradient's norm; one update is made.

    The batch is computed in `grad_accum` equal pieces, each shared out among the processes of `world`: the
    same gradient as in one, with less memory and time. Every learning rate is its `initial_lr` times
    `factor`. Dropout's noise is a function of (seed, step, piece, rank). NotFinite, before the weights are
    touched, where training has blown up.
    """
    world = world or World()
    total = 0.0
    pieces = zip(x.chunk(grad_accum), y.chunk(grad_accum), strict=True)
    for piece, (ids, targets) in enumerate(pieces, 1):
        torch.manual_seed(mix(seed, step, piece, world.rank))
        with world.alone(model, last=piece == grad_accum):
            loss = loss_of(model, world.share(ids), world.share(targets), dtype) / grad_accum
            loss.backward()
        total += loss.item()
    total = world.add(total)[0] / world.size
    norm = nn.utils.clip_grad_norm_(model.parameters(), grad_clip or math.inf).item()
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise NotFinite(f"step {step + 1}: loss {total}, gradient norm {norm}")
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor
        optimizer.step()
        optimizer.zero_grad()
    return total, norm
