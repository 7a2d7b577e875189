"""Every window once an epoch, any step directly, validation whole."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.batches import Batches, check_length, permute, validation_windows

COUNTING = np.arange(100_003, dtype=np.uint32)  # every token is its own position


def test_a_batch_is_text_and_its_next_tokens():
    x, y = Batches(COUNTING, batch_size=8, context_length=32, seed=1).batch(5)
    assert x.shape == y.shape == (8, 32)
    assert x.dtype == y.dtype == torch.int64
    assert torch.equal(y, x + 1)
    assert torch.equal(x - x[:, :1], torch.arange(32).expand(8, 32))


def epoch_starts(tokens: np.ndarray, context: int, seed: int, epoch: int) -> np.ndarray:
    """The starts of one epoch, as one large batch."""
    windows = Batches(tokens, 1, context, seed).windows
    return Batches(tokens, windows, context, seed).starts(epoch)


@given(
    tokens=st.integers(11, 2000),
    context=st.integers(1, 10),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 99),
)
def test_an_epoch_visits_every_window_once(tokens, context, seed, epoch):
    starts = np.sort(epoch_starts(COUNTING[:tokens], context, seed, epoch))
    assert (np.diff(starts) == context).all()  # end to end: none twice, none left out
    assert starts[0] >= 0
    assert starts[-1] + context + 1 <= tokens
    assert tokens - 1 - len(starts) * context < 2 * context


def test_epochs_differ_in_order_and_in_cuts_and_reach_everything():
    epochs = [epoch_starts(COUNTING[:200], 16, 3, epoch) for epoch in range(200)]
    orders = {tuple(np.argsort(starts)) for starts in epochs}
    assert len(orders) == 200
    assert len({starts.min() for starts in epochs}) == 200 - 11 * 16
    targets = {start + 1 + at for starts in epochs for start in starts for at in range(16)}
    assert targets == set(range(1, 200))


def test_steps_are_cut_from_one_row_of_windows_whatever_the_batch_size():
    rows = np.concatenate([Batches(COUNTING, 6, 50, seed=9).starts(step) for step in range(400, 410)])
    assert np.array_equal(
        rows, np.concatenate([Batches(COUNTING, 4, 50, 9).starts(n) for n in range(600, 615)])
    )
    again = Batches(COUNTING, 6, 50, seed=9)
    assert torch.equal(again.batch(405)[0][:, 0], torch.from_numpy(rows[30:36]))
    assert not np.array_equal(Batches(COUNTING, 6, 50, seed=10).starts(400), rows[:6])


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_permute_is_a_permutation(size, key):
    numbers = np.arange(size, dtype=np.uint64)
    placed = permute(numbers, size, np.full(size, key, np.uint64))
    assert np.array_equal(np.sort(placed), numbers)


def test_permute_puts_every_number_everywhere_equally_often():
    size, times = 10, 20_000
    keys = np.arange(times, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for number in range(size):
        placed = permute(np.full(times, number, np.uint64), size, keys)
        counts = np.bincount(placed.astype(int), minlength=size)
        assert (abs(counts - times / size) < 6 * (times / size) ** 0.5).all(), (number, counts)


def test_permute_leaves_no_neighbours_together():
    placed = permute(np.arange(10_000, dtype=np.uint64), 10_000, np.zeros(10_000, np.uint64)).astype(int)
    assert (abs(np.diff(placed)) == 1).sum() < 20  # 2 expected
    assert abs(np.corrcoef(placed, np.arange(10_000))[0, 1]) < 0.05


@given(tokens=st.integers(2, 500), context=st.integers(1, 40), batch_tokens=st.integers(1, 200))
def test_validation_predicts_every_token_but_the_first_once(tokens, context, batch_tokens):
    pairs = list(validation_windows(COUNTING[:tokens], context, batch_tokens))
    assert torch.equal(torch.cat([y.flatten() for _, y in pairs]), torch.arange(1, tokens))
    assert all(torch.equal(y, x + 1) for x, y in pairs)
    assert all(x.shape[1] == context for x, _ in pairs[:-1])
    assert all(x.numel() <= max(batch_tokens, context) for x, _ in pairs)


def test_a_mapped_text_gives_the_same_batches(tmp_path):
    COUNTING.tofile(tmp_path / "tokens.bin")
    mapped = np.memmap(tmp_path / "tokens.bin", np.uint32, "r")
    for step in (0, 64, 65):
        assert torch.equal(Batches(mapped, 4, 9, 1).batch(step)[1], Batches(COUNTING, 4, 9, 1).batch(step)[1])
    pairs = list(validation_windows(mapped, 100, 1000))
    assert torch.equal(torch.cat([y.flatten() for _, y in pairs]), torch.arange(1, len(COUNTING)))


def test_a_text_too_short_for_a_window_is_refused_with_what_would_do():
    check_length(129, 129, 128)
    with pytest.raises(ValueError, match=r"context_length=128 .* 900 .* 41 .* largest .* 40"):
        check_length(900, 41, 128)
    check_length(900, 41, 40)
    with pytest.raises(ValueError, match="too little text"):
        check_length(3, 1, 128)
