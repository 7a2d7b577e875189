"""The pictures: every cell in its place and colour, the future grey, any label drawn as text."""

import subprocess
import sys
from time import process_time

import matplotlib
import numpy as np
import pytest
import torch

from dashboard import figures, heads
from dashboard.figures import MAP, UNSEEN, attention_image
from tests.dashboard.test_heads import random_weights


def picture(weights: torch.Tensor, labels: list[str]) -> np.ndarray:
    scores = heads.scores(weights, torch.arange(weights.shape[-1]))
    return attention_image(weights[0], labels, scores, 0, "Layer 0 · text · step 5")


def corners(n_heads: int) -> list[tuple[int, int]]:
    return figures._page(n_heads)[1]


@pytest.mark.parametrize("n_tokens", [1, 7, 32, 50])
def test_each_cell_of_each_head_has_the_colour_of_its_weight(n_tokens):
    weights = random_weights(1, 1, 5, n_tokens, n_tokens)
    image = picture(weights, ["a"] * n_tokens)
    shown = min(n_tokens, figures.MAX_TOKENS)
    cell = MAP // shown
    palette = matplotlib.colormaps[figures.PALETTE]
    for (x, y), head in zip(corners(5), weights[0].numpy(), strict=True):
        for row in range(shown):
            for column in range(shown):
                square = image[
                    y + row * cell : y + (row + 1) * cell, x + column * cell : x + (column + 1) * cell
                ]
                seen = column <= row
                expected = palette(np.sqrt(head[row, column]), bytes=True)[:3] if seen else (UNSEEN,) * 3
                assert (square == expected).all(), (row, column)


def test_the_grey_of_the_unseen_is_no_colour_of_the_palette():
    palette = matplotlib.colormaps[figures.PALETTE](np.linspace(0, 1, 256), bytes=True)[:, :3].astype(int)
    assert np.abs(palette - UNSEEN).max(1).min() > 60


def label_strips(label: str) -> tuple[np.ndarray, np.ndarray]:
    return figures._label_strips((label,) * 2, 40)


@pytest.mark.parametrize(
    "label",
    [
        "$x^2$",
        "$\\frac{",
        "\\",
        "<img src=x>",
        "\n",
        "\x00",
        "😀",
        "从前有座山",
        "\U0001f99c",
        "ก",
        "\udc80",
        "",
    ],
)
def test_any_label_leaves_ink_on_both_edges_and_no_warning(label):
    beside, below = label_strips(label)
    assert (beside < 128).any() and (below < 128).any()


def test_labels_are_no_formulas():
    """As mathtext, `$x$` would lose its dollars and be narrower than `$x.`, which is no formula."""

    def width(label: str) -> int:
        return np.ptp(np.flatnonzero((label_strips(label)[0] < 200).any((0, 2))))

    assert abs(width("$x$") - width("$x.")) <= 3


def test_without_chinese_fonts_chinese_is_spelt_by_code_point(monkeypatch):
    monkeypatch.setattr(figures, "_families", lambda: ["DejaVu Sans Mono", "DejaVu Sans"])
    figures._has_glyph.cache_clear()
    figures._label_strips.cache_clear()
    try:
        assert figures.drawable("从a") == "\\u4ecea"
        assert (label_strips("从")[0] < 128).any()
    finally:
        figures._has_glyph.cache_clear()
        figures._label_strips.cache_clear()


def test_a_dark_matplotlibrc_changes_nothing():
    weights = random_weights(2, 1, 2, 6, 6)
    plain = picture(weights, list("abcdef"))
    with matplotlib.style.context("dark_background"):
        figures._label_strips.cache_clear()
        assert (picture(weights, list("abcdef")) == plain).all()


def test_sixteen_heads_are_drawn_within_the_time_that_training_can_spare():
    weights = random_weights(3, 4, 4, 32, 32)
    scores = heads.scores(weights, torch.arange(32))
    start = process_time()
    for layer in range(4):
        attention_image(weights[layer], [f" word{i}" for i in range(32)], scores, layer, "heading")
    assert process_time() - start < 1.5


def test_matplotlib_is_imported_with_the_first_picture_and_pyplot_never():
    code = """if True:
        import sys, torch
        from dashboard import figures, heads, logger
        assert not any(name.startswith("matplotlib") for name in sys.modules)
        weights = torch.eye(3).expand(1, 1, 3, 3)
        figures.attention_image(weights[0], list("abc"), heads.scores(weights, torch.arange(3)), 0, "")
        assert "matplotlib.figure" in sys.modules and "matplotlib.pyplot" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
