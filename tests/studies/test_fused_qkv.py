"""One Linear and three are the same projection."""

import pytest

from studies import fused_qkv


@pytest.mark.parametrize("width", [16, 256])
def test_one_and_three_agree_forward_and_backward(width):
    assert max(fused_qkv.apart(width).values()) < 1e-6


def test_one_and_three_have_the_same_parameters():
    one, three = fused_qkv.pair(32)
    assert [sum(p.numel() for p in module.parameters()) for module in (one, three)] == [3 * 32 * 32] * 2


def test_times_are_taken_in_turn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fused_qkv, "SECONDS", 0.002)
    found = fused_qkv.compute(16, 4)
    assert all(len(rounds) == fused_qkv.ROUNDS for times in found.values() for rounds in times.values())
    assert all(seconds > 0 for times in found.values() for rounds in times.values() for seconds in rounds)
    assert fused_qkv.ratios({"one": [1.0, 2.0], "three": [3.0, 3.0]}) == [3.0, 1.5]
