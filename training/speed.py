"""Where training runs, and how near it comes to what the machine can do."""

import time
from dataclasses import replace

import torch

from model.gpt import GPT
from training.config import LoopConfig


def resolve(config: LoopConfig) -> LoopConfig:
    """The settings with every `auto` settled. ValueError for a device that is not there.

    device: cuda > mps > cpu. dtype: bfloat16 products where the hardware is made for them. compile: on a
    GPU, where it pays within a minute; not on a CPU, where the eager step is within a fifth of the
    compiled one and a cold compilation costs most of a short run.
    """
    # A PyTorch built without CUDA is never asked about it.
    have = {
        "cuda": torch.backends.cuda.is_built() and torch.cuda.is_available(),
        "mps": torch.backends.mps.is_built() and torch.backends.mps.is_available(),
        "cpu": True,
    }
    there = [device for device, found in have.items() if found]
    device = there[0] if config.device == "auto" else config.device
    if device not in there:
        raise ValueError(f"train.device={device}: this machine or this PyTorch has only {' '.join(there)}")
    fast = device == "cuda" and torch.cuda.is_bf16_supported()
    dtype = ("bfloat16" if fast else "float32") if config.dtype == "auto" else config.dtype
    compiled = ("true" if device == "cuda" else "false") if config.compile == "auto" else config.compile
    return replace(config, device=device, dtype=dtype, compile=compiled)


def operations(model: GPT) -> int:
    """Floating-point operations a trained token costs: 6 for each weight of a matrix that multiplies (the
    head included, looked-up tables not), + 12·L·(H·D)·T for the attention."""
    config = model.config
    matrices = [w for name, w in model.named_parameters() if w.dim() == 2 and name != "position.table"]
    tables = 0 if config.tie_embeddings else model.embed.weight.numel()
    products = sum(weight.numel() for weight in matrices) - tables
    return 6 * products + 12 * config.n_layers * config.n_heads * config.d_head * config.context_length


def matrix_peak(device: str, dtype: str, size: int = 1024, rounds: int = 5) -> float:
    """FLOP/s of this machine in a square matrix product: the best of a few, after a warm-up."""
    a = torch.randn(size, size, device=device, dtype=getattr(torch, dtype))
    best = float("inf")
    for _ in range(rounds + 1):
        started = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for the device
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
