"""The attention maps of one layer as a picture.

A page of pixels: the maps are coloured and pasted with numpy, and matplotlib writes the words on top. An
artist per cell, or only an axis per map, would take several times as long. Matplotlib is imported with the
first picture, and through its objects: pyplot would keep every figure and choose a window system.
Lengths are in pixels, counted from the top left.
"""

from functools import cache, lru_cache
from math import ceil, sqrt

import numpy as np
from torch import Tensor

from dashboard.heads import name_head, strongest
from dashboard.labels import columns_of, escape, token_label, visible

MAX_TOKENS = 32  # as many labels as can be read
MAP, GAP, LABELS = 352, 16, 84  # a map (11 a token), the space between two, the room for labels
HEADING, TITLE, SCALE = 64, 24, 72  # above all maps, above each map, right of them
DPI = 100
PALETTE = "viridis"  # even steps in lightness: reads the same to colour-blind eyes, and in grey
UNSEEN = 228  # a grey that the palette lacks, so that "may not look" is never taken for "weight 0"

FAMILIES = ["DejaVu Sans Mono", "DejaVu Sans"]  # which come with matplotlib; the others where installed:
FAMILIES += ["Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC"]
FAMILIES += ["WenQuanYi Micro Hei", "WenQuanYi Zen Hei"]  # Linux
FAMILIES += ["PingFang SC", "Hiragino Sans GB"]  # macOS
FAMILIES += ["Microsoft YaHei", "SimHei", "Malgun Gothic"]  # Windows
FAMILIES += ["Noto Emoji", "Segoe UI Emoji"]


def attention_image(
    weights: Tensor, labels: list[str], scores: dict[str, Tensor], layer: int, heading: str
) -> np.ndarray:
    """All heads of one layer, from their causal weights `(H, T, T)`: `(height, width, 3)` bytes.

    A row is the token that looks, a column where it looks. Colour follows the square root of the weight, or
    all but the sharpest heads would be black. The maps share their labels, which stand on the outer edges.
    Of more than `MAX_TOKENS` tokens the first are drawn, and the legend says so.
    """
    n_heads, n_tokens, _ = weights.shape
    shown = min(n_tokens, MAX_TOKENS)
    cell = MAP // shown
    page, corners = _page(n_heads)
    columns, (beside, below) = ceil(sqrt(n_heads)), _label_strips(tuple(labels[:shown]), cell)
    for head, (x, y) in enumerate(corners):
        _paste(page, (x, y), _coloured(weights[head, :shown, :shown], cell))
        if head % columns == 0:
            _paste(page, (0, y), beside)
        if head + columns >= n_heads:
            _paste(page, (x, y + cell * shown), below)
    x, y = page.shape[1] - SCALE + 4, corners[0][1]
    _paste(page, (x, y), _palette(np.linspace(1, 0, MAP)[:, None].repeat(12, 1)))

    legend = "rows look at columns · grey: later tokens"
    if shown < n_tokens:
        legend = f"first {shown} of {n_tokens} tokens · {legend}"
    words = [(LABELS, 18, heading, {"size": 13}), (LABELS, 42, legend, {"size": 9, "color": "#666666"})]
    words += [(left, top - 12, _title(scores, layer, h), {}) for h, (left, top) in enumerate(corners)]
    marks = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1)
    words += [(x + 17, y + MAP * (1 - sqrt(weight)), f"{weight:g}", {"size": 8}) for weight in marks]
    return _write(page, words)


def drawable(text: str) -> str:
    """`text` with the code point in place of each character that no installed font can draw."""
    return "".join(c if _has_glyph(c) else escape(c) for c in text)


def _page(n_heads: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """An empty page and the top left corner of each head's map, in a grid about as wide as high."""
    columns = ceil(sqrt(n_heads))
    rows = ceil(n_heads / columns)
    height = HEADING + rows * (TITLE + MAP + GAP) + LABELS
    corners = [
        (LABELS + head % columns * (MAP + GAP), HEADING + head // columns * (TITLE + MAP + GAP) + TITLE)
        for head in range(n_heads)
    ]
    return _blank(height, LABELS + columns * (MAP + GAP) + SCALE), corners


def _blank(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 255, dtype=np.uint8)


def _paste(page: np.ndarray, corner: tuple[int, int], picture: np.ndarray) -> None:
    x, y = corner
    page[y : y + len(picture), x : x + picture.shape[1]] = picture


def _coloured(weights: Tensor, cell: int) -> np.ndarray:
    """One head's `(T, T)` weights as squares of `cell` pixels; what a row may not see is grey."""
    colours = _palette(weights.float().cpu().sqrt().numpy())
    colours[np.triu_indices(len(colours), 1)] = UNSEEN
    return colours.repeat(cell, 0).repeat(cell, 1)


def _palette(shades: np.ndarray) -> np.ndarray:
    from matplotlib import colormaps

    return colormaps[PALETTE](shades, bytes=True)[..., :3]


def _title(scores: dict[str, Tensor], layer: int, head: int) -> str:
    """`L1H3  previous token 0.91`, or `L1H3  mixed (first token 0.31)`."""
    pattern, score = strongest(scores, layer, head)
    found = f"{pattern.replace('_', ' ')} {score:.2f}"
    return f"L{layer}H{head}  " + (f"mixed ({found})" if name_head(scores, layer, head) == "mixed" else found)


@lru_cache(maxsize=8)  # the same for every layer and step, and most of the work
def _label_strips(labels: tuple[str, ...], cell: int) -> tuple[np.ndarray, np.ndarray]:
    """The labels as they stand beside a map and below one, as pixels."""
    names = [token_label(drawable(visible(label))) for label in labels]
    small = {"size": 7.5, "ha": "right"}
    beside = [(LABELS - 4, (t + 0.5) * cell, name, small) for t, name in enumerate(names)]
    below = [((t + 0.5) * cell, 4, *_downwards(name)) for t, name in enumerate(names)]
    length = cell * len(names)
    return _write(_blank(length, LABELS), beside), _write(_blank(LABELS, length), below)


def _downwards(name: str) -> tuple[str, dict]:
    """A label that runs down the page: wide characters in a column, as Chinese is set; others turned."""
    style = {"size": 7.5, "ha": "center", "va": "top"}
    if len(name) == 1 or columns_of(name) == 2 * len(name):
        return "\n".join(name), style
    return name, style | {"rotation": 90}


def _write(page: np.ndarray, words: list[tuple]) -> np.ndarray:
    """`page` with each of `words`, (x, y, text, style), on it: dark, and where it is white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.style import context

    height, width, _ = page.shape
    with context("default"):  # and not the user's matplotlibrc, which may be light on dark
        figure = Figure((width / DPI, height / DPI), dpi=DPI)
        for x, y, text, style in words:
            # No mathtext: a token such as $x$ is text.
            style = {"size": 10, "va": "center", "family": _families(), "parse_math": False} | style
            figure.text(x / width, 1 - y / height, text, **style)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    # The darker of each two pixels: matplotlib itself would take longer to paste the page than to write.
    return np.minimum(page, np.asarray(canvas.buffer_rgba())[..., :3])


@cache
def _families() -> list[str]:
    """Those of `FAMILIES` that are installed: matplotlib would complain about each of the others."""
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [family for family in FAMILIES if family in installed]


@cache
def _has_glyph(character: str) -> bool:
    from matplotlib.font_manager import findfont, get_font

    return any(get_font(findfont(family)).get_char_index(ord(character)) for family in _families())
