"""What the terminal shows while a model trains: one live line, or plain lines where that cannot be."""

import sys
import time
from typing import TextIO


def duration(seconds: float) -> str:
    """1:05 or 2:03:04."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress:
    """step, loss, val loss, tokens/s and the time left.

    On a terminal one line is rewritten, at most ten times a second; elsewhere a line is printed at
    the first step, at every evaluation, and otherwise at most every ten seconds.
    """

    def __init__(self, max_steps: int, stream: TextIO | None = None) -> None:
        self.max_steps, self.first = max_steps, max_steps
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.shown_at = -1e9
        self.val_loss: float | None = None
        self.val_step = 0

    def step(self, step: int, loss: float, tokens_per_second: float) -> None:
        """After a training step. What the first takes, which may compile, says nothing of the others."""
        if self.first == self.max_steps:
            self.first, self.started = step, time.monotonic()
        if time.monotonic() - self.shown_at >= (0.1 if self.live else 10):
            self._show(step, f"loss {loss:.4f}", tokens_per_second)

    def evaluated(self, step: int, val_loss: float, best: bool, tokens_per_second: float | None) -> None:
        """After an evaluation, which leaves a line of its own."""
        self.val_loss, self.val_step = val_loss, step
        self._show(step, f"val loss {val_loss:.4f}" + (" (best)" if best and step else ""), tokens_per_second)
        if self.live:
            self.stream.write("\n")

    def say(self, line: str) -> None:
        """Print a line without tearing the live one."""
        self.stream.write(f"\r\033[K{line}\n" if self.live else f"{line}\n")
        self.stream.flush()

    def _show(self, step: int, loss: str, tokens_per_second: float | None) -> None:
        now = time.monotonic()
        line = f"step {step:>{len(str(self.max_steps))}}/{self.max_steps}  {loss}"
        if self.val_loss is not None and not loss.startswith("val"):
            line += f"  val loss {self.val_loss:.4f} at {self.val_step}"
        if tokens_per_second:
            line += f"  {tokens_per_second:,.0f} tokens/s"
        if step > self.first:
            left = (now - self.started) / (step - self.first) * (self.max_steps - step)
            line += f"  {duration(left)} left"
        self.stream.write(f"\r\033[K{line}" if self.live else f"{line}\n")
        self.stream.flush()
        self.shown_at = now
