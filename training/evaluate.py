"""The loss: where training and validation compute it."""

from collections.abc import Iterable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def loss_of(model: nn.Module, x: Tensor, y: Tensor, dtype: str = "float32") -> Tensor:
    """Mean cross-entropy in nats a token of the model's guesses for y (B, T) after x (B, T)."""
    mixed = torch.autocast(x.device.type, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    with mixed:
        logits = model(x)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(
    model: nn.Module, windows: Iterable[tuple[Tensor, Tensor]], *, device: str, dtype: str = "float32"
) -> float:
    """Nats a token over all windows, in eval mode; the model is left in the mode it came in."""
    training = model.training
    model.eval()
    total, tokens = 0.0, 0
    for x, y in windows:
        total += loss_of(model, x.to(device), y.to(device), dtype).item() * y.numel()
        tokens += y.numel()
    model.train(training)
    return total / tokens
