"""Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V        (Vaswani et al. 2017, arXiv 1706.03762)

A soft look-up in a dictionary: a query is compared with every key, the softmax turns the scores into
weights that sum to 1, and the answer is the mean of the values under those weights.

Shapes: B batch, H heads, T queries, S keys (S > T with a cache), D = d_head, C = d_model.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def hidden_keys(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """True where a query may not look: `mask`, or-ed with the keys that come after the query. The T
    queries are the last T of the S positions, so query t stands at position t + (S − T)."""
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask must be boolean, True = hidden; it is {mask.dtype} (is it a bias?)")
    T, S = q.size(-2), k.size(-2)
    if not causal or T == 1:  # nothing comes after the last position
        return mask
    future = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(1 + S - T)  # (T, S)
    return future if mask is None else future | mask


def scaled_dot_product_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, bias: Tensor | None = None, dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √D + bias) v, and the weights before dropout: the definition.

    q (B, H, T, D), k and v (B, H, S, D); mask, boolean, True = hidden, and bias broadcast to (B, H, T, S).
    Why √D: the dot product of two random vectors has variance D, and a softmax of large scores is a step
    whose gradient vanishes. A row that sees nothing is all zeros.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    hidden = hidden_keys(q, k, mask, causal)
    if hidden is not None:
        # -inf, not 0: exp(-inf) is 0, exp(0) is 1.
        scores = scores.masked_fill(hidden, float("-inf"))
    # A row of nothing but -inf would give NaN, and NaN gradients even if cleaned up later, so such rows are
    # neutralised before the softmax.
    blind = scores.amax(-1, keepdim=True) == float("-inf")
    attn = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return F.dropout(attn, dropout) @ v, attn  # (B, H, T, D), (B, H, T, S)


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *,
    causal: bool = False, bias: Tensor | None = None, dropout: float = 0.0,
) -> tuple[Tensor, None]:
    """The same output from PyTorch's fused kernel; the weights never exist, so None takes their place."""
    if k.size(-2) != v.size(-2):
        raise ValueError(f"{k.size(-2)} keys, {v.size(-2)} values")  # the kernel would drop some in silence
    if causal and mask is None and bias is None and 1 < q.size(-2) == k.size(-2):
        # is_causal is aligned to the top left: it means ours only when T == S.
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True), None
    allowed = bias if bias is None else bias.to(q.dtype)
    hidden = hidden_keys(q, k, mask, causal)
    if hidden is not None:
        # PyTorch's boolean mask means the opposite of ours: True = may be seen.
        allowed = ~hidden if bias is None else torch.where(hidden, float("-inf"), allowed)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout), None


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own D of the features, mixed by `out`. One fused Linear,
    `qkv`, makes all three projections; `q_norm` and `k_norm` act on each head's vectors; `attend` is one
    of the two functions above."""
    def __init__(
        self, d_model: int = 512, n_heads: int = 8, *, d_head: int | None = None, bias: bool = True,
        q_norm: nn.Module | None = None, k_norm: nn.Module | None = None,
        dropout: float = 0.0, attend: Callable = fused_attention,
    ) -> None:
        super().__init__()
        if n_heads < 1 or (d_head is None and d_model % n_heads):
            raise ValueError(f"n_heads={n_heads} does not divide d_model={d_model}")
        self.d_model, self.n_heads, self.d_head = d_model, n_heads, d_head or d_model // n_heads
        self.qkv = nn.Linear(d_model, 3 * n_heads * self.d_head, bias=bias)
        self.out = nn.Linear(n_heads * self.d_head, d_model, bias=bias)
        self.q_norm, self.k_norm = q_norm or nn.Identity(), k_norm or nn.Identity()
        self.dropout, self.attend = dropout, attend

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False,
        rotate: Callable[[Tensor], Tensor] | None = None, bias: Tensor | None = None,
        cache=None, record: list | None = None,
    ) -> Tensor:
        """x (B, T, C) → (B, T, C). A list `record` gets the weights (B, H, T, S), by the definition."""
        if x.dim() != 3 or x.size(-1) != self.d_model or not x.numel():
            raise ValueError(f"x has shape {tuple(x.shape)}, not (batch, length, d_model={self.d_model})")
        if mask is not None and mask.dim() == 3:
            raise ValueError(f"mask {tuple(mask.shape)} has no axis for the heads; mask[:, None] has one")
        B, T, _ = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_heads, self.d_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, D)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotate is not None:
            q, k = rotate(q), rotate(k)
        if cache is not None:
            k, v = cache.append(k, v)  # (B, H, S, D)
        attend = self.attend if record is None else scaled_dot_product_attention
        dropout = self.dropout if self.training else 0.0  # the fused kernel would drop in eval() too
        out, attn = attend(q, k, v, mask, causal=causal, bias=bias, dropout=dropout)
        if record is not None:
            record.append(attn.detach())
        return self.out(out.transpose(1, 2).reshape(B, T, -1))  # (B, T, H, D) → (B, T, C)


def _demo() -> None:
    """Five words and the three steps, in numbers."""
    words = ["the", "cat", "saw", "the", "dog"]
    torch.manual_seed(2)
    vectors = torch.randn(5, 8)[[0, 1, 2, 0, 4]]  # (T, D): each word is its own q, k and v
    q = k = v = vectors[None, None]  # (B, H, T, D)
    out, attn = scaled_dot_product_attention(q, k, v, causal=True)
    print("Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, for five words that may look back but not ahead")
    steps = {
        "1. scores = Q Kᵀ / √d_k: how well each query (row) matches each key (column)": q @ k.mT / 8**0.5,
        "2. weights = softmax(scores), with -inf where a key is hidden; each row sums to 1": attn,
        "3. output = weights · V, the mean of the values under those weights; 8 features": out,
    }
    for step, rows in steps.items():
        print(f"\n{step}\n" + " " * 9 + "".join(f"{word:>7}" for word in words if rows is not out))
        for word, row in zip(words, rows[0, 0], strict=True):
            print(f"{word:>9}" + "".join(f"{x:7.2f}" if x else "      ·" for x in row))
    error = (out - fused_attention(q, k, v, causal=True)[0]).abs().max()
    print(f"\nThe second “the” finds the first: same word, same key. Fused kernel differs by {error:.0e}.")


if __name__ == "__main__":
    _demo()
