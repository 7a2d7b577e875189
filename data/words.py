"""Byte-level BPE, fast: text is cut into words by Python's `re`, and what a word became is looked up.

`tokenizers` spends its time on offsets and copies of strings that nobody asks for here.
"""

import re
from functools import cache

import numpy as np
import tokenizers
from tokenizers import Regex, pre_tokenizers

KEPT = 1 << 18  # words, in about 50 MB
LONG = 32  # characters; longer words do not come again
PLANE = "".join(chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000)
BEYOND = re.compile("[\U00010000-\U0001f1ff\U0001fb00-\U0010ffff]")  # emoji, in between, are no letters


class Words(dict[str, bytes]):
    """The ids of words, by a tokenizer.json that cuts text as GPT-2 does: BPE never looks across the cuts."""

    def __init__(self, wrapped: tokenizers.Tokenizer, dtype: type):
        super().__init__()
        self.wrapped, self.dtype = wrapped, dtype

    def __missing__(self, word: str) -> bytes:
        ids = np.array(self.wrapped.encode(word, add_special_tokens=False).ids, self.dtype).tobytes()
        if len(word) <= LONG and len(self) < KEPT:
            self[word] = ids
        return ids

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(b"".join(map(self.__getitem__, pattern().findall(text))), self.dtype)


def repays(text: str) -> bool:
    """Whether looking up is right for a text, and quicker: words that no blanks divide, as in Chinese,
    seldom come again, and characters beyond U+FFFF are in no table of `pattern`."""
    return text.isascii() or (len(text.encode()) < 2 * len(text) and not BEYOND.search(text))


@cache
def pattern() -> re.Pattern:
    """GPT-2's words (Radford et al. 2019), with letters, numbers and blanks as `tokenizers` knows them."""
    letters, numbers, blanks = (_ranges(kind) for kind in (r"\p{L}", r"\p{N}", r"\s"))
    return re.compile(
        rf"'(?:[sdmt]|ll|ve|re)| ?[{letters}]+| ?[{numbers}]+| ?[^{blanks}{letters}{numbers}]+"
        rf"|[{blanks}]+(?![^{blanks}])|[{blanks}]+"
    )


def _ranges(kind: str) -> str:
    """The characters of a kind, for a class in `re`: their runs in the row of all characters."""
    runs = pre_tokenizers.Split(Regex(f"{kind}+"), "removed", invert=True).pre_tokenize_str(PLANE)
    return "".join(rf"\u{ord(run[0]):04x}-\u{ord(run[-1]):04x}" for run, _ in runs)
