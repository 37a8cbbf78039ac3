"""The engine object on DuckDB and Spark: reading, writing whole folders, keeping, and what goes wrong."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.errors import ConfigError, DataError, MissingExtra, RunError
from unskew.tables.engine.engine import Engine, connect, quiet
from unskew.tables.engine.parquet import parquet_files

NOON = datetime(2024, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
TABLE = pa.table(
    {
        "name": ["b", "a", None, "é'\"\\"],
        "number": pa.array([1, 2, 3, 4], pa.int32()),
        "flag": [True, False, None, True],
        "at": pa.array([NOON] * 4, pa.timestamp("us", "UTC")),
        "wall": pa.array([NOON.replace(tzinfo=None)] * 4, pa.timestamp("us")),
    }
)


def rows(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: row["number"])


def test_round_trip_through_odd_names(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "it's [1] {2} * é"
    folder.mkdir()
    pq.write_table(TABLE, folder / "a?b.parquet")
    table = engine.read_parquet(folder)
    assert rows(engine.to_arrow(table)) == rows(TABLE)
    engine.write_parquet(table, folder / "out'")
    back = pq.read_table(folder / "out'")
    assert rows(back) == rows(TABLE)
    assert back.schema.field("at").type == pa.timestamp("us", "UTC")
    assert back.schema.field("number").type == pa.int32()
    assert sorted(path.name for path in folder.iterdir()) == ["a?b.parquet", "out'"]
    assert all(path.suffix == ".parquet" for path in (folder / "out'").iterdir())


def test_several_files_and_what_is_not_data(engine: Engine, tmp_path: Path) -> None:
    for name in ("a/1.parquet", "a/b/2.parquet", "a/_temporary/3.parquet", "a/.4.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE, tmp_path / name)
    assert engine.to_arrow(engine.read_parquet(tmp_path / "a")).num_rows == 8
    assert engine.to_arrow(engine.read_parquet([tmp_path / "a", tmp_path / "a/1.parquet"])).num_rows == 12


def test_a_named_file_is_never_passed_over(engine: Engine, tmp_path: Path) -> None:
    hidden = tmp_path / ".a.parquet"
    pq.write_table(TABLE, hidden)
    if engine.name == "spark":  # which would say nothing
        with pytest.raises(DataError, match="rename it"):
            engine.read_parquet(hidden)
    else:
        assert engine.to_arrow(engine.read_parquet(hidden)).num_rows == 4


def test_small_tables_from_memory(engine: Engine) -> None:
    odd = TABLE.append_column("count", pa.array([1, 2, 3, 4], pa.uint16()))
    odd = odd.append_column("kind", pa.array(["x", "y", "x", "x"]).dictionary_encode())
    assert rows(engine.to_arrow(engine.from_arrow(odd))) == rows(odd)


def test_what_is_kept_is_not_run_again(engine: Engine, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    kept = engine.keep(engine.read_parquet(tmp_path / "a.parquet"))
    (tmp_path / "a.parquet").unlink()
    assert rows(engine.to_arrow(kept)) == rows(TABLE)


def test_an_empty_table_is_written_with_its_columns(engine: Engine, tmp_path: Path) -> None:
    table = engine.from_arrow(TABLE)
    engine.write_parquet(table.filter(table.number > 9), tmp_path / "out")
    assert pq.read_table(tmp_path / "out").schema.names == TABLE.schema.names
    assert engine.to_arrow(engine.read_parquet(tmp_path / "out")).num_rows == 0


def test_one_part(engine: Engine, tmp_path: Path) -> None:
    engine.write_parquet(engine.from_arrow(TABLE), tmp_path / "out", partitions=1)
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_failed_write_leaves_nothing(engine: Engine, tmp_path: Path) -> None:
    table = engine.from_arrow(TABLE)
    broken = table.mutate(number=(table.name + "x").cast("int64"))  # fails when it is run
    with pytest.raises(Exception, match=r"(?i)cast|conver"):
        engine.write_parquet(broken, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    engine.write_parquet(table, tmp_path / "out")
    with pytest.raises(RunError, match="never overwritten"):
        engine.write_parquet(table, tmp_path / "out")


def test_the_hash_of_a_set_of_rows(engine: Engine) -> None:
    import ibis

    table = pa.table(
        {
            "page": [1, 1, 2, 2, 3, 3, 4],
            "doc": ["a", "b", "b", "a", "b", "a", "a"],
            "position": [1, 2, 2, 1, 1, 2, 1],
        }
    )
    shown = engine.from_arrow(table)
    row = ibis.struct({"doc": shown.doc, "position": shown.position})
    hashed = engine.to_arrow(shown.group_by("page").agg(hash=engine.set_hash(row)).order_by("page"))
    first, same, swapped, shorter = hashed["hash"].to_pylist()
    assert first == same
    assert len({first, swapped, shorter}) == 3


def test_a_kept_table_has_the_types_that_were_said(engine: Engine) -> None:
    shown = engine.from_arrow(pa.table({'a "b"': ["x", "x", "y"], "click": pa.array([1, 1, 0], pa.int8())}))
    lazy = shown.group_by('a "b"').agg(n=shown.count(), clicks=shown.click.sum())
    kept = engine.keep(lazy)
    types = {name: str(kind) for name, kind in kept.schema().items()}
    assert types == {'a "b"': "string", "n": "int64", "clicks": "int64"}
    assert engine.to_arrow(kept.order_by("n")).to_pylist() == [
        {'a "b"': "y", "n": 1, "clicks": 0},
        {'a "b"': "x", "n": 2, "clicks": 2},
    ]


STEPS = """
import sys
from pathlib import Path

import unskew

log, out = Path(sys.argv[1]), Path(sys.argv[2])
unskew.ingest(log, out / "log", threads=1)
unskew.split(out / "log", out / "split", threads=1)
unskew.counts(out / "log", out / "counts", threads=1)
print([name for name in ("pandas", "pyspark") if name in sys.modules])
"""


def test_the_steps_load_neither_pandas_nor_spark(tmp_path: Path) -> None:
    columns = {
        "page_id": ["a", "a", "b"],
        "query_id": ["q"] * 3,
        "doc_id": ["x", "y", "x"],
        "position": pa.array([1, 2, 1], pa.int32()),
        "click": pa.array([0, 1, 0], pa.int8()),
        "timestamp": pa.array([NOON] * 3, pa.timestamp("us", "UTC")),
        "user_id": [1, 1, 2],
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    command = [sys.executable, "-c", STEPS, str(tmp_path / "log.parquet"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", "a slow import for nothing"


def test_broken_files(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no such thing, but long enough to look at")
    with pytest.raises(DataError, match="not readable as Parquet"):
        engine.read_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no such file"):
        engine.read_parquet(tmp_path / "b.parquet")


def test_folders_without_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \*.parquet"):
        parquet_files(tmp_path)
    with pytest.raises(DataError, match="no Parquet files"):
        parquet_files([])
    assert parquet_files("s3://bucket/*.parquet") == ["s3://bucket/*.parquet"]


def test_duckdb_keeps_to_its_limits_and_cleans_up(tmp_path: Path) -> None:
    with connect(threads=1, memory="100MB", scratch=tmp_path / "scratch") as engine:
        assert engine.con.settings["threads"] == "1"
        assert engine.con.settings["memory_limit"] == "100.0 MiB"
        assert engine.scratch.parent == tmp_path / "scratch"
        engine.con.raw_sql("create view many as select hash(range) as a, repeat('x', 20) as b from range(4000000)")
        with quiet():
            many = engine.con.table("many")
        kept = engine.keep(many.order_by("a"))
        assert any(engine.scratch.rglob("*")), "nothing was spilled"
        assert engine.to_arrow(kept.agg(n=kept.count()))["n"].to_pylist() == [4000000]
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "duckbd"}, "Did you mean duckdb"),
        ({"spark_master": "local[2]"}, 'engine="spark"'),
        ({"memory": "lots"}, "like 4GB"),
        ({"memory": "0GB"}, "like 4GB"),
        ({"threads": 0}, "at least 1"),
        ({"name": "spark", "spark_master": "spark://127.0.0.1:1"}, "nothing answers"),
        ({"name": "spark", "spark_master": "spark://127.0.0.1:x"}, "nothing answers"),
        ({"name": "spark", "spark_master": "spark://"}, "nothing answers"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        connect(**options)  # type: ignore[arg-type]


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    hidden = {"pyspark"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name in hidden else real(name, *a))
    with pytest.raises(MissingExtra, match=r"pyspark is not installed; run: pip install 'unskew\[spark\]'"):
        connect("spark")
    hidden.clear()
    hidden.add("grpc")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with pytest.raises(MissingExtra, match="grpcio"):
            connect("spark", spark_master=f"sc://127.0.0.1:{server.getsockname()[1]}")


def test_spark_without_java() -> None:
    pytest.importorskip("pyspark")
    code = "from unskew.tables.engine.engine import connect; connect('spark')"
    bare = {"PATH": "/nowhere", "HOME": "/", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=False)
    assert "needs Java 17" in done.stderr


def test_a_killed_process_leaves_no_folder_under_its_name(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from unskew.tables.engine.engine import connect
with connect(threads=1) as engine:
    print("ready", flush=True)
    engine.con.raw_sql("create view many as select range as a, hash(range) as b from range(2000000000)")
    engine.write_parquet(engine.con.table("many"), Path({str(tmp_path)!r}) / "out")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".out.*.part/*")) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.glob(".out.*.part/*"))
    assert not (tmp_path / "out").exists()
    with connect(threads=1) as engine:
        engine.write_parquet(engine.from_arrow(TABLE), tmp_path / "out")
    assert pq.read_table(tmp_path / "out").num_rows == 4
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_command_line_imports_neither_ibis_nor_duckdb() -> None:
    code = (
        "import unskew.terminal.main, unskew.tables.engine.engine, sys;"
        "found = {'ibis', 'duckdb', 'pyspark', 'torch'} & set(sys.modules);"
        "assert not found, found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_too_little_memory_is_an_error_that_says_what_to_do() -> None:
    """40 MB in one list, which cannot be spilled to disk."""
    import ibis

    table = ibis.range(5_000_000).unnest().name("a").as_table()
    one = table.agg(all=table.a.collect())
    with (
        pytest.raises(ConfigError, match=r"ran out of memory.*memory=, or fewer threads="),
        connect(memory="8MB") as duck,
    ):
        duck.keep(one)
    assert not duck.scratch.exists()


def test_rows_of_one_value_lie_in_a_folder_of_their_own(engine: Engine, tmp_path: Path) -> None:
    table = engine.from_arrow(pa.table({"day": [3, 3, 5], "n": [2**60, 2**60, 7]}))
    summed = table.group_by("day").agg(n=table.n.sum())
    engine.write_parquet(summed, tmp_path / "out", by="day")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["day=3", "day=5"]
    found = engine.rows(engine.read_parquet(tmp_path / "out" / "day=3").select("n"))
    assert found == [{"n": 2**61}], "a sum of whole numbers is written as one"
