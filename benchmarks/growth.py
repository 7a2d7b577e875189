"""How time and memory of a training step grow: python -m benchmarks.growth [figure.svg]

From the default model, one thing at a time: context, width, depth, batch; each in a process of its own, in
float32, eagerly, with AdamW. Where the context grows, `attention=explicit` stands beside the fused kernel: it
keeps every weight, T² of them. Last, batches shared by two processes of one thread each stand beside one
process of two.

    ms        a step, the median of at least five
    MB        resident memory that the steps added to the process
    kB/token  the same for each token of the batch
"""

import json
import os
import subprocess
import sys
from pathlib import Path

STEP = """
import json, resource, statistics, sys, time
import torch
import train
from model.gpt import GPT
from training import products, speed
from training.distributed import join, leave
from training.optimizer import make_optimizers
from training.step import train_step

config = train.configure(["optimizer=adamw", "train.device=cpu", *sys.argv[1:]])
speed.keep_pages()
products.choose()
world = join(config.train)
model = world.wrap(GPT(2048, config.model, config.position, config.attention))
optimizers = make_optimizers(getattr(model, "module", model), config.optimizer)
x = torch.randint(2048, (config.train.batch_size, config.model.context_length))
before, times = speed.most_memory("cpu"), []
while len(times) < 5 or (sum(times) < 5 and len(times) < 50):
    started = time.perf_counter()
    train_step(model, optimizers, x, x, step=len(times), seed=1, factor=1.0, grad_clip=1.0, world=world)
    times.append(time.perf_counter() - started)
if world.first:
    print(json.dumps([1000 * statistics.median(times), (speed.most_memory("cpu") - before) / 1e6]))
leave(0)
"""
CONTEXTS = [64, 128, 256, 512, 1024, 2048]
GROWTH = {
    "context": ("model.context_length", CONTEXTS, ["train.batch_size=4"]),
    "context, explicit": ("model.context_length", CONTEXTS, ["train.batch_size=4", "attention=explicit"]),
    "width": ("model.d_model", [64, 128, 256, 512], []),
    "depth": ("model.n_layers", [1, 2, 4, 8, 16], []),
    "batch": ("train.batch_size", [2, 4, 8, 16, 32, 64], []),
}
SHARED = {"train.batch_size": [4, 16, 64], "model.d_model": [64, 512], "model.context_length": [512]}


def step(*words: str, start: tuple[str, ...] = ()) -> tuple[float, float]:
    """(ms, MB) of a step with these settings."""
    command = [sys.executable, *start, "-c", STEP, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def draw(table: dict[str, list[tuple[int, float, float]]], path: str) -> None:
    """Both on logarithmic axes: a straight line is a power."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, rows in table.items():
        sizes, times, memory = zip(*rows, strict=True)
        steps = [size / sizes[0] for size in sizes]
        for axis, values in zip(axes, (times, memory), strict=True):
            axis.plot(steps, values, "o-", label=f"{name}, from {sizes[0]}", markersize=4)
    for axis, label in zip(axes, ("ms a step", "MB that a step takes"), strict=True):
        axis.set(xscale="log", yscale="log", xlabel="times the smallest", ylabel=label)
        axis.set_xticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
        axis.minorticks_off()
    axes[0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    table = {}
    for name, (key, sizes, words) in GROWTH.items():
        print(f"\n{name} ({key})\n{'':>8}{'ms':>10}{'MB':>9}{'kB/token':>10}")
        table[name] = []
        for size in sizes:
            time, memory = step(f"{key}={size}", *words)
            table[name].append((size, time, memory))
            batch = size if name == "batch" else 4 if name.startswith("context") else 16
            tokens = batch * (size if name.startswith("context") else 128)
            print(f"{size:>8}{time:>10.1f}{memory:>9.0f}{1000 * memory / tokens:>10.1f}", flush=True)
    two = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--no-python", sys.executable)
    print(f"\n{'ms a step, by processes':<26}{'one':>10}{'two':>9}")
    for key, sizes in SHARED.items():
        for size in sizes:
            one, both = (step(f"{key}={size}", start=start)[0] for start in ((), two))
            print(f"{key + '=' + str(size):<26}{one:>10.1f}{both:>9.1f}", flush=True)
    if len(sys.argv) > 1:
        draw(table, sys.argv[1])
