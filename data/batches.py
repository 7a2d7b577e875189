"""Batches out of a long row of tokens: each a pure function of (seed, step)."""

import mmap
from collections.abc import Iterator

import numpy as np
import torch

ROUNDS = 8  # of the Feistel network; four (Luby & Rackoff 1988) leave a visible bias below a hundred windows
RELEASE_EVERY = 64  # steps


class Batches:
    """(x, y) for any step: `batch_size` windows of the text, y one token ahead of x, int64.

    Windows lie end to end. An epoch visits each of them once, in an order of its own; from epoch to
    epoch all of them shift together, so that the cuts fall elsewhere. Nothing is remembered between
    calls: a resumed run, or one on other processes, asks for a step and gets the same text.
    """

    def __init__(self, tokens: np.ndarray, batch_size: int, context_length: int, seed: int):
        assert len(tokens) > context_length, (len(tokens), context_length)
        self.tokens, self.batch_size = tokens, batch_size
        self.context_length, self.seed = context_length, seed
        self.windows = max(1, len(tokens) // context_length - 1)  # an epoch; one fewer than fit, to have room
        self.room = len(tokens) - 1 - self.windows * context_length  # to shift them by

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        starts = self.starts(step)
        rows = np.stack([self.tokens[start : start + self.context_length + 1] for start in starts])
        if step % RELEASE_EVERY == 0:
            release(self.tokens)
        rows = torch.from_numpy(rows.astype(np.int64))  # (B, T + 1)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def starts(self, step: int) -> np.ndarray:
        """Where this step's windows begin."""
        numbers = np.arange(self.batch_size, dtype=np.uint64) + np.uint64(step * self.batch_size)
        epoch, number = np.divmod(numbers, np.uint64(self.windows))
        keys = _mix(epoch + _mix(np.array([self.seed], np.uint64)))
        shift = _mix(keys) % np.uint64(self.room + 1)
        window = permute(number, self.windows, keys)
        return (shift + window * np.uint64(self.context_length)).astype(np.int64)


def permute(numbers: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """Each number's place in the shuffle of range(size) that belongs to its key, without a table.

    A Feistel network shuffles the next power of four; what it puts outside the range goes through it
    again until it falls inside (cycle walking; Black & Rogaway 2002). uint64 in, uint64 out.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))  # bits
    low = (np.uint64(1) << half) - np.uint64(1)
    rounds = _mix(keys + np.arange(ROUNDS, dtype=np.uint64)[:, None])  # keys of their own
    placed, outside = numbers.copy(), np.ones(len(numbers), bool)
    while outside.any():
        left, right = placed[outside] >> half, placed[outside] & low
        for key in rounds[:, outside]:
            left, right = right, left ^ (_mix(right + key) & low)
        placed[outside] = (left << half) | right
        outside[outside] = placed[outside] >= np.uint64(size)
    return placed


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64 (Steele, Lea & Flood 2014): neighbouring numbers come out unrelated."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def validation_windows(
    tokens: np.ndarray, context_length: int, batch_tokens: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The whole text in windows (x, y) that do not overlap: every token but the first is a target once.

    As many windows at a time as `batch_tokens` holds, at least one; the last window, alone, is shorter.
    """
    targets = len(tokens) - 1
    rows = max(1, batch_tokens // context_length)
    whole = targets - targets % context_length
    for start in range(0, whole, rows * context_length):
        stop = min(start + rows * context_length, whole)
        yield _pair(tokens, start, stop, context_length)
        release(tokens)
    if whole < targets:
        yield _pair(tokens, whole, targets, targets - whole)


def _pair(tokens: np.ndarray, start: int, stop: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    piece = torch.from_numpy(tokens[start : stop + 1].astype(np.int64))
    return piece[:-1].view(-1, width), piece[1:].view(-1, width)


def release(tokens: np.ndarray) -> None:
    """Gives mapped pages back, which otherwise add up to the size of the text in this process's memory."""
    mapped = getattr(tokens, "base", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def check_length(train: int, validation: int, context_length: int) -> None:
    """Refuses a text, given as tokens in each split, that is too short for one window."""
    shortest = min(train, validation)
    if shortest > context_length:
        return
    can = "that is too little text to train on"
    if shortest > 1:
        can = f"the largest model.context_length that this text allows is {shortest - 1}"
    raise ValueError(
        f"model.context_length={context_length} needs {context_length + 1:,} tokens in each split; there are "
        f"{train:,} for training and {validation:,} for validation: {can}"
    )
