"""Attention is blind to order, so positions must be injected. There are three places to do it.

Shapes: B batch, T new positions, which begin at `offset` (the length of the cache), S = offset + T keys,
H heads, D = d_head, C = d_model. Tables are computed in float32: in bfloat16 neighbours merge above 256.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from model.config import ModelConfig, PositionConfig, check_fit


class Position(nn.Module):
    """No positions: every place does nothing. An encoding overrides one of the three.

    ValueError where the model's widths do not suit it.
    """
    def __init__(self, model: ModelConfig, position: PositionConfig) -> None:
        super().__init__()
        check_fit(model, position)
        self.model, self.theta = model, position.theta

    def embed(self, x: Tensor, offset: int) -> Tensor:
        """Place 1: added to the embeddings x (B, T, C)."""
        return x

    def rotation(self, x: Tensor, offset: int) -> Callable[[Tensor], Tensor] | None:
        """Place 2: a function that rotates q and k (B, H, T, D), made once for all layers."""
        return None

    def bias(self, x: Tensor, offset: int) -> Tensor | None:
        """Place 3: added to the scores, (H, T, S)."""
        return None


class Sinusoidal(Position):
    """sin(p / 10000^(2i/C)) and cos(...) in turn (Vaswani et al. 2017, arXiv 1706.03762, §3.5). As there
    the embeddings are multiplied by √C first, unless a norm follows anyway."""
    def embed(self, x: Tensor, offset: int) -> Tensor:
        T, C = x.shape[-2:]
        positions = torch.arange(offset, offset + T, device=x.device, dtype=torch.float32)
        angles = torch.outer(positions, frequencies(C, 10_000.0, x.device))  # (T, C/2)
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)  # (T, C)
        return (x if self.model.embed_norm else x * math.sqrt(C)) + table.to(x.dtype)


class Learned(Position):
    """One trained vector a position, as in GPT-2 (Radford et al. 2019): nothing beyond the last one."""
    def __init__(self, model: ModelConfig, position: PositionConfig) -> None:
        super().__init__(model, position)
        self.table = nn.Parameter(torch.empty(model.context_length, model.d_model))  # GPT draws it

    def embed(self, x: Tensor, offset: int) -> Tensor:
        end = offset + x.size(-2)
        if end > len(self.table):
            limit = f"a model trained to {len(self.table)}, the limit of learned embeddings"
            raise ValueError(f"{end} positions asked of {limit}; position=rope has none")
        return x + self.table[offset:end]


class RoPE(Position):
    """q and k turned by an angle proportional to their position, so that q·k depends on the distance
    alone (Su et al. 2021, arXiv 2104.09864). Dimension i is paired with i + D/2, as in Llama's weights."""
    def __init__(self, model: ModelConfig, position: PositionConfig) -> None:
        super().__init__(model, position)
        self.register_buffer("table", self.turns(model.context_length), persistent=False)

    def turns(self, length: int) -> Tensor:
        """(cos, cos) and (−sin, sin) of the angles at the first `length` positions, (2, length, D)."""
        cpu = torch.device("cpu")  # also where a model is built without memory, on the meta device
        positions = torch.arange(length, dtype=torch.float32, device=cpu)
        angles = torch.outer(positions, frequencies(self.model.d_head, self.theta, cpu))
        cos, sin = angles.cos(), angles.sin()  # (length, D/2)
        return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)))

    def rotation(self, x: Tensor, offset: int) -> Callable[[Tensor], Tensor]:
        end = offset + x.size(-2)
        table = self.table if end <= self.table.size(1) else self.turns(end).to(x.device)
        cos, sin = table[:, offset:end]  # (T, D) each

        def rotate(y: Tensor) -> Tensor:  # (B, H, T, D)
            a, b = y.chunk(2, -1)
            return torch.addcmul(y * cos, torch.cat((b, a), -1), sin).to(y.dtype)

        return rotate


class ALiBi(Position):
    """−slope · distance, added to the scores; the slopes are a geometric sequence over the heads
    (Press et al. 2021, arXiv 2108.12409). The bias takes H·T·S numbers."""
    def bias(self, x: Tensor, offset: int) -> Tensor:
        T = x.size(-2)
        slopes = torch.tensor(alibi_slopes(self.model.n_heads), device=x.device)
        query = torch.arange(offset, offset + T, device=x.device)[:, None]
        key = torch.arange(offset + T, device=x.device)
        return -slopes[:, None, None] * (query - key).clamp(min=0)  # (H, T, S)


def frequencies(width: int, theta: float, device: torch.device) -> Tensor:
    """theta^(−2i / width) for i < width / 2, in radians a position, float32, (width / 2,)."""
    return theta ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)


def alibi_slopes(n_heads: int) -> list[float]:
    """2^(−8h/H) for h = 1 … H; for other H than powers of two, the published mixture of two sequences."""
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-4 * h / power) for h in range(1, 2 * power, 2)]
    return slopes + between[: n_heads - power]


ENCODINGS = {"none": Position, "sinusoidal": Sinusoidal, "learned": Learned, "rope": RoPE, "alibi": ALiBi}
