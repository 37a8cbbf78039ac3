"""Spark as the engine: in this process, on a standalone master, or through Spark Connect.

A Spark session belongs to the whole process. Where one is running already and no master is asked for, it is used
and left running; otherwise one is started here and stopped when the engine is closed. Paths are those that the
workers see, so a cluster needs a shared file system or addresses such as s3://...
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError, MissingExtra, Option, first_line
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.parquet import Paths, parquet_files, plain_type

WAIT = 60.0
"""Seconds to wait for workers of a cluster."""
ANSWER = 5.0
"""Seconds to wait for a master's port."""
CONNECT_PORT = 15002
LOOPBACK = ("127.0.0.1", "localhost")
LOGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %m%n%ex{short}
"""
"""Settings of log4j that let errors through and nothing else."""
SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",  # few large tasks, not many tiny ones
}
"""Settings of a session."""


class SparkEngine(Engine):
    """Spark, wherever it runs."""

    name = "spark"

    def __init__(
        self, *, master: str | None, memory: int | None, threads: int | None, scratch: Path | None
    ) -> None:
        if importlib.util.find_spec("pyspark") is None:
            raise MissingExtra("spark", "pyspark")
        remote = master is not None and master.startswith("sc://")
        if remote and importlib.util.find_spec("grpc") is None:
            raise MissingExtra("spark", "grpcio")
        check_answers(master)
        super().__init__(scratch)
        try:
            with quiet_spark():
                self._session, self._owned = (
                    remote_session(str(master))
                    if remote
                    else classic_session(master, memory, threads, self.scratch)
                )
                self.con = ibis.pyspark.connect(self._session)
                for key, value in SQL.items():
                    self._session.conf.set(key, value)
                if self._owned and not remote:
                    wait_for_workers(self._session, master)
        except BaseException:
            self.close()
            raise

    def read_parquet(self, paths: Paths) -> Table:
        """See Engine."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        names = parquet_files(paths)
        unseen = [name for name in names if name.rpartition("/")[2][:1] in ("_", ".")]
        if unseen:
            raise DataError("Spark passes over names that begin with . or _", path=unseen[0], hint="rename it")
        files = [_address(name, pattern=True) for name in names]
        try:
            return self._named(self._session.read.parquet(*files))
        except (PySparkException, Py4JJavaError) as error:
            raise DataError(f"not readable as Parquet ({first_line(error)})", path=names[0]) from error

    def from_arrow(self, table: pa.Table) -> Table:
        """See Engine."""
        from pyspark.sql.pandas.types import from_arrow_schema

        plain = table.cast(_signed(table.schema))
        with quiet_spark():  # a time without a zone stays one
            schema = from_arrow_schema(plain.schema, prefer_timestamp_ntz=True)
            return self._named(self._session.createDataFrame(plain, schema))

    def from_stream(self, batches: pa.RecordBatchReader, folder: Path) -> Table:
        """See Engine."""
        folder.mkdir(parents=True)
        with pq.ParquetWriter(folder / "part-00000.parquet", batches.schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(batch)
        return self.read_parquet(folder)

    def to_arrow(self, table: Table) -> pa.Table:
        """See Engine."""
        with quiet_spark():
            return self._frame(table).toArrow()

    def keep(self, table: Table) -> Table:
        """See Engine."""
        frame = self._frame(table).cache()
        frame.count()
        return self._named(frame)

    def _write(self, table: Table, folder: str, partitions: int | None, by: str | None) -> None:
        frame = self._frame(table)
        if partitions is not None:
            frame = frame.coalesce(partitions)
        (frame.write.partitionBy(by) if by else frame.write).parquet(_address(folder))
        for extra in (*Path(folder).rglob(".*.crc"), Path(folder) / "_SUCCESS"):
            extra.unlink(missing_ok=True)

    def _frame(self, table: Table) -> Any:
        self.con._run_pre_execute_hooks(table)
        return self._session.sql(self.con.compile(table))

    def _named(self, frame: Any) -> Table:
        name = next(self._names)
        frame.createOrReplaceTempView(name)
        return self.con.table(name)

    def close(self) -> None:
        """See Engine."""
        if getattr(self, "_owned", False):
            with quiet_spark():
                self._session.stop()
            self._owned = False
        super().close()


def _signed(schema: pa.Schema) -> pa.Schema:
    """Types that Spark has too: plain values for dictionaries, the next wider signed type for unsigned."""
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.int64()}
    plain = [plain_type(each.type) for each in schema]
    return pa.schema([each.with_type(wider.get(kind, kind)) for each, kind in zip(schema, plain, strict=True)])


def _address(path: str, pattern: bool = False) -> str:
    """A path of this machine as Spark names it, whatever its default file system is; escaped for a pattern."""
    if "://" in path:
        return path
    return "file://" + (re.sub(r"([\[\]{}*?\\])", r"\\\1", path) if pattern else path)


# ---- sessions ----


def classic_session(
    master: str | None, memory: int | None, threads: int | None, scratch: Path
) -> tuple[Any, bool]:
    """A session with the JVM beside this process, and whether it was started here."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        at = running.sparkContext.master
        if master is not None and master != at:
            what = f"a session on {at} is running; stop it first"
            raise ConfigError(what, argument="spark_master", value=master)
        return running.newSession(), False
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        raise ConfigError((Option("engine", "spark"), " needs Java 17 or later: install it, or set JAVA_HOME"))
    logs = scratch / "log4j2.properties"
    logs.write_text(LOGS)
    cores = threads or os.cpu_count() or 1
    local = master is None or master.startswith("local")
    settings = {
        "spark.master": master or f"local[{cores}]",
        "spark.app.name": "unskew",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logs}",
    }
    if local or urlsplit(str(master)).hostname in LOOPBACK:
        settings |= {"spark.driver.host": LOOPBACK[0], "spark.driver.bindAddress": LOOPBACK[0]}
    if local:
        settings["spark.sql.shuffle.partitions"] = str(max(8, 4 * cores))
    elif threads is not None:
        settings["spark.cores.max"] = str(threads)
    if memory is not None:
        settings["spark.driver.memory" if local else "spark.executor.memory"] = f"{max(memory >> 20, 512)}m"
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate(), True
    except (PySparkException, RuntimeError, OSError) as error:
        raise ConfigError(f"Spark did not start ({first_line(error)})") from error
    except Exception as error:  # what the JVM throws arrives as an error of py4j
        raise ConfigError(first_line(error), argument="spark_master", value=master) from error


def remote_session(master: str) -> tuple[Any, bool]:
    """A session through Spark Connect."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.remote(master).create(), True
    except PySparkException as error:
        raise ConfigError(first_line(error), argument="spark_master", value=master) from error


def wait_for_workers(session: Any, master: str | None) -> None:
    """A standalone master without a free worker would let every query wait for ever; so stop after a while."""
    if master is None or not master.startswith("spark://"):
        return
    context = session.sparkContext._jsc.sc()
    until = time.monotonic() + WAIT
    while context.getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if context.isStopped() or time.monotonic() > until:
            what = f"no worker was free in {WAIT:.0f} s; start one"
            raise ConfigError(what, argument="spark_master", value=master)
        time.sleep(0.1)


def check_answers(master: str | None) -> None:
    """Whether the port of a master or of a Connect server takes connections, without Spark's long waits."""
    if master is None or not master.startswith(("spark://", "sc://")):
        return
    scheme, _, rest = master.partition("://")
    problem = "no host"
    for place in rest.split("/")[0].split(","):  # several masters stand by for each other
        try:
            at = urlsplit(f"//{place}")
            port = at.port or (CONNECT_PORT if scheme == "sc" else 7077)
            with socket.create_connection((at.hostname or "", port), timeout=ANSWER):
                return
        except (OSError, ValueError) as error:
            problem = str(error)
    what = f"nothing answers ({problem}); check the address, or start it"
    raise ConfigError(what, argument="spark_master", value=master)


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Without the warnings of pyspark about its own surroundings."""
    with warnings.catch_warnings():
        for module in ("pyspark", "ibis", "py4j"):
            warnings.filterwarnings("ignore", module=rf"{module}\..*")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        yield
