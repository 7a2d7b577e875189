"""The variance of q·k is d_k, and what follows."""

import math

import pytest
import torch

from model.attention import fused_attention
from studies import scaling


@pytest.mark.parametrize("d", [8, 64])
def test_the_variance_of_a_dot_product_is_the_width(d):
    assert scaling.random_scores(d, True)["variance"] == pytest.approx(d, rel=0.05)


def test_without_the_factor_the_softmax_saturates_with_it_it_does_not():
    narrow, wide = (scaling.random_scores(d, False) for d in (8, 512))
    assert narrow["largest"] < 0.5 and wide["largest"] > 0.9 and wide["median q"] < narrow["median q"] / 10
    assert wide["q"] > narrow["q"]  # half true: the few queries that are undecided get all the more
    narrow, wide = (scaling.random_scores(d, True) for d in (8, 512))
    assert abs(narrow["largest"] - wide["largest"]) < 0.02


def test_unscaled_is_the_definition_without_the_factor():
    q, k, v = torch.randn(3, 2, 1, 5, 16, generator=torch.Generator().manual_seed(0))
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = (q @ k.mT).masked_fill(hidden, -math.inf).softmax(-1) @ v
    torch.testing.assert_close(scaling.unscaled(q, k, v, causal=True)[0], expected)


@pytest.mark.parametrize("attend", [fused_attention, scaling.unscaled])
def test_scores_are_read_without_touching_the_model(make_gpt, attend):
    model, x = make_gpt(qk_norm=False), torch.randint(50, (2, 12), generator=torch.Generator().manual_seed(0))
    for block in model.blocks:
        block.attention.attend = attend
    before = model(x)
    found = scaling.scores(model, x)
    assert all(block.attention.attend is attend for block in model.blocks)
    assert torch.equal(model(x), before)
    if attend is fused_attention:
        expected = model.attention_maps(x)[..., 10:, :].amax(-1).mean()
        assert found["largest"] == pytest.approx(expected.item(), abs=1e-5)


def test_without_the_factor_scores_are_larger_by_it(make_gpt):
    model, x = make_gpt(n_layers=1, qk_norm=False), torch.arange(12)[None]
    found = []
    for attend in (fused_attention, scaling.unscaled):
        model.blocks[0].attention.attend = attend
        found.append(scaling.scores(model, x)["std"])
    assert found[1] == pytest.approx(found[0] * math.sqrt(8), rel=1e-5)
