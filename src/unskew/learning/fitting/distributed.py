"""Training in several processes: `torchrun --nproc-per-node N -m unskew learn RUN.toml`.

A step has W parts (`training.workers`), each drawn from its own share of the data by one of the processes. With
s_w the share of part w, L_w its loss and b_w what a method's buffers become when it is run on part w alone,

    gradient = sum_w s_w dL_w / dtheta            averaged by torch's DistributedDataParallel
    buffers  = b + sum_w s_w (b_w - b)            b: the buffers before the step

so that with the same W any number of processes, one included, takes the same steps up to rounding. Each process
reads its own shards alone. Process 0 validates, writes the run folder and prints; Ctrl-C in any process stops all
after the step, and where one fails torchrun ends the others.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from unskew.errors import ConfigError, Key, Option
from unskew.learning.fitting.loop import Draws, Trainer
from unskew.learning.fitting.runtime import deferred_interrupt, seed_draws
from unskew.learning.fitting.training import Training, move_along
from unskew.learning.methods.contract import MethodModule

# ---- processes ----


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
        raise ConfigError(
            (Option(Key("training.workers"), workers), f" must be a multiple of the {size} processes")
        )
    if workers > training.batch:
        raise ConfigError((Option(Key("training.batch"), training.batch), f" is too small for {workers} workers"))
    return workers


# ---- parts of a step ----


@dataclass(frozen=True)
class Part:
    """One of the W parts of a step."""

    worker: int
    share: float
    draws: Draws


def own_parts(shares: Sequence[float], draws: Callable[[int], Draws]) -> list[Part]:
    """The parts of a step that this process draws; `draws` makes the source of a worker."""
    rank, size = world()
    each = len(shares) // size
    return [Part(worker, shares[worker], draws(worker)) for worker in range(rank * each, (rank + 1) * each)]


# ---- training ----


class Parallel(Trainer):
    """A trainer whose steps have several parts, in one process or in several."""

    def __init__(
        self, ranker: nn.Module, method: MethodModule, config: Training, identity: dict[str, Any] | None = None
    ) -> None:
        super().__init__(ranker, method, config, identity)
        rank, self.processes = world()
        self.leads = rank == 0
        self.together.always = True
        self.learner: nn.Module = self.together
        if self.processes > 1:
            # buffers are brought together in `step`; some methods leave parameters out of some steps
            known = inspect.signature(DistributedDataParallel).parameters
            apart = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
            options: dict[str, Any] = {apart: False, "find_unused_parameters": True}
            self.learner = DistributedDataParallel(self.learner, **options)

    def step(self, batches: Any, step: int) -> tuple[Tensor, int]:
        """One optimiser step over all parts, a list of them; the loss and the number of documents behind it."""
        self.modules.train()
        self.forget_gradient()
        buffers = list(self.modules.buffers())
        before = [buffer.clone() for buffer in buffers]
        change = [torch.zeros_like(buffer) for buffer in buffers]
        loss, documents = torch.zeros((), device=self.device), 0
        for part in batches:
            for buffer, start in zip(buffers, before, strict=True):
                buffer.copy_(start)
            value, count = self.differentiate(part, step, last=part is batches[-1])
            loss, documents = loss + part.share * value, documents + count
            for total, buffer, start in zip(change, buffers, before, strict=True):
                total += part.share * (buffer - start) if total.is_floating_point() else 0
        floats = [at for at, total in enumerate(change) if total.is_floating_point()]  # counters agree anyway
        loss, *changes = self.summed([loss, *(change[place] for place in floats)])
        for place, total in zip(floats, changes, strict=True):
            buffers[place].copy_(before[place] + total)
        move_along(self.optimizer, self.config.rate(step), self.config.clip)
        return loss, documents * self.processes

    def differentiate(self, part: Part, step: int, *, last: bool) -> tuple[Tensor, int]:
        """Add the gradient of a part; with the last one the processes exchange theirs."""
        own = part.worker * 0x9E3779B97F4A7C15
        seed_draws((self.config.seed * 1_000_003 + step + own) % 2**63, self.device)
        batch = part.draws.at(step)
        if self.method.input_gradient:
            batch.documents.requires_grad_(True)
        alone: AbstractContextManager[None] = nullcontext()
        if isinstance(self.learner, DistributedDataParallel) and not last:
            alone = self.learner.no_sync()
        with alone:
            loss: Tensor = self.learner(batch)
            (loss * (part.share * self.processes)).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), len(batch.documents)

    def summed(self, values: list[Tensor]) -> list[Tensor]:
        """Each tensor summed over the processes."""
        if self.processes == 1:
            return values
        flat = torch.cat([value.flatten().double() for value in values])
        dist.all_reduce(flat)
        parts = torch.split(flat, [value.numel() for value in values])
        return [part.view(value.shape).to(value.dtype) for part, value in zip(parts, values, strict=True)]

    def agreed(self, metric: float) -> float:
        """The metric that process 0 has."""
        found = torch.tensor(metric, dtype=torch.float64, device=self.device)
        if self.processes > 1:
            dist.broadcast(found, 0)
        return found.item()

    @contextmanager
    def interrupts(self) -> Iterator[Callable[[], bool]]:
        """Whether Ctrl-C was pressed in any process; torchrun passes it on to each, so a second does not count."""
        with deferred_interrupt(patient=self.processes > 1) as seen:
            yield lambda: self.summed([torch.tensor(float(seen()), device=self.device)])[0].item() > 0

    def saved(self, folder: Path | None) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The checkpoint that process 0 finds."""
        found = [super().saved(folder if self.leads else None)]
        if self.processes > 1:
            dist.broadcast_object_list(found, 0)
        return found[0]
