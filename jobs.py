"""The jobs of a sweep, one process after the other."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path


def run_jobs(program: Path, jobs: list[list[str]]) -> int:
    """The worst exit code. Ctrl-C reaches the running job too, and SIGTERM is handed on to it; it saves and
    exits 130: till then this process must not die, nor kill it (subprocess would, after 0.25 s)."""
    interrupted, running = [], []

    def stop(number, frame) -> None:
        interrupted.append(True)
        if number == signal.SIGTERM and running:
            running[-1].terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    worst = 0
    for number, words in enumerate(jobs, 1):
        announcement = f"{program.name}: job {number} of {len(jobs)}: {shlex.join(words)}"
        print(announcement, file=sys.stderr, flush=True)
        running.append(subprocess.Popen([sys.executable, program, *words]))
        code = running[-1].wait()
        code = code if code >= 0 else 128 - code  # killed by a signal
        if interrupted or code == 130:
            return 130
        worst = max(worst, code)
    return worst
