"""What a layer has already computed: the keys and values of the tokens so far."""

import torch
from torch import Tensor

from model.config import ModelConfig


class KVCache:
    """One layer's keys and values, (B, H, capacity, D) each, of which the first `length` are filled.

    Zero-filled, since NaN behind a mask still poisons; keys are stored after their rotation. Every
    layer has its own, with its own length, so that no layer can advance another's. `last`, (B, 1), is the
    newest token's id, kept by the first layer for a model with a bigram embedding.
    """
    def __init__(self, B: int, H: int, capacity: int, D: int, *, device=None, dtype=torch.float32) -> None:
        # One position more than is ever filled: what is filled is then never the whole tensor, which
        # PyTorch's compiler would take for another case, and compile again.
        self.k = torch.zeros(B, H, capacity + 1, D, device=device, dtype=dtype)
        self.v = torch.zeros_like(self.k)
        self.capacity, self.length = capacity, 0
        self.last: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store T more (B, H, T, D); all so far (B, H, length, D). ValueError when they do not fit."""
        start, end = self.length, self.length + k.size(-2)
        if end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} positions; {end} are too many")
        self.k[:, :, start:end] = k
        self.v[:, :, start:end], self.length = v, end
        return self.k[:, :, :end], self.v[:, :, :end]


def make_cache(model: ModelConfig, batch: int, *, device=None, dtype=torch.float32) -> list[KVCache]:
    """One empty cache a layer, for `batch` texts of at most context_length tokens."""
    shape = (batch, model.n_heads, model.context_length, model.d_head)
    return [KVCache(*shape, device=device, dtype=dtype) for _ in range(model.n_layers)]
