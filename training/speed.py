"""Where training runs, and how near it comes to what the machine can do."""

import ctypes
import sys
import time
from dataclasses import replace

import torch

from model.gpt import GPT
from training.config import LoopConfig


def resolve(config: LoopConfig) -> LoopConfig:
    """The settings with every `auto` settled. ValueError for a device that is not there.

    device: cuda > mps > cpu. dtype: bfloat16 products where the hardware is made for them. compile: see
    `training.compiled.settle`.
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
    return replace(config, device=device, dtype=dtype)


def keep_pages() -> None:
    """Let freed memory stay with this process (Linux with glibc; elsewhere nothing): large tensors, freed
    and asked for anew in every step, else cost a page fault for each 4 kB, a sixth of an eager step."""
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # mallopt(3)
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL("libc.so.6").mallopt
        except (OSError, AttributeError):  # another libc
            return
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def most_memory(device: str) -> float:
    """Bytes at most so far: of this process, or of its tensors on a GPU. 0 where nobody counts (Windows)."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    try:
        import resource
    except ImportError:
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


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
