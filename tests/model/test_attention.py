"""The attention page: the definition, its fused twin, and the module."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from model.attention import MultiHeadAttention, fused_attention, scaled_dot_product_attention
from tests.conftest import redraw


def qkv(T=5, S=5, B=2, H=3, D=8, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(B, H, T, D), (B, H, S, D), (B, H, S, D)]
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def padding(B, S, hidden):
    """(B, 1, 1, S): the last `hidden` keys of the first text are padding."""
    mask = torch.zeros(B, 1, 1, S, dtype=torch.bool)
    mask[0, ..., S - hidden :] = True
    return mask


def far(T, S, reach):
    """Keys further back than `reach` are hidden."""
    return (torch.arange(S - T, S)[:, None] - torch.arange(S)) > reach


def blind_rows(T, S):
    mask = torch.rand(T, S, generator=torch.Generator().manual_seed(1)) < 0.3
    mask[1] = True
    return mask


CASES = {
    "no mask": dict(),
    "causal": dict(causal=True),
    "one token": dict(T=1, S=1, causal=True),
    "padding": dict(mask=padding(2, 5, 2)),
    "padding at the start, causal": dict(mask=padding(2, 5, 2).flip(-1), causal=True),
    "cached chunk": dict(T=3, S=7, causal=True),
    "cached token": dict(T=1, S=7, causal=True),
    "cached chunk, padding": dict(T=3, S=7, causal=True, mask=padding(2, 7, 2).flip(-1)),
    "bias": dict(bias=torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(2))),
    "bias, causal": dict(bias=torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(2)), causal=True),
    "bias, cached": dict(T=2, S=5, bias=torch.randn(3, 2, 5), causal=True),
    "blind rows": dict(mask=blind_rows(5, 5)),
    "blind rows, bias": dict(mask=blind_rows(5, 5), bias=torch.ones(3, 5, 5)),
    "blind rows by a bias": dict(bias=torch.zeros(5, 5).masked_fill(blind_rows(5, 5), float("-inf"))),
    "everything hidden": dict(mask=torch.ones(5, 5, dtype=torch.bool)),
    "more queries than keys": dict(T=6, S=4, causal=True),
    "far keys hidden, 700": dict(T=700, S=700, causal=True, mask=far(700, 700, 9), B=1, H=2),
    "far keys hidden, 1024": dict(T=1024, S=1024, causal=True, mask=far(1024, 1024, 300), B=1, H=2),
    "long, cached": dict(T=100, S=1024, causal=True, B=1, H=2),
}


@pytest.mark.parametrize("name", CASES)
def test_both_attentions_agree_in_outputs_and_gradients(name):
    settings = dict(CASES[name])
    inputs = qkv(**{key: settings.pop(key) for key in ("T", "S", "B", "H") if key in settings})
    target = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(3))
    outs, grads = [], []
    for attend in (scaled_dot_product_attention, fused_attention):
        out, _ = attend(*inputs, **settings)
        outs.append(out)
        grads.append(torch.autograd.grad((out * target).sum(), inputs))
    torch.testing.assert_close(outs[0], outs[1], atol=2e-5, rtol=1e-5)
    for one, other in zip(*grads, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("T", [8, 64, 300])
def test_they_agree_in_bfloat16(T):
    inputs = qkv(T, T, B=1, H=2, D=32, dtype=torch.bfloat16)
    one, _ = scaled_dot_product_attention(*inputs, causal=True)
    other, _ = fused_attention(*inputs, causal=True)
    torch.testing.assert_close(one, other, atol=2e-2, rtol=0)


def test_the_definition_is_the_formula_in_float64():
    q, k, v = (x.detach().double() for x in qkv(T=4, S=6))
    out, attn = scaled_dot_product_attention(q, k, v, causal=True)
    for b, h, t in np.ndindex(2, 3, 4):
        scores = k[b, h].numpy() @ q[b, h, t].numpy() / math.sqrt(8)
        weights = np.exp(scores) * (np.arange(6) <= t + 2)
        weights /= weights.sum()
        np.testing.assert_allclose(attn[b, h, t].numpy(), weights, atol=1e-12)
        np.testing.assert_allclose(out[b, h, t].numpy(), weights @ v[b, h].numpy(), atol=1e-12)


def test_rows_sum_to_one_and_blind_rows_to_zero():
    q, k, v = qkv()
    _, attn = scaled_dot_product_attention(q, k, v, blind_rows(5, 5))
    expected = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0]).expand(2, 3, 5)
    torch.testing.assert_close(attn.sum(-1), expected)
    assert (attn[..., blind_rows(5, 5)] == 0).all()


def test_true_means_hidden_on_both_paths():
    """Changing a hidden key changes nothing, changing a visible one does."""
    q, k, v = (x.detach() for x in qkv())
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[:, 3] = True
    for attend in (scaled_dot_product_attention, fused_attention):
        before, _ = attend(q, k, v, mask)
        for key, moves in ((3, False), (2, True)):
            other = k.clone()
            other[:, :, key] += 1.0
            after, _ = attend(q, other, v, mask)
            assert torch.equal(before, after) is not moves


@pytest.mark.parametrize("attend", [scaled_dot_product_attention, fused_attention])
def test_a_mask_of_numbers_is_refused(attend):
    with pytest.raises(ValueError, match=r"boolean, True = hidden; it is torch\.float32"):
        attend(*qkv(), torch.zeros(5, 5))


def test_dropout_falls_on_the_weights_but_not_on_the_recorded_ones():
    q, k, v = qkv()
    torch.manual_seed(0)
    out, attn = scaled_dot_product_attention(q, k, v, dropout=0.5)
    torch.testing.assert_close(attn.sum(-1), torch.ones(2, 3, 5))
    assert not torch.allclose(out, attn @ v)
    q, k, v = qkv(T=64, S=64, B=8)
    mean = torch.stack([fused_attention(q, k, v, dropout=0.3)[0] for _ in range(200)]).mean(0)
    torch.testing.assert_close(mean, scaled_dot_product_attention(q, k, v)[0], atol=0.1, rtol=0)


class NoteAttention(nn.Module):
    """Multi-head attention as notes on it write it: fused qkv, True = masked, -inf, out."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d_k = n_heads, d_model // n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (y.view(B, T, self.h, self.d_k).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / self.d_k**0.5
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))


@pytest.mark.parametrize("attend", [scaled_dot_product_attention, fused_attention])
def test_our_module_and_the_notes_exchange_weights_and_agree(attend):
    ours = redraw(MultiHeadAttention(32, 4, attend=attend), std=0.1)
    note = NoteAttention(32, 4)
    assert set(ours.state_dict()) == {"qkv.weight", "qkv.bias", "out.weight", "out.bias"}
    note.load_state_dict(ours.state_dict())
    x = torch.randn(2, 7, 32)
    causal = torch.ones(7, 7, dtype=torch.bool).triu(1)
    for mask in (None, causal, causal | padding(2, 7, 3)):
        torch.testing.assert_close(ours(x, mask), note(x, mask), atol=1e-6, rtol=0)
    torch.testing.assert_close(ours(x, causal=True), note(x, causal), atol=1e-6, rtol=0)
    partly = torch.rand(7, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    partly[2] = True  # nan there, 0 here
    seen = ~partly.all(-1)
    torch.testing.assert_close(ours(x, partly)[:, seen], note(x, partly)[:, seen], atol=1e-6, rtol=0)
    assert ours(x, partly).isfinite().all()


def test_our_module_agrees_with_pytorchs():
    ours, theirs = redraw(MultiHeadAttention(32, 4)), nn.MultiheadAttention(32, 4, batch_first=True)
    names = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias"}
    names |= {f"out_proj.{end}": f"out.{end}" for end in ("weight", "bias")}
    theirs.load_state_dict({name: ours.state_dict()[our_name] for name, our_name in names.items()})
    x, record = torch.randn(2, 6, 32), []
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
    out, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    torch.testing.assert_close(ours(x, mask, record=record), out, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(record[0], weights, atol=1e-6, rtol=1e-5)


def test_without_positions_and_mask_attention_is_permutation_equivariant():
    layer = redraw(MultiHeadAttention(32, 4)).double()
    x, shuffle = torch.randn(2, 9, 32, dtype=torch.float64), torch.randperm(9)
    torch.testing.assert_close(layer(x)[:, shuffle], layer(x[:, shuffle]), atol=1e-12, rtol=0)


def test_two_evaluations_agree_although_dropout_is_set():
    layer = redraw(MultiHeadAttention(16, 2, dropout=0.5)).eval()
    x = torch.randn(2, 5, 16)
    assert torch.equal(layer(x), layer(x))
    assert not torch.equal(layer.train()(x), layer(x))


def test_what_cannot_work_is_said_with_the_numbers():
    with pytest.raises(ValueError, match="n_heads=3 does not divide d_model=32"):
        MultiHeadAttention(32, 3)
    with pytest.raises(ValueError, match=r"\(2, 5, 16\), not \(batch, length, d_model=32\)"):
        MultiHeadAttention(32, 4)(torch.randn(2, 5, 16))
    with pytest.raises(ValueError, match=r"\(2, 0, 32\)"):
        MultiHeadAttention(32, 4)(torch.randn(2, 0, 32))
    # with as many texts as heads a mask of each text would silently become one of each head
    with pytest.raises(ValueError, match=r"mask \(4, 5, 5\) has no axis for the heads"):
        MultiHeadAttention(32, 4)(torch.randn(4, 5, 32), torch.zeros(4, 5, 5, dtype=torch.bool))
    q, k, v = qkv()
    for attend in (scaled_dot_product_attention, fused_attention):
        with pytest.raises((ValueError, RuntimeError)):
            attend(q, k, v[:, :, :3])


def test_the_page_runs_by_itself():
    command = [sys.executable, "-m", "model.attention"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    scores, weights, output = (block.splitlines()[2:] for block in done.stdout.split("\n\n")[1:4])
    for table in (scores, weights, output):
        assert [line.split()[0] for line in table] == ["the", "cat", "saw", "the", "dog"]
    for line in weights:
        shares = [float(cell) for cell in line.split()[1:] if cell != "·"]
        assert sum(shares) == pytest.approx(1.0, abs=0.021)
