"""A command that is killed before any one of its file operations: see `stops.py`, which lists the points.

What was there before is whole, or a reader finds it; the same command again has the result that it would have had;
and nothing is left lying about.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
QUICK = ("simulate", "ingest", "split", "split in two renames", "counts", "track", "save", "learn")
"""Commands by name, all in one process."""
SLOW = (
    *("learn afresh", "learn in two renames", "learn mlp", "learn trees", "learn package", "learn shards"),
    "compare",
)
FEWEST = 10
"""Points that every command has at least; with fewer the hook would not have seen them."""


def tried(folder: Path, jobs: tuple[str, ...], *how: str) -> dict[str, list[dict[str, object]]]:
    command = [sys.executable, str(HERE / "helpers" / "stops.py"), str(folder), *how, *jobs]
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, env=given)
    assert done.returncode == 0, done.stderr[-3000:]
    points: dict[str, list[dict[str, object]]] = {job: [] for job in jobs}
    for line in done.stdout.splitlines():
        point = json.loads(line)
        points[point.pop("job")].append(point)
    return points


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, object]]]:
    """The points of the quick commands."""
    return tried(tmp_path_factory.mktemp("stops"), QUICK)


def check(points: list[dict[str, object]]) -> None:
    """Nothing is lost at any of the points."""
    assert len(points) >= FEWEST
    assert [point for point in points if point["reads"] not in ("old", "new")] == []
    assert [point for point in points if point["again"] != "ok" or not point["result"]] == []
    assert [point for point in points if point["left"]] == []
    order = [point["reads"] for point in points]
    assert order == sorted(order, key="old new".index), "once the new one is there, it stays"


@pytest.mark.xdist_group("stops")
@pytest.mark.parametrize("job", QUICK)
def test_a_killed_command_loses_nothing(quick: dict[str, list[dict[str, object]]], job: str) -> None:
    check(quick[job])


@pytest.mark.slow
@pytest.mark.xdist_group("stops")
@pytest.mark.parametrize("job", SLOW)
def test_a_killed_larger_command_loses_nothing(tmp_path: Path, job: str) -> None:
    check(tried(tmp_path, (job,))[job])


@pytest.mark.parametrize("job", ["save", "ingest", pytest.param("learn", marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path, job: str) -> None:
    """From each of its operations on nothing more can be opened or made."""
    points = tried(tmp_path, (job,), "full")[job]
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
