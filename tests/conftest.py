"""Shared by all tests: where real data lie, and a cache that is not the user's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from unskew.clicks.engine.engine import Engine, connect

# tests run in parallel and their models are small: one thread each, set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")


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


@pytest.fixture(scope="session", params=["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """DuckDB, and a Spark on this machine, each opened once."""
    if request.param == "spark":
        need_spark()
    with connect(request.param, threads=2, scratch=tmp_path_factory.mktemp("scratch")) as opened:
        yield opened
