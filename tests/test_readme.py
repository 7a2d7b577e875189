"""What the READMEs tell people to type is right, and both languages tell the same."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import sample
import train

ROOT = Path(__file__).resolve().parent.parent
LANGUAGES = ["README.md", "README.zh-CN.md"]


def commands(name: str) -> list[str]:
    """Every command in a `sh` block, `a && b` being two."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return [part.strip() for line in lines for part in line.split("&&")]


def inline(name: str) -> list[str]:
    """Every command between backticks in running text."""
    return re.findall(r"`(python (?:train|sample)\.py[^`]*)`", (ROOT / name).read_text(encoding="utf-8"))


def test_both_languages_name_the_same_commands():
    english, chinese = (commands(name) for name in LANGUAGES)
    assert english == chinese and len(english) >= 8


def test_the_four_commands_are_there():
    assert {
        "pip install -e .",
        "python train.py",
        'pip install -e ".[test]"',
        "python -m pytest",
        "tensorboard --logdir runs",
        "python sample.py",
    } <= set(commands("README.md"))


@pytest.mark.parametrize("command", sorted({c for name in LANGUAGES for c in commands(name) + inline(name)}))
def test_each_command_is_one_that_the_programs_understand(command, tmp_path, monkeypatch):
    words = shlex.split(command, comments=True)
    programs = {"train.py": train.PROGRAM, "sample.py": sample.PROGRAM}
    if words[0] in ("pip", "tensorboard") or words[1] == "-m":
        return  # CI types these
    if words[2:] == ["--help"]:
        return
    from command import configure, sweep
    from settings import save_config

    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "name" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "name" / "checkpoints" / "last").touch()
    save_config(train.configure([]), tmp_path / "runs" / "name" / "config.yaml", "")
    program, words = programs[words[1]], [word.replace("<name>", "name") for word in words[2:]]
    for job in sweep(program, [w for w in words if w != "-m"]) if "-m" in words else [words]:
        configure(program, job)


FEW = {
    "train.py": ["train.max_steps=2", "train.eval_every=2", "log.attention_every=0", "model.n_layers=1"],
    "sample.py": ["max_new_tokens=5"],
}
RUN = [c for c in commands("README.md") if c.startswith(("python train.py", "python sample.py"))]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder like the reader's: a text of one's own, and no runs yet."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "my.txt").write_text("Once upon a time there was a text of one's own.\n" * 2000, "utf-8")
    return folder


@pytest.mark.parametrize("command", RUN)
def test_each_command_in_a_block_runs(command, reader):
    """In the README's order; a few steps are appended."""
    _, program, *words = shlex.split(command, comments=True)
    done = subprocess.run(
        [sys.executable, ROOT / program, *words, *FEW[program]], cwd=reader, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and done.stdout.strip()


@pytest.mark.parametrize("name", LANGUAGES)
def test_links_and_pictures_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    assert targets and [target for target in targets if not (ROOT / target).exists()] == []
