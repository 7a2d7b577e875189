"""Text ⇄ token ids: byte-level BPE, characters or bytes, each of them a Hugging Face tokenizer.json."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import compress

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from data.config import TokenizerConfig
from data.words import Words

END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<unk>"
ENDS = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "[SEP]")  # by which other tokenizers call it
SAMPLE = 4_000_000  # characters that BPE learns from, spread over the training text. Chinese, whose words no
# blanks divide, takes 300 bytes of memory a character: this many stay near 1 GB
LEAST_BPE = 257  # every byte, and the end of text


class Tokenizer:
    """A tokenizer.json at work.

    `encode` and `decode` are exact inverses for `bpe` and `byte` on any text, and for `char` on any
    text of known characters. `char` and `byte` are encoded by NumPy, `bpe` by looking words up, with the
    ids that their tokenizer.json gives, but faster.
    """

    def __init__(self, wrapped: tokenizers.Tokenizer):
        self.wrapped = wrapped
        wrapped.encode_special_tokens = True  # <|endoftext|> typed by a user is text; saving forgets this
        wrapped.no_truncation()  # some come with a longest length, and would cut text in silence
        wrapped.no_padding()
        self.vocabulary = wrapped.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocabulary.values()) + 1
        self._dtype = np.uint16 if self.vocab_size <= 1 << 16 else np.uint32
        self._words = Words(wrapped, self._dtype)
        self.special = {id for id, token in wrapped.get_added_tokens_decoder().items() if token.special}
        ends = [self.vocabulary[end] for end in ENDS if self.vocabulary.get(end) in self.special]
        self.end_of_text: int | None = ends[0] if ends else None

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Tokenizer":
        try:
            with open(path, encoding="utf-8") as file:
                return cls(tokenizers.Tokenizer.from_str(file.read()))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        except Exception as error:  # what `tokenizers` raises has no narrower class
            raise ValueError(f"{path}: not a tokenizer.json ({str(error)[:100]})") from None

    def save(self, path: str | os.PathLike) -> None:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(self.wrapped.to_str(pretty=True))

    @cached_property
    def fingerprint(self) -> str:
        """The same for tokenizers that do the same."""
        return hashlib.sha256(self.wrapped.to_str().encode()).hexdigest()[:16]

    def encode(self, text: str) -> np.ndarray:
        """Ids, int64; a ValueError names the characters that the tokenizer does not know."""
        if unknown := sorted(set(self.unknown(text))):
            known = "".join(sorted(token for token in self.vocabulary if len(token) == 1))
            raise ValueError(
                f"the tokenizer does not know {' '.join(map(repr, unknown[:20]))}; of its {len(known):,} "
                f"characters the first are {known[:60]!r}"
            )
        return self.encode_batch([text])[0].astype(np.int64)

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Ids of many texts at once, on every core; what the tokenizer does not know becomes `<unk>`."""
        if self._kind == "bpe":
            return self._words.encode_batch(texts)
        if self._kind:
            return [self._table[_units(text, self._kind)] for text in texts]
        try:
            encoded = self.wrapped.encode_batch_fast(texts, add_special_tokens=False)
        except Exception as error:  # what `tokenizers` raises has no narrower class
            raise ValueError(f"the tokenizer cannot take this text ({error})") from None
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encoded]

    def unknown(self, text: str) -> str:
        """The characters of a text that become `<unk>`, in order."""
        if self._kind == "char":
            lost = self._table[_units(text, "char")] == self.vocabulary[UNKNOWN]
            return "".join(compress(text, lost)) if lost.any() else ""
        unknown = self.vocabulary.get(getattr(self.wrapped.model, "unk_token", None))
        if unknown is None:
            return ""
        encoding = self.wrapped.encode(text, add_special_tokens=False)
        spans = zip(encoding.ids, encoding.offsets, strict=True)
        return "".join(text[start:end] for id, (start, end) in spans if id == unknown)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""
        ids = [int(id) for id in ids]
        if wrong := [id for id in ids if not 0 <= id < self.vocab_size]:
            raise ValueError(f"token id {wrong[0]} is outside the vocabulary of {self.vocab_size}")
        return self.wrapped.decode(ids, skip_special_tokens=False)

    def label(self, id: int) -> str:
        """A token for people: visible blanks; what cannot be seen, and bytes of a split character, as hex."""
        token = self.wrapped.id_to_token(int(id))
        if token is None or id in self.special:
            return token or f"[{id}]"
        if self._byte_level and BYTE_OF.keys() >= set(token):
            token = bytes(BYTE_OF[character] for character in token).decode("utf-8", "backslashreplace")
        elif self._kind != "char":
            token = token.replace("▁", " ")  # SentencePiece's blank
        return "".join(VISIBLE.get(c) or (c if c.isprintable() else _hex(c)) for c in token)

    @cached_property
    def _json(self) -> dict:
        return json.loads(self.wrapped.to_str())

    @cached_property
    def _byte_level(self) -> bool:
        decoder = self._json["decoder"] or {}
        return "ByteLevel" in [part.get("type") for part in decoder.get("decoders", [decoder])]

    @cached_property
    def _kind(self) -> str | None:
        """ "char", "byte" or "bpe" where the tokenizer.json works as theirs do, whoever made it."""
        shape, model = self._json, self._json["model"]
        if any(not token["special"] for token in shape["added_tokens"]):
            return None
        if _works_like(shape, _char([])) and model["unk_token"] == UNKNOWN and UNKNOWN in model["vocab"]:
            return "char"
        if _works_like(shape, _byte()) and not model["merges"] and BYTE_OF.keys() <= model["vocab"].keys():
            return "byte"
        return "bpe" if _works_like(shape, _bpe()) and not model["dropout"] else None

    @cached_property
    def _table(self) -> np.ndarray:
        """The id of every code point (char) or byte value (byte)."""
        size, number = (0x110000, ord) if self._kind == "char" else (256, BYTE_OF.get)
        table = np.full(size, self.vocabulary.get(UNKNOWN, 0), self._dtype)
        plain = {number(token): id for token, id in self.vocabulary.items() if len(token) == 1}
        table[list(plain)] = list(plain.values())
        return table


def _works_like(shape: dict, other: tokenizers.Tokenizer) -> bool:
    like = json.loads(other.to_str())
    steps = all(shape[step] == like[step] for step in ("normalizer", "pre_tokenizer", "decoder"))
    return steps and shape["model"]["type"] == like["model"]["type"]


def _units(text: str, kind: str) -> np.ndarray:
    """A text as numbers: its UTF-8 bytes, or its code points."""
    if kind == "byte":
        return np.frombuffer(text.encode(), np.uint8)
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _hex(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _byte_of() -> dict[str, int]:
    """Byte-level BPE writes each byte as a printable character (Radford et al. 2019): the way back."""
    ranges = (("!", "~"), ("¡", "¬"), ("®", "ÿ"))
    printable = [byte for first, last in ranges for byte in range(ord(first), ord(last) + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


BYTE_OF = _byte_of()
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}


def train_tokenizer(config: TokenizerConfig, texts: Iterator[str]) -> Tokenizer:
    """A tokenizer for these texts: the same for the same texts, wherever and whenever it is trained."""
    if config.name == "byte":
        return Tokenizer(_byte())
    if config.name == "char":
        return Tokenizer(_char(_alphabet(texts)))
    if config.vocab_size < LEAST_BPE:
        needs = f"bpe needs at least {LEAST_BPE}, the 256 bytes and {END_OF_TEXT}"
        raise ValueError(f"tokenizer.vocab_size={config.vocab_size}: {needs}")
    made = _bpe()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=2,  # a pair seen once teaches nothing: small texts get a smaller vocabulary
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(BYTE_OF),
        show_progress=False,
    )
    made.train_from_iterator(spread(texts, SAMPLE), trainer)
    return Tokenizer(made)


def spread(texts: Iterator[str], limit: int) -> list[str]:
    """At most about `limit` characters of texts, evenly spread over all of them, read once."""
    kept, total, stride = [], 0, 1
    for number, text in enumerate(texts):
        if number % stride:
            continue
        kept.append(text)
        total += len(text)
        if total > limit and len(kept) > 1:
            kept = kept[::2]
            total = sum(map(len, kept))
            stride *= 2
    return kept


def _bpe() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def _byte() -> tokenizers.Tokenizer:
    vocabulary = BYTE_OF | {END_OF_TEXT: 256}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END_OF_TEXT])
    return made


def _char(alphabet: list[str]) -> tokenizers.Tokenizer:
    vocabulary = {token: id for id, token in enumerate([END_OF_TEXT, UNKNOWN, *alphabet])}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    made.decoder = decoders.Fuse()  # without one, decoding puts blanks between characters
    made.add_special_tokens([END_OF_TEXT])
    return made


def _alphabet(texts: Iterator[str]) -> list[str]:
    seen = np.zeros(0x110000, bool)
    for text in texts:
        seen[_units(text, "char")] = True
    return [chr(code) for code in np.flatnonzero(seen)]
