"""Cache and generation: every path gives the same text."""

import itertools
import warnings

import pytest
import torch

from model.cache import KVCache, make_cache
from model.generate import (
    Sampling,
    choose_next,
    draw,
    generate,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    window_start,
)
from model.position import ENCODINGS

CHUNKS = {"one by one": [1] * 12, "uneven": [3, 5, 1, 3], "whole": [12]}


@pytest.mark.parametrize(
    ("position", "attention", "chunks"),
    list(itertools.product([*ENCODINGS, "rope and pairs"], ["fused", "explicit"], CHUNKS)),
)
def test_cached_logits_are_the_uncached_ones(make_gpt, position, attention, chunks):
    encoding, _, pairs = position.partition(" and ")
    model, ids = make_gpt(encoding, attention, bigram_embedding=bool(pairs)), torch.randint(50, (3, 12))
    for _ in range(2):  # a second reading on the same model
        cache, done, pieces = make_cache(model.config, 3), 0, []
        for length in CHUNKS[chunks]:
            pieces.append(model(ids[:, done : done + length], cache=cache))
            done += length
        torch.testing.assert_close(torch.cat(pieces, 1), model(ids), atol=2e-5, rtol=1e-4)
        assert [layer.length for layer in cache] == [12, 12]


def test_a_full_cache_says_so():
    cache = KVCache(1, 1, 4, 2)
    cache.append(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
    with pytest.raises(ValueError, match="holds 4 positions; 5 are too many"):
        cache.append(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))


def test_a_cache_of_another_depth_is_refused(make_gpt):
    model = make_gpt()
    for cache in ([], make_cache(model.config, 1)[:1], make_cache(model.config, 1) * 2):
        with pytest.raises(ValueError, match=f"{len(cache)} layers of cache, but 2 of model"):
            model(torch.tensor([[1]]), cache=cache)


def test_the_window_moves_in_jumps_of_half_a_context():
    starts = [window_start(n, 8) for n in range(1, 22)]
    assert starts == [0] * 8 + [4] * 4 + [8] * 4 + [12] * 4 + [16]
    for n, context in itertools.product(range(1, 60), range(1, 12)):
        assert 1 <= n - window_start(n, context) <= context


def text_of(model, prompt, count, **settings):
    return torch.stack(list(generate(model, prompt, count, **settings)), 1)


def greedy_by_definition(model, prompt, count):
    """Read the window anew for every token."""
    ids = prompt
    for _ in range(count):
        start = window_start(ids.size(1), model.config.context_length)
        ids = torch.cat((ids, model(ids[:, start:])[:, -1].argmax(-1, keepdim=True)), 1)
    return ids[:, prompt.size(1) :]


@pytest.mark.parametrize("position", [*ENCODINGS, "rope and pairs"])
def test_text_that_runs_three_windows_past_the_context(make_gpt, position):
    encoding, _, pairs = position.partition(" and ")
    model, prompt = make_gpt(encoding, bigram_embedding=bool(pairs)), torch.randint(50, (2, 3))
    expected = greedy_by_definition(model, prompt, 45)
    assert torch.equal(text_of(model, prompt, 45, sampling=Sampling(temperature=0)), expected)
    assert torch.equal(text_of(model, prompt, 45, sampling=Sampling(temperature=0), cache=False), expected)
    hot = dict(sampling=Sampling(temperature=1.5), seed=3)
    assert torch.equal(text_of(model, prompt, 45, **hot), text_of(model, prompt, 45, cache=False, **hot))


def test_a_prompt_longer_than_the_context_is_cut_with_one_warning(make_gpt):
    model, prompt = make_gpt("learned"), torch.randint(50, (1, 30))
    with pytest.warns(UserWarning, match="30 tokens of prompt; the model sees the last 12") as caught:
        long = text_of(model, prompt, 20, seed=1)
    assert len(caught) == 1
    assert torch.equal(long, text_of(model, prompt[:, -12:], 20, seed=1))


def test_each_text_has_its_own_noise_and_the_same_seed_gives_the_same(make_gpt):
    model, prompt = make_gpt(), torch.tensor([[7]])
    four = text_of(model, prompt.expand(4, 1), 12, seed=5)
    assert len({tuple(row.tolist()) for row in four}) == 4
    assert torch.equal(four, text_of(model, prompt.expand(4, 1), 12, seed=5))
    assert torch.equal(four[:1], text_of(model, prompt, 12, seed=5))  # however many are written beside it
    assert not torch.equal(four, text_of(model, prompt.expand(4, 1), 12, seed=6))


def test_generation_ends_when_every_text_has_ended(make_gpt):
    model, prompt = make_gpt(), torch.randint(50, (2, 4))
    free = text_of(model, prompt, 40, seed=2)
    end = int(free[0, 3])
    ended = text_of(model, prompt, 40, seed=2, end=end)
    for row, whole in zip(ended, free, strict=True):
        stop = (whole == end).nonzero()
        length = int(stop[0]) + 1 if len(stop) else 40
        assert torch.equal(row[:length], whole[:length]) and (row[length:] == end).all()


def probabilities(logits, sampling, draws=20_000):
    """How often each id is drawn."""
    torch.manual_seed(0)
    rows = logits.expand(draws, -1)
    uniform = torch.rand(len(rows), 1)
    seen = torch.zeros_like(rows, dtype=torch.bool)
    seen[:, 0] = True
    drawn = choose_next(rows, seen, uniform, sampling)
    return torch.bincount(drawn, minlength=logits.numel()) / draws


def test_tokens_are_drawn_with_their_probabilities():
    p = torch.tensor([0.4, 0.3, 0.2, 0.1])
    for temperature in (0.5, 1.0, 2.0):
        expected = p ** (1 / temperature) / (p ** (1 / temperature)).sum()
        found = probabilities(p.log()[None], Sampling(temperature=temperature))
        torch.testing.assert_close(found, expected, atol=0.015, rtol=0)


@pytest.mark.parametrize(("sampling", "kept"), [
    (Sampling(top_k=2), [0.4, 0.3, 0, 0]),
    (Sampling(top_k=0), [0.4, 0.3, 0.2, 0.1]),
    (Sampling(top_k=10**6), [0.4, 0.3, 0.2, 0.1]),
    (Sampling(top_p=0.5), [0.4, 0.3, 0, 0]),
    (Sampling(top_p=0.39), [0.4, 0, 0, 0]),
    (Sampling(top_p=1.0), [0.4, 0.3, 0.2, 0.1]),
    (Sampling(top_p=0.0), [0.4, 0.3, 0.2, 0.1]),
    (Sampling(min_p=0.6), [0.4, 0.3, 0, 0]),
    (Sampling(top_k=3, top_p=0.75, min_p=0.1), [0.4, 0.3, 0, 0]),
    (Sampling(temperature=0), [1, 0, 0, 0]),
    (Sampling(temperature=1e-4), [1, 0, 0, 0]),
    (Sampling(temperature=1e-25), [1, 0, 0, 0]),
    (Sampling(temperature=1e-300), [1, 0, 0, 0]),
    (Sampling(repetition_penalty=2.0), [0.4**2, 0.3, 0.2, 0.1]),
])
def test_each_filter_keeps_what_it_says(sampling, kept):
    p = torch.tensor([0.4, 0.3, 0.2, 0.1])
    expected = torch.tensor(kept) / sum(kept)
    torch.testing.assert_close(probabilities(p.log()[None], sampling), expected, atol=0.015, rtol=0)


def test_the_filters_always_leave_something():
    logits = torch.randn(64, 50)
    for kept in (keep_top_k(logits, 1), keep_top_p(logits, 1e-9), keep_min_p(logits, 1.0)):
        assert torch.equal(kept.isfinite(), logits == logits.amax(-1, keepdim=True))


@pytest.mark.parametrize(("settings", "message"), [
    (dict(temperature=-1), "temperature=-1"),
    (dict(temperature=float("nan")), "temperature=nan"),
    (dict(top_k=-1), "top_k=-1"),
    (dict(top_p=1.5), "top_p=1.5: must be between 0 and 1"),
    (dict(repetition_penalty=0), "repetition_penalty=0"),
])
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**settings)


def test_prompts_that_cannot_work_are_refused(make_gpt):
    for prompt, message in ((torch.zeros(1, 0, dtype=torch.long), r"\(1, 0\)"), (torch.tensor([[99]]), "99")):
        with pytest.raises(ValueError, match=message):
            next(generate(make_gpt(), prompt, 5))


def test_nothing_is_left_behind_by_a_generation(make_gpt):
    model, prompt = make_gpt(), torch.randint(50, (1, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = generate(model, prompt, 30, seed=1), generate(model, prompt, 30, seed=1)
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))  # interleaved


def test_a_hidden_token_is_never_drawn_whatever_the_number():
    logits = torch.tensor([[-torch.inf, 0.3, -torch.inf, 1.1, -torch.inf]])
    last = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))  # the largest float32 below 1
    assert draw(logits, torch.tensor([[0.0]])).item() == 1
    assert draw(logits, last.view(1, 1)).item() == 3
    wide = torch.randn(1, 50_000).masked_fill(torch.arange(50_000) > 40_000, -torch.inf)
    assert draw(wide, last.view(1, 1)).item() <= 40_000


def test_the_beginning_of_a_text_does_not_depend_on_how_long_it_becomes(make_gpt):
    model, prompt = make_gpt(), torch.tensor([[7], [8]])
    assert torch.equal(text_of(model, prompt, 40, seed=5)[:, :9], text_of(model, prompt, 9, seed=5))


def test_single_tokens_are_computed_by_the_faster_twin_alone(make_gpt):
    model, lengths = make_gpt(), []

    def twin(ids, cache):
        lengths.append(ids.size(1))
        return model(ids, cache=cache)

    prompt = torch.randint(50, (1, 4))
    assert torch.equal(text_of(model, prompt, 30, decode=twin), text_of(model, prompt, 30))
    assert set(lengths) == {1} and 20 < len(lengths) < 30  # the prompt and moved windows are read whole
