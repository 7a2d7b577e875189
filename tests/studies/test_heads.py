"""One head against many: the same weights, cut differently."""

import pytest

from studies import common, heads
from train import configure


def test_every_cut_has_as_many_weights_and_runs_as_the_note_has_it():
    from model.gpt import GPT

    sizes = set()
    for n in heads.HEADS:
        config = configure([f"model.n_heads={n}", *heads.WORDS])
        assert config.model.d_head * n == heads.WIDTH == config.model.d_model and not config.model.qk_norm
        model = GPT(512, config.model, config.position)
        sizes.add(sum(parameter.numel() for parameter in model.parameters()))
    assert len(sizes) == 1


@pytest.mark.slow
def test_the_study_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "RUNS", tmp_path)
    monkeypatch.setattr(heads, "WORDS", [*heads.WORDS, "train.max_steps=20"])
    found = heads.on_text(2, 1)
    assert 3 < found["loss"] < 6 and 0 < found["sharpest"] < 1 and found["worth"] > 0
    assert heads.on_text(2, 1) == found
