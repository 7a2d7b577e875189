"""Where the weight goes when it may not look ahead."""

import math

import pytest
import torch

from model.attention import scaled_dot_product_attention
from studies import masking


def test_minus_infinity_is_the_definition():
    q, k, v = torch.randn(3, 2, 4, 9, 8, generator=torch.Generator().manual_seed(0))
    found = masking.filled("−∞", q, k, v, causal=True)
    expected = scaled_dot_product_attention(q, k, v, causal=True)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_each_way_leaks():
    found = {way: masking.leak(way) for way in masking.WAYS}
    for way in ("−∞", "−10⁹"):  # nothing, to the last bit
        assert found[way]["ahead"] == found[way]["by values"] == found[way]["by keys"] == 0
        assert found[way]["sum"] == pytest.approx(1, abs=1e-6)
    assert math.isnan(found["−∞"]["blind"]) and found["−10⁹"]["blind"] == pytest.approx(1, abs=1e-6)
    # In the first row, one key with exp(score) and 63 with exp(0) = 1.
    assert 0.97 < found["0"]["first row"] < 1 and found["0"]["by values"] > 0.1
    assert 0 < found["−10"]["ahead"] < 0.01
    # After the softmax nothing lies on later tokens, but their keys were in the denominator.
    assert found["0 after"]["ahead"] == found["0 after"]["by values"] == 0
    assert found["0 after"]["by keys"] > 0.1 and found["0 after"]["sum"] == pytest.approx(65 / 128, rel=0.05)


def test_zero_gives_each_hidden_token_the_weight_of_a_score_of_zero():
    q = torch.zeros(1, 1, 4, 8)
    weights = masking.filled("0", q, q, q, causal=True)[1]
    torch.testing.assert_close(weights, torch.full((1, 1, 4, 4), 0.25))


def test_the_loss_by_position_averages_to_the_loss(make_gpt, monkeypatch):
    from types import SimpleNamespace

    import numpy as np

    from studies.common import validation_loss

    monkeypatch.setattr(masking, "LENGTH", 12)
    text = SimpleNamespace(validation=np.random.default_rng(0).integers(0, 50, 12 * 20 + 1).astype("uint16"))
    model = make_gpt()
    found = masking.loss_by_position(model, text)
    assert len(found) == 12 and sum(found) / 12 == pytest.approx(validation_loss(model, text, 12), rel=1e-5)
