"""Rows of text that the `datasets` library reads: Parquet files and the Hugging Face Hub.

`datasets` takes seconds to import, so it is imported where it is needed. It is not asked for plain
text: its reader rewrites line ends whatever its options.
"""

import glob
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from data.config import DataConfig

ROWS = 256  # read at once


def text_of(row: dict, column: str, where: str) -> str:
    """The text in one column of a row, "" where the row has none."""
    if column not in row:
        there = " ".join(map(repr, [*row][:20])) or "none"
        raise ValueError(f"{where}: no data.column={column}; there is {there}")
    text = row[column]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ValueError(f"{where}: data.column={column} holds {type(text).__name__}, not text")
    if any("\ud800" <= character <= "\udfff" for character in set(text)):
        raise ValueError(f"{where}: data.column={column} holds half of a surrogate pair, which is not text")
    return text


def parquet_rows(file: Path, column: str, where: str) -> Iterator[str]:
    """The texts of a Parquet file, read where it lies: no second copy is made. Errors call it `where`."""
    from datasets import load_dataset

    def opened():
        # it takes names as patterns, so that [1] in a name would mean 1
        files = [glob.escape(str(file))]
        return load_dataset("parquet", data_files=files, split="train", streaming=True, batch_size=ROWS)

    return _rows(opened, column, where)


def open_hub(config: DataConfig) -> tuple[str, Callable[[], Iterator[str]]]:
    """What identifies a dataset's present content, and a function that reads its texts."""
    import datasets

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it narrates every retry
    where = f"data.name={config.name}"
    builder = _asked(where, lambda: datasets.load_dataset_builder(config.name, config.config))

    def opened():
        if config.streaming:
            return builder.as_streaming_dataset(config.split)
        builder.download_and_prepare()
        return builder.as_dataset(config.split)

    return f"{builder.hash} {builder.config_id}", lambda: _rows(opened, config.column, where)


def _rows(opened: Callable, column: str, where: str) -> Iterator[str]:
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # it prints what it then raises
    dataset = _asked(where, opened)
    if column in (dataset.column_names or ()):
        dataset = dataset.select_columns([column])  # the others are never read
    batches = iter(dataset.iter(ROWS))
    number = 0
    while batch := _asked(where, lambda: next(batches, None)):
        for values in zip(*batch.values(), strict=True):
            number += 1
            if text := text_of(dict(zip(batch, values, strict=True)), column, f"{where}, row {number}"):
                yield text


def _asked(where: str, question: Callable):
    """The answer; whatever goes wrong inside `datasets` becomes one line that says what to do."""
    try:
        return question()
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, ConnectionError):
            reason += "; without the Hub, train on a file: data=file data.path=my.txt"
        elif "scripts are no longer supported" in reason:
            reason += "; download its text and use data=file data.path=..."
        raise ValueError(f"{where}: {reason}") from error
