"""Induction circuits, and how they are watched."""

import pytest
import torch

from studies import circuit, common


def test_rows_repeat_with_periods_of_their_own():
    x, y = circuit.repeats(3, seed=1, batch=64)
    assert torch.equal(x[:, 1:], y[:, :-1]) and x.shape == (64, circuit.LENGTH)
    assert not torch.equal(x, circuit.repeats(4, seed=1, batch=64)[0])
    periods = set()
    for row in torch.cat((x, y[:, -1:]), 1):
        period = int((row == row[0]).nonzero()[1])  # where the first token comes again
        assert torch.equal(row[period:], row[:-period]) and len(set(row[:period].tolist())) == period
        periods.add(period)
    assert min(periods) >= 8 and max(periods) <= 32 and len(periods) > 10


def test_moments_are_read_off_a_history():
    def row(step, score, second):
        return {"step": step, "previous": [[0.1, score], [0.2, 0.0]], "second": second}

    history = [row(10, 0.1, 4.0), row(20, 0.3, 3.9), row(30, 0.6, 1.0), row(40, 0.4, 0.5)]
    assert circuit.most(history, "previous") == [0.2, 0.3, 0.6, 0.4]
    assert circuit.reached(history, "previous") == 30 and circuit.reached(history[:2], "previous") is None
    assert circuit.steepest(history) == 30


@pytest.mark.slow
def test_the_study_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RUNS", tmp_path)
    monkeypatch.setattr(circuit, "WORDS", [*circuit.WORDS, "train.max_steps=20"])
    history = circuit.formation("4 × 16", 1)
    assert [row["step"] for row in history] == [10, 20]
    assert all(3.9 < row[copy] < 4.5 for row in history for copy in ("first", "second"))  # log 64 = 4.16
    assert torch.tensor(history[-1]["ablation"]).shape == (2, 4)
    assert circuit.formation("4 × 16", 1) == history  # kept
    assert list((tmp_path / "circuit" / "4 × 16, seed 1").glob("events*"))
