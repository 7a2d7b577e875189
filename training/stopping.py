"""When a run ends: the limits that were set, a signal, or numbers that are no longer numbers."""

import signal
import time

from training.config import LoopConfig


class Interrupted:
    """Ctrl-C or SIGTERM, remembered until the step is finished; a second one stops at once.

    A context manager: the handlers are put back on leaving.
    """

    def __enter__(self) -> "Interrupted":
        self.asked = False
        self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, number, frame) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


class Limits:
    """Which of the limits has been reached; whichever comes first ends the run.

    `best` and `waited` (evaluations since it) are the state, kept in the checkpoint.
    """

    def __init__(self, config: LoopConfig, best: float = float("inf"), waited: int = 0) -> None:
        self.config, self.best, self.waited = config, best, waited
        self.started = time.monotonic()

    def evaluated(self, val_loss: float) -> bool:
        """Take note of a validation loss; True when it is the best so far."""
        better = val_loss < self.best
        self.best, self.waited = min(val_loss, self.best), 0 if better else self.waited + 1
        return better

    def reached(self, step: int) -> str | None:
        """Why to stop after `step` steps, in words, or None."""
        config = self.config
        if step >= config.max_steps:
            return f"all {config.max_steps} steps done"
        if config.target_loss is not None and self.best <= config.target_loss:
            return f"val loss {self.best:.4f} reached the target {config.target_loss}"
        if config.patience is not None and self.waited >= config.patience:
            return f"no better val loss in {self.waited} evaluations"
        if config.max_minutes is not None and time.monotonic() - self.started >= 60 * config.max_minutes:
            return f"{config.max_minutes} minutes are over; the learning rate had not finished its decay"
        return None
