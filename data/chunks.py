"""Text on its way through the room: documents as a stream of pieces of bounded size."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

CHUNK = 1 << 12  # characters; a longer document travels in pieces, so that memory stays flat


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

    Long documents are cut where a word ends and a blank follows, if there is such a place: there
    byte-level BPE cuts too, and finds the same tokens as in the uncut text.
    """
    rest, begun = "", False
    for block in blocks:
        rest += block
        if separator:
            *whole, rest = rest.split(separator)
            for text in whole:
                if text or begun:
                    yield Chunk(text, ends=True)
                begun = False
        at = 0
        while len(rest) - at > 2 * CHUNK:  # the rest of a separator may still be on its way
            words = rest[at : at + CHUNK].rsplit(None, 1)
            piece = rest[at : at + len(words[0])] if len(words) == 2 else rest[at : at + CHUNK]
            yield Chunk(piece, ends=False)
            at += len(piece)
            begun = True
        rest = rest[at:]
    if rest or begun:
        yield Chunk(rest, ends=True)
