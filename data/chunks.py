"""Text on its way through the room: documents as a stream of pieces of bounded size."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

CHUNK = 1 << 14  # characters; a longer document travels in pieces, so that memory stays flat


class Chunk(NamedTuple):
    """A piece of a document, and whether the document ends with it. No document is empty."""

    text: str
    ends: bool


Reader = Callable[[], Iterator[Chunk]]  # reads everything again from the start at every call


def pieces(text: str) -> Iterator[str]:
    """A text already in memory, as blocks."""
    return (text[at : at + CHUNK] for at in range(0, len(text), CHUNK))


def cut_into_documents(blocks: Iterable[str], separator: str | None = None) -> Iterator[Chunk]:
    """A stream of text as documents: one, or as many as the separator (itself dropped) makes of it.

    Documents of more than 32,768 characters are cut at line starts where they have lines: a tokenizer that
    never looks across a line's end then finds the same tokens as in the uncut text. GPT-2's pattern does look
    across when blanks follow: beside such a cut `bpe` may give other ids than `tokenizer.encode(document)`.
    """
    rest, begun = "", False
    behind = max(CHUNK, len(separator or ""))  # what stays: the rest of a separator may still be on its way
    for block in blocks:
        rest += block
        if separator:
            *whole, rest = rest.split(separator)
            for text in whole:
                if text or begun:
                    yield Chunk(text, ends=True)
                begun = False
        while len(rest) > CHUNK + behind:
            cut = rest.rfind("\n", 1, CHUNK) + 1 or CHUNK
            yield Chunk(rest[:cut], ends=False)
            rest, begun = rest[cut:], True
    if rest or begun:
        yield Chunk(rest, ends=True)
