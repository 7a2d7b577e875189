"""The decoder: ids (B, T) → logits (B, T, V), each position guessing the next token.

Order: embedding (+ bigram) → + position → norm → dropout → n_layers × block → norm → head.
Shapes: B batch, T positions, S keys, C = d_model, F = d_ff, H heads, D = d_head, V vocabulary.
"""

import math
from dataclasses import asdict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import MultiHeadAttention, fused_attention, scaled_dot_product_attention
from model.cache import KVCache
from model.config import AttentionConfig, ModelConfig, PositionConfig
from model.position import ENCODINGS

ATTEND = {"fused": fused_attention, "explicit": scaled_dot_product_attention}
ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu2": lambda x: F.relu(x).square(),  # So et al. 2021, arXiv 2109.08668
}


class RMSNorm(nn.RMSNorm):
    """x / rms(x) · gain (Zhang & Sennrich 2019, arXiv 1910.07467), in the precision x comes in."""
    def forward(self, x: Tensor) -> Tensor:
        gain = None if self.weight is None else self.weight.to(x.dtype)
        return F.rms_norm(x, self.normalized_shape, gain, self.eps)


def make_norm(config: ModelConfig) -> nn.Module:
    """x / rms(x), or (x − mean) / std; then a gain a feature if `norm_weight`."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.d_model, config.norm_eps, config.norm_weight)
    return nn.LayerNorm(config.d_model, config.norm_eps, config.norm_weight, bias=config.bias)


def make_qk_norm(config: ModelConfig, gain: float) -> nn.Module | None:
    """RMSNorm of each head's q or k (Henry et al. 2020, arXiv 2010.04245). It bounds |q·k| by D, so no
    score exceeds √D and narrow heads stay blunt: the gain on q starts where a head of any width can be as
    sharp as one of 128, at which it is 1."""
    if not config.qk_norm:
        return None
    norm = RMSNorm(config.d_head, config.norm_eps, config.norm_weight)
    if config.norm_weight:
        nn.init.constant_(norm.weight, gain)
    return norm


def make_dropout(config: ModelConfig) -> nn.Module:
    """Dropout of single numbers, and of whole tokens: of a token's embedding, or of all that a branch would
    add to it (per token what stochastic depth is per text: Huang et al. 2016, arXiv 1603.09382)."""
    parts = nn.Dropout(config.dropout), nn.Dropout1d(config.token_dropout)
    return nn.Sequential(*(part for part in parts if part.p))


class BigramEmbedding(nn.Embedding):
    """A vector for every pair of neighbours, so that each token comes with the one before it (Huang et al.
    2025, arXiv 2501.16975); the first token has one of its own. (V + 1) · V rows; ValueError for V > 512."""
    def __init__(self, vocab_size: int, d_model: int) -> None:
        if vocab_size > 512:
            many = f"{vocab_size}² pairs are too many for a table"
            raise ValueError(f"model.bigram_embedding=true: {many}; use tokenizer=char or byte")
        super().__init__((vocab_size + 1) * vocab_size, d_model)
        self.vocab_size = vocab_size

    def forward(self, ids: Tensor, before: Tensor | None = None) -> Tensor:
        """ids (B, T), and (B, 1) the tokens before them → (B, T, C)."""
        before = torch.full_like(ids[:, :1], self.vocab_size) if before is None else before
        return super().forward(torch.cat((before, ids[:, :-1]), 1) * self.vocab_size + ids)


class MLP(nn.Module):
    """down(f(up(x)))."""
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.mlp]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))  # (B, T, C) → (B, T, F) → (B, T, C)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) · up(x)) (Shazeer 2020, arXiv 2002.05202), gate and up in one Linear."""
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.d_model, 2 * config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, -1)  # (B, T, F) each
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): tokens talk, then each thinks for itself."""
    def __init__(self, config: ModelConfig, attention: AttentionConfig) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = make_norm(config), make_norm(config)
        self.attention = MultiHeadAttention(
            config.d_model, config.n_heads, d_head=config.d_head, bias=config.bias,
            q_norm=make_qk_norm(config, math.sqrt(128 / config.d_head)), k_norm=make_qk_norm(config, 1.0),
            dropout=config.attention_dropout, attend=ATTEND[attention.name],
        )
        self.mlp = SwiGLU(config) if config.mlp == "swiglu" else MLP(config)
        self.dropout = make_dropout(config)

    def forward(self, x: Tensor, *, rotate=None, bias=None, cache=None, record=None) -> Tensor:
        places = {"rotate": rotate, "bias": bias, "cache": cache, "record": record}
        x = x + self.dropout(self.attention(self.attention_norm(x), causal=True, **places))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """A decoder-only Transformer: `forward` returns logits, always."""
    def __init__(
        self, vocab_size: int, config: ModelConfig, position: PositionConfig,
        attention: AttentionConfig | None = None,
    ) -> None:
        super().__init__()
        attention = attention or AttentionConfig()
        self.vocab_size, self.config, self.parts = vocab_size, config, (position, attention)
        self.embed = nn.Embedding(vocab_size, config.d_model)
        self.pairs = BigramEmbedding(vocab_size, config.d_model) if config.bigram_embedding else None
        self.position = ENCODINGS[position.name](config, position)
        self.embed_norm = make_norm(config) if config.embed_norm else nn.Identity()
        self.dropout = make_dropout(config)
        self.blocks = nn.ModuleList(Block(config, attention) for _ in range(config.n_layers))
        self.norm = make_norm(config)
        self.head = None if config.tie_embeddings else nn.Linear(config.d_model, vocab_size, bias=False)
        self.draw_weights()

    def draw_weights(self) -> None:
        """Normal with a standard deviation of 0.02, as in GPT-2; but the ends of the residual branches and
        an untied head start at zero, so that the untrained model says nothing: loss = log V exactly."""
        for name, parameter in self.named_parameters():
            if name.endswith(("out.weight", "down.weight", "head.weight", ".bias")):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor, *, cache: list[KVCache] | None = None, record: list | None = None):
        """ids (B, T) → logits (B, T, V). With a `cache`, ids are the T tokens after those it holds; a list
        `record` gets each layer's attention weights (B, H, T, S), computed by the definition."""
        if not torch.compiler.is_compiling():
            self.check(ids)
        if cache is not None and len(cache) != len(self.blocks):
            raise ValueError(f"{len(cache)} layers of cache, but {len(self.blocks)} of model")
        offset = cache[0].length if cache else 0
        x = self.embed(ids)  # (B, T, C)
        if self.pairs is not None:
            x = x + self.pairs(ids, cache[0].last if cache else None)
            if cache:
                cache[0].last = ids[:, -1:]
        x = self.position.embed(x, offset)
        x = self.dropout(self.embed_norm(x))
        rotate, bias = self.position.rotation(x, offset), self.position.bias(x, offset)
        for layer, block in enumerate(self.blocks):
            x = block(x, rotate=rotate, bias=bias, cache=cache[layer] if cache else None, record=record)
        x = self.norm(x)
        return F.linear(x, self.embed.weight) if self.head is None else self.head(x)  # (B, T, V)

    def check(self, ids: Tensor) -> None:
        """ValueError for ids that are not a batch of token ids of this vocabulary."""
        if ids.dim() != 2 or ids.is_floating_point() or not ids.numel():
            raise ValueError(f"ids must be whole numbers (batch, length ≥ 1): {ids.dtype} {tuple(ids.shape)}")
        if ids.device.type == "cpu":  # elsewhere looking at the values would wait for the device
            low, high = (int(end) for end in ids.aminmax())
            if low < 0 or high >= self.vocab_size:
                raise ValueError(f"id {min(low, 0) or high} is outside the vocabulary of {self.vocab_size}")

    @torch.no_grad()
    def attention_maps(self, ids: Tensor) -> Tensor:
        """The weights of every layer and head for ids (B, T): (L, B, H, T, T), rows sum to 1."""
        record: list[Tensor] = []
        self(ids, record=record)
        return torch.stack(record)

    def describe(self) -> dict:
        """What it takes to build this model again, as plain data."""
        position, attention = (asdict(part) for part in self.parts)
        shape = {"vocab_size": self.vocab_size, "model": asdict(self.config)}
        return shape | {"position": position, "attention": attention}
