"""Text, a token at a time: logits → penalty → temperature → top-k → top-p → min-p → draw.

Shapes: B texts written side by side, n tokens so far, V vocabulary, context_length at most in sight.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from model.cache import make_cache
from model.config import between
from model.gpt import GPT
from model.noise import mix


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. None or 0 (1 for the penalty) switches a step off."""
    temperature: float = 1.0  # 0 (or nearer to it than float32 can tell) = always the likeliest
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for key, most in (("temperature", 1e6), ("top_k", 2**63), ("top_p", 1), ("min_p", 1)):
            between(key, getattr(self, key), 0, most)
        between("repetition_penalty", self.repetition_penalty, 0.001, 1000)


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits (B, V) of tokens already `seen` (B, V), boolean
    (Keskar et al. 2019, arXiv 1909.05858)."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Hide all but the k likeliest (B, V); a k above V keeps all."""
    least = logits.topk(min(k, logits.size(-1))).values[:, -1:]
    return logits.masked_fill(logits < least, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Hide all but the likeliest tokens whose probabilities first reach p together
    (Holtzman et al. 2019, arXiv 1904.09751); at least one stays."""
    ordered, index = logits.sort(-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)  # what the likelier ones have
    before[:, 0] = -1.0
    return logits.masked_fill((before >= p).scatter(-1, index, before >= p), float("-inf"))


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Hide tokens less than p times as likely as the likeliest (Nguyen et al. 2024, arXiv 2407.01082)."""
    least = logits.amax(-1, keepdim=True) + math.log(p)
    return logits.masked_fill(logits < least, float("-inf"))


def draw(logits: Tensor, uniform: Tensor | None) -> Tensor:
    """One id a row, (B, V) → (B,): the first at which the probabilities, added up, exceed `uniform` (B, 1),
    a number in [0, 1), so that each is drawn with its probability; without such numbers the likeliest."""
    if uniform is None:
        return logits.argmax(-1)
    total = logits.softmax(-1).cumsum(-1, dtype=torch.float64)  # in float32 the last could round down to u
    return (total <= uniform * total[:, -1:]).sum(-1)


def choose_next(logits: Tensor, seen: Tensor | None, uniform: Tensor, sampling: Sampling) -> Tensor:
    """The next id (B,) from logits (B, V); `seen` (B, V) is needed for a penalty alone."""
    if sampling.repetition_penalty != 1:
        logits = penalise(logits, seen, sampling.repetition_penalty)
    if sampling.temperature < 1e-30:
        return draw(logits, None)
    logits = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature  # no overflow upwards
    filters = (keep_top_k, sampling.top_k), (keep_top_p, sampling.top_p), (keep_min_p, sampling.min_p)
    for keep, setting in filters:
        logits = keep(logits, setting) if setting else logits
    return draw(logits, uniform)


def window_start(n: int, context_length: int) -> int:
    """Where the model begins to read a text of n tokens: it moves in jumps of half a window, so that a
    cache is refilled once a jump. (Sliding a cache is not the same as reading the cropped text.)"""
    jump = max(1, context_length // 2)
    return max(0, -(-(n - context_length) // jump) * jump)


@torch.inference_mode()
def generate(
    model: GPT, prompt: Tensor, max_new_tokens: int, sampling: Sampling | None = None, *,
    seed: int = 0, cache: bool = True, end: int | None = None, decode: Callable | None = None,
) -> Iterator[Tensor]:
    """Yield the next ids (B,), up to max_new_tokens times, for prompts (B, n ≥ 1). Each row draws
    with its own noise, from (seed, row) alone. Ends early when every row has drawn `end`. With and
    without `cache` the logits are the same to rounding; `decode`, a faster twin of the model, computes
    those of single tokens. A prompt longer than the context is cut to its last tokens, with a warning.
    """
    model.check(prompt)
    sampling = sampling or Sampling()
    context = model.config.context_length
    if prompt.size(1) > context:
        warnings.warn(f"{prompt.size(1)} tokens of prompt; the model sees the last {context}", stacklevel=2)
        prompt = prompt[:, -context:]
    B, first = prompt.shape
    ids = torch.empty(B, first + max_new_tokens, dtype=torch.long)
    ids[:, :first] = prompt
    rows = [torch.Generator().manual_seed(mix(seed, row)) for row in range(B)]
    uniform = torch.stack([torch.rand(max_new_tokens, generator=row) for row in rows])
    penalised = sampling.repetition_penalty != 1
    seen = torch.zeros(B, model.vocab_size, dtype=torch.bool).scatter_(1, ids[:, :first], True)
    done, start, caches = torch.zeros(B, dtype=torch.bool), -1, None
    for n in range(first, first + max_new_tokens):
        moved, start = start != window_start(n, context), window_start(n, context)
        if cache and moved:
            caches = make_cache(model.config, B, device=prompt.device, dtype=model.embed.weight.dtype)
        reread = moved or not cache
        forward = model if reread or decode is None else decode
        new = ids[:, start if reread else n - 1 : n].to(prompt.device)
        logits = forward(new, cache=caches)[:, -1].float().cpu()
        chosen = choose_next(logits, seen, uniform[:, n - first, None], sampling)
        if end is not None:
            chosen = torch.where(done, end, chosen)
            done |= chosen == end
        ids[:, n] = chosen
        if penalised:
            seen.scatter_(1, chosen[:, None], True)
        yield chosen
        if end is not None and bool(done.all()):
            return
