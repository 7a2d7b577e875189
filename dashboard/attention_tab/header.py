"""The header of one step's attention maps: what both who writes and who reads them may rely on.

A step is a sequence of blobs: this header, as JSON, then a map for each layer, gzipped.

    version     1
    layers, heads, length    the shape: L, H, T
    causal      whether a map holds the lower triangle alone, row by row, or all T × T
    tokens      T texts, as they are shown
    scores      {name: L × H numbers}
    loss        T - 1 numbers, of predicting token i + 1 from position i, or null
    ablation    L × H numbers, the rise of the probe's loss without that head, or null
    gain        how much lower the loss is on the second copy of what is repeated, or null
    about       a sentence on what the probe is

A map is heads × rows × columns bytes, each round(255 · √weight).
"""

import json

VERSION = 1
MOST = {"layers": 256, "heads": 256, "length": 1024}
MOST_BYTES = 1_000_000


def read_header(blob: bytes, blobs: int) -> dict:
    """The header in `blob`, the first of so many `blobs`. ValueError for anything that is not as above."""
    if len(blob) > MOST_BYTES:
        raise ValueError(f"the header has {len(blob):,} bytes; at most {MOST_BYTES:,} can be")
    try:
        found = json.loads(blob.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the header is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("the header is damaged: no names in it")
    version = found.get("version")
    if version != VERSION:
        advice = f"this tab reads version {VERSION}; update clearhead, then start TensorBoard again"
        raise ValueError(f"written in version {_short(version)} of the format, and {advice}")
    for name, most in MOST.items():
        if type(found.get(name)) is not int or not 1 <= found[name] <= most:
            raise ValueError(f"{name} is {_short(found.get(name))}, not a whole number from 1 to {most}")
    layers, heads, length = (found[name] for name in MOST)
    if blobs != layers + 1:
        raise ValueError(f"layers is {layers}, but the number of maps is {blobs - 1}")
    _check_words(found, length)
    scores = found.get("scores")
    if not isinstance(scores, dict):
        raise ValueError(f"scores is {_short(scores)}, not named")
    for name, values in scores.items():
        _check_numbers(f"scores[{_short(name)}]", values, layers, heads)
    more = {"loss": (length - 1,), "ablation": (layers, heads), "gain": ()}
    for name, shape in more.items():
        if found.get(name) is not None:
            _check_numbers(name, found[name], *shape)
    names = (*MOST, "causal", "tokens", "scores", *more)
    return {"version": VERSION, **{name: found.get(name) for name in names}, "about": found.get("about", "")}


def _check_words(found: dict, length: int) -> None:
    """ValueError unless `causal`, `tokens` and `about` are what they are called."""
    if not isinstance(found.get("causal"), bool):
        raise ValueError(f"causal is {_short(found.get('causal'))}, not true or false")
    tokens = found.get("tokens")
    if not isinstance(tokens, list) or len(tokens) != length:
        what = f"a list of {len(tokens)}" if isinstance(tokens, list) else _short(tokens)
        raise ValueError(f"tokens is {what}, but maps have a length of {length}")
    if not all(isinstance(text, str) for text in [*tokens, found.get("about", "")]):
        raise ValueError("tokens and about must be texts")


def _check_numbers(name: str, values, *shape: int) -> None:
    """ValueError unless `values` are nested lists of this shape, of finite numbers."""
    level = [values]
    for count in shape:
        if not all(isinstance(row, list) and len(row) == count for row in level):
            raise ValueError(f"{name} is not {' × '.join(map(str, shape))} numbers")
        level = [value for row in level for value in row]
    # Compared, not math.isfinite, which fails on a whole number of 400 digits.
    if not all(type(value) in (int, float) and abs(value) < 1e300 for value in level):
        raise ValueError(f"{name} has a value that is no finite number")


def _short(value) -> str:
    return f"{value!r:.40}"
