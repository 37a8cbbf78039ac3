"""What every part of the benchmark shares: a result row, clocks, and the machine it ran on."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

PUBLISHED = (512, 256, 128)
"""Hidden layers of the published rankers."""


@dataclass(frozen=True)
class Row:
    """One measured number beside its goal."""

    what: str
    measured: str
    spread: str = ""
    goal: str = ""
    met: bool | None = None


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    quick: bool
    threads: int
    repeats: int
    full: bool = False


class Stopwatch:
    """Wall time and processor time of what runs between start and stop, added up."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter() - self._wall
        self.cpu += time.process_time() - self._cpu


def timed(function: Callable[[], object]) -> Stopwatch:
    """One call under a stopwatch."""
    with Stopwatch() as watch:
        function()
    return watch


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Lowest to highest."""
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"


def quartiles(values: Sequence[float], digits: int = 2) -> str:
    """The middle half."""
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.{digits}f} to {high:.{digits}f} (middle half)"


def machine() -> dict[str, str]:
    """What the numbers depend on."""
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "pyarrow": version("pyarrow"),
        "load average": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }
