"""Everything a run writes for people to look at, and under which tag."""

import json
import math
import os
from contextlib import ExitStack
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from dashboard.figures import attention_image
from dashboard.labels import code_block
from dashboard.recording import log_attention

QUEUE = 100  # events that may wait to be written: with TensorBoard's own 10, a look at the heads would wait


class Logger:
    """A run's `metrics.jsonl` and its TensorBoard events.

    A new run needs a folder without a `metrics.jsonl` (`FileExistsError`). With `resume_step` an old one
    goes on: what was written after that step, by a process that was lost, is dropped from `metrics.jsonl`
    and hidden from TensorBoard. A write that fails raises at the latest in the next `scalars`, `flush` or
    `close`.
    """

    def __init__(self, folder: Path, *, resume_step: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        if resume_step is not None:
            _keep_until(path, resume_step)
        # Line by line, so that whoever reads along never waits for a buffer.
        self._metrics = path.open("x" if resume_step is None else "a", encoding="utf-8", buffering=1)
        # A start at step 0 is marked too: TensorBoard's slow loader takes the first mark for a beginning, and
        # would hide nothing.
        start = 0 if resume_step is None else resume_step + 1
        self._events = SummaryWriter(folder, purge_step=start, max_queue=QUEUE)

    def scalars(
        self, step: int, values: dict[str, float], *, tokens: int, seconds: float, wall: float
    ) -> None:
        """One line of `metrics.jsonl`, and a point on the curve of each value; `values` is keyed by tag.

        What is not finite is null in the file: JSON has no NaN.
        """
        line = {"step": step, "tokens": tokens, "seconds": seconds, "wall": wall, **values}
        finite = {key: value if math.isfinite(value) else None for key, value in line.items()}
        self._metrics.write(json.dumps(finite, allow_nan=False) + "\n")
        for tag, value in values.items():
            self._events.add_scalar(tag, value, step)

    def config(self, text: str) -> None:
        """The run's settings, as they stand in `config.yaml`, in the Text tab."""
        self._events.add_text("config", code_block(text), 0)

    def sample(self, step: int, prompt: str, text: str) -> None:
        """What the model wrote after `prompt`, in the Text tab, literally: it may be anything."""
        written = f"The model wrote:\n\n{code_block(text)}"
        shown = f"After the prompt:\n\n{code_block(prompt)}\n\n{written}" if prompt.strip() else written
        self._events.add_text("samples", shown, step)

    def attention(
        self, step: int, probe: str, weights: Tensor, labels: list[str], scores: dict[str, Tensor]
    ) -> None:
        """A picture per layer of a probe's `(L, H, T, T)` weights; see `attention_image`.

        Draw few: a layer takes about a tenth of a second, and TensorBoard keeps ten pictures of a tag, the
        last and nine at random, unless started with `--samples_per_plugin=images=100`.
        """
        for layer, maps in enumerate(weights):
            picture = attention_image(maps, labels, scores, layer, f"Layer {layer} · {probe} · step {step}")
            self._events.add_image(f"attention/{probe}/L{layer}", picture, step, dataformats="HWC")

    def maps(self, step: int, probe: str, weights: Tensor, labels: list[str], **more) -> None:
        """Where every head looks in a probe, `(L, H, T, T)`, for the Attention tab: see `log_attention`."""
        log_attention(self._events, f"attention/{probe}", weights, labels, step, **more)

    def histograms(self, step: int, tensors: dict[str, Tensor]) -> None:
        """The distribution of each tensor's finite values, keyed by tag."""
        for tag, tensor in tensors.items():
            values = tensor.detach().float()
            finite = values[values.isfinite()]
            if len(finite):
                self._events.add_histogram(tag, finite, step)

    def flush(self) -> None:
        """Everything is with the operating system, or this raises what went wrong."""
        self._events.flush()
        # TensorBoard's writer thread calls a record done before it keeps the error that the record met. Only
        # after one more, empty, event is that error sure to be seen.
        self._events.file_writer.add_event(Event())
        self._events.flush()

    def close(self) -> None:
        """`flush`, then both files are closed, whether that worked or not."""
        with ExitStack() as stack:
            stack.callback(self._metrics.close)
            stack.callback(self._events.close)
            self.flush()


def _keep_until(path: Path, step: int) -> None:
    """Cut a `metrics.jsonl` to its lines up to `step`, in one move: a reader sees the old file or the new."""
    # A process that was killed may leave half a line at the end, or no file yet.
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    kept = [line for line in text.splitlines(keepends=True) if line.endswith("\n") and _step(line) <= step]
    beside = path.with_name(path.name + ".partial")
    beside.write_text("".join(kept), encoding="utf-8", newline="\n")
    os.replace(beside, path)


def _step(line: str) -> float:
    """The step of a line of metrics; infinite for what is none, such as the zeros that a power cut leaves."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
