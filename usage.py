"""The page that --help prints, read off the dataclasses and conf/ without Hydra."""

import json
import textwrap
from dataclasses import fields, is_dataclass

from settings import Program


def help_text(program: Program) -> str:
    """The docstring, the groups with their choices (the default in brackets), all settings and defaults."""
    rooms, chosen = defaults(program)
    lines = [program.doc.strip(), ""]
    if program.groups:
        lines.append("Groups, group=choice:")
    for group, choices in program.groups.items():
        lines.append(f"  {group:11} " + " ".join(f"[{c}]" if c == chosen.get(group) else c for c in choices))
    lines.append("Settings, key=value:")
    for room, values in rooms.items():
        pairs = [f"{name}={v if isinstance(v, str) else json.dumps(v)}" for name, v in values.items()]
        start = f"  {room + '.':11} " if room else "  "
        more = " " * len(start)
        lines.append(textwrap.fill(" ".join(pairs), 110, initial_indent=start, subsequent_indent=more))
    return "\n".join([*lines, "Options: --help, --cfg job (shows the settings), -m (a sweep: key=a,b)"])


def defaults(program: Program) -> tuple[dict[str, dict], dict[str, str]]:
    """({room: {name: value}}, {group: choice}) when nothing is typed; room "" holds the settings outside any.
    Read without Hydra, whose import alone takes longer than --help may."""
    import yaml

    def load(name: str) -> dict:
        return yaml.safe_load((program.conf / f"{name}.yaml").read_text(encoding="utf-8")) or {}

    root = load(program.config) if program.config else {}
    chosen = {}
    for entry in root.get("defaults", []):
        chosen |= entry if isinstance(entry, dict) else {}
    rooms, single = {}, {}
    for field in fields(program.schema):
        if is_dataclass(field.type):
            preset = load(f"{field.name}/{chosen[field.name]}") if chosen.get(field.name) else {}
            own = {inner.name: inner.default for inner in fields(field.type)}
            rooms[field.name] = own | preset | root.get(field.name, {})
        else:
            single[field.name] = field.default
    return rooms | {"": single}, chosen
