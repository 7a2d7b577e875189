"""A corpus: documents from wherever text lies, split into training and validation, as often as asked."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from data.chunks import Chunk, Reader, cut_into_documents, pieces
from data.config import DataConfig
from data.files import find_files, fingerprint, plain_size, read_files
from data.pydocs import library_key, pydocs, stdlib
from data.tables import open_hub

EVERY = 10  # the tenth, twentieth, ... document is validation
NEAR = 1000  # characters within which the start of a line counts as near


@dataclass(frozen=True)
class Corpus:
    """Text in a fixed order, in constant memory.

    Validation is `read_validation` where there is one, else every tenth document; of fewer than ten
    documents it is the last `val_fraction` of each. `key` changes whenever the text or its split may;
    `size` is its bytes, where they are known before reading.
    """

    name: str
    key: str
    read: Reader
    size: int | None = None
    read_validation: Reader | None = None
    val_fraction: float = 0.1

    def chunks(self) -> Iterator[tuple[str, Chunk]]:
        """Every piece of text, with the split it belongs to."""
        if self.read_validation:
            yield from (("train", chunk) for chunk in self.read())
            yield from (("validation", chunk) for chunk in self.read_validation())
        elif lengths := self._lengths_of_few():
            yield from self._tails(lengths)
        else:
            number = 1
            for chunk in self.read():
                yield "train" if number % EVERY else "validation", chunk
                number += chunk.ends

    def _lengths_of_few(self) -> list[int]:
        """The documents' lengths in characters; none where there are enough to take every tenth."""
        lengths, length = [], 0
        for chunk in self.read():
            length += len(chunk.text)
            if chunk.ends:
                lengths.append(length)
                length = 0
            if len(lengths) == EVERY:
                return []
        return lengths

    def _tails(self, lengths: list[int]) -> Iterator[tuple[str, Chunk]]:
        position, lengths = 0, iter(lengths)
        for text, ends in self.read():
            if position == 0:
                if not (length := next(lengths, 0)):
                    raise ValueError(f"{self.name}: it grew while it was being read; start again")
                cut = max(1, int(length * (1 - self.val_fraction)))
                near = min(NEAR, (length - cut) // 2)
            here = cut - position  # where in this piece validation begins
            inside = 0 < here <= len(text)
            if inside:
                here = text.rfind("\n", max(0, here - near), here) + 1 or here
            here = min(max(here, 0), len(text))
            if text[:here]:
                yield "train", Chunk(text[:here], ends=inside or ends)
            if text[here:]:
                yield "validation", Chunk(text[here:], ends)
            position = 0 if ends else position + len(text)


def open_corpus(config: DataConfig) -> Corpus:
    """The corpus that the settings describe; raises ValueError for what cannot be one."""
    _check_keys(config)
    corpus = SOURCES[config.source](config)
    key, read_validation = corpus.key, None
    if config.val_path:
        files = find_files("data.val_path", config.val_path)
        read_validation = partial(read_files, files, config.column, config.separator)
        key += fingerprint(files)
    settings = [key, config.val_fraction, config.separator, config.column]
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
    return replace(corpus, key=key, read_validation=read_validation, val_fraction=config.val_fraction)


def _check_keys(config: DataConfig) -> None:
    """A setting of one source beside another source is a slip, and would be ignored in silence."""
    for setting, source in (("path", "file"), ("name", "hub")):
        value = getattr(config, setting)
        if config.source == source and not value:
            raise ValueError(f"data={source} needs data.{setting}=...")
        if config.source != source and value:
            raise ValueError(f"data.{setting}={value} belongs to data={source}; add data={source}")


def _files(config: DataConfig) -> Corpus:
    files = find_files("data.path", config.path)
    if config.val_path:
        apart = {file.resolve() for file in find_files("data.val_path", config.val_path)}
        files = [file for file in files if file.resolve() not in apart]
        if not files:
            raise ValueError(f"data.val_path={config.val_path} leaves nothing of data.path to train on")
    read = partial(read_files, files, config.column, config.separator)
    return Corpus(config.path, fingerprint(files), read, plain_size(files))


def _hub(config: DataConfig) -> Corpus:
    key, texts = open_hub(config)
    name = " ".join(filter(None, (config.name, config.config, config.split)))
    return Corpus(name, f"{key} {name}", _reader(texts, config.separator))


def _python(config: DataConfig) -> Corpus:
    what, texts = ("documentation", pydocs) if config.source == "pydocs" else ("standard library", stdlib)
    return Corpus(f"Python's {what}", f"{config.source} {library_key()}", _reader(texts, config.separator))


def _reader(texts: Callable[[], Iterable[str]], separator: str | None) -> Reader:
    def read() -> Iterator[Chunk]:
        for text in texts():
            yield from cut_into_documents(pieces(text), separator)

    return read


SOURCES = {"file": _files, "hub": _hub, "pydocs": _python, "stdlib": _python}
