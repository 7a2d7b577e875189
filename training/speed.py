"""Where training runs, and how near it comes to what the machine can do."""

import ctypes
import sys
import time
from dataclasses import replace

import torch

from model.gpt import GPT
from training.config import LoopConfig


def resolve(config: LoopConfig) -> LoopConfig:
    """The settings with the device settled: cuda > mps > cpu. ValueError for one that is not there."""
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
    return replace(config, device=device)


def has_bfloat16(device: str) -> bool:
    """Whether this machine's `device` is made for bfloat16 products. Where it is not they are slow, on a
    CPU ruinously so."""
    if device == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return device == "cuda" and torch.cuda.is_bf16_supported()


def precision(config: LoopConfig, model: GPT) -> str:
    """`dtype=auto` settled: bfloat16 products (the weights stay float32) where the hardware is made for
    them, on a CPU only for matrices that are large enough to repay the conversions."""
    if config.dtype != "auto":
        return config.dtype
    sizes = sorted(weight.numel() for weight in model.blocks.parameters() if weight.dim() == 2)
    pays = config.device != "cpu" or sizes[len(sizes) // 2] >= 2**16
    return "bfloat16" if pays and has_bfloat16(config.device) else "float32"


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
    looked_up = ("position.table", "pairs.weight")
    matrices = [w for name, w in model.named_parameters() if w.dim() == 2 and name not in looked_up]
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
