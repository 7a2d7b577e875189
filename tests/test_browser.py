"""TensorBoard shows a run to a person: asked over HTTP, and in a real browser."""

import json
import shutil
import subprocess
import time
import urllib.request

import pytest

import train
from tests.board import tensorboard, wait_for
from tests.test_train import SMALL, TEXT

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--window-size=1400,1000", "--virtual-time-budget=30000"),
]


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The address of a TensorBoard that shows one small run."""
    folder = tmp_path_factory.mktemp("board")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    words = ["data=file", f"data.path={folder / 'text.txt'}", *SMALL, f"run_dir={folder / 'runs' / 'one'}"]
    train.train(train.configure(words), words, say=lambda line: None)
    with tensorboard(folder / "runs") as address:
        wait_for(lambda: ask(f"{address}/data/plugin/scalars/tags"))
        yield address


def ask(address):
    return json.load(urllib.request.urlopen(address))


@pytest.mark.slow
def test_tensorboard_has_curves_maps_samples_and_the_configuration(board):
    scalars = ask(f"{board}/data/plugin/scalars/tags")["one"]
    assert {"train/loss", "train/lr", "val/loss", "val/bpb", "speed/mfu"} <= set(scalars)
    assert {f"heads/entropy/max_L{layer}" for layer in (0, 1)} <= set(scalars)
    images = ask(f"{board}/data/plugin/images/tags")["one"]
    assert {f"attention/{probe}/L{layer}" for probe in ("text", "repeats") for layer in (0, 1)} <= set(images)
    texts = ask(f"{board}/data/plugin/text/tags")["one"]
    assert any("config" in tag for tag in texts) and any("samples" in tag for tag in texts)


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["train/loss", "val/loss", "attention/text/L0"])
def test_a_browser_shows_curves_and_maps(board, tmp_path, tag):
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    # The page draws the cards that are in sight, so the one that is meant is filtered for. It loads in
    # pieces, and a machine that is busy may not have them all by the time that it is looked at.
    address = f"{board}/?tagFilter={tag}#timeseries"
    for attempt in range(12):
        command = [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / str(attempt)}", "--dump-dom", address]
        page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        if f'title="{tag}"' in page:
            break
        time.sleep(2)
    assert f'title="{tag}"' in page and "Tags matching filter" in page
