"""The page of the Attention tab: its parts that need no browser, by node; and its promises as text."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dashboard import heads

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "dashboard" / "attention_tab" / "static"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no node here")
def test_the_parts_that_need_no_browser():
    suites = sorted(map(str, HERE.glob("attention_*.mjs")))
    assert len(suites) == 2
    run = subprocess.run([NODE, "--test", *suites], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"pass [1-9]\d", run.stdout), run.stdout


def test_every_score_is_explained():
    page = (PAGE / "page.html").read_text(encoding="utf-8")
    for name in [*heads.SCORES, "ablation", "gain", "loss"]:
        words = re.search(
            rf'<template id="what-{name}"><p>(.+?)</p>\s*<p class="formula">(.+?)</p>', page, re.S
        )
        assert words, name
    code = (PAGE / "scoring.js").read_text(encoding="utf-8")
    assert json.loads(re.search(r"const PATTERNS = (\[.+?\]);", code)[1]) == list(heads.PATTERNS)


def test_nothing_is_markup_inline_or_from_outside():
    """Token texts are anybody's; and TensorBoard forbids its tabs inline scripts and other sites."""
    for file in PAGE.glob("*.js"):
        code = file.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", code
        ), file
        assert not re.search(r"https?://", code), file
    for file in (PAGE / "page.html", PAGE / "style.css"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?://|<script|\son\w+=|@import|url\(", text), file


def test_it_stays_small():
    lines = [line for file in PAGE.glob("*.js") for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(lines) <= 1500
    assert max(map(len, lines)) <= 120
