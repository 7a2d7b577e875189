"""How far reading has come: one line rewritten on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable


class Progress:
    """Counts the UTF-8 bytes of the text that goes past; `total` is None where nobody knows it."""

    def __init__(self, doing: str, total: int | None, say: Callable[[str], None]):
        self.doing, self.total, self.say = doing, total, say
        self.terminal = sys.stderr.isatty()
        self.pause = 0.2 if self.terminal else 10.0  # seconds between two lines
        self.done = 0
        self.started = self.spoken = time.monotonic()

    def past(self, text: str) -> str:
        self.done += len(text) if text.isascii() else len(text.encode())
        now = time.monotonic()
        if now - self.spoken >= self.pause:
            self.spoken = now
            line = self._line(now - self.started)
            if self.terminal:
                print(f"\r{line}", end="\x1b[K", file=sys.stderr, flush=True)
            else:
                self.say(line)
        return text

    def end(self) -> None:
        if self.terminal and self.spoken > self.started:
            print("\r", end="\x1b[K", file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        size, speed = self.done / 1e6, f"{self.done / 1e6 / seconds:.1f} MB/s"
        if not self.total:
            return f"{self.doing}: {size:,.0f} MB, {speed}"
        share = min(1.0, self.done / self.total)
        bar = "█" * int(20 * share) + "░" * (20 - int(20 * share))
        return f"{self.doing} {bar} {share:4.0%} of {self.total / 1e6:,.0f} MB, {speed}"
