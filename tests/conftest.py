"""What the tests share: models whose every weight is drawn again, since zeros hide faults."""

import os
import signal

import pytest
import torch

from model.config import AttentionConfig, ModelConfig, PositionConfig
from model.gpt import GPT

# A shell starts its background jobs with Ctrl-C ignored, and all that they start: a test of it would wait.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Prepared text goes to a folder of the tests', kept for the session."""
    monkeypatch.setenv("CLEARHEAD_CACHE", str(tmp_path_factory.getbasetemp() / "prepared"))


def redraw(module: torch.nn.Module, seed: int = 0, std: float = 0.3) -> torch.nn.Module:
    """Every parameter anew: gains around 1, the rest around 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator) * std
            parameter.copy_(noise + 1 if "norm" in name and name.endswith("weight") else noise)
    return module


@pytest.fixture
def make_gpt():
    """make_gpt(position, attention, vocab_size, **model settings) → a redrawn GPT in eval mode."""

    def make(position="rope", attention="fused", vocab_size=50, seed=0, **settings) -> GPT:
        settings = {"n_layers": 2, "n_heads": 2, "d_model": 16, "context_length": 12} | settings
        model = GPT(
            vocab_size, ModelConfig(**settings), PositionConfig(name=position), AttentionConfig(attention)
        )
        return redraw(model, seed).eval()

    return make


os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1)  # the models are tiny, and threads that wait for each other cost more than they do
