"""A run's folder: its name, and who is at work in it."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

try:
    import fcntl
except ImportError:  # Windows: no lock there
    fcntl = None


def run_name(words: Sequence[str], now: float | None = None) -> str:
    """<date>_<time>_<key-value>…, of letters that every shell and file system takes; at most 100."""
    parts = [time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))]
    for word in words:
        key, _, value = word.partition("=")
        if key not in ("run_dir", "resume", "init_from", "like"):
            parts.append(f"{key.rpartition('.')[2]}-{Path(value).name or value}")
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", "_".join(parts))[:100].rstrip("-.")


def new_folder(run_dir: str | None, words: Sequence[str]) -> Path:
    """Make a folder for a new run, never one that is there: `_2` is appended to a name that is taken.

    ValueError for an explicit one that already holds something, or that cannot be made.
    """
    try:
        if run_dir is not None:
            folder = Path(run_dir)
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / "config.yaml").exists():
                raise ValueError(f"run_dir={run_dir} holds a run already; resume={run_dir} goes on with it")
            if any(folder.iterdir()):
                raise ValueError(f"run_dir={run_dir} is not empty")
            return folder
        name = run_name(words)
        for number in range(1, 10_000):
            folder = Path("runs") / (name if number == 1 else f"{name}_{number}")
            try:
                folder.mkdir(parents=True)  # atomic: of two simultaneous starts one goes on to the next name
                return folder
            except FileExistsError:
                if not folder.is_dir():
                    raise
    except OSError as error:
        raise ValueError(f"no folder can be made for the run: {error}") from error
    raise ValueError(f"runs/ is full of {name}")


def take_lock(folder: Path) -> TextIO:
    """A run's lock, held until it is closed. ValueError if another live process has it; a dead one's is
    gone with it."""
    try:
        file = open(folder / ".lock", "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise ValueError(f"{folder} cannot be written to: {error}") from error
    if fcntl:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ValueError(f"{folder} is being trained by another process") from error
    return file
