"""Positions: how a score depends on the distance, and what happens beyond the trained length."""

import math

import numpy as np
import pytest
import torch

from studies import common, positions


def test_ropes_score_of_a_key_with_itself_is_a_sum_of_cosines():
    same, other, deviation = positions.rope_scores(32, 65)
    angles = torch.outer(torch.arange(65.0), 10_000 ** (-torch.arange(0, 32, 2) / 32))
    expected = math.sqrt(32) * angles.cos().mean(1)  # E[q·R q] = Σ over the pairs of 2 cos θ
    torch.testing.assert_close(same, expected, atol=0.15, rtol=0)
    assert same[64] < 0.6 * same[0] and (same[1:] < same[0]).all()
    assert other.abs().max() < 0.1 and (deviation - 1).abs().max() < 0.1  # whatever the distance


def test_windows_of_every_length_ask_for_the_same_tokens():
    tokens = np.arange(1500, dtype="<u2")
    for times in positions.TIMES:
        x, y = positions.windows(tokens, times * positions.LENGTH)
        assert x.shape[1] == times * positions.LENGTH
        assert torch.equal(x.flatten(), torch.arange(1024))
        assert torch.equal(y.flatten(), torch.arange(1, 1025))


def test_losses_by_position_and_scores_by_distance(make_gpt):
    model = make_gpt("alibi", n_layers=1, n_heads=2, context_length=positions.LENGTH)
    x, y = torch.randint(50, (2, 20, positions.LENGTH), generator=torch.Generator().manual_seed(0))
    each = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none")
    loss = positions.by_position(model, x, y)
    torch.testing.assert_close(loss, each.view(20, -1).mean(0), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight.zero_()  # nothing left but the bias: −slope · distance
    scores = positions.head_scores(model, x)
    slopes = torch.tensor([2.0**-4, 2.0**-8])[None, :, None]
    fall = scores - scores[..., :1]
    torch.testing.assert_close(fall, -slopes * torch.arange(positions.LENGTH // 2), atol=1e-4, rtol=0)


@pytest.mark.slow
def test_the_study_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RUNS", tmp_path)
    monkeypatch.setattr(positions, "WORDS", [*positions.WORDS, "train.max_steps=20"])
    learned, rope = positions.measured("learned", 1), positions.measured("rope", 1)
    assert len(learned["lengths"]) == 1 and "limit of learned embeddings" in learned["refused"]
    assert len(rope["lengths"]) == len(positions.TIMES) and not rope["refused"]
    assert len(rope["by_position"]) == positions.TIMES[-1] * positions.LENGTH // positions.BIN
    assert abs(rope["lengths"][0] - rope["loss"]) < 0.05  # the same text but for its end
