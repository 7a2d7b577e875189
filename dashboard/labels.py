"""Text made fit to look at: what cannot be seen gets a sign, and nothing is read as markup."""

import unicodedata

SIGNS = {"\n": "↵", "\t": "⇥"}
HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}  # Unicode categories without a picture


def visible(text: str) -> str:
    """`text` with a sign or an escape for each character that has no picture.

    Line ends and tabs become ↵ and ⇥; control and format characters, lone surrogates and
    unassigned code points are spelt as in Python: `\\x00`, `\\u200b`.
    """
    return "".join(SIGNS.get(c) or (escape(c) if unicodedata.category(c) in HIDDEN else c) for c in text)


def token_label(token: str, columns: int = 10) -> str:
    """A token as an axis label: visible, spaces as `·`, cut to `columns` (a Chinese character takes two)."""
    label = visible(token).replace(" ", "·") or "∅"
    if columns_of(label) <= columns:
        return label
    while columns_of(label) > columns - 1:
        label = label[:-1]
    return label + "…"


def columns_of(text: str) -> int:
    """The width of `text` in a terminal or a fixed-width font."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def code_block(text: str) -> str:
    """`text` as Markdown that shows it literally: each line indented by four spaces.

    Not a fence, which the first ``` in the text would end. Markdown drops blank lines at both ends.
    """
    lines = text.replace("\r\n", "\n").expandtabs(4).split("\n")
    return "\n".join("    " + visible(line) for line in lines)


def escape(character: str) -> str:
    """A character by its code point: `\\x00`, `\\u4e2d`, `\\U0001f600`."""
    return character.encode("unicode_escape").decode("ascii")
