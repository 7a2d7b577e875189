"""Who may import whom: the table of the design, held with `ast`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "data": {"torch", "numpy", "datasets", "tokenizers"},
    "model": {"torch", "safetensors"},
    "training": {"torch", "safetensors", "model"},
    "dashboard": {"torch", "numpy", "tensorboard", "matplotlib"},
    "interchange": {"torch", "safetensors", "model"},
}
TAB = {"tensorboard", "werkzeug"}  # what TensorBoard itself is made of: the tab is part of it, not of a run
PROGRAMS = {"train.py", "sample.py", "watch.py"}  # these see every room
COMMAND_LINE = {"command.py", "jobs.py", "settings.py", "saved.py", "usage.py"}  # these see none
FILES = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] in {*ROOMS, path.name}]


def imported(path: Path) -> set[str]:
    """The top-level names of everything a file imports, at the top or inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_room_imports_what_it_may(path):
    place = path.relative_to(ROOT)
    names = imported(path) - {place.parts[0]}
    if place.name in PROGRAMS or place.name == "__main__.py":
        assert "hydra" not in names and "omegaconf" not in names
    elif place.name in COMMAND_LINE:
        own = {name.removesuffix(".py") for name in COMMAND_LINE}
        hydra = {"hydra", "omegaconf"} if place.name == "command.py" else set()
        rooms = {"interchange"} if place.name == "saved.py" else set()  # its config.py: no torch there
        assert names <= own | hydra | rooms | {"yaml"}
    elif place.name == "clearhead_attention.py":
        assert names <= TAB | {"dashboard"}
    elif "attention_tab" in place.parts:
        assert names <= TAB
    else:
        assert names <= ROOMS[place.parts[0]], f"{place} imports {names - ROOMS[place.parts[0]]}"


def test_every_file_was_looked_at():
    names = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {*PROGRAMS, *COMMAND_LINE, "model/attention.py", "data/store.py"} <= names
    assert {path.parent.name for path in FILES} >= set(ROOMS)


@pytest.mark.parametrize("program", ["train.py", "sample.py"])
@pytest.mark.parametrize("words", [["--help"], ["modle=nano"], ["prompt.x=1"], ["--cfg", "job"]], ids=str)
def test_help_and_a_typo_never_import_torch(program, words):
    slow = ("torch", "numpy", "datasets", "tokenizers", "tensorboard", "matplotlib")
    if words == ["--help"]:
        slow += ("hydra", "omegaconf")
    code = (
        f"import sys, runpy; sys.argv = {[program, *words]}\n"
        f"try: runpy.run_path({program!r}, run_name='__main__')\n"
        f"except SystemExit as end: code = end.code\n"
        f"print('ended', code or 0, [name for name in {slow} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"ended {0 if words[0].startswith('--') else 2} []"


def test_the_design_s_budgets():
    texts = {path: path.read_text(encoding="utf-8").splitlines() for path in FILES}
    lines = {path: sum(bool(line.strip()) for line in text) for path, text in texts.items()}  # not the blank
    assert [path.name for path, count in lines.items() if count > 300] == []
    assert sum(count for path, count in lines.items() if path.parent.name == "model") <= 700
    assert sum(lines.values()) <= 5000
