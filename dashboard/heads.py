"""What a head is doing, as numbers and a name.

Shapes: L layers, H heads, T tokens. `weights` is `(L, H, T, T)`: row t holds what query t attends to; it sums
to 1, and where attention is causal it is 0 after t. `tokens` is `(T,)`. Every score is `(L, H)` in [0, 1]: a
mean over the queries that can show the pattern, NaN where none can (a single token; no token twice). Layers
and heads count from 0, as is usual: L1H3 is the fourth head of the second layer.
"""

import torch
from torch import Tensor

CLEAR = 0.5  # a pattern is clear once half of a head's attention goes where the pattern says


def previous_token(weights: Tensor, tokens: Tensor) -> Tensor:
    """mean over t ≥ 1 of w[t, t − 1]: attention to the token just before.

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits": in an early layer such a head is
    the first half of an induction circuit.
    """
    return weights.float().diagonal(-1, dim1=-2, dim2=-1).mean(-1)


def induction(weights: Tensor, tokens: Tensor) -> Tensor:
    """mean over t of Σ w[t, s + 1] over earlier copies s of token t: attention to what followed it last time.

    A copy just before t is left out, since what followed it is t itself. Olsson et al. 2022 (arXiv
    2209.11895) call this prefix matching and measure it where only the repetition can help.
    """
    copies = _earlier_copies(tokens.to(weights.device))
    successors = torch.zeros_like(copies)
    successors[:, 1:] = copies[:, :-1]
    return _attention_to(weights, successors.tril(-1))


def duplicate_token(weights: Tensor, tokens: Tensor) -> Tensor:
    """mean over t of Σ w[t, s] over earlier copies s of token t: attention to the same token, seen before.

    Wang et al. 2022 (arXiv 2211.00593).
    """
    return _attention_to(weights, _earlier_copies(tokens.to(weights.device)))


def first_token(weights: Tensor, tokens: Tensor) -> Tensor:
    """mean over t ≥ 1 of w[t, 0]: attention parked on the first token, the "attention sink".

    Rows sum to 1, so a head with nothing to say must put its weight somewhere. Xiao et al. 2023 (arXiv
    2309.17453).
    """
    return weights.float()[..., 1:, 0].mean(-1)


def current_token(weights: Tensor, tokens: Tensor) -> Tensor:
    """mean over t ≥ 1 of w[t, t]: attention that stays on the token itself.

    In BERT few heads do that (Clark et al. 2019, arXiv 1906.04341, §3.1).
    """
    return weights.float().diagonal(dim1=-2, dim2=-1)[..., 1:].mean(-1)


def entropy(weights: Tensor, tokens: Tensor) -> Tensor:
    """mean over t ≥ 1 of −Σ w[t] log w[t] / log n(t): 1 = spread evenly, 0 = all on one token.

    n(t) is the number of tokens that t can see: t + 1, or all T if any weight lies on a later token. Clark et
    al. 2019 (arXiv 1906.04341) tell broad heads from sharp ones by the entropy; the divisor makes texts of
    any length comparable.
    """
    weights = weights.float()
    nats = torch.special.entr(weights).sum(-1)[..., 1:]  # (L, H, T - 1)
    visible = torch.arange(2, weights.shape[-1] + 1, device=weights.device)
    if weights.triu(1).any():
        visible = torch.full_like(visible, weights.shape[-1])
    return (nats / visible.log()).mean(-1)


# Each score with the probe it is read from. Copies are where we planted them only in random tokens, repeated
# (`repeated_tokens`); where a head looks otherwise is its habit on ordinary text.
SCORES = {
    "previous_token": (previous_token, "text"),
    "induction": (induction, "repeats"),
    "duplicate_token": (duplicate_token, "repeats"),
    "first_token": (first_token, "text"),
    "current_token": (current_token, "text"),
    "entropy": (entropy, "text"),
}

PATTERNS = {  # the scores that say where a head looks, in words
    "previous_token": "looks at the previous token",
    "induction": "looks at what followed this token last time (induction)",
    "duplicate_token": "looks at earlier copies of this token",
    "first_token": "rests on the first token (attention sink)",
    "current_token": "stays on the token itself",
}


def scores(weights: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """Every score, all read from one text."""
    return {name: score(weights, tokens) for name, (score, _) in SCORES.items()}


def probe_scores(read: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """Each score from the probe that suits it; `read` holds the `scores` of "text" and of "repeats"."""
    return {name: read[probe][name] for name, (_, probe) in SCORES.items()}


def layer_maxima(scores: dict[str, Tensor]) -> dict[str, float]:
    """The largest of each score in each layer, under its scalar's tag: `heads/<score>/max_L<layer>`."""
    return {
        f"heads/{name}/max_L{layer}": value
        for name, values in scores.items()
        for layer, value in enumerate(values.amax(1).tolist())
    }


def strongest(scores: dict[str, Tensor], layer: int, head: int) -> tuple[str, float]:
    """The pattern with a head's largest score, and that score. NaN counts as 0."""
    values = {name: scores[name][layer, head].nan_to_num(0.0).item() for name in PATTERNS}
    name = max(values, key=values.get)
    return name, values[name]


def name_head(scores: dict[str, Tensor], layer: int, head: int) -> str:
    """A head's strongest pattern if that score is at least one half (`CLEAR`), else "mixed"."""
    name, value = strongest(scores, layer, head)
    return name if value >= CLEAR else "mixed"


def describe(history: list[tuple[int, dict[str, Tensor]]], limit: int = 6) -> list[str]:
    """The most telling heads in words: "L1H3 looks at the previous token: 0.91, since step 400".

    `history` holds (step, scores) in the order of steps. "since" is the first recorded step from which the
    score has stayed at least one half. One sentence if no head is clear, nothing if nothing was recorded.
    """
    if not history:
        return []
    last = history[-1][1]
    layers, heads = last["previous_token"].shape
    found = [(layer, head, *strongest(last, layer, head)) for layer in range(layers) for head in range(heads)]
    found.sort(key=lambda one: one[3], reverse=True)
    layer, head, name, score = found[0]
    if score < CLEAR:
        return [f"no head has a clear pattern yet; nearest: L{layer}H{head} {PATTERNS[name]}: {score:.2f}"]
    clear = [one for one in found if one[3] >= CLEAR]
    best = {one[2]: one for one in reversed(clear)}  # of each pattern: sinks must not hide an induction head
    told = [*best.values(), *(one for one in clear if one not in best.values())][:limit]
    return [
        f"L{layer}H{head} {PATTERNS[name]}: {score:.2f}, since step {_since(history, name, layer, head)}"
        for layer, head, name, score in sorted(told, key=clear.index)
    ]


def repeated_tokens(vocab_size: int, length: int, seed: int, avoid: tuple[int, ...] = ()) -> Tensor:
    """Random tokens, then the same again: `(length,)` ids, the textbook test for induction heads.

    The first half (the longer one) is drawn without replacement as far as the vocabulary goes, so that a copy
    is one that we planted. Ids in `avoid`, such as the end of text, are never drawn. Olsson et al. 2022
    (arXiv 2209.11895).
    """
    allowed = torch.tensor([i for i in range(vocab_size) if i not in avoid])
    assert len(allowed), (vocab_size, avoid)
    half = (length + 1) // 2
    generator = torch.Generator().manual_seed(seed)
    decks = [torch.randperm(len(allowed), generator=generator) for _ in range(0, half, len(allowed))]
    return allowed[torch.cat(decks)[:half]].repeat(2)[:length]


def _earlier_copies(tokens: Tensor) -> Tensor:
    """`(T, T)` boolean: [t, s] is True where s < t and both hold the same token."""
    return (tokens[:, None] == tokens).tril(-1)


def _attention_to(weights: Tensor, targets: Tensor) -> Tensor:
    """Attention to `targets`, a `(T, T)` boolean, averaged over the queries that have a target: `(L, H)`."""
    return (weights.float() * targets).sum(-1)[..., targets.any(-1)].mean(-1)


def _since(history: list[tuple[int, dict[str, Tensor]]], name: str, layer: int, head: int) -> str:
    """The first step of the last unbroken stretch at `CLEAR` or above."""
    since = history[-1][0]
    for step, scores in reversed(history):
        if not scores[name][layer, head] >= CLEAR:  # NaN is not clear either
            return str(since)
        since = step
    return f"{since} or earlier" if since > 0 else "0"  # a resumed run has not seen its own beginning
