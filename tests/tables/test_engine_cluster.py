"""Counting on a real Spark cluster of processes on loopback, and through Spark Connect, against DuckDB."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyarrow import parquet as pq

import unskew
from unskew.logs.log import write_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists

pytestmark = pytest.mark.slow
HERE = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        return int(taken.getsockname()[1])


@contextmanager
def spark_process(folder: Path, program: str, *arguments: str) -> Iterator[None]:
    """A Java process of the Spark that pyspark brings along; it is ended by its id."""
    home = Path(find_spec("pyspark").origin).parent  # type: ignore[arg-type, union-attr]
    settings = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": HERE, "SPARK_DAEMON_MEMORY": "600m"}
    command = [str(home / "bin" / program), *arguments]
    with (folder / "spark.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=settings, cwd=folder)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def wait_for_log(folder: Path, text: str, times: int = 1, seconds: float = 240) -> None:
    """Until the processes have said something so many times."""
    until = time.monotonic() + seconds
    while (said := (folder / "spark.log").read_text(errors="replace")).count(text) < times:
        assert time.monotonic() < until, said
        assert "Exception in thread" not in said, said
        time.sleep(0.2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log, its counts by DuckDB, and settings of Spark for so little."""
    if find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("needs pyspark and Java")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "spark.sql.shuffle.partitions 2\nspark.ui.enabled false\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    lists = make_lists(20, 4, (3, 9), seed=0)
    write_log(simulate(lists, PositionBias(), pages=2000, seed=0), tmp_path / "log.parquet")
    unskew.counts(tmp_path / "log.parquet", tmp_path / "duckdb", pairs=True, threads=1)
    return tmp_path


def count_by_command(folder: Path, master: str) -> None:
    """`unskew counts` in a process of its own, as a Spark session belongs to a process; compare with DuckDB."""
    command = [sys.executable, "-m", "unskew", "counts", "log.parquet", "--out", "spark", "--pairs", "--json"]
    command += ["--engine", "spark", "--spark-master", master, "--memory", "512MB"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pages"] == 2000
    for part, further in (("slots", []), ("pairs", ["other_position"])):
        order = [(key, "ascending") for key in ["ranking_id", "position", *further]]
        spark, duckdb = (pq.read_table(folder / name / part).sort_by(order) for name in ("spark", "duckdb"))
        assert spark.to_pylist() == duckdb.to_pylist()
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_standalone_master_with_two_workers(folder: Path) -> None:
    port = free_port()
    master = f"spark://{HERE}:{port}"
    with ExitStack() as processes:

        def start(name: str, *arguments: str) -> None:
            command = ["spark-class", f"org.apache.spark.deploy.{name}", "--host", HERE, "--webui-port", "0"]
            processes.enter_context(spark_process(folder, *command, *arguments))

        start("master.Master", "--port", str(port))
        wait_for_log(folder, "I have been elected leader")
        for number in (1, 2):
            place = folder / f"worker-{number}"
            start("worker.Worker", "--cores", "1", "--memory", "600m", "--work-dir", str(place), master)
        wait_for_log(folder, "Successfully registered with master", 2)
        count_by_command(folder, master)
        ran = [worker for worker in (1, 2) if list((folder / f"worker-{worker}").glob("app-*/*/stderr"))]
        assert ran == [1, 2], "an executor ran on each worker"


def test_spark_connect(folder: Path) -> None:
    if find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio")
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": HERE,
        "spark.master": "local[2]",
        "spark.driver.host": HERE,
    }
    flags = [flag for key, value in settings.items() for flag in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with spark_process(folder, "spark-submit", "--class", server, *flags, "spark-internal"):
        wait_for_log(folder, "Spark Connect server started")
        count_by_command(folder, f"sc://{HERE}:{port}")
