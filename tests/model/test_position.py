"""The encodings: what each claims of itself."""

import math

import pytest
import torch

from model.config import ModelConfig, PositionConfig
from model.position import ENCODINGS, alibi_slopes


def position(name, theta=None, **model):
    shape = ModelConfig(**({"d_model": 32, "n_heads": 4} | model))
    return ENCODINGS[name](shape, PositionConfig(name, theta))


def test_rope_scores_depend_on_distance_alone_and_norms_are_kept():
    rope = position("rope").double()
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)

    def at(x, p):
        return rope.rotation(torch.empty(1, 1, 32), p)(x)

    for distance in (0, 1, 7, 100):
        scores = [(at(q, start + distance) * at(k, start)).sum() for start in (0, 3, 50, 900)]
        # the tables are float32: angles up to 1,000 are exact to about 6e-5
        torch.testing.assert_close(torch.stack(scores), scores[0].expand(4), atol=2e-4, rtol=0)
    assert abs((at(q, 5) * at(k, 0)).sum() - (at(q, 9) * at(k, 0)).sum()) > 1e-2
    torch.testing.assert_close(at(q, 123).norm(), q.norm(), atol=1e-6, rtol=1e-6)


def test_ropes_layout_is_half_split_as_in_llama():
    """Golden: at position 1, with width 4, pair (0, 2) turns by 1 radian and pair (1, 3) by 0.01."""
    rope = position("rope", d_model=4, n_heads=1)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
    c, s, d, z = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)
    expected = torch.tensor([c - 3 * s, 2 * d - 4 * z, 3 * c + s, 4 * d + 2 * z]).view(1, 1, 1, 4)
    torch.testing.assert_close(rope.rotation(torch.empty(1, 1, 4), 1)(x), expected)
    assert torch.equal(rope.rotation(torch.empty(1, 1, 4), 0)(x), x)


def test_rope_is_llamas_own_function():
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    from transformers import LlamaConfig

    rope, x = position("rope", theta=500.0), torch.randn(1, 4, 6, 8)
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, rope_parameters={
        "rope_type": "default", "rope_theta": 500.0})
    cos, sin = modeling.LlamaRotaryEmbedding(config)(x, torch.arange(3, 9)[None])
    theirs, _ = modeling.apply_rotary_pos_emb(x, x, cos, sin)
    torch.testing.assert_close(rope.rotation(torch.empty(1, 6, 32), 3)(x), theirs, atol=1e-6, rtol=1e-5)


def test_sinusoids_are_the_published_ones():
    table = position("sinusoidal").embed(torch.zeros(1, 50, 32), 7)[0]
    for p in (7, 8, 56):
        for i in range(16):
            angle = p / 10000 ** (2 * i / 32)
            assert table[p - 7, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[p - 7, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_embeddings_are_scaled_for_sinusoids_only_where_no_norm_follows():
    x = torch.randn(1, 3, 32)
    zero = position("sinusoidal").embed(torch.zeros_like(x), 0)
    torch.testing.assert_close(position("sinusoidal").embed(x, 0), zero + x)
    unnormed = position("sinusoidal", embed_norm=False)
    torch.testing.assert_close(unnormed.embed(x, 0), zero + x * math.sqrt(32))


def test_alibi_slopes_and_biases_are_the_published_ones():
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    twelve = [2.0**-h for h in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    assert alibi_slopes(12) == pytest.approx(twelve)  # as in the paper's code
    assert alibi_slopes(6) == pytest.approx([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    bias = position("alibi", n_heads=8).bias(torch.empty(1, 2, 32), 3)  # positions 3 and 4 of 5
    distance = torch.tensor([[3.0, 2, 1, 0, 0], [4, 3, 2, 1, 0]])
    torch.testing.assert_close(bias, -torch.tensor(alibi_slopes(8))[:, None, None] * distance)


def test_learned_positions_end_with_a_lesson():
    learned = position("learned", context_length=8)
    torch.nn.init.normal_(learned.table)
    x = torch.zeros(1, 3, 32)
    assert torch.equal(learned.embed(x, 5)[0], learned.table[5:8])
    with pytest.raises(ValueError, match=r"9 positions .* trained to 8, .*position=rope has none"):
        learned.embed(x, 6)


@pytest.mark.parametrize("name", ["rope", "sinusoidal", "alibi"])
def test_neighbours_stay_apart_in_bfloat16(name):
    """Tables built in bfloat16 would merge positions above 256."""
    encoding, x = position(name).bfloat16(), torch.ones(1, 4, 32, dtype=torch.bfloat16)
    if name == "rope":
        rows = encoding.rotation(x, 256)(torch.ones(1, 1, 4, 8, dtype=torch.bfloat16))[0, 0]
    elif name == "alibi":
        rows = encoding.bias(x, 256)[-1, :, :1]
    else:
        rows = encoding.embed(x, 256)[0]
    assert all(not torch.equal(rows[i], rows[j]) for i in range(4) for j in range(i))


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_chunk_is_placed_as_in_the_whole(name):
    """Positions 5 … 8 computed alone are rows 5 … 8 of all nine."""
    encoding, x = position(name, context_length=16), torch.randn(1, 9, 32)
    if name == "learned":
        torch.nn.init.normal_(encoding.table)
    torch.testing.assert_close(encoding.embed(x, 0)[:, 5:], encoding.embed(x[:, 5:], 5))
    whole, part = encoding.rotation(x, 0), encoding.rotation(x[:, 5:], 5)
    if whole is not None:
        y = torch.randn(1, 4, 9, 8)
        torch.testing.assert_close(whole(y)[:, :, 5:], part(y[:, :, 5:]))
    whole, part = encoding.bias(x, 0), encoding.bias(x[:, 5:], 5)
    if whole is not None:
        torch.testing.assert_close(whole[:, 5:], part)


def test_widths_that_do_not_suit_are_refused_by_name():
    with pytest.raises(ValueError, match=r"rotates pairs: model\.d_head=7 is odd"):
        position("rope", d_head=7)
    with pytest.raises(ValueError, match=r"sine and cosine: model\.d_model=31 is odd"):
        position("sinusoidal", d_model=31, n_heads=1)
    with pytest.raises(ValueError, match=r"only position=rope has it, not alibi"):
        position("alibi", theta=100.0)
