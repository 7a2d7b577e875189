"""What a layer has already computed: the keys and values of the tokens so far."""

import torch
from torch import Tensor

from model.config import ModelConfig


class KVCache:
    """One layer's keys and values, (B, H, capacity, D) each, of which the first `length` are filled.

    Zero-filled, since NaN behind a mask still poisons; keys are stored after their rotation. Every
    layer has its own, with its own length, so that no layer can advance another's.
    """
    def __init__(self, *shape: int, device=None, dtype=torch.float32) -> None:
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros_like(self.k)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store T more (B, H, T, D); all so far (B, H, length, D). ValueError when they do not fit."""
        start, end = self.length, self.length + k.size(-2)
        if end > self.k.size(-2):
            raise ValueError(f"the cache holds {self.k.size(-2)} positions; {end} are too many")
        self.k[:, :, start:end] = k
        self.v[:, :, start:end], self.length = v, end
        return self.k[:, :, :end], self.v[:, :, :end]


def make_cache(model: ModelConfig, batch: int, *, device=None, dtype=torch.float32) -> list[KVCache]:
    """One empty cache a layer, for `batch` texts of at most context_length tokens."""
    shape = (batch, model.n_heads, model.context_length, model.d_head)
    return [KVCache(*shape, device=device, dtype=dtype) for _ in range(model.n_layers)]
