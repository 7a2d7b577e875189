"""What the studies share: results that are kept, a training loop that can be looked into, tables, figures.

Everything is relative to the repository's root, from which `python -m studies.<name>` runs:

    runs/studies/<name>/    runs, for TensorBoard, and results, each under a digest of its settings
    docs/studies/           figures
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

import train
from data.batches import validation_windows
from data.store import TokenStore, prepare
from model.gpt import GPT
from model.noise import mix
from training.evaluate import evaluate
from training.optimizer import make_optimizers
from training.schedule import factor
from training.step import train_step

RUNS, FIGURES = Path("runs/studies"), Path("docs/studies")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito 2008


# Results ──────────────────────────────────────────────────────────────────────────────────────────────────


def trained(name: str, overrides: Sequence[str]) -> tuple[Path, dict]:
    """The run of `python train.py <overrides>` and where it ended (training.stopping.State, as a dict);
    trained unless there is one with the same settings. `heads` holds [step, scores], `val_loss` the last."""
    config = train.configure(["train.compile=false", *overrides])
    folder = RUNS / name / f"{_slug(overrides)}-{_digest(asdict(config))}"
    done = folder / "summary.json"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted
        print(f"training  {' '.join(overrides)}", flush=True)
        config.run_dir = str(folder)
        result = train.train(config, overrides, say=lambda line: None)
        if result.interrupted:
            raise KeyboardInterrupt
        _keep(done, asdict(result.state))
    return folder, json.loads(done.read_text(encoding="utf-8"))


def cached(name: str, settings: dict, compute: Callable[[], dict]) -> dict:
    """What `compute` returns, as JSON has it (keys become strings); computed unless it has been for these
    settings."""
    path = RUNS / name / f"{_digest(settings)}.json"
    if not path.exists():
        result = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        _keep(path, {"settings": settings, "result": result})
    return json.loads(path.read_text(encoding="utf-8"))["result"]


def board(name: str, run: str) -> SummaryWriter:
    """A TensorBoard run of its own, in the place of an earlier one: runs/studies/<name>/<run>."""
    shutil.rmtree(RUNS / name / run, ignore_errors=True)
    return SummaryWriter(RUNS / name / run)


def _keep(path: Path, data: dict) -> None:
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(json.dumps(data), encoding="utf-8")
    beside.replace(path)


def _digest(settings: dict) -> str:
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _slug(overrides: Sequence[str]) -> str:
    words = [word.rpartition(".")[2] if "." in word.partition("=")[0] else word for word in overrides]
    return "_".join(word.replace("=", "-").replace("/", "-") for word in words)[:80] or "default"


# Training, with a hand inside ─────────────────────────────────────────────────────────────────────────────


def build(overrides: Sequence[str]) -> tuple[train.TrainConfig, TokenStore, GPT]:
    """The settings, the text and the untrained model of `python train.py <overrides>`."""
    config = train.configure(overrides)
    text = prepare(config.data, config.tokenizer)
    torch.manual_seed(mix(config.train.seed))
    return config, text, GPT(text.tokenizer.vocab_size, config.model, config.position, config.attention)


def fit(
    config: train.TrainConfig, model: GPT, batch: Callable[[int], tuple[Tensor, Tensor]],
    look: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train `model` in place on batch(step) → x, y (B, T), as train.py would on the CPU in float32; after
    each step `look` gets the number of finished steps and the loss."""
    optimizers, loop = make_optimizers(model, config.optimizer), config.train
    model.train()
    for step in range(loop.max_steps):
        scale = factor(config.schedule, step, loop.max_steps)
        loss, _ = train_step(
            model, optimizers, *batch(step), step=step, seed=loop.seed, factor=scale, grad_clip=loop.grad_clip
        )
        look(step + 1, loss)
    model.eval()


def validation_loss(model: GPT, text: TokenStore, length: int) -> float:
    """Nats a token over the whole validation split, in windows of `length`."""
    training = model.training
    loss = evaluate(model.eval(), validation_windows(text.validation, length, 8192), device="cpu")
    model.train(training)
    return loss


# Tables and figures ───────────────────────────────────────────────────────────────────────────────────────


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns, the first to the left, the others to the right. Floats get three decimals."""
    cells = [[f"{c:.3f}" if isinstance(c, float) else str(c) for c in row] for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in [lines[0], "─" * len(lines[0]), *lines[1:]])


def spread(values: Sequence[float], digits: int = 3) -> str:
    """mean (min … max)."""
    return f"{mean(values):.{digits}f} ({min(values):.{digits}f} … {max(values):.{digits}f})"


def panels(columns: int, rows: int = 1, width: float = 4.0, height: float = 3.2):
    """A figure and its axes, in reading order: columns × rows panels of so many inches, without pyplot."""
    from matplotlib import cycler, rc_context
    from matplotlib.figure import Figure

    style = {"axes.prop_cycle": cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False}
    style |= {"font.size": 9, "axes.titlesize": 10, "legend.frameon": False, "legend.fontsize": 8}
    with rc_context(style):
        figure = Figure((columns * width, rows * height), layout="constrained", facecolor="white")
        axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def band(axis, places: Sequence[float], runs: Sequence[Sequence[float]], **style) -> None:
    """Several runs of one curve: their mean as a line, from least to greatest as a band."""
    each = list(zip(*runs, strict=True))
    (line,) = axis.plot(places, [mean(values) for values in each], **style)
    least, most = ([end(values) for values in each] for end in (min, max))
    axis.fill_between(places, least, most, color=line.get_color(), alpha=0.2, linewidth=0)


def save_figure(figure, name: str) -> Path:
    """docs/studies/<name>.svg, the same bytes for the same figure."""
    from matplotlib import rc_context

    FIGURES.mkdir(parents=True, exist_ok=True)
    path = FIGURES / f"{name}.svg"
    few = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"]}  # half the size
    with rc_context({"svg.hashsalt": name} | few):
        figure.savefig(path, metadata={"Date": None})
    text = re.sub(r"(\.\d\d)\d+", r"\1", path.read_text("utf-8"))  # hundredths of a point will do
    path.write_text(re.sub("^ +", "", text, flags=re.MULTILINE), "utf-8")
    return path


def say(text: str) -> None:
    """A paragraph for the terminal."""
    print("\n" + fill(" ".join(text.split()), 100))
