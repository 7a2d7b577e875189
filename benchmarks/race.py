"""The same loss in less time: python -m benchmarks.race <text> [quick full best step] [seeds]

The text is a file, for the published figures tiny Shakespeare, or a choice of data= such as pydocs.
Characters; the validation split (of a file its last tenth) is measured whole; a run's length is fixed
beforehand. Runs go one after the other, each in a process of its own, on nothing else's time:

    quick    shakespeare_quick and nanogpt_cpu, both to their end; compared on `wall`, from the start of the
             process, looking aside
    full     shakespeare_full, on its training clock; nanogpt_gpu by its step, eager, times 1,750, where its
             loss is lowest
    best     shakespeare_best, on its training clock, against the same
    step     tokens a second of two shapes, compiled, with either optimizer; the share of the float32 matrix
             peak that goes into what a step must compute (products in bfloat16 may exceed it)

Compiled runs find their compilation in the cache; what it takes when they do not is printed beside it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import train
from model.gpt import GPT
from training import products
from training.speed import matrix_peak, operations

SEEDS = {"quick": (1, 2, 3), "full": (1, 2), "best": (1, 2)}
# What nanoGPT's own step takes on two AVX2 cores, as operations at their matrix peak.
NANOGPT_STEP = {"nanogpt_cpu": 0.074 * 117e9, "nanogpt_gpu": 19 * 117e9}
STEPS = {
    "4 × 4 × 128, 12 texts of 64": ["model.context_length=64", "train.batch_size=12"],
    "small, 16 texts of 256": ["model=small", "train.batch_size=16"],
}
LOWEST = 1750  # the step at which nanoGPT's run for a GPU is best


def run(text: str, folder: Path, *words: str) -> list[dict]:
    """Train; the lines of its metrics.jsonl."""
    data = ["data=file", f"data.path={text}"] if os.path.isabs(text) else [f"data={text}"]
    folder.parent.mkdir(exist_ok=True)
    command = [sys.executable, "train.py", *data, "tokenizer=char", *words, f"run_dir={folder}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def last(lines: list[dict], key: str) -> float:
    return next(line[key] for line in reversed(lines) if key in line)


def step_of(text: str, scratch: Path, experiment: str, steps: int) -> float:
    """Seconds an eager step takes, the median; said beside nanoGPT's own."""
    short = [f"train.max_steps={steps}", "log.attention_every=0", "log.sample_every=0", "train.compile=false"]
    lines = run(text, scratch / f"step {experiment}", f"experiment={experiment}", *short)
    clock = [line["seconds"] for line in lines if "train/loss" in line]
    step = statistics.median(later - earlier for earlier, later in pairwise(clock))
    library = products.choose()
    units = step * matrix_peak("cpu", "float32") / NANOGPT_STEP[experiment]
    print(f"{experiment}: {1000 * step:.1f} ms a step; in units of {library}'s peak {units:.2f} of nanoGPT's")
    return step


def steps(text: str, scratch: Path) -> None:
    """Tokens a second, and the share of the peak."""
    products.choose()
    peak = matrix_peak("cpu", "float32")
    for name, words in STEPS.items():
        for optimizer in ("adamw", "muon"):
            few = [*words, f"optimizer={optimizer}", "train.max_steps=30", "train.compile=true"]
            lines = [line for line in run(text, scratch / name / optimizer, *few) if "train/loss" in line]
            config = train.configure(few)
            model = GPT(65, config.model, config.position)
            step = statistics.median(b["seconds"] - a["seconds"] for a, b in pairwise(lines))
            rate = lines[0]["tokens"] / step
            share = rate * operations(model) / peak
            print(f"{name}, {optimizer}: {rate:,.0f} tokens/s, {100 * share:.0f} % of the peak", flush=True)


def races(text: str, scratch: Path, which: str, seeds: tuple[int, ...]) -> None:
    experiment = f"shakespeare_{which}"
    if which == "quick":
        step_of(text, scratch, "nanogpt_cpu", 100)
        lines, clock = run(text, scratch / "base", "experiment=nanogpt_cpu"), "wall"
        base = last(lines, clock)
        print(f"nanogpt_cpu: val loss {last(lines, 'val/loss'):.4f}, {base:.1f} s")
    else:
        base, clock = LOWEST * step_of(text, scratch, "nanogpt_gpu", 8), "seconds"
        print(f"nanogpt_gpu: {base:.0f} s to step {LOWEST:,}, by its step")
        short = [f"experiment={experiment}", "train.max_steps=3"]
        took = [last(run(text, scratch / f"{which} {name}", *short), "seconds") for name in ("cold", "warm")]
        print(f"{experiment}: compilation takes {took[0] - took[1]:.0f} s when it is not in the cache")
    for seed in seeds:
        lines = run(text, scratch / f"{which} {seed}", f"experiment={experiment}", f"train.seed={seed}")
        loss, took = last(lines, "val/loss"), last(lines, clock)
        print(f"{experiment} seed {seed}: val loss {loss:.4f}, {took:.1f} s, 1/{base / took:.1f}", flush=True)


if __name__ == "__main__":
    text, *words = sys.argv[1:] or [""]
    text = os.path.abspath(text) if os.path.isfile(text) else text
    os.chdir(Path(__file__).resolve().parent.parent)
    if not (os.path.isabs(text) or Path("conf", "data", f"{text}.yaml").exists()):
        sys.exit(f"{text or 'no text'}: neither a file nor a choice of data=\n\n{__doc__}")
    chosen = [word for word in words if not word.isdigit()] or [*SEEDS, "step"]
    seeds = tuple(int(word) for word in words if word.isdigit())
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["CLEARHEAD_CACHE"] = str(Path(scratch) / "cache")
        for which in chosen:
            if which == "step":
                steps(text, Path(scratch))
                continue
            races(text, Path(scratch), which, seeds or SEEDS[which])
