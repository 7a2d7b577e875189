"""Byte-level BPE by looking words up: `tokenizers` spends its time on offsets and copies of strings."""

import re

import numpy as np
import tokenizers

KEPT = 2_000_000  # characters of words that are remembered, in about 60 MB
BLANK, FULL = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]"  # to Python, but not to GPT-2's pattern, \x1c is a blank
# GPT-2's pattern (Radford et al. 2019) cuts at all these places: around all but the last of several blanks,
# where ASCII's letters end or its signs, unless an apostrophe or other characters follow, and before a blank.
WORD = re.compile(
    rf"{BLANK}+(?!{FULL})|{BLANK}?(?:[A-Za-z]++|[!-&(-@[-`{{-~]++)(?![^\t-\r -&(-~])|{BLANK}?{FULL}+"
)


class Words:
    """The ids of words, kept as they come, by a tokenizer.json that cuts text with GPT-2's pattern: BPE never
    looks across a cut, so the ids of a text are those of its words."""

    def __init__(self, wrapped: tokenizers.Tokenizer, dtype: type):
        self.wrapped, self.dtype = wrapped, dtype
        self.ids: dict[str, bytes] = {}
        self.kept = 0  # characters

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        if self.kept > KEPT:
            self.ids, self.kept = {}, 0
        cut = [WORD.findall(text) for text in texts]
        new = list(set().union(*cut) - self.ids.keys())
        encoded = self.wrapped.encode_batch_fast(new, add_special_tokens=False)
        for word, encoding in zip(new, encoded, strict=True):
            self.ids[word] = np.array(encoding.ids, self.dtype).tobytes()
        self.kept += sum(map(len, new))
        return [np.frombuffer(b"".join(map(self.ids.__getitem__, words)), self.dtype) for words in cut]
