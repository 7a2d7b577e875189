"""The loss, and the loss over a whole validation split."""

import math
from collections.abc import Iterable
from contextlib import nullcontext
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.distributed import World


def loss_of(model: nn.Module, x: Tensor, y: Tensor, dtype: str = "float32") -> Tensor:
    """Mean cross-entropy, in nats a token, of the guesses for y (B, T) after x (B, T)."""
    mixed = torch.autocast(x.device.type, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    with mixed:
        logits = model(x)  # (B, T, V)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(
    model: nn.Module, windows: Iterable[tuple[Tensor, Tensor]], *,
    device: str, dtype: str = "float32", world: World | None = None,
) -> float:
    """Nats a token over all windows, which the processes of `world` take in turn; the model should be in
    eval mode."""
    world = world or World()
    total, tokens = 0.0, 0
    for x, y in islice(windows, world.rank, None, world.size):
        total += loss_of(model, x.to(device), y.to(device), dtype).item() * y.numel()
        tokens += y.numel()
    total, tokens = world.add(total, tokens)
    return total / tokens


def bits_per_byte(nats: float, targets: int, text_bytes: int, unknown_bytes: int = 0) -> float:
    """Bits a UTF-8 byte of the original text, which no choice of tokenizer changes: `nats` a token over
    `targets` tokens, and 8 bits for each byte of a character that the tokenizer does not know."""
    return (nats * targets / math.log(2) + 8 * unknown_bytes) / text_bytes
