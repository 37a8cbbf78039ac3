"""Spark as the engine: in this process, on a standalone master, or through Spark Connect.

A Spark session belongs to the whole process. Where one is running already and no master is asked for, it is used
and left running; otherwise one is started here and stopped when the engine is closed. Paths are those that the
workers see, so a cluster needs a shared file system or addresses such as s3://...
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unskew.errors import DataError, MissingExtra
from unskew.tables.engine.engine import Engine, first_line
from unskew.tables.engine.parquet import Paths, parquet_files
from unskew.tables.engine.spark_session import (
    check_answers,
    classic_session,
    quiet_spark,
    remote_session,
    wait_for_workers,
)

if TYPE_CHECKING:
    from ibis.expr.types import Table

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
                import ibis

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

    def to_arrow(self, table: Table) -> pa.Table:
        """See Engine."""
        with quiet_spark():
            return self._frame(table).toArrow()

    def keep(self, table: Table) -> Table:
        """See Engine."""
        frame = self._frame(table).cache()
        frame.count()
        return self._named(frame)

    def set_hash(self, row: Any) -> Any:
        """See Engine."""
        import ibis

        scalar, aggregate = ibis.udf.scalar.builtin, ibis.udf.agg.builtin
        mixed = scalar(lambda x: ..., name="xxhash64", signature=((row.type(),), "int64"))
        return aggregate(lambda x: ..., name="bit_xor", signature=(("int64",), "int64"))(mixed(row))

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
        """A Spark table as an Ibis table."""
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
    plain = [each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in schema]
    return pa.schema([each.with_type(wider.get(kind, kind)) for each, kind in zip(schema, plain, strict=True)])


def _address(path: str, pattern: bool = False) -> str:
    """A path of this machine as Spark names it, whatever its default file system is; escaped for a pattern."""
    if "://" in path:
        return path
    return "file://" + (re.sub(r"([\[\]{}*?\\])", r"\\\1", path) if pattern else path)
