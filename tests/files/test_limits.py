"""Files made to break a reader end in an error within a stated memory and time, and promised bounds are kept.

The peak is that of the process, not the setting of an engine. docs/explanation/faults.md states the limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import CASES

HERE = Path(__file__).resolve().parents[1]
MEMORY = 500
"""MB that refusing a file may take, Python and libraries included."""
SECONDS = 30
"""Of one processor."""
MEASURED = """
import sys
from pathlib import Path
from unskew.terminal import main
sys.argv = ["unskew", *sys.argv[1:]]
try:
    main.main()
except SystemExit as left:
    assert not left.code
# not getrusage, which goes on from what the parent had
status = Path("/proc/self/status").read_text().splitlines()
print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)
"""


def peak(*command: str | Path) -> float:
    """The most memory that a command had, in MB."""
    words = [sys.executable, "-c", MEASURED, *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    return float(done.stdout.splitlines()[-1])


def hostile(folder: Path, *names: str) -> None:
    """Every case ends as it should, within its limits."""
    command = [sys.executable, str(HERE / "helpers" / "limits.py"), str(folder), *names]
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False, env=given)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [case["name"] for case in found] == [*names]
    for case in found:
        assert case["mb"] < MEMORY, case
        assert case["seconds"] < SECONDS, case
        assert "Traceback" not in case["said"], case
        assert len(case["said"]) < 2000, case
        if case["name"] != "idle":
            assert case["status"] in (1, 2, 3), case
            assert case["said"].startswith("unskew: "), case


LIES = ("weights of a large array", "model of many features", "model of wide layers", "model that is deep")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where cases are; the model that some of them change is trained once."""
    return tmp_path_factory.mktemp("hostile")


def test_models_that_lie_are_refused_within_limits(folder: Path) -> None:
    hostile(folder, *LIES)


@pytest.mark.slow
def test_hostile_files_end_within_limits(folder: Path) -> None:
    hostile(folder, *(name for name in CASES if name not in LIES))


@pytest.mark.slow
def test_the_memory_of_an_engine_bounds_the_process(tmp_path: Path) -> None:
    """`--memory` and some 300 MB for Python and its libraries; without the flag the same takes more."""
    rng, pages = np.random.default_rng(0), 200_000
    query = np.repeat(rng.integers(0, 50_000, pages), 10)
    columns = {
        "page_id": np.repeat(np.arange(pages), 10),
        "query_id": query,
        "doc_id": query * 40 + np.tile(np.arange(10), pages) + np.repeat(rng.integers(0, 30, pages), 10),
        "position": np.tile(np.arange(1, 11, dtype=np.int32), pages),
        "click": (rng.random(10 * pages) < 0.1).astype(np.int8),
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    counts = ("counts", tmp_path / "log.parquet", "--threads", "1", "--out")
    assert peak(*counts, tmp_path / "free") > 450
    assert peak(*counts, tmp_path / "bound", "--memory", "100MB") < 100 + 300
    free, bound = (_slots(tmp_path / name / "slots") for name in ("free", "bound"))
    assert len(free) > pages
    assert free.equals(bound)


def _slots(folder: Path) -> pa.Table:
    table = pq.read_table(folder, columns=["query_id", "doc_id", "position", "impressions", "clicks"])
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


@pytest.mark.slow
def test_memory_of_shards_bounds_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`data.memory` counts the shards; Python, torch and blocks on their way take up to 1 GB more."""
    rng, queries, documents, width = np.random.default_rng(0), 10_000, 20, 100
    rows = queries * documents
    features = {f"f{at}": rng.random(rows, dtype=np.float32) for at in range(width)}  # 80 MB
    ids = {"query_id": np.repeat(np.arange(queries), documents), "doc_id": np.arange(rows)}
    pq.write_table(pa.table(ids | features), tmp_path / "features.parquet", row_group_size=20_000)
    shown = np.arange(rows).reshape(queries, documents)[:, :10].ravel()
    log = {
        "page_id": np.repeat(np.arange(queries), 10),
        "query_id": np.repeat(np.arange(queries), 10),
        "doc_id": shown,
        "position": np.tile(np.arange(1, 11, dtype=np.int32), queries),
        "click": (rng.random(10 * queries) < 0.2).astype(np.int8),
    }
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    run = (
        'out = "{out}"\nengine = "{engine}"\n[data]\nlog = "log.parquet"\nfeatures = "features.parquet"\n'
        'memory = "{memory}"\n'
        '[method]\nname = "naive"\n[ranker]\nname = "linear"\n[training]\nsteps = 10\n'
    )
    peaks = {}
    for out, memory, engine in (("small", "20MB", "none"), ("large", "4GB", "none"), ("begun", "20MB", "auto")):
        (tmp_path / f"{out}.toml").write_text(run.format(out=out, memory=memory, engine=engine))
        monkeypatch.setenv("UNSKEW_CACHE", str(tmp_path / f"cache-{out}"))
        peaks[out] = peak("learn", tmp_path / f"{out}.toml", "--quiet")
    assert max(peaks["small"], peaks["begun"]) < 20 + 1000  # what it begins as is found in the held-out shard
    assert peaks["large"] > peaks["small"] + 30
