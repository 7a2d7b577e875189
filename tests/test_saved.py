"""Runs that are read again: a saved file gives back what was saved, and what may change beside it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import command
import train
from settings import load_config, save_config
from tests.test_command import TRAIN, told

DEFAULT = command.configure(TRAIN, [])


@pytest.fixture
def saved(tmp_path):
    """A run folder with settings far from the defaults, as train.py leaves it."""
    words = ["model.n_layers=3", "model.d_model=192", "model.n_heads=6", "position=alibi", "tokenizer=char"]
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    config = command.configure(TRAIN, [*words, "train.seed=7", "data=file", "data.path=${我的}/???.txt"])
    save_config(config, folder / "config.yaml", "python train.py " + " ".join(words))
    return folder


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(), st.floats(1e-9, 1e9))
def test_what_is_saved_is_what_is_loaded(tmp_path_factory, text, comment, number):
    path = tmp_path_factory.mktemp("run") / "config.yaml"
    config = replace(DEFAULT, train=replace(DEFAULT.train, target_loss=number))
    config = replace(config, data=replace(config.data, path=text, separator=f"{text}\n"))
    save_config(config, path, comment)
    assert load_config(path, train.TrainConfig) == config


def test_a_saved_file_is_plain_and_has_no_places(saved):
    lines = (saved / "config.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# python train.py model.n_layers=3")
    assert "  path: ${我的}/???.txt" in lines
    assert not [line for line in lines if line.startswith(("run_dir", "resume", "init_from", "like"))]


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("n_layers: 3", "n_layer: 3", "model.n_layer: no such setting (did you mean model.n_layers?)"),
        ("n_layers: 3", "n_layers: three", "model.n_layers=three: must be a whole number"),
        ("n_layers: 3", "n_layers: true", "model.n_layers=True: must be a whole number"),
        ("n_layers: 3", "n_layers: 0", "model.n_layers=0: must be between 1 and 1000"),
        ("n_layers: 3", "n_layers: [", "line "),
        ("n_layers: 3", "n_layers: !!python/object/apply:os.system [true]", "line 3: could not determine"),
    ],
)
def test_a_spoilt_config_is_refused_by_name(saved, old, new, answer):
    path = saved / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    said = told(TRAIN, f"like={saved}")
    assert said.startswith(f"{path}: ") and answer in said and said.count("\n") <= 1


def test_resume_keeps_everything_but_what_may_change(saved):
    old = load_config(saved / "config.yaml", train.TrainConfig)
    words = ["train.max_steps=9", "train.patience=3", "log.sample_every=0", "train.device=cpu"]
    new = command.configure(TRAIN, [f"resume={saved}", *words])
    loop = replace(old.train, max_steps=9, patience=3, device="cpu")
    assert new == replace(old, resume=str(saved), train=loop, log=replace(old.log, sample_every=0))


@pytest.mark.parametrize(
    "word",
    [
        "train.seed=2",
        "train.batch_size=2",
        "model=tiny",
        "experiment=smoke",
        "model.dropout=0.1",
        "run_dir=x",
        "data.path=x",
        "optimizer.lr=1",
        "tokenizer.path=x",
    ],
)
def test_resume_refuses_the_rest(saved, word):
    said = told(TRAIN, f"resume={saved}", word)
    assert said.startswith(f"{word.partition('=')[0]} cannot change")
    assert f"init_from={saved}" in said and "may change: train.max_steps" in said and said.endswith("log.*")


def test_resume_latest_is_the_run_used_last(saved, monkeypatch):
    monkeypatch.chdir(saved.parent.parent)
    other = saved.parent / "another"
    other.mkdir()
    save_config(command.configure(TRAIN, []), other / "config.yaml", "python train.py")
    for folder, when in ((other, 1_000), (saved, 2_000)):
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "last").touch()
        os.utime(folder / "config.yaml", (when, when))
    assert command.configure(TRAIN, ["resume=latest"]).resume == str(Path("runs") / "one")
    os.utime(other / "config.yaml", (3_000, 3_000))
    for origin in ("resume", "like", "init_from"):
        assert getattr(command.configure(TRAIN, [f"{origin}=latest"]), origin) == str(
            Path("runs") / "another"
        )
    (other / "checkpoints" / "last").unlink()  # it has saved nothing
    assert command.configure(TRAIN, ["resume=latest"]).resume == str(Path("runs") / "one")


def test_resume_latest_without_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "run train.py first" in told(TRAIN, "resume=latest")


@pytest.mark.parametrize("origin", ["resume", "like", "init_from"])
def test_a_folder_that_is_not_there_is_told_from_one_without_a_run(saved, monkeypatch, origin):
    monkeypatch.chdir(saved.parent.parent)
    assert told(TRAIN, f"{origin}=runs/nope") == f"{origin}=runs/nope: no such folder"
    assert told(TRAIN, f"{origin}=one") == f"{origin}=one: no such folder (did you mean runs/one?)"
    assert f"{origin}=runs: holds no run of this project" in told(TRAIN, f"{origin}=runs")


def test_like_copies_a_run_and_takes_any_value(saved):
    old = load_config(saved / "config.yaml", train.TrainConfig)
    assert command.configure(TRAIN, [f"like={saved}"]) == replace(old, like=str(saved))
    new = command.configure(TRAIN, [f"like={saved}", "train.seed=1", "position.name=rope", "run_dir=there"])
    assert (new.train.seed, new.position.name, new.position.theta) == (1, "rope", 10_000.0)
    assert (new.run_dir, new.resume, new.data.path) == ("there", None, old.data.path)
    assert "model is a group" in told(TRAIN, f"like={saved}", "model=tiny")
    assert "experiment is a group" in told(TRAIN, f"like={saved}", "experiment=smoke")


def test_like_derives_widths_again_unless_they_were_chosen(saved):
    old = load_config(saved / "config.yaml", train.TrainConfig)
    wider = command.configure(TRAIN, [f"like={saved}", "model.d_model=384"]).model
    typed = command.configure(TRAIN, ["model.d_model=384", "model.n_heads=6"]).model
    assert (wider.d_head, wider.d_ff) == (typed.d_head, typed.d_ff) == (64, 1024)
    assert command.configure(TRAIN, [f"like={saved}", "model.mlp=gelu"]).model.d_ff == 4 * 192
    chosen = replace(old, model=replace(old.model, d_head=10, d_ff=99))
    save_config(chosen, saved / "config.yaml", "")
    kept = command.configure(TRAIN, [f"like={saved}", "model.d_model=384"]).model
    assert (kept.d_head, kept.d_ff) == (10, 99)


def test_init_from_takes_the_architecture_and_nothing_else(saved):
    old = load_config(saved / "config.yaml", train.TrainConfig)
    new = command.configure(TRAIN, [f"init_from={saved}", "data=stdlib", "model.dropout=0.1"])
    assert new.model == replace(old.model, dropout=0.1)
    tokens = command.configure(TRAIN, [f"init_from={saved}", "data=stdlib", "model.token_dropout=0.1"])
    assert tokens.model == replace(old.model, token_dropout=0.1)
    assert new.position == old.position
    assert new.tokenizer == replace(old.tokenizer, path=str(saved / "tokenizer.json"))
    assert (new.data.source, new.data.path, new.train.seed) == ("stdlib", None, 1)
    for word in ("model=tiny", "model.n_layers=2", "position=rope", "tokenizer=bpe", "tokenizer.path=x"):
        assert "comes with the weights of init_from" in told(TRAIN, f"init_from={saved}", word)


def test_a_saved_run_takes_no_interpolation(saved):
    assert "write the value itself" in told(TRAIN, f"resume={saved}", "train.keep=${train.seed}")
