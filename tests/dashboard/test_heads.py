"""Head scores: by hand on perfect heads, by formula on the uniform head, by words at the end."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dashboard import heads

T = 12
TOKENS = torch.tensor([3, 1, 4, 0, 5, 9, 3, 1, 4, 0, 5, 9])  # six tokens, then the same again


def head(look) -> torch.Tensor:
    """`(1, 1, T, T)`: a head whose query t attends to token `look(t)` alone."""
    weights = torch.zeros(1, 1, T, T)
    for t in range(T):
        weights[0, 0, t, look(t)] = 1
    return weights


PERFECT = {
    "previous_token": lambda t: max(t - 1, 0),
    "induction": lambda t: t - 5 if t >= 6 else t,
    "duplicate_token": lambda t: t - 6 if t >= 6 else t,
    "first_token": lambda t: 0,
    "current_token": lambda t: t,
}


def uniform(n_tokens: int) -> torch.Tensor:
    rows = torch.ones(n_tokens, n_tokens).tril()
    return (rows / rows.sum(-1, keepdim=True))[None, None]


def random_weights(seed: int, *shape: int) -> torch.Tensor:
    """Causal softmax rows: `(L, H, T, T)`."""
    scores = 3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return scores.masked_fill(torch.ones(shape[-2:]).triu(1).bool(), float("-inf")).softmax(-1)


@pytest.mark.parametrize("pattern", PERFECT)
def test_a_perfect_head_scores_one_and_is_named_for_it(pattern):
    scores = heads.scores(head(PERFECT[pattern]), TOKENS)
    assert scores[pattern].item() == 1
    assert scores["entropy"].item() == 0
    assert heads.name_head(scores, 0, 0) == pattern


def test_every_other_score_of_the_previous_token_head():
    """Query 1 sees its previous token in the first one; nothing else coincides."""
    scores = {
        name: value.item() for name, value in heads.scores(head(PERFECT["previous_token"]), TOKENS).items()
    }
    assert scores == pytest.approx(
        {
            "previous_token": 1,
            "induction": 0,
            "duplicate_token": 0,
            "first_token": 1 / 11,
            "current_token": 0,
            "entropy": 0,
        }
    )


def test_the_uniform_head_has_the_values_of_the_formulas():
    scores = {name: value.item() for name, value in heads.scores(uniform(T), TOKENS).items()}
    average = sum(1 / (t + 1) for t in range(1, T)) / (T - 1)
    second_half = sum(1 / (t + 1) for t in range(6, T)) / 6
    assert scores == pytest.approx(
        {
            "previous_token": average,
            "first_token": average,
            "current_token": average,
            "induction": second_half,
            "duplicate_token": second_half,
            "entropy": 1,
        }
    )


def test_induction_counts_every_earlier_copy_but_not_the_one_just_before():
    tokens = torch.tensor([7, 2, 7, 5, 7, 7])
    weights = torch.zeros(1, 1, 6, 6)
    weights[0, 0, 2] = torch.tensor([0, 0.6, 0.4, 0, 0, 0])  # one copy, at 0: successor 1
    weights[0, 0, 4] = torch.tensor([0, 0.1, 0, 0.2, 0.7, 0])  # copies at 0 and 2: successors 1 and 3
    weights[0, 0, 5] = torch.tensor([0, 0.1, 0, 0.1, 0.3, 0.5])  # 0, 2 and 4: successor 5 is the query itself
    assert heads.induction(weights, tokens).item() == pytest.approx((0.6 + 0.3 + 0.2) / 3)


def test_entropy_of_two_equal_halves():
    weights = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]])[None, None]
    expected = (1 + math.log(2) / math.log(3) + math.log(2) / math.log(4)) / 3
    assert heads.entropy(weights, torch.arange(4)).item() == pytest.approx(expected)


def test_entropy_of_attention_that_looks_both_ways_is_measured_against_all_tokens():
    assert heads.entropy(torch.full((1, 1, 8, 8), 1 / 8), torch.arange(8)).item() == pytest.approx(1)


@given(seed=st.integers(0, 2**31), n_tokens=st.integers(2, 20), vocabulary=st.integers(1, 8))
def test_scores_of_any_causal_rows_lie_between_zero_and_one(seed, n_tokens, vocabulary):
    weights = random_weights(seed, 2, 3, n_tokens, n_tokens)
    tokens = torch.randint(vocabulary, (n_tokens,), generator=torch.Generator().manual_seed(seed))
    for name, values in heads.scores(weights, tokens).items():
        assert values.shape == (2, 3)
        occasion = ~values.isnan()
        assert occasion.all() or name in ("induction", "duplicate_token")
        assert ((values[occasion] >= 0) & (values[occasion] <= 1 + 1e-6)).all()


def test_heads_do_not_mix():
    """Each (layer, head) gets the score that it would get alone."""
    weights = random_weights(0, 3, 2, T, T)
    together = heads.scores(weights, TOKENS)
    for layer in range(3):
        for h in range(2):
            alone = heads.scores(weights[layer, h][None, None], TOKENS)
            for name in together:
                torch.testing.assert_close(together[name][layer, h], alone[name][0, 0])


def test_without_a_repeated_token_there_is_no_copy_to_look_at():
    scores = heads.scores(uniform(5), torch.arange(5))
    assert scores["induction"].isnan() and scores["duplicate_token"].isnan()
    assert heads.strongest(scores, 0, 0)[0] in ("previous_token", "first_token", "current_token")


def test_each_score_is_read_from_its_own_probe():
    previous, induction = head(PERFECT["previous_token"]), head(PERFECT["induction"])
    read = {"text": heads.scores(previous, torch.arange(T)), "repeats": heads.scores(induction, TOKENS)}
    scores = heads.probe_scores(read)
    assert (scores["previous_token"].item(), scores["induction"].item()) == (1, 1)


def test_a_head_is_mixed_until_a_pattern_has_half_of_its_attention():
    mixed = {name: torch.tensor([[0.49]]) for name in heads.PATTERNS}
    assert heads.name_head(mixed, 0, 0) == "mixed"
    assert heads.name_head(mixed | {"induction": torch.tensor([[0.5]])}, 0, 0) == "induction"


def test_layer_maxima_are_tagged_by_layer():
    maxima = heads.layer_maxima({"induction": torch.tensor([[0.1, 0.4], [0.9, 0.2]])})
    assert maxima == pytest.approx({"heads/induction/max_L0": 0.4, "heads/induction/max_L1": 0.9})


def recorded(step: int, **found: list[list[float]]) -> tuple[int, dict]:
    zero = torch.zeros(2, 2)
    return step, {name: torch.tensor(found[name]) if name in found else zero for name in heads.SCORES}


def test_describe_names_heads_and_the_step_since_which_they_are_clear():
    history = [
        recorded(0, previous_token=[[0.1, 0.1], [0.1, 0.1]]),
        recorded(100, previous_token=[[0.1, 0.1], [0.1, 0.7]]),
        recorded(200, previous_token=[[0.1, 0.1], [0.1, 0.4]], induction=[[0.5, 0], [0, 0]]),
        recorded(300, previous_token=[[0.1, 0.1], [0.1, 0.8]], induction=[[0.6, 0], [0, 0]]),
        recorded(400, previous_token=[[0.1, 0.1], [0.1, 0.91]], induction=[[0.6, 0], [0, 0]]),
    ]
    assert heads.describe(history) == [
        "L1H1 looks at the previous token: 0.91, since step 300",  # the 0.7 at step 100 did not last
        "L0H0 looks at what followed this token last time (induction): 0.60, since step 200",
    ]


def test_describe_says_so_when_nothing_is_clear_or_nothing_recorded():
    (line,) = heads.describe([recorded(0, first_token=[[0.1, 0.3], [0.2, 0.1]])])
    assert line.startswith("no head has a clear pattern yet") and "L0H1" in line and "0.30" in line
    assert heads.describe([]) == []


def test_many_sinks_do_not_hide_the_one_induction_head():
    sinks = torch.linspace(0.9, 0.99, 16).view(4, 4)
    induction = torch.zeros(4, 4)
    induction[2, 1] = 0.55
    sinks[2, 1] = 0.1
    scores = {name: torch.zeros(4, 4) for name in heads.SCORES} | {
        "first_token": sinks,
        "induction": induction,
    }
    lines = heads.describe([(0, scores)])
    assert len(lines) == 6
    assert lines[0].startswith("L3H3 rests on the first token (attention sink): 0.99")
    assert lines[-1].startswith("L2H1 looks at what followed")


def test_since_admits_that_a_resumed_run_did_not_see_its_beginning():
    one = {"current_token": [[0.9, 0], [0, 0]]}
    assert heads.describe([recorded(0, **one), recorded(50, **one)]) == [
        "L0H0 stays on the token itself: 0.90, since step 0"
    ]
    assert heads.describe([recorded(150, **one), recorded(200, **one)])[0].endswith(
        "since step 150 or earlier"
    )


@given(vocabulary=st.integers(2, 40), length=st.integers(1, 60), seed=st.integers(0, 1000))
def test_repeated_tokens(vocabulary, length, seed):
    ids = heads.repeated_tokens(vocabulary, length, seed, avoid=(1,))
    half = (length + 1) // 2
    assert len(ids) == length
    assert ids.min() >= 0 and ids.max() < vocabulary and 1 not in ids
    assert ids[half:].tolist() == ids[: length - half].tolist()
    counts = ids[:half].bincount(minlength=vocabulary)[torch.arange(vocabulary) != 1]
    assert counts.max() - counts.min() <= 1  # no token again before all have been drawn
    assert ids.tolist() == heads.repeated_tokens(vocabulary, length, seed, avoid=(1,)).tolist()


def test_repeated_tokens_depend_on_the_seed():
    assert heads.repeated_tokens(1000, 32, 0).tolist() != heads.repeated_tokens(1000, 32, 1).tolist()
