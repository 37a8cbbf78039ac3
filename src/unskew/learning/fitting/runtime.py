"""Around the steps of a training: threads, the seed of a step, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

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
