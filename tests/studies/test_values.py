"""A weight is half of what a head says."""

import pytest
import torch

from studies import values


@pytest.fixture
def ids():
    return torch.randint(50, (12,), generator=torch.Generator().manual_seed(0))


def test_weights_times_terms_are_what_attention_says(make_gpt, ids):
    """Σ_s α_ts f(s) over the heads is the output of the layer, and ‖f‖ is what is measured."""
    model = make_gpt()
    weights, norms = values.terms(model, ids)
    attention = model.blocks[0].attention
    seen = []
    hook = attention.register_forward_hook(lambda _, inputs, out: seen.append((inputs[0][0], out[0])))
    model(ids[None])
    hook.remove()
    x, said = seen[0]
    v = attention.qkv(x).view(12, 3, attention.n_heads, attention.d_head)[:, 2]
    out = attention.out.weight.view(-1, attention.n_heads, attention.d_head)
    f = torch.stack([v[:, head] @ out[:, head].T for head in range(attention.n_heads)])  # (H, T, C)
    torch.testing.assert_close((weights[0] @ f).sum(0), said, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(f.norm(dim=-1), norms[0])


def test_the_effect_of_a_term_is_that_of_its_weight(make_gpt, ids):
    model = make_gpt()
    with torch.no_grad():
        model.blocks[1].attention.out.weight.view(-1, 2, 8)[:, 1] = 0  # the second head says nothing
        found = values.effects(model, ids)
    assert found.shape == (2, 2, 12) and found[1, 1].abs().max() < 1e-5
    assert (found[[0, 0, 1], [0, 1, 0]] > 0).all()  # who is taken away is missed
    whole = model(ids[None])
    assert torch.equal(whole, model(ids[None]))


def test_taking_the_last_token_away_changes_nothing_before_it(make_gpt, ids):
    q, k, v = torch.randn(3, 12, 2, 12, 8, generator=torch.Generator().manual_seed(0))
    out, weights = values.without(1, q, k, v, causal=True)
    full, _ = values.scaled_dot_product_attention(q, k, v, causal=True)
    assert torch.equal(out[:, 0], full[:, 0])  # the other head
    assert torch.equal(out[11, 1, :11], full[11, 1, :11])
    assert (weights[3, 1, :, 3] == 0).all() and (weights[3, 1, 4:, 2] > 0).all()


def test_rank_correlation_and_shares():
    x = torch.tensor([1.0, 5.0, 2.0, 9.0])
    assert values.rank_correlation(x, x.exp()) == pytest.approx(1)
    assert values.rank_correlation(x, -x) == pytest.approx(-1)
    assert values.rank_correlation(x, torch.tensor([2.0, 1.0, 3.0, 4.0])) == pytest.approx(0.4)
    weights = torch.tensor([[1.0, 0.0], [0.5, 0.5]])[None, None]
    found = values.share(weights, torch.tensor([1.0, 3.0])[None, None])
    torch.testing.assert_close(found[0, 0], torch.tensor([[1.0, 0.0], [0.25, 0.75]]))
