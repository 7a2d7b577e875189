"""Token ids on disk, memory-mapped: prepared once for a text and a tokenizer, found again afterwards."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from data.chunks import Chunk
from data.config import DataConfig, TokenizerConfig
from data.corpus import Corpus, open_corpus
from data.progress import Progress
from data.tokenizer import Tokenizer, train_tokenizer

FORMAT = 1  # raised whenever the same settings would be prepared differently
SPLITS = ("train", "validation")
KEPT = ("documents", "bytes", "tokens", "unknown_characters", "unknown_bytes", "fingerprint")
UNFINISHED = ".unfinished-"
BATCH = 1_000_000  # characters tokenized at once
ABANDONED = 24 * 3600  # seconds after which an unfinished preparation is nobody's


@dataclass
class TokenStore:
    """A corpus as token ids, uint16 or uint32, with an end-of-text after each document.

    Dictionaries are by split. `fingerprint` is the same when the tokens and the tokenizer are.
    `unknown_*` count what became `<unk>` in the validation text.
    """

    name: str
    tokenizer: Tokenizer
    train: np.memmap
    validation: np.memmap
    documents: dict[str, int]
    bytes: dict[str, int]
    tokens: dict[str, int]
    unknown_characters: int
    unknown_bytes: int
    fingerprint: str

    @property
    def first_token(self) -> int:
        """Where text without a prompt starts: end of text, else a newline, else the most frequent token."""
        if self.tokenizer.end_of_text is not None:
            return self.tokenizer.end_of_text
        newline = self.tokenizer.encode("\n")
        return int(newline[0]) if len(newline) == 1 else int(np.bincount(self.train[:1_000_000]).argmax())

    def summary(self) -> str:
        """The facts, in the words of the terminal; a line each for text and tokens."""
        documents, size, tokens = (
            " + ".join(f"{counts[split]:,}" for split in SPLITS)
            for counts in (self.documents, self.bytes, self.tokens)
        )
        lines = [
            f"{self.name}: {documents} documents (training + validation), {size} bytes",
            f"{tokens} tokens, vocabulary {self.tokenizer.vocab_size:,}, fingerprint {self.fingerprint}",
        ]
        if self.unknown_characters:
            unknown = f"{self.unknown_characters:,} characters ({self.unknown_bytes:,} bytes)"
            lines.append(f"{unknown} of the validation text are not in the training text and became <unk>")
        return "\n".join(lines)


def cache_folder() -> Path:
    """Where prepared text is kept: $CLEARHEAD_CACHE, else `clearhead` in the user's cache folder."""
    if chosen := os.environ.get("CLEARHEAD_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearhead"


def prepare(data: DataConfig, tokenizer: TokenizerConfig, say: Callable[[str], None] = print) -> TokenStore:
    """The tokens of a text, from the cache where they are there already.

    With `tokenizer.path`, tokens made earlier by an equal tokenizer are found whatever its file is
    called. Raises ValueError for a text or tokenizer that will not do, and for a disk that is full.
    """
    os.environ.setdefault("RAYON_NUM_THREADS", str(min(data.num_proc, os.cpu_count() or 1)))  # `tokenizers`
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")  # else it warns whenever somebody forks
    if data.source == "hub" and data.name:
        say(f"looking up {data.name} on the Hugging Face Hub")
    corpus = open_corpus(data)
    given = Tokenizer.load(tokenizer.path) if tokenizer.path else None
    folder = _place(corpus, tokenizer, given)
    if _meta(folder) is None:
        try:
            _build(folder, corpus, tokenizer, given, say)
        except OSError as error:
            why = f"cannot keep the prepared text in {folder.parent} ({error.strerror})"
            raise ValueError(f"{why}; make room there, or set CLEARHEAD_CACHE to another folder") from error
    meta = _meta(folder)
    return TokenStore(
        name=corpus.name,
        tokenizer=Tokenizer.load(folder / "tokenizer.json"),
        **{split: np.memmap(folder / f"{split}.bin", meta["dtype"], "r") for split in SPLITS},
        **{key: meta[key] for key in KEPT},
    )


def _place(corpus: Corpus, config: TokenizerConfig, given: Tokenizer | None) -> Path:
    """The folder for this text and tokenizer."""
    text = hashlib.sha256(f"{FORMAT} {corpus.key}".encode()).hexdigest()[:16]
    if given is None:
        size = f"-{config.vocab_size}" if config.name == "bpe" else ""
        return cache_folder() / f"{text}-{config.name}{size}"
    for folder in sorted(cache_folder().glob(f"{text}-*")):
        meta = _meta(folder)
        if meta and meta["tokenizer"] == given.fingerprint:
            return folder
    return cache_folder() / f"{text}-{given.fingerprint}"


def _meta(folder: Path) -> dict | None:
    """What a finished preparation says of itself; None where there is none, or its files were cut short."""
    try:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        size = np.dtype(meta["dtype"]).itemsize
        tokens = {split: (folder / f"{split}.bin").stat().st_size / size for split in SPLITS}
        known = Tokenizer.load(folder / "tokenizer.json").fingerprint == meta["tokenizer"]
        return meta if known and tokens == meta["tokens"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _build(
    folder: Path, corpus: Corpus, config: TokenizerConfig, given: Tokenizer | None, say: Callable
) -> None:
    """Everything is written beside its place, meta.json last, and moved there whole: whatever interrupts
    this, and however many do it at once, nothing half done is ever found in that place."""
    started = time.monotonic()
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder.parent))
    try:
        tokenizer = given or _learn(corpus, config, say)
        tokenizer.save(unfinished / "tokenizer.json")
        meta = _tokenize(corpus, tokenizer, unfinished, say)
        (unfinished / "meta.json").write_text(json.dumps(meta, indent=1), "utf-8")
        try:
            unfinished.rename(folder)
        except OSError:  # somebody was faster, or left something damaged there
            if _meta(folder) is None:
                shutil.rmtree(folder)
                unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    if given is None and config.name == "bpe" and tokenizer.vocab_size != config.vocab_size:
        has = f"the tokenizer has {tokenizer.vocab_size:,} tokens, not {config.vocab_size:,}"
        say(f"{has}: nothing else in the text repeats")
    say(f"text prepared in {time.monotonic() - started:.1f} s and kept in {folder}")


def _learn(corpus: Corpus, config: TokenizerConfig, say: Callable) -> Tokenizer:
    """A tokenizer from the training text alone."""
    progress = Progress("reading", corpus.size, say)
    texts = (progress.past(chunk.text) for split, chunk in corpus.chunks() if split == "train")
    tokenizer = train_tokenizer(config, texts)
    progress.end()
    return tokenizer


def _tokenize(corpus: Corpus, tokenizer: Tokenizer, folder: Path, say: Callable) -> dict:
    """Writes the ids of both splits and returns what there is to know about them."""
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    progress = Progress("tokenizing", corpus.size, say)
    unknown = unknown_bytes = 0
    with ExitStack() as stack:
        writers = {}
        for split in SPLITS:
            file = stack.enter_context(open(folder / f"{split}.bin", "wb"))
            writers[split] = _Writer(file, dtype, tokenizer.end_of_text)
        for group in _grouped(corpus.chunks()):
            encoded = tokenizer.encode_batch([chunk.text for _, chunk in group])
            for (split, chunk), ids in zip(group, encoded, strict=True):
                writers[split].write(progress.past(chunk.text), ids, chunk.ends)
                if split == "validation" and (lost := tokenizer.unknown(chunk.text)):
                    unknown += len(lost)
                    unknown_bytes += len(lost.encode())
    progress.end()
    if not writers["train"].tokens:
        raise ValueError(f"{corpus.name}: there is no text in it")
    if not writers["validation"].tokens:
        raise ValueError(f"{corpus.name}: too little text, none for validation; add some, or data.val_path")
    hashes = [tokenizer.fingerprint, *(writers[split].hash.hexdigest() for split in SPLITS)]
    counted = ("documents", "bytes", "tokens")
    return {
        **{key: {split: getattr(writers[split], key) for split in SPLITS} for key in counted},
        "unknown_characters": unknown,
        "unknown_bytes": unknown_bytes,
        "fingerprint": hashlib.sha256(" ".join(hashes).encode()).hexdigest()[:12],
        "tokenizer": tokenizer.fingerprint,
        "dtype": dtype,
    }


@dataclass
class _Writer:
    """One split on its way to disk, and its counts."""

    file: BinaryIO
    dtype: str
    end_of_text: int | None
    documents: int = 0
    bytes: int = 0
    tokens: int = 0
    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def write(self, text: str, ids: np.ndarray, ends: bool) -> None:
        if ends and self.end_of_text is not None:
            ids = np.append(ids, self.end_of_text)
        ids = ids.astype(self.dtype, copy=False)
        self.file.write(ids)  # not ids.tofile: its errors do not say that the disk is full
        self.hash.update(ids)
        self.documents += ends
        self.bytes += len(text.encode())
        self.tokens += len(ids)


def _grouped(chunks: Iterator[tuple[str, Chunk]]) -> Iterator[list[tuple[str, Chunk]]]:
    """Chunks in groups large enough to keep every core busy."""
    group, size = [], 0
    for split, chunk in chunks:
        group.append((split, chunk))
        size += len(chunk.text)
        if size >= BATCH:
            yield group
            group, size = [], 0
    if group:
        yield group


def _sweep(cache: Path) -> None:
    """Removes what preparations that were killed have left behind."""
    for folder in cache.glob(f"{UNFINISHED}*"):
        with suppress(OSError):  # another start has just ended, or swept
            touched = max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if time.time() - touched > ABANDONED:
                shutil.rmtree(folder)
