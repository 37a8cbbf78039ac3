"""A killed ingest leaves nothing that looks like a log, and the next one removes what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.tables.engine.parquet import impressions_in

PAGES = 20_000
SCRIPT = """
import os, signal, sys
from pathlib import Path

moment, source, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

from unskew.files import writing as disk
from unskew.logs.ingest import ingest as module, rejected
from unskew.tables.engine.engine import DuckEngine, connect

real, rename = disk.publish, Path.rename

def half_written(engine, table, folder, *given):
    write(engine, table, folder, *given)
    if "impressions" in folder:
        for path in Path(folder).rglob("*.parquet"):
            os.truncate(path, path.stat().st_size // 2)
        die()

if moment == "rejected":
    rejected.reasons_of = die
elif moment == "half of the impressions":
    write, DuckEngine._write = DuckEngine._write, half_written
elif moment == "impressions":
    module.log_numbers = die
elif moment == "summary":
    module.write_manifest = die
elif moment == "publish":
    disk.publish = lambda working, place, **given: die() if place == out else real(working, place, **given)
elif moment == "between two renames":
    disk.exchange = lambda one, other: False  # as where the file system cannot
    Path.rename = lambda path, to: die() if to == out else rename(path, to)
elif moment == "published":
    disk.publish = lambda working, place, **given: (real(working, place, **given), place == out and die())
with connect("duckdb", threads=1) as engine:
    module.ingest_files(source, out, engine, force=True)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that is written anew, since its positions are not of our type."""
    path = tmp_path_factory.mktemp("source") / "log.parquet"
    table = {
        "page_id": np.repeat(np.arange(PAGES), 5),
        "query_id": np.repeat(np.arange(PAGES) % 7, 5),
        "doc_id": np.tile(np.arange(5), PAGES),
        "position": np.tile(np.arange(1, 6), PAGES),
        "click": np.zeros(5 * PAGES, np.int64),
    }
    pq.write_table(pa.table(table), path)
    return path


def run(moment: str, source: Path, out: Path) -> int:
    """Ingest in a process of its own, forked as all is imported here; its exit code."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    try:
        sys.argv = ["ingest", moment, str(source), str(out)]
        exec(SCRIPT, {})
        os._exit(0)
    finally:
        os._exit(1)


def whole(out: Path) -> bool:
    return (
        json.loads((out / "summary.json").read_text())["impressions"] == 5 * PAGES
        and len(pq.read_table(out / "impressions")) == 5 * PAGES
        and len(pq.read_table(out / "rejected.parquet")) == 0
    )


MOMENTS = ["rejected", "half of the impressions", "impressions", "summary", "publish"]
"""What has just been written when the process dies."""


def test_nothing_is_half_written(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for moment in MOMENTS:
        assert run(moment, source, out) == -signal.SIGKILL, moment
        assert not out.exists(), moment
        left = list(tmp_path.iterdir())  # and nothing of the runs before
        assert [path.name.startswith(".out.") for path in left] == [True], moment
    assert run("never", source, out) == 0
    assert whole(out)
    assert list(tmp_path.iterdir()) == [out], "what the killed run left is gone"


def test_an_earlier_log_survives_or_is_replaced_as_a_whole(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("published", source, out) == -signal.SIGKILL
    assert whole(out)
    assert run("summary", source, out) == -signal.SIGKILL
    assert whole(out)
    assert run("between two renames", source, out) == -signal.SIGKILL
    assert not out.exists()
    assert impressions_in(out) == out / "impressions", "a reader puts the old one back"
    assert whole(out)
    assert list(tmp_path.iterdir()) == [out]


def test_a_kill_from_outside(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, "never", str(source), str(out)])
    until = time.monotonic() + 300
    while process.poll() is None and not list(tmp_path.glob(".out.*")) and time.monotonic() < until:
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not out.exists() or whole(out)
