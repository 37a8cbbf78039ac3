"""Tracking that is killed at any moment, and run again, has lost nothing and counted nothing twice."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.tables.engine.engine import connect
from unskew.tracking.store import open_tracking
from unskew.tracking.track import track
from unskew.tracking.windows import read_window

HOURS = 2
EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "shutil.rmtree", "os.scandir"}
"""What a process does to files, as Python's audit hooks name it."""
STEPS = ("os.rename", "os.remove", "os.chmod")
"""Before and after these a disk differs; the others look, or make folders that are to be filled."""
NAMED = re.compile(r"\d+-[0-9a-f]{8}|\d+|day|week|month")
"""What differs in names of one kind."""


def write_hours(folder: Path) -> list[Path]:
    """A log of some hours, each delivery repeating a tenth of the hour before."""
    rng = np.random.default_rng(0)
    paths = []
    for hour in range(HOURS):
        page = np.repeat(np.arange(hour * 90, hour * 90 + 100), 5)
        table = {
            "page_id": page,
            "query_id": page % 7,
            "doc_id": np.tile(np.arange(5), 100),
            "position": np.tile(np.arange(1, 6), 100),
            "click": (np.random.default_rng(1).random(5000) < 0.3).astype(np.int8)[
                page * 5 + np.tile(range(5), 100)
            ],
            "timestamp": np.datetime64("2024-01-01T22:00:00") + (page // 90 * 3600 + 60).astype("timedelta64[s]"),
        }
        paths.append(folder / f"hour-{hour}.parquet")
        pq.write_table(pa.table(table).take(rng.permutation(500)), paths[-1])
    return paths


def run(paths: list[Path], out: Path, die_at: int | None = None) -> int:
    """All deliveries in a process of its own, which kills itself before file operation number `die_at`."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    done: list[str] = []

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in EVENTS and given and str(out) in str(given[0]):
            if len(done) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            done.append(f"{event} {NAMED.sub('*', os.path.relpath(str(given[0]), out))}")

    sys.addaudithook(hook)
    try:
        for path in paths:
            track(path, out, threads=1, refresh="all")
        out.with_suffix(".operations").write_text("\n".join(done))
        os._exit(0)
    except BaseException as error:
        out.with_suffix(".error").write_text(repr(error))
        os._exit(1)


def contents(out: Path) -> tuple[Any, ...]:
    """All that a store says, without how often it was run."""
    with connect("duckdb", threads=1) as engine:
        store = open_tracking(out)
        windows = {
            name: engine.rows(read_window(engine, store, name).order_by("query_id", "doc_id", "position"))
            for name in ("day", "month")
        }
        held = engine.rows(store.read(engine, "pages", 0, 10**9).order_by("page_id"))
        return store.manifest.clock, windows, held


@pytest.mark.slow
def test_killed_before_any_of_its_steps_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    paths = write_hours(tmp_path)
    whole = tmp_path / "whole"
    assert run(paths, whole) == 0, whole.with_suffix(".error")
    operations = whole.with_suffix(".operations").read_text().splitlines()
    expected = contents(whole)
    assert len(expected[2]) == 100 + (HOURS - 1) * 90
    steps = [(at, what) for at, what in enumerate(operations) if what.startswith(STEPS)]
    last = {what: at for at, what in steps}  # of a kind in the last delivery
    first = {what: at for at, what in reversed(steps) if what.startswith("os.rename")}
    moments = sorted({0, len(operations) - 1, *last.values(), *first.values()})
    assert len(moments) >= 12
    for number, moment in enumerate(moments):
        out = tmp_path / f"store-{number}"
        assert run(paths, out, moment) == signal.SIGKILL, moment
        assert run(paths, out) == 0, moment
        assert contents(out) == expected, moment
        left = {each.name for each in out.iterdir()}
        assert left == {".lock", "store.json", "partials", "pages", "windows"}, "what it left is gone"


def test_a_run_that_ends_with_an_error_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_hours(tmp_path)
    track(paths[0], tmp_path / "store", threads=1)
    before = contents(tmp_path / "store")

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("unskew.tracking.track.publish_window", full)
        with pytest.raises(OSError, match="full"):
            track(paths[1], tmp_path / "store", threads=1)
    assert contents(tmp_path / "store") == before
    assert track(paths[1], tmp_path / "store", threads=1).counted == 90
