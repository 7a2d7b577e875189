"""A training step: accumulation, clipping, and the refusal of what is not finite."""

import math

import pytest
import torch

from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from tests.conftest import redraw
from training.config import LoopConfig, OptimizerConfig
from training.evaluate import bits_per_byte, evaluate, loss_of
from training.optimizer import make_optimizers
from training.step import NotFinite, train_step
from training.stopping import State, ended


def setting(optimizer="muon", **settings):
    shape = {"n_layers": 2, "n_heads": 2, "d_model": 16, "context_length": 8} | settings
    model = redraw(GPT(20, ModelConfig(**shape), PositionConfig()), std=0.1).train()
    torch.manual_seed(0)
    x, y = torch.randint(20, (2, 8, 8))
    return model, make_optimizers(model, OptimizerConfig(optimizer)), x, y


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_accumulation_equals_the_big_batch(optimizer):
    weights = []
    for pieces in (1, 4):
        model, optimizers, x, y = setting(optimizer)
        losses = [
            train_step(model, optimizers, x, y, step=s, seed=0, factor=1.0, grad_accum=pieces, grad_clip=1.0)
            for s in range(3)
        ]
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        weights.append(torch.tensor(losses))
    torch.testing.assert_close(weights[0], weights[2], atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(weights[1], weights[3], atol=1e-4, rtol=1e-4)


def test_bfloat16_products_give_nearly_the_same_gradients():
    model, _, x, y = setting()
    gradients = []
    for dtype in ("float32", "bfloat16"):
        loss_of(model, x, y, dtype).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        model.zero_grad()
    assert 0.999 < torch.cosine_similarity(*gradients, dim=0) < 1 - 1e-9


def test_the_gradient_is_clipped_to_the_norm_that_was_asked():
    model, optimizers, x, y = setting("adamw")
    for one in optimizers:
        one.step = lambda: None
        one.zero_grad = lambda: None
    _, norm = train_step(model, optimizers, x, y, step=0, seed=0, factor=1.0, grad_clip=0.01)
    clipped = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    assert norm > 0.01 and clipped == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("settings", [{"dropout": 0.5}, {"token_dropout": 0.5}], ids=str)
def test_dropouts_noise_is_a_function_of_seed_and_step(settings):
    def loss(step, seed):
        model, optimizers, x, y = setting(**settings)
        torch.manual_seed(123)
        return train_step(model, optimizers, x, y, step=step, seed=seed, factor=0.0)[0]

    assert loss(3, 0) == loss(3, 0)
    assert len({loss(3, 0), loss(4, 0), loss(3, 1)}) == 3


def test_what_is_not_finite_never_touches_the_weights():
    for poison in (math.nan, math.inf):
        model, optimizers, x, y = setting()
        with torch.no_grad():
            model.embed.weight[3, 0] = poison
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(NotFinite, match="step 8: loss nan"):
            train_step(model, optimizers, x, y, step=7, seed=0, factor=1.0)
        for p, old in zip(model.parameters(), before, strict=True):
            torch.testing.assert_close(p, old, equal_nan=True, atol=0, rtol=0)


def test_the_learning_rate_is_the_initial_one_times_the_factor():
    model, optimizers, x, y = setting()
    train_step(model, optimizers, x, y, step=0, seed=0, factor=0.25)
    lrs = [group["lr"] for one in optimizers for group in one.param_groups]
    assert lrs == pytest.approx([0.25 * 0.05] * (len(lrs) - 2) + [0.25 * 0.008] * 2)


def test_the_loss_of_a_split_is_the_mean_over_its_tokens():
    model, _, x, y = setting()
    model.eval()
    expected = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    windows = [(x[:5], y[:5]), (x[5:], y[5:])]
    assert evaluate(model, windows, device="cpu") == pytest.approx(expected, rel=1e-5)
    uneven = [(x[:, :5], y[:, :5]), (x[:, :3], y[:, :3])]
    logits = torch.cat((model(x[:, :5]), model(x[:, :3])), 1)
    targets = torch.cat((y[:, :5], y[:, :3]), 1)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    assert evaluate(model, uneven, device="cpu") == pytest.approx(expected, rel=1e-5)


def test_bits_per_byte_count_what_a_tokenizer_does_not_know():
    assert bits_per_byte(math.log(2), targets=100, text_bytes=50) == pytest.approx(2.0)
    assert bits_per_byte(math.log(2), 100, 50, unknown_bytes=5) == pytest.approx(2.0 + 8 * 5 / 50)


def test_whichever_limit_comes_first_ends_the_run():
    config = LoopConfig(max_steps=10, target_loss=2.0, patience=2, max_minutes=1.0)
    state = State(step=5)
    assert ended(config, state, 0.5) is None
    assert "minutes" in ended(config, state, 1.1)
    assert state.evaluated(3.0) and not state.evaluated(3.0) and ended(config, state, 0.5) is None
    assert not state.evaluated(3.5) and "no better" in ended(config, state, 0.5)
    assert state.evaluated(1.9) and "target_loss=2.0" in ended(config, state, 0.5)
    assert "all 10 steps" in ended(config, State(step=10), 0.0)


def test_an_untrained_model_is_best_only_until_there_is_another():
    state = State(untrained=True)
    assert state.evaluated(7.6)
    state.step = 3
    assert state.evaluated(9.0) and (state.best_step, state.best_val_loss, state.waited) == (3, 9.0, 0)
    state.step = 6
    assert not state.evaluated(9.1) and state.best_step == 3
    tuned = State()  # from weights that know something
    assert tuned.evaluated(2.0)
    tuned.step = 3
    assert not tuned.evaluated(2.1) and tuned.best_step == 0
