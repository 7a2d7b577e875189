"""What the studies share."""

import json

import pytest

from data.batches import Batches
from studies import common

SMALL = [
    "model.n_layers=1", "model.n_heads=2", "model.d_model=16", "model.context_length=16", "train.max_steps=4",
    "train.batch_size=4", "train.eval_every=4", "train.checkpoint_every=4", "log.attention_every=0",
    "log.sample_every=0", "tokenizer.vocab_size=280", "train.device=cpu", "train.compile=false",
]


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = (f"The {n} small cats saw {n * n} mice, and sat on mat {n % 7}.\n" for n in range(120))
    (tmp_path / "text.txt").write_text("".join(lines), encoding="utf-8")
    return ["data=file", "data.path=text.txt", *SMALL]


def test_a_run_is_trained_once_for_its_settings(words, capsys):
    folder, summary = common.trained("study", words)
    assert summary["step"] == 4 and (folder / "checkpoints" / "last").exists()
    assert common.trained("study", words) == (folder, summary)
    other, _ = common.trained("study", [*words, "train.seed=2"])
    assert other != folder and capsys.readouterr().out.count("training ") == 2


def test_an_interrupted_run_is_trained_anew(words):
    folder, summary = common.trained("study", words)
    (folder / "summary.json").unlink()
    assert common.trained("study", words)[1]["val_loss"] == summary["val_loss"]


def test_fit_is_what_train_py_does(words):
    folder, summary = common.trained("study", words)
    config, text, model = common.build(words)
    losses = []
    batches = Batches(text.train, 4, 16, config.train.seed)
    common.fit(config, model, batches.batch, lambda step, loss: losses.append((step, loss)))
    assert [step for step, _ in losses] == [1, 2, 3, 4] and not model.training
    assert common.validation_loss(model, text, 16) == summary["val_loss"]
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [loss for _, loss in losses] == [line["train/loss"] for line in logged if "train/loss" in line]


def test_a_result_is_kept_by_its_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = []

    def compute():
        calls.append(1)
        return {"n": len(calls)}

    found = [common.cached("study", {"a": a}, compute) for a in (1, 2, 1)]
    assert found == [{"n": 1}, {"n": 2}, {"n": 1}]


def test_tables_and_spreads():
    assert common.spread([1.0, 2.0, 6.0], 1) == "3.0 (1.0 … 6.0)"
    assert common.table(["of", "x"], [["abc", 1.23456], ["d", 7]]).splitlines() == [
        "of       x", "──────────", "abc  1.235", "d        7",
    ]


def test_the_same_figure_is_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = []
    for _ in range(2):
        figure, (axis,) = common.panels(1)
        common.band(axis, [0, 1], [[1.0, 2.0], [3.0, 4.0]], label="mean")
        assert axis.lines[0].get_ydata().tolist() == [2.0, 3.0]
        files.append(common.save_figure(figure, "x").read_bytes())
    assert files[0] == files[1]
