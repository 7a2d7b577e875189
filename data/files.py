"""Documents out of files: plain text decoded by us, byte for byte; JSON lines and Parquet by column."""

import codecs
import glob
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from data.chunks import Chunk, cut_into_documents, pieces
from data.tables import parquet_rows, text_of

KINDS = (".txt", ".md", ".py", ".jsonl", ".parquet")  # what is taken from a folder, each also as .gz
BLOCK = 1 << 16  # bytes


def find_files(key: str, path: str) -> list[Path]:
    """The files that a path means (a file, a folder or a glob), in a fixed order."""
    if os.path.isdir(path):
        files = _walk(Path(path))
        wanted = f"no {' '.join(KINDS)} file (or the same with .gz) in this folder"
    elif os.path.exists(path):
        files = [Path(path)]
        wanted = "not a regular file"
    else:
        files = [Path(found) for found in sorted(glob.glob(path, recursive=True))]
        wanted = "no such file or folder, and no file matches it as a pattern"
    files = [*{file.resolve(): file for file in files if file.is_file()}.values()]  # each once
    if not files:
        raise ValueError(f"{key}={path}: {wanted} (looked from {os.getcwd()})")
    return files


def _walk(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise ValueError(f"{error.filename}: {error.strerror}")

    found = []
    for here, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(here, name) for name in sorted(names) if not name.startswith(".")]
    return [file for file in found if _kind(file) in KINDS]


def _kind(file: Path) -> str:
    return Path(file.name.lower().removesuffix(".gz")).suffix


def fingerprint(files: list[Path]) -> str:
    """Changes whenever a byte of the files changes, or the way they are read; not when they move."""
    total = hashlib.sha256()
    for file in files:
        try:
            with open(file, "rb") as opened:
                content = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror}") from None
        total.update(f"{_kind(file) if _kind(file) in ROWS else ''} {content}\n".encode())
    return total.hexdigest()


def plain_size(files: list[Path]) -> int | None:
    """The bytes of text in the files; None where that takes unpacking."""
    if any(_kind(file) in ROWS or file.name.lower().endswith(".gz") for file in files):
        return None
    return sum(file.stat().st_size for file in files)


def read_files(files: list[Path], column: str, separator: str | None) -> Iterator[Chunk]:
    """Every file is a document, or every row of one that has rows; the separator splits further."""
    for file in files:
        rows = ROWS.get(_kind(file))
        for blocks in map(pieces, rows(file, column)) if rows else [_decode(file)]:
            yield from cut_into_documents(blocks, separator)


def _bytes(file: Path, lines: bool = False) -> Iterator[bytes]:
    """A file's lines or blocks, unpacked if it is packed."""
    try:
        with (gzip.open if file.name.lower().endswith(".gz") else open)(file, "rb") as opened:
            yield from opened if lines else iter(lambda: opened.read(BLOCK), b"")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{file}: not a sound .gz file ({error})") from None
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from None


def _decode(file: Path) -> Iterator[str]:
    """Strict UTF-8 and nothing else: no newline is translated, no byte-order mark dropped."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    done = 0  # bytes decoded
    for block in chain(_bytes(file), [b""]):  # the empty one says that nothing more comes
        waiting = len(decoder.getstate()[0])  # the beginning of a character, from the block before
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at, byte = done - waiting + error.start, error.object[error.start]
            raise ValueError(
                f"{file}: not UTF-8 text (byte 0x{byte:02x} at offset {at}); "
                "if it is text, save it as UTF-8 (iconv -f <its encoding> -t UTF-8 does that)"
            ) from None
        done += len(block)
        yield text


def _parquet(file: Path, column: str) -> Iterator[str]:
    """The rows of a Parquet file; a packed one is unpacked first, since its reader goes back and forth."""
    if not file.name.lower().endswith(".gz"):
        yield from parquet_rows(file, column, str(file))
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            with open(plain := Path(folder, "plain.parquet"), "wb") as unpacked:
                unpacked.writelines(_bytes(file))
            yield from parquet_rows(plain, column, str(file))
    except OSError as error:
        raise ValueError(f"{file}: cannot be unpacked ({error.strerror}); set TMPDIR elsewhere") from None


def _json_lines(file: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(_bytes(file, lines=True), 1):
        if line.isspace():
            continue
        where = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: not JSON in UTF-8 ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f'{where}: not an object like {{"{column}": "..."}}')
        if text := text_of(row, column, where):
            yield text


ROWS = {".jsonl": _json_lines, ".parquet": _parquet}  # each a document
