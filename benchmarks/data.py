"""How fast text becomes tokens and batches, in how much memory: python -m benchmarks.data [MB]

The text is what Python ships, again and again, one letter in five hundred another each time: about one word
in a hundred is new, as in large collections. Every tokenizer starts with an empty cache and data.num_proc=2,
in a process of its own. 500 MB take about two minutes and 3 GB of disk. Needs psutil, of the extra "test".

    MB/s      of text, from the file to the tokens on disk, what BPE learns on the way included
    memory    the most that the process and its children held at once while they prepared the text and trained
              on it for some steps (resident; shared pages are counted in each)
    fetch     what a batch costs, beside a step of the default model on it: taken in turn, medians
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil

import train
from data.batches import Batches
from data.pydocs import pydocs, stdlib
from model.gpt import GPT
from training.optimizer import make_optimizers
from training.step import train_step

PREPARE_AND_TRAIN = """
import sys, time
import train
from data.store import prepare
config = train.configure(sys.argv[1:])
started = time.perf_counter()
prepare(config.data, config.tokenizer, lambda line: None)
print(time.perf_counter() - started)
train.train(config, say=lambda line: None)
"""
STEPS = 80  # more than data/batches.py makes before it gives pages back
PAIRS = 100
VALIDATION = 50_000  # bytes: measured is preparation, not evaluation


def write_text(path: Path, size: int) -> None:
    original = np.frombuffer("".join([*pydocs(), *stdlib()]).encode(), np.uint8)
    letters = np.flatnonzero((original | 32 >= ord("a")) & (original | 32 <= ord("z")))
    chance = np.random.default_rng(0)
    with open(path, "wb") as file:
        for left in range(size, 0, -len(original)):
            text, places = original.copy(), chance.choice(letters, len(letters) // 500)
            text[places] = chance.integers(ord("a"), ord("z") + 1, len(places))
            file.write(text[:left].tobytes().decode(errors="ignore").encode())  # half a character is dropped


def resident(process: psutil.Process) -> int:
    """Bytes of memory of a process and all that it started; 0 when one of them has just ended."""
    try:
        return sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
    except psutil.Error:
        return 0


def measure(text: Path, tokenizer: str, cache: Path) -> tuple[float, int]:
    """Seconds of preparation, and the most memory of preparation and training, in bytes."""
    words = ["data=file", f"data.path={text}", f"data.val_fraction={VALIDATION / text.stat().st_size}"]
    words += [f"tokenizer={tokenizer}", "data.num_proc=2", f"train.max_steps={STEPS}", "train.compile=false"]
    words += ["log.attention_every=0", "log.sample_every=0", f"run_dir={cache / 'run'}"]
    process = psutil.Popen(
        [sys.executable, "-c", PREPARE_AND_TRAIN, *words],
        env=os.environ | {"CLEARHEAD_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        text=True,
    )
    most = 0
    while process.poll() is None:
        most = max(most, resident(process))
        time.sleep(0.1)
    if process.returncode:
        sys.exit(process.returncode)  # it has said why
    return float(process.stdout.readline()), most


def seconds(work: Callable, *arguments, **options) -> float:
    started = time.perf_counter()
    work(*arguments, **options)
    return time.perf_counter() - started


def fetch_and_step(tokens: np.ndarray) -> tuple[float, float]:
    """Seconds of fetching a batch, and of a step on it, as `python train.py` does them by default."""
    config = train.configure([])
    batches = Batches(tokens, config.train.batch_size, config.model.context_length, seed=1)
    model = GPT(config.tokenizer.vocab_size, config.model, config.position)
    optimizers = make_optimizers(model, config.optimizer)
    pairs = []
    for n in range(PAIRS):
        fetch = seconds(batches.batch, n)
        x, y = batches.batch(n)
        options = {"step": n, "seed": 1, "factor": 1.0, "grad_clip": 1.0}
        pairs.append((fetch, seconds(train_step, model, optimizers, x, y, **options)))
    fetches, steps = zip(*pairs, strict=True)
    return statistics.median(fetches), statistics.median(steps)


def main(size: int = 500) -> None:
    print(f"{size} MB of text, data.num_proc=2, on {os.cpu_count()} cores")
    print(f"{'tokenizer':>10}{'MB/s':>10}{'memory':>10}")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        write_text(text, size * 1_000_000)
        for name in ("byte", "char", "bpe"):
            took, most = measure(text, name, Path(folder, name))
            print(f"{name:>10}{size / took:>10.1f}{most / 1e9:>7.2f} GB", flush=True)
        (tokens,) = Path(folder, "bpe").glob("*/train.bin")
        fetch, step = fetch_and_step(np.memmap(tokens, "<u2", "r"))
    print(f"fetch {1e6 * fetch:.0f} µs, step {1e3 * step:.0f} ms: {fetch / step:.2%}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
