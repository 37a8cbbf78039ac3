"""Which of torchrun's processes this is, and how they wait for each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training

PATIENCE = timedelta(hours=12)
"""How long a process waits for the others; the first may write shards or validate for long."""


def world() -> tuple[int, int]:
    """Number of this process, and of all; 0 and 1 outside a process group."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


@contextmanager
def process_group(training: Training) -> Iterator[None]:
    """Join the processes that torchrun started; outside torchrun nothing happens."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    device = training.torch_device()
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    yield  # after an error the others may be waiting for this process: it just ends, and torchrun ends them
    dist.destroy_process_group()


@contextmanager
def first_process_first() -> Iterator[None]:
    """Process 0 goes through the block alone, then the others do."""
    rank, size = world()
    if size > 1 and rank > 0:
        dist.barrier()
    yield
    if size > 1 and rank == 0:
        dist.barrier()


def workers_of(training: Training) -> int:
    """Parts of a step: those asked for, or one for each process."""
    _, size = world()
    workers = training.workers or size
    if workers % size:
        raise ConfigError(f"training.workers = {workers} must be a multiple of the {size} processes")
    if workers > training.batch:
        raise ConfigError(f"training.batch = {training.batch} is too small for {workers} workers")
    return workers
