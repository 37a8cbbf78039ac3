"""Clicks per second, reading and reopening LETOR files, and the reduction of a log."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import Options, Row, Stopwatch, spread, timed

from unskew.logs.counts.reduction import Reduction, reduce_log
from unskew.logs.log import write_log
from unskew.simulation import Behaviour, PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.letor import read_letor, write_letor
from unskew.tables.lists.store import RACY_NS
from unskew.types import Log
from unskew_reproductions.behaviours import EVERY, IndividualBias

RATE = 5_000_000


def rates(function: Callable[[], object], amount: float, repeats: int) -> tuple[list[float], list[float]]:
    """Amount per second of wall time and of processor time, once for each repeat."""
    watches: list[Stopwatch] = [timed(function) for _ in range(repeats)]
    return [amount / watch.wall for watch in watches], [amount / watch.cpu for watch in watches]


def rate_row(what: str, amount: int, function: Callable[[], object], repeats: int, goal: float | None) -> Row:
    """Millions a second of processor time, all threads added up: other work on the machine counts little."""
    wall, cpu = ([value / 1e6 for value in side] for side in rates(function, amount, repeats))
    middle = statistics.median(cpu)
    return Row(
        what,
        f"{middle:.1f} million/s",
        f"{spread(cpu, 1)}; by the wall clock {statistics.median(wall):.1f}",
        "" if goal is None else f"{goal / 1e6:.0f} million/s",
        None if goal is None else middle >= goal / 1e6,
    )


def simulating(options: Options) -> list[Row]:
    """Every behaviour in memory, and one to Parquet."""
    pages = 100_000 if options.quick else 1_000_000
    lists = make_lists(5_000, 40, (10, 30), seed=0)

    def draw(behaviour: Behaviour) -> Log:
        return simulate(lists, behaviour, pages=pages, seed=0, logger="svm", cutoff=10)

    behaviours = {name: behaviour() for name, behaviour in EVERY.items()}
    behaviours["individual, features given"] = IndividualBias(features=tuple(range(10)))
    rows = []
    for name, behaviour in behaviours.items():
        amount = len(draw(behaviour).row)
        rows.append(rate_row(name, amount, lambda b=behaviour: draw(b), options.repeats, RATE))
    with tempfile.TemporaryDirectory() as folder:
        log = draw(PositionBias())
        path = Path(folder) / "log.parquet"
        rows.append(
            rate_row(
                "position, writing Parquet", len(log.row), lambda: write_log(log, path), options.repeats, None
            )
        )
    return rows


def reopening(options: Options) -> list[Row]:
    """Files of growing size: read once, then opened from the cache."""
    rows, times = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1, 4, 16):
            lists = make_lists((25 if options.quick else 250) * factor, 136, 24, seed=0)
            path, cache = Path(folder) / f"{factor}.txt", Path(folder) / f"cache-{factor}"
            write_letor(lists, path)
            megabytes = path.stat().st_size / 1e6
            time.sleep(RACY_NS / 1e9 + 0.1)  # a file that was just written is hashed again, to be safe
            first = timed(lambda p=path, c=cache: read_letor(p, cache=c))
            again = [1000 * timed(lambda p=path, c=cache: read_letor(p, cache=c)).wall for _ in range(21)]
            times[factor] = statistics.median(again)
            rows.append(Row(f"read {megabytes:,.0f} MB", f"{megabytes / first.wall:.0f} MB/s", "one reading"))
            rows.append(
                Row(
                    f"reopen {megabytes:,.0f} MB",
                    f"{times[factor]:.1f} ms",
                    f"{spread(again, 1)} ms",
                    "under 100 ms",
                    times[factor] < 100,
                )
            )
    growth = times[16] / times[1]
    # a factor below 2 for 16 times the bytes is what noise leaves of "independent"
    rows.append(Row("reopening 16 times the size", f"{growth:.2f} times as long", "", "independent", growth < 2))
    return rows


def reducing(options: Options) -> list[Row]:
    """Pages to counts and to pairs."""
    pages = 100_000 if options.quick else 1_000_000
    log = simulate(make_lists(5_000, 40, (10, 30), seed=0), PositionBias(), pages=pages, seed=0)
    kinds: tuple[Reduction, ...] = ("counts", "pairs")
    return [
        rate_row(f"to {kind}", len(log.row), lambda k=kind: reduce_log(log, k), options.repeats, None)
        for kind in kinds
    ]
