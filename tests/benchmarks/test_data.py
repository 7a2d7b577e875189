"""The benchmark of data/ measures, also on a text so small that preparing it takes no time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.data import write_text

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("size", [1000, 1_000_003, 20_000_000])
def test_the_text_has_its_size_and_is_text(tmp_path, size):
    write_text(tmp_path / "text.txt", size)
    raw = (tmp_path / "text.txt").read_bytes()
    assert size - 3 <= len(raw) <= size  # but for half a character
    assert len(raw.decode().split("\n")) > size / 100


@pytest.mark.slow
def test_it_measures_every_tokenizer_and_a_batch():
    command = [sys.executable, "-m", "benchmarks.data", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"(byte|char|bpe) +([\d.]+) +([\d.]+) GB", done.stdout)
    assert [name for name, _, _ in rows] == ["byte", "char", "bpe"]
    assert all(float(speed) > 0.1 and 0.1 < float(memory) < 2 for _, speed, memory in rows)
    assert 0 < float(re.search(r"fetch .*: ([\d.]+)%", done.stdout)[1]) < 100
