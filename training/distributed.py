"""Several processes train one model: each takes its share of every batch, on PyTorch's own engine.

    torchrun --standalone --nproc_per_node=2 train.py …         (Li et al. 2020, arXiv 2006.15704)
"""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from training.config import LoopConfig


def another_died(error: RuntimeError) -> bool:
    """Whether this is how the death of another process shows itself here."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)


@dataclass(frozen=True)
class World:
    """The processes at work on a run; alone, every method gives back what it got."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those on this machine

    @property
    def first(self) -> bool:
        """Whether this is the process that prints, logs and saves."""
        return self.rank == 0

    def share(self, x: Tensor) -> Tensor:
        """This process's part of a batch (B, …): (B / size, …)."""
        return x.chunk(self.size)[self.rank]

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, whose gradients become the mean over all processes."""
        if self.size == 1:
            return model
        return DistributedDataParallel(model, gradient_as_bucket_view=True)

    def alone(self, model: nn.Module, last: bool) -> AbstractContextManager:
        """While gradients are summed over the pieces of a batch: only the `last` one's are exchanged."""
        return nullcontext() if last or self.size == 1 else model.no_sync()

    def add(self, *values: float) -> list[float]:
        """Each value, summed over the processes."""
        return self._reduced(values, distributed.ReduceOp.SUM)

    def most(self, *values: float) -> list[float]:
        """The largest of each value in any process."""
        return self._reduced(values, distributed.ReduceOp.MAX)

    def _reduced(self, values: tuple[float, ...], how: Any) -> list[float]:
        together = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            distributed.all_reduce(together, how)
        return together.tolist()

    def told(self, value: Any) -> Any:
        """The first process's value."""
        said = [value]
        if self.size > 1:
            distributed.broadcast_object_list(said)
        return said[0]

    @contextmanager
    def one_a_machine_first(self) -> Iterator[None]:
        """What leaves something behind that the other processes of a machine then find."""
        if self.size > 1 and self.local_rank:
            distributed.barrier()
        yield
        if self.size > 1 and not self.local_rank:
            distributed.barrier()


def join(config: LoopConfig) -> World:
    """The world that torchrun's environment describes. ValueError where a batch cannot be shared out."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if config.batch_size % (size * config.grad_accum):
        pieces = f"{size} processes" + (f" × train.grad_accum={config.grad_accum}" * (config.grad_accum > 1))
        raise ValueError(f"train.batch_size={config.batch_size} cannot be shared by {pieces}")
    if size == 1:
        return World()
    world = World(int(os.environ["RANK"]), size, int(os.environ["LOCAL_RANK"]))
    if config.device == "cuda":
        torch.cuda.set_device(world.local_rank)
    if not distributed.is_initialized():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if config.device == "cuda" else "gloo")
    return world


def leave(code: int) -> int:
    """The exit code of a process that is alone; one of several ends here and now, since gloo's threads abort
    it now and then when Python takes everything down after a DDP step."""
    if distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
