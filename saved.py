"""Runs that are read again: what resume=, like= and init_from= take over, what may be typed beside them."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interchange.config import describe, is_model_folder
from settings import ORIGINS, Wrong, build, flatten, folder_given, load_config

RESUMABLE = ["train.max_steps", "train.max_minutes", "train.target_loss", "train.patience"]  # and log.*
RESUMABLE += ["train.eval_every", "train.checkpoint_every", "train.keep", "train.device", "train.compile"]
INHERITED = ("model.", "position.", "tokenizer.")  # what weights depend on, for init_from
DROPOUTS = ("model.dropout", "model.token_dropout", "model.attention_dropout")


def over_saved(schema: type, values: dict[str, Any], typed: Iterable[str], groups: Iterable[str]) -> dict:
    """Flat values on top of the run that resume=, init_from= or like= names, or as they are without one.
    `typed` are the command line's keys. Raises Wrong for a key that the run has settled."""
    origins = [key for key in ORIGINS if values.get(key)]
    if not origins:
        return values
    if len(origins) > 1:
        raise Wrong(f"{origins[0]}= and {origins[1]}= exclude each other")
    origin = origins[0]
    name = values[origin]
    folder = newest_run(origin) if name == "latest" else folder_given(f"{origin}={name}", name)
    if origin == "init_from" and is_model_folder(folder):  # of transformers; its context may be shortened
        found = describe(folder, values["model.context_length"] if "model.context_length" in typed else None)
        saved = flatten({"model": asdict(found.model), "position": asdict(found.position)})
        typed = [key for key in typed if key != "model.context_length"]
    elif not (folder / "config.yaml").is_file():
        raise Wrong(f"{origin}={folder}: holds no run of this project (no config.yaml there)")
    else:
        saved = flatten(asdict(load_config(folder / "config.yaml", schema)))
    for key in typed:
        refuse_settled(origin, folder, key, key in groups)
    new = {key: values[key] for key in typed if key in values} | {origin: str(folder)}
    if origin == "like":
        return without_derived(schema, saved) | new
    if origin == "init_from":
        inherited = {key: value for key, value in saved.items() if key.startswith(INHERITED)}
        return values | inherited | new | {"tokenizer.path": str(folder / "tokenizer.json")}
    return saved | new


def newest_run(origin: str) -> Path:
    """The run in runs/ that was begun or resumed last, among those that saved something."""
    begun = (path.parent.parent / "config.yaml" for path in Path("runs").glob("*/checkpoints/last"))
    found = max(filter(Path.exists, begun), key=lambda path: path.stat().st_mtime, default=None)
    if found is None:
        raise Wrong(f"{origin}=latest: there is no run in runs/ yet; run train.py first")
    return found.parent


def refuse_settled(origin: str, folder: Path, key: str, is_group: bool) -> None:
    """Raise Wrong if `key` may not be typed beside resume=, init_from= or like=."""
    if key == origin:
        return
    if origin == "resume" and key not in RESUMABLE and not key.startswith("log."):
        reason = f"{key} cannot change in a run that goes on; a new run from its weights: init_from={folder}"
        raise Wrong(reason, f"may change: {' '.join(RESUMABLE)} log.*")
    if origin == "like" and is_group:
        reason = f"{key} is a group, settled by like={folder}"
        raise Wrong(reason, "single values may change, as in model.n_layers=6 or position.name=alibi")
    if origin == "init_from" and f"{key}.".startswith(INHERITED) and key not in DROPOUTS:
        reason = f"{key} comes with the weights of init_from={folder}"
        raise Wrong(reason, f"of model, position and tokenizer may change: {' '.join(DROPOUTS)}")


def without_derived(schema: type, saved: dict[str, Any]) -> dict[str, Any]:
    """A run's values with the widths that a formula gave left empty, so that they follow what is typed:
    its config.yaml says d_ff=512 for d_model=192, and `like=... model.d_model=256` means 704."""
    for key in ("model.d_head", "model.d_ff"):
        empty = saved | {key: None}
        try:
            derived = flatten(asdict(build(schema, empty)))[key]
        except ValueError:  # no formula gives this one: d_model=100, n_heads=3, d_head=32
            continue
        saved = empty if derived == saved[key] else saved
    return saved
