"""What a run knows of itself, and when it ends."""

import signal
import time
from dataclasses import dataclass, field

from training.config import LoopConfig


@dataclass
class State:
    """Where a run stands: with the weights and the optimizer's memory, all it takes to go on."""

    fingerprint: str = ""  # of the text
    start: int = 0  # the token a text begins with when there is no prompt
    untrained: bool = False  # whether step 0 knows nothing, and is best only until something else is there
    step: int = 0  # finished steps
    tokens: int = 0
    seconds: float = 0.0  # spent in training steps
    wall: float = 0.0  # since the process started, evaluation aside
    val_loss: float | None = None
    val_step: int | None = None  # when that was
    best_val_loss: float | None = None
    best_step: int = 0
    waited: int = 0  # evaluations since the best
    heads: list = field(default_factory=list)  # [step, scores] of each time they were looked at
    circumstances: dict = field(default_factory=dict)  # what the numbers depend on, to the last bit

    def stepped(self, tokens: int, seconds: float) -> None:
        """Take note of a training step."""
        self.step += 1
        self.tokens += tokens
        self.seconds += seconds

    def changed(self, now: dict) -> list[str]:
        """Take note of the circumstances from here on; in words, what they change of a run that goes on."""
        was, self.circumstances = self.circumstances or now, now
        lines = {key: f"{key} is {n}, was {was[key]}" for key, n in now.items() if was.get(key, n) != n}
        return [
            f"{line}: the learning rate falls otherwise from here on" if key == "train.max_steps"
            else f"no longer bit-exact: {line}"
            for key, line in lines.items()
        ]

    def evaluated(self, val_loss: float) -> bool:
        """Take note of a validation loss; True when it is the best so far."""
        self.val_loss, self.val_step = val_loss, self.step
        first = self.best_val_loss is None or (self.untrained and self.best_step == 0)
        if not (first or val_loss < self.best_val_loss):  # nan is no better either
            self.waited += 1
            return False
        self.best_val_loss, self.best_step, self.waited = val_loss, self.step, 0
        return True


def ended(config: LoopConfig, state: State, minutes: float) -> str | None:
    """Which limit has been reached, in words, or None; whichever comes first ends the run."""
    if state.step >= config.max_steps:
        return f"all {state.step} steps done"
    if config.target_loss is not None and (state.best_val_loss or float("inf")) <= config.target_loss:
        return f"val loss {state.best_val_loss:.4f} reached train.target_loss={config.target_loss}"
    if config.patience is not None and state.waited >= config.patience:
        return f"no better val loss in {state.waited} evaluations (train.patience)"
    if config.max_minutes is not None and minutes >= config.max_minutes:
        return f"train.max_minutes={config.max_minutes} are over, before the learning rate finished its decay"
    return None


class Interrupted:
    """Ctrl-C or SIGTERM. While `patient` the first is remembered in `asked`, so that the step can be
    finished; a second Ctrl-C (not SIGTERM, which torchrun and sweeps add to it), or one that comes
    before, is a KeyboardInterrupt at once.

    A context manager: the handlers that were there come back on leaving.
    """

    def __enter__(self) -> "Interrupted":
        self.asked: set[int] = set()
        self.patient = False
        self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, number, frame) -> None:
        if not self.patient or (number == signal.SIGINT and number in self.asked):
            raise KeyboardInterrupt
        self.asked.add(number)

    def __exit__(self, *error) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def minutes_since(started: float) -> float:
    """Minutes since a time.perf_counter() reading."""
    return (time.perf_counter() - started) / 60
