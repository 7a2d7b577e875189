"""Their config.json ⇄ our settings, without torch. What the other side cannot express is refused by name."""

import json
from pathlib import Path
from typing import NamedTuple

from interchange.families import ACTIVATIONS, FAMILIES, Family
from model.config import ModelConfig, PositionConfig, between, choose

PICKLED = "pickled weights run what they will; if you trust them, save_pretrained makes safetensors of them"

class Described(NamedTuple):
    """A model of theirs in our words; `kv_heads` heads have keys and values of their own."""
    family: Family
    vocab_size: int
    kv_heads: int
    model: ModelConfig
    position: PositionConfig


def read_json(path: Path) -> dict:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def is_model_folder(folder: Path) -> bool:
    """Whether this is a model folder of transformers, and no run or checkpoint of ours."""
    file = folder / "config.json"
    return file.is_file() and not (folder / "config.yaml").exists() and "model_type" in read_json(file)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files, all inside the folder. ValueError for pickles and for names that lead out."""
    index, names = folder / "model.safetensors.index.json", {"model.safetensors"}
    if index.is_file():
        names = set(map(str, read_json(index)["weight_map"].values()))
    for name in sorted(names):
        if name != Path(name).name or "\\" in name or not name.endswith(".safetensors"):
            raise ValueError(f"{index.name}: {name!r} is no safetensors file inside the folder")
        if not (folder / name).is_file():
            raise ValueError(PICKLED if any(folder.glob("*.bin")) else f"there is no {name}")
    return [folder / name for name in sorted(names)]


def describe(folder: Path, context_length: int | None = None) -> Described:
    """The model in a folder of theirs, with a shorter context if one is given. ValueError for what this
    project cannot express, and for sizes beyond what the files could hold."""
    try:
        found = from_theirs(read_json(folder / "config.json"), context_length)
        size = sum(path.stat().st_size for path in weight_files(folder))
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        raise ValueError(f"{folder}: {error}") from error
    m = found.model
    least = m.d_model * (found.vocab_size + 2 * m.n_layers * (m.n_heads * m.d_head + m.d_ff))  # parameters
    if least > size or m.context_length * m.d_head > 2**27:  # the table of rotations is in no file
        raise ValueError(f"{folder}: config.json speaks of {least:,} parameters, in files of {size:,} bytes")
    return found


def from_theirs(given: dict, context_length: int | None) -> Described:
    choose("model_type", given.get("model_type"), tuple(FAMILIES))
    family = FAMILIES[given["model_type"]]
    values = {"vocab_size": 0, **family.defaults, **given}
    for key, only in (family.fixed | {"quantization_config": None, "partial_rotary_factor": None}).items():
        if values.get(key, only) != only:
            raise ValueError(f"{key}={values[key]}: only {json.dumps(only)} has a place here")
    ours = {key.removeprefix("model."): allowed[0] for key, allowed in family.needs.items()} | family.form
    position, likeness = ours.pop("position.name"), ModelConfig()
    for key, theirs in family.settings.items():
        found, *others = [values.get(name) for name in theirs.split()]
        value = ACTIVATIONS.get(found) if key == "mlp" else found
        empty = found is None and theirs in ("head_dim", "n_inner")  # d_model / n_heads, 4 d_model
        known = type(value) is type(getattr(likeness, key)) and others == [found] * len(others)
        if not empty and not (known and value in family.needs.get(f"model.{key}", [value])):
            raise ValueError(f"{theirs}={' '.join(map(str, [found, *others]))}: has no place here")
        ours[key] = value
    between("model.context_length", context_length, 1, ours["context_length"])
    ours = ModelConfig(**ours | {"context_length": context_length or ours["context_length"]})
    kv_heads = values.get("num_key_value_heads") or ours.n_heads
    if kv_heads < 1 or ours.n_heads % kv_heads:
        raise ValueError(f"num_key_value_heads={kv_heads} does not divide {ours.n_heads} heads")
    between("vocab_size", values["vocab_size"], 1, 2**24)
    place = PositionConfig(position, rope_theta(values) if position == "rope" else None)
    return Described(family, values["vocab_size"], kv_heads, ours, place)


def rope_theta(values: dict) -> float:
    """RoPE's base. ValueError for rotations that are scaled in any way."""
    theta = values.get("rope_theta", 10_000.0)
    for key in ("rope_parameters", "rope_scaling"):
        rope = values.get(key) or {}
        if scaled := {k: v for k, v in rope.items() if k != "rope_theta" and v != "default"}:
            raise ValueError(f"{key}={json.dumps(scaled)}: only rotations without scaling have a place here")
        theta = rope.get("rope_theta", theta)
    return float(theta)


def home(described: dict) -> Family:
    """The family that can express a model of ours (what GPT.describe tells). ValueError names the settings
    that keep it from the nearest."""
    flat = {f"model.{key}": value for key, value in described["model"].items()}
    flat["position.name"] = described["position"]["name"]
    C, H, D = (flat[f"model.{key}"] for key in ("d_model", "n_heads", "d_head"))
    obstacles = {
        name: [k for k, can in f.needs.items() if flat[k] not in can] for name, f in FAMILIES.items()
    }
    obstacles["gpt2"] += ["model.d_head"] * (H * D != C)  # transformers refuses both
    obstacles["llama"] += ["model.d_head"] * (C % H > 0)
    nearest = min(obstacles, key=lambda name: len(obstacles[name]))
    if obstacles[nearest]:
        but = " ".join(f"{key}={str(flat[key]).lower()}" for key in obstacles[nearest])
        raise ValueError(f"no model of transformers is like this one; nearest is {nearest}, but for {but}")
    return FAMILIES[nearest]
