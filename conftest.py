"""Shared by all tests: where real data lie, a cache that is not the user's, engines, and what runs where."""

from __future__ import annotations

import functools
import gc
import logging
import os
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing

from unskew.tables.engine.engine import Engine, connect

# tests run in parallel and their models are small: one thread each, set before torch is imported
os.environ.setdefault("OMP_NUM_THREADS", "1")
# a Java process lives for seconds here: compiling for long runs and checking classes cost more than they give
SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT)

# else each of the many processes that tests start compiles all of the sources again
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# a server that outlives the captured stream that it logs to says nothing of it between the results
logging.raiseExceptions = False

# processes that tests start import the packages of this clone, wherever others are installed
ROOT = Path(__file__).resolve().parent
PACKAGES = [str(ROOT / "src"), str(ROOT / "reproductions" / "src")]
os.environ["PYTHONPATH"] = os.pathsep.join([*PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])])

# the commands are built once for all tests, not for each of some thousand calls
typer.main.get_command = typer.testing._get_command = functools.cache(typer.main.get_command)

collect_ignore = ["tests/helpers/stopped_jobs.py"]  # a script beside stops.py, which has no tests
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark for a handful of rows; the tests on a cluster run with Spark's own settings."""


BUDGET: dict[str, float] = tomllib.loads((ROOT / "tests" / "budget.toml").read_text())["seconds"]
"""Seconds that groups of tests may take; the longest start first."""
OVER = 1.5
"""How much more than its share of all a group may take before it is told."""
took: Counter[str] = Counter()


def group_of(nodeid: str) -> str:
    """The group that a test belongs to: its file, or Spark, which is started once."""
    name, _, test = nodeid.partition("::")
    return "spark" if "[spark" in test else name.removeprefix("tests/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores, as one or another of them waits for what a test has started."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each group of tests runs in one process, so that what they share is made once; long groups start first."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # in the order of the items, below
    return ByGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long groups first where there are several processes, so that none is left for one of them at the end."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -BUDGET.get(group_of(item.nodeid), 0.0))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported and collected stays: nobody looks for garbage in it, nor copies it in a fork."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """At the end all of it may go."""
    gc.unfreeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what each group takes."""
    took[group_of(report.nodeid)] += report.duration


def over_budget(taken: Mapping[str, float], budget: Mapping[str, float]) -> list[str]:
    """Groups that took much more of the whole than they may, however slow the machine is."""
    summed = {name: taken.get(name, 0.0) for name in budget}
    summed["the rest"] = sum(seconds for name, seconds in taken.items() if name not in budget)
    slower = max(1.0, sum(summed.values()) / sum(budget.values()))
    return [
        f"{name} took {summed[name]:.0f} s, and may take {budget[name] * slower:.0f} s on a machine this slow"
        for name in budget
        if summed[name] > OVER * budget[name] * slower
    ]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """After a run of everything, what the largest groups took beside what they may take."""
    if hasattr(config, "workerinput") or not all(took[name] for name in BUDGET if name != "the rest"):
        return
    terminalreporter.section("groups of tests, in seconds (tests/budget.toml)")
    for name, seconds in took.most_common(10):
        terminalreporter.write_line(f"{seconds:7.1f}  {BUDGET.get(name, '-'):>5}  {name}")
    for line in over_budget(took, BUDGET):
        terminalreporter.write_line(f"over its share: {line}", yellow=True)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data sets: the folder named by UNSKEW_DATA, else ../shared/data next to the project's root."""
    folder = Path(os.environ.get("UNSKEW_DATA") or ROOT.parent / "shared" / "data")
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
