"""A TensorBoard of its own process, for the tests that ask one."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError


@contextmanager
def tensorboard(logdir: Path, *words: str) -> Iterator[str]:
    """The address of a TensorBoard over `logdir`; it finds plugins as anybody's does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--logdir", str(logdir), "--host", "127.0.0.1", "--port", str(port), "--reload_interval", "1"]
    command = [sys.executable, "-m", "tensorboard.main", *place, *words]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=logdir.parent)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def wait_for(shown: Callable[[], bool], seconds: float = 60) -> None:
    """Ask till it is there, or the time is over: what is missing then is for the test to say."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if shown():
                return
        except (URLError, ConnectionError):
            pass
        time.sleep(0.5)
