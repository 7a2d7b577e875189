"""How long until something happens: python -m benchmarks.startup [pairs]

In turn, medians: `import torch` by itself, the default run from the start of its process until it has shown
its first step (text prepared, eager), with and without its look at the untrained model; `train.py --help`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(*words: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def first_step(folder: Path) -> tuple[float, float]:
    """Until the first step is shown, and by the run's own clock, which looking does not count for."""
    started = time.perf_counter()
    command = [sys.executable, "train.py", "train.compile=false", f"run_dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        next(line for line in run.stdout if line.split()[:2] == ["step", "1/800"])
        shown = time.perf_counter() - started
        run.terminate()
        run.stdout.read()
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return shown, next(line["wall"] for line in lines if "train/loss" in line)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch, step, wall, usage = [], [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        first_step(Path(scratch) / "prepared")
        for pair in range(pairs):
            torch.append(seconds("-c", "import torch"))
            shown, clock = first_step(Path(scratch) / str(pair))
            step.append(shown)
            wall.append(clock)
            usage.append(seconds("train.py", "--help"))
    t, s, w, u = (statistics.median(times) for times in (torch, step, wall, usage))
    print(f"import torch {t:.2f} s; first step after {s:.2f} s, {w:.2f} s without looking; --help {u:.2f} s")
