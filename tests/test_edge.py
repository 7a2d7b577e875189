"""The command line as a process: exit codes, what is printed where, sweeps, Ctrl-C, torchrun."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import train
from settings import leaves

ROOT = Path(train.__file__).parent
PROGRAM = '''"""Count.

  python count.py n=3
"""
import sys, time
from dataclasses import dataclass
from pathlib import Path

import command

@dataclass
class Config:
    n: int = 1
    prompt: str | None = None

    def __post_init__(self):
        if self.n > 9:
            raise ValueError(f"n={self.n}: too many")

def main(config):
    Path(f"ran-{config.n}").touch()
    if config.prompt == "wrong":
        raise command.Wrong("prompt=wrong: told by main")
    if config.prompt == "break":
        raise ValueError("broken")
    if config.prompt == "wait":
        try:
            print("waiting", flush=True)
            time.sleep(20)
        except KeyboardInterrupt:
            time.sleep(1)
            Path("kept").touch()
            raise
    return config.n if config.prompt == "code" else None

command.run(command.Program(__file__, __doc__, Config), main)
'''


@pytest.fixture
def count(tmp_path):
    (tmp_path / "count.py").write_text(PROGRAM)
    keep = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}

    def start(*words: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "count.py", *words],
            cwd=tmp_path,
            env=keep | {"PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def ran(*words: str, **environment: str) -> tuple[int, str, str, list[str]]:
        """(exit code, output, errors, which jobs ran)"""
        process = start(*words, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err, sorted(path.name for path in tmp_path.glob("ran-*"))

    ran.start, ran.folder = start, tmp_path
    return ran


def test_exit_codes(count):
    assert count("n=2") == (0, "", "", ["ran-2"])
    assert count("n=3", "prompt=code")[0] == 3
    assert count("n=10") == (2, "", "count.py: n=10: too many\n", ["ran-2", "ran-3"])
    assert count("prompt=wrong")[:3] == (2, "", "count.py: prompt=wrong: told by main\n")
    code, _, err, _ = count("prompt=break")
    assert code == 1 and err.startswith("Traceback") and err.endswith("ValueError: broken\n")


def test_nothing_is_created_by_wrong_words(count):
    before = sorted(count.folder.rglob("*"))
    code, out, err, _ = count("number=3")
    assert (code, out) == (2, "")
    assert err == "count.py: number: no such setting\n  settings: n prompt\n"
    assert [path for path in sorted(count.folder.rglob("*")) if path not in before] == []


def test_the_whole_traceback_on_request(count):
    code, _, err, _ = count("n=x", HYDRA_FULL_ERROR="1")
    assert (
        code == 2
        and err.startswith("Traceback")
        and err.endswith("\ncount.py: n=x: must be a whole number\n")
    )


def test_help_and_settings_run_nothing(count):
    code, out, err, ran = count("--help", "n=wrong")
    assert (code, err, ran) == (0, "", []) and out.startswith("Count.\n") and "n=1 prompt=null" in out
    assert count("n=2", "prompt=${你}", "--cfg", "job")[:2] == (0, "n: 2\nprompt: ${你}\n")
    assert count("-m", "n=1,2", "--cfg", "job")[1].split("---\n")[1].startswith("n: 2\n")
    assert count("--cfg", "job", "n=10")[0] == 2
    assert count("--cfg", "hydra")[:3] == (2, "", "count.py: --cfg: only --cfg job is known here\n")


def test_ctrl_c_is_quiet(count):
    process = count.start("prompt=wait")
    assert process.stdout.readline() == "waiting\n"
    os.killpg(process.pid, signal.SIGINT)
    assert (process.communicate(timeout=20), process.returncode) == (("", ""), 130)


def test_a_sweep_is_checked_before_it_starts(count):
    assert count("-m", "n=1,2,10") == (2, "", "count.py: n=10: too many\n", [])
    code, _, err, ran = count("n=2,3", "--multirun", "prompt=code")
    assert (code, ran) == (3, ["ran-2", "ran-3"])
    assert err.splitlines()[0] == "count.py: job 1 of 2: n=2 prompt=code"


def test_ctrl_c_lets_a_sweeps_job_save_and_starts_no_other(count):
    process = count.start("-m", "n=1,2", "prompt=wait")
    assert process.stdout.readline() == "waiting\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "Traceback" not in err
    assert (count.folder / "kept").exists() and not (count.folder / "ran-2").exists()


def test_under_torchrun_one_speaks_and_the_others_wait_for_it(count):
    assert "one process after the other" in count("-m", "n=1,2", RANK="0", WORLD_SIZE="2")[2]
    assert count("n=x", RANK="0", WORLD_SIZE="2")[:3] == (2, "", "count.py: n=x: must be a whole number\n")
    started = time.monotonic()
    assert count("n=x", RANK="1", WORLD_SIZE="2")[:3] == (2, "", "")
    assert time.monotonic() - started >= 2


def test_help_names_every_choice_and_every_setting_without_hydra_or_torch():
    script = """
import sys, command, train
try:
    command.run(command.Program(train.__file__, train.__doc__, train.TrainConfig, "train"), None, ["--help"])
finally:
    print(*{"hydra", "omegaconf", "torch", "numpy"} & set(sys.modules), file=sys.stderr)
"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stderr.strip()) == (0, "")
    for file in (ROOT / "conf").glob("*/*.yaml"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"  {file.parent.name} ")]
        assert file.stem in line.replace("[", " ").replace("]", " ").split()
    for key in leaves(train.TrainConfig):
        assert f"{key.rpartition('.')[2]}=" in done.stdout
    assert "sample_every=200" in done.stdout  # what conf/train.yaml says, not the dataclass
