"""Muon and AdamW: the right matrices, the right decay, the published step."""

import pytest
import torch

from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from tests.conftest import redraw
from training import optimizer
from training.config import OptimizerConfig
from training.optimizer import Muon, make_optimizers, orthogonalise


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 24), (2, 24, 8), (1, 1, 5)])
def test_every_direction_ends_with_about_the_same_strength(shape, monkeypatch):
    monkeypatch.setattr(optimizer, "has_bfloat16", lambda device: False)
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    done = orthogonalise(matrices)
    u, _, vh = torch.linalg.svd(matrices, full_matrices=False)
    assert (torch.linalg.svdvals(done) > 0.5).all() and (torch.linalg.svdvals(done) < 1.25).all()
    # the same singular vectors: u.T @ done @ v is diagonal
    inner = u.mT @ done @ vh.mT
    diagonal = torch.diag_embed(inner.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(inner, diagonal, atol=2e-3, rtol=0)
    monkeypatch.setattr(optimizer, "has_bfloat16", lambda device: True)
    torch.testing.assert_close(orthogonalise(matrices), done, atol=0.06, rtol=0)


def small(**settings):
    shape = ModelConfig(n_layers=2, n_heads=2, d_model=16, **settings)
    return redraw(GPT(20, shape, PositionConfig("learned")))


def test_muon_gets_the_matrices_inside_the_blocks_and_adamw_the_rest():
    model = small(bias=True)
    muon, adamw = make_optimizers(model, OptimizerConfig())
    names = {p: name for name, p in model.named_parameters()}
    got = {names[p] for group in muon.param_groups for p in group["params"]}
    ends = ("attention.qkv", "attention.out", "mlp.gate_up", "mlp.down")
    assert got == {f"blocks.{layer}.{end}.weight" for layer in range(2) for end in ends}
    rest = [names[p] for group in adamw.param_groups for p in group["params"]]
    assert set(rest) | got == set(names.values()) and len(rest) == len(set(rest)) == len(names) - len(got)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("tied", [False, True])
def test_decay_acts_on_what_multiplies_and_on_nothing_else(optimizer, tied):
    model = small(tie_embeddings=tied, bias=True)
    optimizers = make_optimizers(model, OptimizerConfig(optimizer, lr=0.1, weight_decay=0.5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for one in optimizers:
        one.step()
    decayed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    matrices = {n for n, p in before.items() if n.startswith("blocks.") and p.dim() == 2}
    assert decayed == matrices | ({"embed.weight"} if tied else {"head.weight"})
    for name in decayed:
        lr = 0.05 if optimizer == "muon" and name in matrices else 0.1
        torch.testing.assert_close(dict(model.named_parameters())[name], before[name] * (1 - lr * 0.5))


def test_the_fused_qkv_is_three_matrices_to_muon():
    """One stacked weight and three of its own take the same step."""
    torch.manual_seed(0)
    whole = torch.nn.Parameter(torch.randn(24, 8))
    parts = [torch.nn.Parameter(part.clone()) for part in whole.detach().chunk(3)]
    gradients = torch.randn(3, 24, 8)
    together, apart = Muon({3: [whole]}, 0.02, 0.1), Muon({1: parts}, 0.02, 0.1)
    for gradient in gradients:
        whole.grad = gradient.clone()
        for part, piece in zip(parts, gradient.chunk(3), strict=True):
            part.grad = piece.clone()
        together.step()
        apart.step()
    torch.testing.assert_close(whole, torch.cat(parts), atol=1e-6, rtol=1e-5)


def test_a_muon_step_is_the_formula():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(32, 8))
    expected, momentum = weight.detach().clone(), torch.zeros(32, 8)
    optimizer = Muon({1: [weight]}, 0.02, 0.1)
    for _ in range(3):
        weight.grad = torch.randn(32, 8)
        momentum = 0.95 * momentum + 0.05 * weight.grad
        update = 0.05 * weight.grad + 0.95 * momentum
        expected = expected * (1 - 0.02 * 0.1) - 0.02 * 2 * orthogonalise(update[None])[0]  # √(32/8) = 2
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected, atol=1e-6, rtol=1e-5)
