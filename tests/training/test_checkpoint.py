"""Checkpoints: complete or absent, and nothing in a run's folder leads out of it."""

import json
import shutil

import pytest
import torch

from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from tests.conftest import redraw
from training import checkpoint
from training.config import OptimizerConfig
from training.optimizer import make_optimizers
from training.step import train_step
from training.stopping import State


def setting(optimizer="muon", **settings):
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 16, "context_length": 8, "dropout": 0.2} | settings
    model = redraw(GPT(20, ModelConfig(**shape), PositionConfig()), std=0.1).train()
    return model, make_optimizers(model, OptimizerConfig(optimizer))


def step(model, optimizers, state):
    torch.manual_seed(state.step)
    x, y = torch.randint(20, (2, 4, 8))
    loss, _ = train_step(model, optimizers, x, y, step=state.step, seed=0, factor=1.0, grad_clip=1.0)
    state.stepped(x.numel(), 0.0)
    return loss


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints at steps 0, 1 and 2; best is 1, last is 2."""
    model, optimizers = setting()
    state = State(fingerprint="abc")
    for number in range(3):
        saved = checkpoint.save(tmp_path, model, optimizers, state)
        if number == 1:
            checkpoint.mark_best(saved)
        step(model, optimizers, state)
    return tmp_path


def test_a_checkpoint_from_before_a_setting_was_there_is_gone_on_from(run):
    folder = checkpoint.find(run)
    config = json.loads((folder / "config.json").read_text())
    del config["model"]["token_dropout"], config["model"]["bigram_embedding"]
    (folder / "config.json").write_text(json.dumps(config))
    assert checkpoint.restore(folder, *setting()).step == 2
    with pytest.raises(ValueError, match="another model"):
        checkpoint.restore(folder, *setting(token_dropout=0.1))


@pytest.mark.parametrize("settings", [{}, {"tie_embeddings": True}, {"token_dropout": 0.2}], ids=str)
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_two_and_two_steps_are_four(tmp_path, optimizer, settings):
    model, optimizers = setting(optimizer, **settings)
    state = State()
    losses = [step(model, optimizers, state) for _ in range(4)]
    first, first_optimizers = setting(optimizer, **settings)
    state = State(heads=[[0, {"a": [[0.5]]}]])
    again = [step(first, first_optimizers, state) for _ in range(2)]
    saved = checkpoint.save(tmp_path, first, first_optimizers, state)
    second, second_optimizers = setting(optimizer, **settings)
    redraw(second, seed=9)
    restored = checkpoint.restore(saved, second, second_optimizers)
    assert restored == state
    again += [step(second, second_optimizers, restored) for _ in range(2)]
    assert again == losses
    for name, p in second.state_dict().items():
        assert torch.equal(p, model.state_dict()[name]), name
    kept = [checkpoint.optimizer_tensors(m, o) for m, o in ((model, optimizers), (second, second_optimizers))]
    assert kept[0].keys() == kept[1].keys() and len(kept[0]) > 10
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_a_checkpoint_has_the_promised_files_and_no_pickle(run):
    assert checkpoint.find(run, "best").name == "step-00000001"
    assert checkpoint.find(run).name == "step-00000002"
    names = {path.name for path in checkpoint.find(run).iterdir()}
    assert names == {*FILES, "manifest.json"}
    assert (run / "checkpoints" / "last").read_text() == "step-00000002"


FILES = ["model.safetensors", "config.json", "training_state.safetensors", "training_state.json"]


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "linked"])
def test_the_newest_sound_one_is_taken_and_the_skipped_one_named(run, name, damage, tmp_path_factory):
    path = run / "checkpoints" / "step-00000002" / name
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 64]) + data[middle + 1 :])
    else:
        path.unlink()
    if damage == "linked":
        elsewhere = tmp_path_factory.mktemp("elsewhere") / name
        elsewhere.write_bytes(data)
        path.symlink_to(elsewhere)
    said = []
    assert checkpoint.find(run, "last", said.append).name == "step-00000001"
    assert len(said) == 1 and "step-00000002" in said[0]


@pytest.mark.parametrize("text", ["", "../../x", "/etc", "step-00000009", "step-2", "\x00", "a" * 10_000])
def test_a_pointer_to_nothing_of_ours_is_passed_over(run, text):
    (run / "checkpoints" / "last").write_text(text)
    assert checkpoint.find(run).name == "step-00000002"


def test_a_linked_folder_is_not_a_checkpoint(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "step-00000007"
    shutil.copytree(run / "checkpoints" / "step-00000002", elsewhere)
    (run / "checkpoints" / "step-00000007").symlink_to(elsewhere)
    (run / "checkpoints" / "last").write_text("step-00000007")
    assert checkpoint.find(run).name == "step-00000002"


def test_a_step_can_be_asked_for_and_a_wrong_one_is_refused_with_the_choices(run):
    assert checkpoint.find(run, "0").name == "step-00000000"
    for wrong in ("7", "-1", "newest", "../0", "1e0"):
        with pytest.raises(ValueError, match="best last 0 1 2"):
            checkpoint.find(run, wrong)


def test_nothing_sound_is_a_value_error(run, tmp_path_factory):
    for folder in checkpoint.steps(run):
        (folder / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="no sound checkpoint"):
        checkpoint.find(run)
    with pytest.raises(ValueError, match=r"no checkpoint; run train\.py first"):
        checkpoint.find(tmp_path_factory.mktemp("empty"))


def test_pruning_spares_the_first_the_best_and_the_last(run):
    model, optimizers = setting()
    for number in range(3, 7):
        checkpoint.save(run, model, optimizers, State(step=number))
    checkpoint.prune(run, 2)
    assert [int(folder.name[5:]) for folder in checkpoint.steps(run)] == [0, 1, 5, 6]


def test_a_write_that_fails_leaves_what_was_there(run, monkeypatch):
    model, optimizers = setting()
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(run, model, optimizers, State(step=3))
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_foreign_state_is_a_value_error(run):
    folder = checkpoint.find(run)
    for state in ({"step": 2, "evil": 1}, [], "x"):
        (folder / "training_state.json").write_text(json.dumps(state))
        with pytest.raises(ValueError, match=r"training_state\.json"):
            checkpoint.read_state(folder)


def test_a_folder_that_holds_another_step_is_refused(run):
    steps = checkpoint.steps(run)
    steps[0].rename(run / "aside")
    steps[2].rename(steps[0])
    with pytest.raises(ValueError, match=r"step-00000000/training_state\.json: it is of step 2"):
        checkpoint.restore(steps[0], *setting())
