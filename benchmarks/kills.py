"""A run that is killed again and again is the run that was left alone: python -m benchmarks.kills [kills]

A small model is trained without a disturbance; then the same run, again and again, killed (SIGKILL) at
random instants and resumed till it is finished. Weights, optimizer memory and curves must be the same to
the last bit.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from training import checkpoint

STEPS = 400
WORDS = [
    "model.n_layers=2", "model.n_heads=2", "model.d_model=32", "model.context_length=32", "model.dropout=0.1",
    f"train.max_steps={STEPS}", "train.eval_every=40", "train.checkpoint_every=10", "log.attention_every=100",
    "log.sample_every=0", "tokenizer=byte", "data=file", "data.path=model",
]


def train(words: list[str], patience: float | None = None) -> bool:
    """Whether it came to its end; after so many seconds it is killed."""
    process = subprocess.Popen(
        [sys.executable, "train.py", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        error = process.communicate(timeout=patience)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}: {error}")
    return True


def disturb(run: Path, chance: random.Random, seconds: float, kills: int) -> int:
    """Train one run to its end, killed at random instants on the way, at most `kills` times; how often."""
    done = 0
    while True:
        begun = (run / "config.yaml").exists() and checkpoint.steps(run)
        if not begun:
            shutil.rmtree(run, ignore_errors=True)
        patience = chance.uniform(0, seconds) if done < kills else None
        if train([f"resume={run}"] if begun else [*WORDS, f"run_dir={run}"], patience):
            return done
        done += 1


def left(run: Path) -> list:
    """Everything a run leaves that must not depend on how it got there."""
    last = checkpoint.find(run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    clocks = ("seconds", "wall", "speed/tokens_per_second", "speed/mfu", "speed/memory")
    curves = [{key: value for key, value in line.items() if key not in clocks} for line in lines]
    tensors = [(last / name).read_bytes() for name in ("model.safetensors", "training_state.safetensors")]
    return [last.name, curves, tensors]


def main(kills: int = 50, seed: int = 0) -> None:
    chance, done, runs = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as place:
        alone = Path(place) / "alone"
        began = time.perf_counter()
        train([*WORDS, f"run_dir={alone}"])
        seconds = time.perf_counter() - began
        print(f"alone    {seconds:.0f} s for {STEPS} steps", flush=True)
        while done < kills:
            runs += 1
            run = Path(place) / f"run{runs}"
            times = disturb(run, chance, seconds, kills - done)
            done += times
            same = left(run) == left(alone)
            print(f"run {runs:<4} killed {times} times: {'the same' if same else 'ANOTHER RUN'}", flush=True)
            if not same:
                raise SystemExit(1)
    print(f"{done} kills, {runs} runs, all the same as the one left alone")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
