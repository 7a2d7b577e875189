"""How long until something happens: python -m benchmarks.startup [pairs]

In turn, medians: `import torch` by itself; the default run from the start of its process until its first step
is done (text prepared, eager), with and without its look at the untrained model; `train.py --help`.
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
    """Until the first step is written down, and by the run's own clock, which looking does not count for."""
    started, metrics, steps = time.perf_counter(), folder / "metrics.jsonl", []
    command = [sys.executable, "train.py", "train.compile=false", f"run_dir={folder}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        while not steps and run.poll() is None:
            time.sleep(0.01)
            lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
            steps = [json.loads(line) for line in lines if "train/loss" in line]
        taken = time.perf_counter() - started
        run.terminate()
    return taken, steps[0]["wall"]


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch, step, wall, usage = [], [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        first_step(Path(scratch) / "prepared")
        for pair in range(pairs):
            torch.append(seconds("-c", "import torch"))
            taken, clock = first_step(Path(scratch) / str(pair))
            step.append(taken)
            wall.append(clock)
            usage.append(seconds("train.py", "--help"))
    t, s, w, u = (statistics.median(times) for times in (torch, step, wall, usage))
    print(f"import torch {t:.2f} s; first step after {s:.2f} s, {w:.2f} s without looking; --help {u:.2f} s")
