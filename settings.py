"""Settings as plain data: flat values, the dataclasses made of them, their file, the refusal of wrong ones.

Between the words that are typed and the dataclass that a program gets, settings are one flat dictionary,
{"model.n_layers": 4, ...}. A run's config.yaml is data: nothing in it is looked up or executed, `$` is text.
"""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, get_args

ORIGINS = ("resume", "init_from", "like")
PLACES = ("run_dir", *ORIGINS)  # where a run lies and comes from: no part of its settings
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class Wrong(ValueError):
    """What the user typed is wrong: the reason and, on a second line, the choices where there are any."""

    def __init__(self, reason: str, choices: str = "") -> None:
        super().__init__(f"{reason}\n  {choices}" if choices else reason)


@dataclass(frozen=True)
class Program:
    """What the command line must know of a program: its `__file__`, its `__doc__` (for --help), the dataclass
    of its settings, and the name of its YAML in the folder conf/ beside it (None: it has none)."""

    file: str
    doc: str
    schema: type
    config: str | None = None

    @property
    def conf(self) -> Path:
        return Path(self.file).resolve().parent / "conf"

    @property
    def groups(self) -> dict[str, list[str]]:
        """{group: its choices}, the folders and files of conf/."""
        folders = sorted(path for path in self.conf.glob("*") if path.is_dir()) if self.config else []
        return {folder.name: sorted(file.stem for file in folder.glob("*.yaml")) for folder in folders}


# Flat values ──────────────────────────────────────────────────────────────────────────────────────────────


def leaves(schema: type, prefix: str = "") -> dict[str, Any]:
    """{dotted key: type} of every single setting."""
    found = {}
    for field in fields(schema):
        key = prefix + field.name
        found |= leaves(field.type, key + ".") if is_dataclass(field.type) else {key: field.type}
    return found


def flatten(values: dict, prefix: str = "") -> dict[str, Any]:
    """{"model": {"n_layers": 4}} → {"model.n_layers": 4}."""
    found = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        found |= flatten(value, key + ".") if isinstance(value, dict) else {key: value}
    return found


def build(schema: type, values: dict[str, Any], prefix: str = "") -> Any:
    """The dataclass made of flat values; what is missing keeps its default. Raises ValueError."""
    arguments = {}
    for field in fields(schema):
        key = prefix + field.name
        if is_dataclass(field.type):
            arguments[field.name] = build(field.type, values, key + ".")
        elif key in values:
            arguments[field.name] = fitted(key, values[key], field.type)
    return schema(**arguments)


def fitted(key: str, value: Any, kind: Any) -> Any:
    """`value`, which must be of that kind; a whole number may stand for a number, a boolean for neither."""
    if kind_of(kind) is float and type(value) is int:
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind_of(kind) is not bool):
        raise not_that_kind(key, value, kind)
    return value


def kind_of(kind: Any) -> type:
    """int of `int | None`."""
    return next(part for part in (*get_args(kind), kind) if part is not NoneType)


# Refusals ─────────────────────────────────────────────────────────────────────────────────────────────────


def not_that_kind(key: str, value: Any, kind: Any) -> Wrong:
    return Wrong(f"{key}={'null' if value is None else value}: must be {KINDS[kind_of(kind)]}")


def no_setting(key: str, schema: type, groups: Iterable[str] = ()) -> Wrong:
    """The refusal of an unknown key, with its neighbours; also of a whole room (`train=...`)."""
    known, room = leaves(schema), key.partition(".")[0]
    inside = [name.removeprefix(room + ".") for name in known if name.startswith(room + ".")]
    rooms = dict.fromkeys([*(name.partition(".")[0] for name in known), *groups])
    choices = f"{room}: {' '.join(inside)}" if inside else f"settings: {' '.join(rooms)}"
    if key == room and inside:
        return Wrong(f"{key}: not one setting but several; write {key}.{inside[0]}=...", choices)
    return Wrong(f"{key}: no such setting{meant(key, [*known, *groups])}", choices)


def no_choice(group: str, value: str, choices: list[str]) -> Wrong:
    hint = "; several values need -m" if "," in value else meant(value, choices)
    return Wrong(f"{group}={value}: no such choice{hint}", f"{group}: {' '.join(choices)}")


def folder_given(word: str, name: str) -> Path:
    """The folder that `word` (run=runs/mine) names. Raises Wrong where there is none."""
    if Path(name).is_dir():
        return Path(name)
    known = Path("runs", name)
    hint = f" (did you mean {known.as_posix()}?)" if known.is_dir() else ""
    raise Wrong(f"{word}: no such folder{hint}")


def meant(typed: str, names: list[str]) -> str:
    """' (did you mean optimizer.lr?)': by a whole name, or by its last part, which is what people type."""
    spellings = {name.rpartition(".")[2]: name for name in reversed(names)} | {name: name for name in names}
    last = typed.rpartition(".")[2]
    close = [
        *get_close_matches(last, spellings, 1, 1.0),
        *(spelling for spelling in spellings if spelling.startswith(f"{last}_")),  # batch, context, warmup
        *get_close_matches(typed, spellings, 1),
        *get_close_matches(last, spellings, 1),
    ]
    return f" (did you mean {spellings[close[0]]}?)" if close else ""


# Files ────────────────────────────────────────────────────────────────────────────────────────────────────


def as_yaml(values: dict) -> str:
    import yaml

    text = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
    if yaml.safe_load(text) == values:
        return text
    return yaml.safe_dump(values, sort_keys=False)  # U+0085, say, is written and read as a line's end


def yaml_fault(error: Exception) -> str:
    """One line of PyYAML's several."""
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}: {error.problem}" if mark else str(error).splitlines()[0]


def save_config(config: Any, path: Path, comment: str) -> None:
    """Write the settings, without the places, under one line of comment (the command that made them)."""
    values = {key: value for key, value in asdict(config).items() if key not in PLACES}
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in comment)
    part = Path(f"{path}.part")
    part.write_text(f"# {line}\n{as_yaml(values)}", encoding="utf-8")
    os.replace(part, path)  # resume writes over a file that must never be half there


def load_config(path: Path, schema: type) -> Any:
    """The settings that `save_config` wrote. Raises Wrong, naming the file."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise Wrong("holds no settings")
        flat = flatten(values)
        for key in flat:
            if key not in leaves(schema):
                raise no_setting(key, schema)
        return build(schema, flat)
    except OSError as error:
        raise Wrong(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise Wrong(f"{path}: {yaml_fault(error)}") from error
    except ValueError as error:
        raise Wrong(f"{path}: {error}") from error
