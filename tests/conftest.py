"""Shared by all tests: where real data lie, a cache that is not the user's, engines, and what runs where."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unskew.clicks.engine.engine import Engine, connect

# tests run in parallel and their models are small: one thread each, set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
# a Java process lives for seconds here: compiling for long runs costs more than it gives
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark for a handful of rows; the tests on a cluster run with Spark's own settings."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test file runs in one process, so that what its tests share is made once; all on Spark in one, too."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name, _, test = nodeid.partition("::")
            return "spark" if "[spark" in test else name

    return ByFile(config, log)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data sets: the folder named by UNSKEW_DATA, else ../shared/data next to the project's root."""
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("UNSKEW_DATA") or root.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set UNSKEW_DATA to the folder that holds them")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Parsed files go to a temporary folder, never to the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSKEW_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def need_spark() -> None:
    """Skip where there is no pyspark or no Java."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java, and there is none")


@pytest.fixture(scope="session")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """DuckDB, opened once."""
    with connect("duckdb", threads=2, scratch=tmp_path_factory.mktemp("scratch")) as opened:
        yield opened


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A Spark on this machine, started once."""
    need_spark()
    with connect("spark", threads=2, scratch=tmp_path_factory.mktemp("scratch")) as opened:
        for name, value in SMALL.items():
            opened.con._session.conf.set(name, value)
        yield opened


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the two."""
    opened: Engine = request.getfixturevalue(request.param)
    return opened
