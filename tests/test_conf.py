"""The files in conf/: every one composes, can be reached, and says what the contract says."""

from pathlib import Path

import pytest
import yaml

import command
import train

PROGRAM = command.Program(train.__file__, "Train.", train.TrainConfig, "train")
CONF = Path(train.__file__).parent / "conf"
CHOICES = [(group, name) for group, names in PROGRAM.groups.items() for name in names]
DEFAULT = command.configure(PROGRAM, [])


def read(file: Path) -> dict:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def test_there_is_no_file_that_nobody_reads():
    files = {file.relative_to(CONF).as_posix() for file in CONF.rglob("*") if file.is_file()}
    assert files == {"train.yaml", *(f"{group}/{name}.yaml" for group, name in CHOICES)}


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_file_composes_and_its_values_arrive(group, name):
    config = command.configure(PROGRAM, [f"{group}={name}"])
    values = read(CONF / group / f"{name}.yaml")
    rooms = values if group == "experiment" else {group: values}
    settled = [
        (room, key, value)
        for room, pairs in rooms.items()
        if room != "defaults"
        for key, value in pairs.items()
    ]
    assert settled
    for room, key, value in settled:
        assert getattr(getattr(config, room), key) == value, f"{room}.{key}"


@pytest.mark.parametrize("name", PROGRAM.groups["experiment"])
def test_an_experiment_is_a_difference(name):
    assert command.configure(PROGRAM, [f"experiment={name}"]) != DEFAULT
    assert f"python train.py experiment={name}" in (CONF / "experiment" / f"{name}.yaml").read_text(
        encoding="utf-8"
    )


def test_every_group_has_a_default_and_every_choice_its_own_settings():
    defaults = {}
    for entry in read(CONF / "train.yaml")["defaults"]:
        defaults |= entry if isinstance(entry, dict) else {}
    assert set(defaults) == set(PROGRAM.groups)
    for group in set(PROGRAM.groups) - {"experiment"}:
        found = [
            getattr(command.configure(PROGRAM, [f"{group}={name}"]), group) for name in PROGRAM.groups[group]
        ]
        assert getattr(DEFAULT, group) in found
        assert all(one not in found[:index] for index, one in enumerate(found)), (
            f"two choices of {group} are equal"
        )


def test_the_groups_hold_the_choices_of_the_contract():
    assert {group: set(names) for group, names in PROGRAM.groups.items() if group != "experiment"} == {
        "model": {"nano", "tiny", "small", "gpt2"},
        "position": {"rope", "sinusoidal", "learned", "alibi", "none"},
        "attention": {"fused", "explicit"},
        "data": {"pydocs", "stdlib", "shakespeare", "tinystories", "file", "hub"},
        "tokenizer": {"bpe", "char", "byte"},
        "optimizer": {"muon", "adamw"},
        "schedule": {"linear", "cosine", "constant"},
    }


@pytest.mark.parametrize(
    ("name", "layers", "heads", "width", "context"),
    [
        ("nano", 4, 4, 128, 128),
        ("tiny", 5, 6, 192, 256),
        ("small", 6, 6, 384, 256),
        ("gpt2", 12, 12, 768, 1024),
    ],
)
def test_the_sizes_are_those_of_the_contract(name, layers, heads, width, context):
    model = command.configure(PROGRAM, [f"model={name}"]).model
    assert (model.n_layers, model.n_heads, model.d_model, model.context_length) == (
        layers,
        heads,
        width,
        context,
    )
    assert model.d_head * heads == width


def test_the_default_recipe_is_that_of_the_contract():
    model = DEFAULT.model
    assert (model.norm, model.mlp, model.norm_eps, model.attention_dropout) == ("rmsnorm", "swiglu", 1e-6, 0)
    assert model.embed_norm and model.qk_norm and not model.bias and not model.tie_embeddings
    chosen = (DEFAULT.position, DEFAULT.attention, DEFAULT.tokenizer, DEFAULT.optimizer, DEFAULT.schedule)
    assert [room.name for room in chosen] == ["rope", "fused", "bpe", "muon", "linear"]
    assert (DEFAULT.data.source, DEFAULT.tokenizer.vocab_size) == ("pydocs", 2048)
