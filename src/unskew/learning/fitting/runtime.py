"""Around the steps of a training: threads, the seed of a step, Ctrl-C, and its state on disk without pickle."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from unskew.files import complete_file, tensors_at

WORTHWHILE = 200_000_000
"""Multiplications of a step, forward, from which on a second thread saves more than it costs."""


def threads_for(multiplications: float, available: int) -> int:
    """How many threads a step is worth; BENCHMARKS.md has the measurement behind it.

    >>> threads_for(2560 * 4_640, 8), threads_for(2560 * 233_600, 8)
    (1, 8)
    """
    return 1 if multiplications < WORTHWHILE else available


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with so many processor threads, and with as many as before afterwards; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seed_draws(seed: int, device: torch.device) -> None:
    """Seed all that is drawn on the processor and on the device.

    `torch.manual_seed` alone would do, but for each kind of device that is not in use it queues a call and writes
    down where it came from, which takes longer than the optimiser.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.manual_seed(seed)


@contextmanager
def deferred_interrupt(*, patient: bool = False) -> Iterator[Callable[[], bool]]:
    """Let the step under way finish before Ctrl-C counts; a second Ctrl-C counts at once, unless `patient`.

    Outside the main thread signals cannot be caught, and nothing is deferred.
    """
    seen = False

    def handler(number: int, frame: object) -> None:
        nonlocal seen
        if seen and not patient:
            raise KeyboardInterrupt
        seen = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: seen
    finally:
        signal.signal(signal.SIGINT, before)


# ---- checkpoints: tensors and a JSON note in one safetensors file ----

FILE = "checkpoint.safetensors"


def write_tensors(path: Path, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
    """Write tensors and a note; a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with complete_file(path) as ready:
        save_file(plain, ready, {"unskew": json.dumps(note)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the note of a file."""
    with safe_open(tensors_at(path), "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["unskew"])  # noqa: SIM118


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors."""
    return {
        f"{key}.{name}": torch.as_tensor(value)
        for key, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put the state back where `optimizer_tensors` took it from."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        key, slot = name.split(".", 1)
        state.setdefault(int(key), {})[slot] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
