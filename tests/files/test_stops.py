"""A command that is killed before any one of its file operations: see `stops.py`, which lists the points.

What was there before is whole, or a reader finds it; the same command again has the result that it would have had;
and nothing is left lying about.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import IO

import pytest

HERE = Path(__file__).resolve().parents[1]
QUICK = ("simulate", "ingest", "split", "split in two renames", "counts", "track", "save", "learn")
"""Commands by name."""
SLOW = (
    *("learn afresh", "learn in two renames", "learn mlp", "learn trees", "learn package", "learn shards"),
    "compare",
)
FEWEST = 10
"""Points that every command has at least; with fewer the hook would not have seen them."""


class Stopper:
    """The process of `stops.py`, which imports once for all commands and is asked for one after the other."""

    def __init__(self, folder: Path, said: IO[str]) -> None:
        self.said = said
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "helpers" / "stops.py"), str(folder / "jobs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def points(self, job: str) -> list[dict[str, object]]:
        """What is found at each point of a command."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(job, file=self.process.stdin, flush=True)
        points = []
        patience = Timer(1200, self.process.kill)
        patience.start()
        while (line := self.process.stdout.readline()) != "\n":
            assert line, Path(self.said.name).read_text()[-3000:]
            points.append(json.loads(line))
        patience.cancel()
        return points


@pytest.fixture(scope="module")
def stopper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopper]:
    """Started once."""
    folder = tmp_path_factory.mktemp("stops")
    with (folder / "said").open("w") as said:
        started = Stopper(folder, said)
        yield started
        started.process.kill()
        started.process.communicate()


def check(points: list[dict[str, object]]) -> None:
    """Nothing is lost at any of the points."""
    assert len(points) >= FEWEST
    assert [point for point in points if point["reads"] not in ("old", "new")] == []
    assert [point for point in points if point["again"] != "ok" or not point["result"]] == []
    assert [point for point in points if point["left"]] == []
    order = [point["reads"] for point in points]
    assert order == sorted(order, key="old new".index), "once the new one is there, it stays"


@pytest.mark.parametrize("job", [*QUICK, *(pytest.param(job, marks=pytest.mark.slow) for job in SLOW)])
def test_a_killed_command_loses_nothing(stopper: Stopper, job: str) -> None:
    check(stopper.points(job))


@pytest.mark.parametrize("job", ["save", "ingest", pytest.param("learn", marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line_and_loses_nothing(stopper: Stopper, job: str) -> None:
    """From each of its operations on nothing more can be opened or made."""
    points = stopper.points(f"full {job}")
    last = points.pop()
    assert last["status"] == 0, last
    assert len(points) >= 3
    for point in points:
        assert point["reads"] == "old", point
        assert point["left"] == [], point
        said = point["said"]
        assert isinstance(said, list)
        assert point["status"] == 1, point
        assert said[-1].startswith("unskew: "), point
        assert "No space left on device" in said[-1], point
        assert not any("Traceback" in line for line in said), point
