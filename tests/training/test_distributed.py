"""Several processes train as one: the same global batch, the same curve."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.test_train import SMALL, TEXT
from training import checkpoint
from training.config import LoopConfig
from training.distributed import World, join

ROOT = Path(__file__).parents[2]
QUIET = ["log.attention_every=0", "log.sample_every=0"]
WORDS = ["data=file", "data.path=text.txt", *SMALL, "train.eval_every=2", "train.checkpoint_every=2"]


def command(processes, *words):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    start = [*launcher, f"--nproc_per_node={processes}"] if processes > 1 else [sys.executable]
    return [*start, str(ROOT / "train.py"), *WORDS, *words]


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path


def train(processes, *words, code=0):
    done = subprocess.run(command(processes, *words), capture_output=True, text=True, timeout=300)
    assert (done.returncode == 0) == (code == 0), done.stderr
    return done


def curve(folder, tag):
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[tag] for line in lines if tag in line}


def test_alone_every_method_gives_back_what_it_got():
    world, x = World(), torch.arange(6)
    assert world.first and world.share(x) is not None and torch.equal(world.share(x), x)
    assert world.add(1.5, 2) == [1.5, 2] and world.most(3, 4) == [3, 4] and world.told("x") == "x"
    model = torch.nn.Linear(2, 2)
    assert world.wrap(model) is model
    with world.alone(model, last=False), world.one_a_machine_first():
        pass


def test_the_shares_of_a_batch_are_the_batch():
    x = torch.randn(12, 5)
    assert torch.equal(torch.cat([World(rank, 3).share(x) for rank in range(3)]), x)


@pytest.mark.parametrize(("processes", "accum"), [(3, 1), (2, 4), (8, 1)])
def test_a_batch_that_cannot_be_shared_is_refused_with_the_numbers(monkeypatch, processes, accum):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    pieces = f"train.batch_size=4 cannot be shared by {processes} processes"
    with pytest.raises(ValueError, match=pieces):
        join(LoopConfig(batch_size=4, grad_accum=accum))


@pytest.mark.parametrize("recipe", [["optimizer=muon"], ["optimizer=adamw", "train.grad_accum=2"]])
def test_two_processes_follow_the_curve_of_one(here, recipe):
    train(1, "run_dir=one", *recipe)
    done = train(2, "run_dir=two", *recipe)
    assert done.stdout.count("2 processes") == 1  # the first alone prints
    for tag in ("train/loss", "val/loss", "train/grad_norm"):
        one, two = curve("one", tag), curve("two", tag)
        assert one.keys() == two.keys() and len(one) >= 4
        assert list(two.values()) == pytest.approx(list(one.values()), rel=2e-4)


def test_what_two_processes_saved_one_goes_on_with_and_says_what_that_means(here):
    train(2, "run_dir=whole")
    train(2, "run_dir=parts", "train.max_steps=4", "schedule=constant")
    train(2, "run_dir=kept", "schedule=constant")
    done = train_on("parts", 1, "train.max_steps=6")
    assert "no longer bit-exact: processes is 1, was 2" in done.stdout
    resumed, kept = curve("parts", "train/loss"), curve("kept", "train/loss")
    assert list(resumed) == [1, 2, 3, 4, 5, 6]
    assert list(resumed.values()) == pytest.approx(list(kept.values()), rel=2e-4)


def train_on(run, processes, *words):
    start = command(processes)[: -len(WORDS)]
    done = subprocess.run([*start, f"resume={run}", *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def children(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(child) for child in found]


def until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)


def saved():
    """The newest step of a checkpoint."""
    return max((int(path.name[5:]) for path in Path("run/checkpoints").glob("step-*")), default=-1)


def begin(*words):
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    return subprocess.Popen(command(2, *words), **both)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals and pgrep as on Linux")
@pytest.mark.parametrize("victim", [0, 1])
def test_one_dying_process_ends_all_and_the_run_goes_on(here, victim):
    words = ["run_dir=run", "train.max_steps=100000", "train.compile=false", *QUIET]
    running = begin(*words)
    until(lambda: saved() >= 4)
    os.kill(sorted(children(running.pid))[victim], signal.SIGKILL)
    killed = time.monotonic()
    out = running.communicate(timeout=100)[0]
    assert time.monotonic() - killed < 60 and running.returncode not in (0, None)
    if victim == 1:
        assert "another process of this run has ended; the last good checkpoint is run/checkpoints/" in out
    train_on("run", 2, f"train.max_steps={saved() + 4}")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals as on Linux")
def test_ctrl_c_under_torchrun_saves(here):
    words = ["run_dir=run", "train.max_steps=100000", "train.compile=false", *QUIET]
    running = begin(*words)
    until(lambda: saved() >= 4)
    os.killpg(running.pid, signal.SIGINT)
    out = running.communicate(timeout=100)[0]
    assert "interrupted" in out and "go on    python train.py resume=run" in out
    assert saved() == checkpoint.read_state(checkpoint.find(Path("run"))).step > 4
    assert max(curve("run", "train/loss")) <= saved()  # the step that it was in is there too
