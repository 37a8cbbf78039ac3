"""The engine that runs log steps: DuckDB inside this process, or Spark, behind one object.

A log step is a function from Ibis table to Ibis table and knows no engine; it is executed only where a table is
kept, written or fetched:

    with connect("duckdb", threads=2, memory="4GB") as engine:
        impressions = engine.read_parquet("impressions/")
        engine.write_parquet(step(impressions), Path("out"))

Both engines work in UTC and spill to disk what does not fit into memory. Spark itself is in `spark.py`.
"""

from __future__ import annotations

import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.errors import ConfigError, DataError, Option, first_line
from unskew.files import complete_folder, scratch_folder
from unskew.files.writing import UNWRITABLE
from unskew.settings import byte_count, known
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import builtin
from unskew.tables.engine.parquet import Paths, damaged_of, parquet_files, plain_name

ENGINES = ("duckdb", "spark")
COPY = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, WRITE_BLOOM_FILTER false"
"""How DuckDB writes; its Bloom filters would add a quarter to the size, and no step looks up single values."""


class Engine(ABC):
    """A connection to DuckDB or Spark; a context manager, which removes its scratch folder when it ends."""

    name: str
    """duckdb or spark."""
    con: Any
    """The Ibis backend."""

    def __init__(self, scratch: Path | None) -> None:
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
        self._scratch = ExitStack()
        self.scratch = self._scratch.enter_context(scratch_folder(scratch))
        """Where the engine spills to; removed when the engine is closed."""
        self._names = (f"unskew_{os.getpid()}_{number}" for number in count())

    @abstractmethod
    def read_parquet(self, paths: Paths) -> Table:
        """A lazy table over a Parquet file, a folder of them, or several; an address such as s3://... as it is."""

    @abstractmethod
    def from_arrow(self, table: pa.Table) -> Table:
        """A small table from memory."""

    @abstractmethod
    def from_stream(self, batches: pa.RecordBatchReader, folder: Path) -> Table:
        """A table of batches that come once, so that it can be run once; Spark puts them into a new folder."""

    @abstractmethod
    def to_arrow(self, table: Table) -> pa.Table:
        """Run the table and fetch the rows; for small results."""

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """The rows of a small result."""
        return list(self.to_arrow(table).to_pylist())

    def count(self, table: Table) -> int:
        """How many rows a table has."""
        return int(self.rows(table.agg(n=table.count()))[0]["n"])

    @abstractmethod
    def keep(self, table: Table) -> Table:
        """Run the table once and keep the rows, in memory or spilled to disk, until the engine is closed."""

    def store(self, table: Table, folder: Path) -> Table:
        """Run the table once into part files of a folder, and read it from there."""
        self.write_parquet(table, folder)
        if any(folder.rglob("*.parquet")):
            return self.read_parquet(folder)
        return self.from_arrow(table.schema().to_pyarrow().empty_table())

    def set_hash(self, row: Any) -> Any:
        """An aggregate: a 64-bit hash of the rows of a group, each a struct, whatever their order.

        The two engines hash differently, so the number is for use inside one query and not for files.
        """
        kind, hashes = ("int64", ("xxhash64",)) if self.name == "spark" else ("uint64", ("hash", "hash"))
        for name in hashes:  # twice, because DuckDB joins the hashes of a struct's fields with a plain XOR
            row = builtin(name, (row.type(),), kind)(row)
        return builtin("bit_xor", (kind,), kind, aggregate=True)(row)

    @abstractmethod
    def _write(self, table: Table, folder: str, partitions: int | None, by: str | None) -> None:
        """Write part files into a folder that is new or empty."""

    def write_parquet(
        self, table: Table, folder: Path | str, *, partitions: int | None = None, by: str | None = None
    ) -> None:
        """Run the table into a folder of part files, at most `partitions` of them; it appears whole or not at all.

        With `by`, a column of whole numbers, rows of one value lie in a folder of their own, such as day=19723,
        and its files do not repeat the column. An address such as s3://bucket/name is written in place, by the
        engine's own rules.
        """
        if isinstance(folder, str) and "://" in folder:
            self._write(table, folder, partitions, by)
            return
        with complete_folder(Path(folder)) as working:
            working.rmdir()  # Spark makes it itself
            self._write(table, os.path.abspath(working), partitions, by)

    def close(self) -> None:
        """End the connection and remove the scratch folder."""
        self._scratch.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close()


class DuckEngine(Engine):
    """DuckDB inside this process."""

    name = "duckdb"

    def __init__(self, *, memory: int | None, threads: int | None, scratch: Path | None) -> None:
        super().__init__(scratch)
        self._files: list[str] = []
        config: dict[str, Any] = {"temp_directory": str(self.scratch), "preserve_insertion_order": False}
        config |= {} if memory is None else {"memory_limit": f"{memory}B"}
        config |= {} if threads is None else {"threads": threads}
        self.con = ibis.duckdb.connect(**config)
        self.con.raw_sql("SET enable_progress_bar = false")

    def read_parquet(self, paths: Paths) -> Table:
        """See Engine."""
        import duckdb

        names = parquet_files(paths)
        self._files += names
        try:
            with quiet():
                table: Table = self.con.read_parquet(
                    [plain_name(name) for name in names], table_name=next(self._names)
                )
        except duckdb.Error as error:
            raise DataError(f"not readable as Parquet ({first_line(error)})", path=names[0]) from error
        return table

    def from_arrow(self, table: pa.Table) -> Table:
        """See Engine."""
        with quiet():
            made: Table = self.con.create_table(next(self._names), table, temp=True)
        return made

    def from_stream(self, batches: pa.RecordBatchReader, folder: Path) -> Table:
        """See Engine."""
        name = next(self._names)
        self.con.con.register(name, batches)
        return self._named(name)

    def to_arrow(self, table: Table) -> pa.Table:
        """See Engine; what Ibis does in `to_pyarrow`, without loading pandas."""
        with quiet():
            rows = self.con._to_duckdb_relation(table).to_arrow_table()
        return table.__pyarrow_result__(rows)

    def keep(self, table: Table) -> Table:
        """See Engine; one statement, where `create_table` of Ibis takes five."""
        name = next(self._names)
        self.con.raw_sql(f"CREATE TEMP TABLE {name} AS {self._typed(table)}")
        return self._named(name)

    def _named(self, name: str) -> Table:
        with quiet():
            table: Table = self.con.table(name)
        return table

    def _write(self, table: Table, folder: str, partitions: int | None, by: str | None) -> None:
        # a union makes several files of one thread
        several = partitions is None or (partitions > 1 and partitions >= int(self.con.settings["threads"]))
        place = folder if several or by else f"{folder}/part-0.parquet"
        options = COPY + (f', PARTITION_BY ("{by}")' if by else ", PER_THREAD_OUTPUT true" if several else "")
        if not several and "://" not in folder:
            os.makedirs(folder, exist_ok=True)
        if "\\" in place:
            raise ConfigError(f"{place}: DuckDB takes a backslash in a name for a slash; choose another name")
        quoted = place.replace("'", "''")
        self.con.raw_sql(f"COPY ({self._typed(table)}) TO '{quoted}' ({options})")

    def _typed(self, table: Table) -> str:
        """The query in the types that Ibis states: a sum of whole numbers, say, has 128 bits in DuckDB."""
        mapper = self.con.compiler.type_mapper
        names = ['"' + column.replace('"', '""') + '"' for column in table.columns]
        kinds = map(mapper.to_string, table.schema().types)
        typed = ", ".join(f"CAST({own} AS {kind}) AS {own}" for own, kind in zip(names, kinds, strict=True))
        self.con._run_pre_execute_hooks(table)
        return f"SELECT {typed} FROM ({self.con.compile(table)})"

    def close(self) -> None:
        """See Engine."""
        self.con.disconnect()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import duckdb

        super().__exit__(kind, error, trace)
        if isinstance(error, duckdb.IOException) and any(reason in str(error) for reason in UNWRITABLE):
            what = f"{first_line(error)}; make room, or name another folder with "
            raise ConfigError((what, Option("scratch"))) from error
        if error is not None and damages(error):
            what, place = f"a value cannot be read ({first_line(error)[:300]})", damaged_of(self._files)
            raise DataError(what, path=place, hint="repair it, put a copy back, or write it anew") from error
        if isinstance(error, duckdb.OutOfMemoryException):
            what = f"DuckDB ran out of memory, although it spills to disk ({first_line(error)})"
            hint = ("give it more with ", Option("memory"), ", or fewer ", Option("threads"))
            raise ConfigError(what, hint=hint) from error


def connect(
    name: str = "duckdb",
    *,
    spark_master: str | None = None,
    memory: str | int | None = None,
    threads: int | None = None,
    scratch: Path | str | None = None,
) -> Engine:
    """Open an engine.

    `spark_master` is local[N], spark://host:port, sc://host:port (Spark Connect) or whatever else Spark knows;
    without it Spark runs in this process. `memory` is such as 4GB. `scratch` is where to spill to, the system's
    temporary folder unless given.
    """
    known("engine", name, ENGINES)
    if threads is not None and threads < 1:
        raise ConfigError("must be at least 1", argument="threads", value=threads)
    limit = None if memory is None else byte_count("memory", memory)
    folder = None if scratch is None else Path(scratch)
    if name == "duckdb":
        if spark_master is not None:
            raise ConfigError((Option("spark_master"), " goes with ", Option("engine", "spark")))
        return DuckEngine(memory=limit, threads=threads, scratch=folder)
    from unskew.tables.engine.spark import SparkEngine

    return SparkEngine(master=spark_master, memory=limit, threads=threads, scratch=folder)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings that Ibis causes by calling DuckDB under a name that is going away."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"fetch_\w+\(\) is deprecated", DeprecationWarning)
        yield


def damages(error: object) -> bool:
    """Whether DuckDB complains about what it reads, and not about a disk, memory or how it was asked."""
    import duckdb

    asked = duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.OutOfMemoryException
    full = any(reason in str(error) for reason in UNWRITABLE)
    return isinstance(error, duckdb.Error) and not isinstance(error, asked) and not full


@contextmanager
def engine_errors(place: Any) -> Iterator[None]:
    """What an engine complains about while it reads is an error of the data."""
    try:
        yield
    except Exception as error:
        spark = getattr(sys.modules.get("pyspark.errors"), "PySparkException", ())
        if not (damages(error) or isinstance(error, spark)):  # loading Spark to ask takes a while
            raise
        raise DataError(f"cannot be read ({first_line(error)[:500]})", path=place) from error
