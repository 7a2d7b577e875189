"""Precision is chosen by what the machine has and what the model is."""

import pytest

from model.config import ModelConfig, PositionConfig
from model.gpt import GPT
from training import speed
from training.config import LoopConfig


@pytest.mark.parametrize(
    ("device", "d_model", "units", "dtype"),
    [
        ("cpu", 128, True, "float32"),  # conversions would cost what the products gain
        ("cpu", 256, True, "bfloat16"),
        ("cpu", 256, False, "float32"),
        ("cuda", 128, True, "bfloat16"),
        ("cuda", 256, False, "float32"),
        ("mps", 256, False, "float32"),
    ],
)
def test_auto_takes_bfloat16_where_it_pays(device, d_model, units, dtype, monkeypatch):
    monkeypatch.setattr(speed, "has_bfloat16", lambda device: units)
    model = GPT(65, ModelConfig(n_layers=2, d_model=d_model), PositionConfig())
    assert speed.precision(LoopConfig(device=device), model) == dtype
    assert speed.precision(LoopConfig(device=device, dtype="float32"), model) == "float32"
    assert speed.precision(LoopConfig(device=device, dtype="bfloat16"), model) == "bfloat16"


def test_apple_s_gpus_count_as_without():
    assert not speed.has_bfloat16("mps")
