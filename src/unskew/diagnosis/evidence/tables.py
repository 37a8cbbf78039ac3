"""A log as the two small tables that a diagnosis reads, counted once on the engine: cells and pages.

    cells   one row per (query_id, doc_id, position, shuffled, segments ...): impressions, clicks, bucket, turn
    pages   one row per page: page_id, query_id, results, clicks, first_position, last_click, clicked_positions
            (their sum), shuffled (all of it), segments ...
    queries one row per query: bucket, turn

`bucket` is a hash of the query, 0 to 99, the same on every engine: leaving buckets out, or weighing them, is a
jackknife or a bootstrap over queries without another pass over the log. `turn` is another one, 0 to 4095: those
below some number are a sample of whole queries. Nothing is read before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.diagnosis.evidence.segments import choose_segments
from unskew.logs.reader import check_rows, open_log, place_of, weights
from unskew.names import Names
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.schema import required
from unskew.types import Array, Log

if TYPE_CHECKING:
    from ibis.expr.types import Table

BUCKETS = 100
"""Parts that queries are dealt into."""
ALL_BUCKETS = range(BUCKETS)
TURNS = 16**3
"""Parts that queries are sampled by."""
FEW = 20
"""Buckets below which queries are too few to draw from."""
DIGITS = "0123456789abcdef"
ONE_RANK = "the log has one rank only"


@dataclass(frozen=True)
class LogTables:
    """A log on an engine, as cells and pages; a context manager, which closes the engine opened for it."""

    engine: Engine
    impressions: Table
    """page_id, query_id, doc_id, position, click (0 or 1), shuffled, segments, label where there is one; lazy."""
    segments: tuple[str, ...]
    """Columns to tell results by, as text."""
    place: str
    """What errors call the log."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Columns that might have been segments, and why they are none."""
    owned: bool = True
    """Whether the engine is closed with the tables."""
    fetched: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What several parts of a diagnosis read, fetched once."""

    @cached_property
    def cells(self) -> Table:
        """One row per (query_id, doc_id, position, shuffled, segments); counted when first used, then kept."""
        shown = self.impressions
        keys = ["query_id", "doc_id", "position", "shuffled", *self.segments]
        counted = shown.group_by(keys).agg(impressions=shown.count(), clicks=shown.count(where=shown.click > 0))
        return self.engine.keep(counted.join(self.queries, "query_id"))

    @cached_property
    def pages(self) -> Table:
        """One row per page; counted when first used, then kept."""
        shown = self.impressions
        clicked: Any = shown.click > 0
        counted = shown.group_by(["page_id", "query_id"]).agg(
            results=shown.count(),
            clicks=shown.count(where=clicked),
            first_position=shown.position.min(),
            last_click=shown.position.max(where=clicked),
            clicked_positions=shown.position.sum(where=clicked).fill_null(0),
            shuffled=shown.shuffled.all(),
            **{name: shown[name].max() for name in self.segments},
        )
        return self.engine.keep(counted)

    @cached_property
    def queries(self) -> Table:
        """Every query with its bucket and its turn."""
        asked = self.pages.select("query_id").distinct()
        return self.engine.keep(asked.mutate(bucket=bucket_of(asked.query_id), turn=_hashed(asked.query_id, 3)))

    def sample(self, most: int) -> tuple[Any, float]:
        """Cells of so many queries that there are about `most` of them at the most, and the share of queries."""
        turns = TURNS if self.size <= most else max(1, TURNS * most // self.size)
        cells: Any = self.cells
        return (cells if turns == TURNS else cells.filter(cells.turn < turns)), turns / TURNS

    def read_cells(self, cells: Any, ranks: int, by: str | None = None) -> Any:
        """Cells of the first ranks as Arrow, in a fixed order; those that differ by other than `by` are one."""
        cells = cells.filter(cells.position <= ranks)
        keys = ["query_id", "doc_id", "position", *([by] if by else [])]
        sums = {name: cells[name].sum() for name in ("impressions", "clicks")}
        return self.engine.to_arrow(cells.group_by(keys).agg(**sums, bucket=cells.bucket.min()).order_by(keys))

    def laid_out(self, table: Any, by: Mapping[str, Sequence[Any]], *names: str) -> list[Array]:
        """Sums of columns, each an array over values that other columns have, in their order; 0 without a row."""
        inside = table.filter([table[name].isin(list(values)) for name, values in by.items()])
        rows = self.engine.to_arrow(inside.group_by(list(by)).agg(**{name: inside[name].sum() for name in names}))
        places = {name: {value: at for at, value in enumerate(values)} for name, values in by.items()}
        place = tuple([known[value] for value in rows[name].to_pylist()] for name, known in places.items())
        laid = [np.zeros([len(values) for values in by.values()]) for _ in names]
        for array, name in zip(laid, names, strict=True):
            array[place] = np.nan_to_num(rows[name].to_numpy().astype(np.float64))
        return laid

    @cached_property
    def size(self) -> int:
        """How many cells there are; those that differ by segments, or by shuffling, count once."""
        split = bool(self.segments) or self.shuffled == "some"
        return self.engine.count(
            self.cells.select("query_id", "doc_id", "position").distinct() if split else self.cells
        )

    @cached_property
    def few_queries(self) -> bool:
        """Whether queries fall into too few buckets to draw from, so that documents or pages take their place."""
        return self.engine.count(self.queries.select("bucket").distinct()) < FEW

    @cached_property
    def shuffled(self) -> str:
        """How much of the log was shuffled: "none", "some" or "all" of the slots."""
        totals = self.cells.group_by("shuffled").agg(n=self.cells.impressions.sum())
        found = {bool(row["shuffled"]) for row in self.engine.rows(totals)}
        return "some" if len(found) == 2 else "all" if found == {True} else "none"

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The log in numbers: impressions, clicks, pages, queries, query-document pairs, shuffled pages, ranks."""
        cells, pages = self.cells, self.pages
        shown = self.engine.rows(
            cells.agg(impressions=cells.impressions.sum(), clicks=cells.clicks.sum(), ranks=cells.position.max())
        )[0]
        seen = self.engine.rows(pages.agg(pages=pages.count(), shuffled_pages=pages.shuffled.cast("int64").sum()))
        pairs = self.engine.count(cells.select("query_id", "doc_id").distinct())
        numbers = {**shown, **seen[0], "queries": self.engine.count(self.queries), "query_documents": pairs}
        return {name: int(value or 0) for name, value in numbers.items()}

    def __enter__(self) -> LogTables:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.owned:
            self.engine.__exit__(kind, error, trace)


def open_tables(
    source: Log | Path | str | Any,
    *,
    columns: Mapping[str, str] | None = None,
    segments: Sequence[str] = (),
    serp: bool = False,
    feedback: str | None = None,
    engine: Engine | str = "duckdb",
    **options: Any,
) -> LogTables:
    """A log (Parquet files, a table in memory, a `Log`) as tables to diagnose; use it in a `with`.

    `columns` says theirs for ours, {"position": "rank"}; `segments` are columns to tell results by, such as the
    device, to which `serp` adds all serp_* columns. With `feedback`, a result with any of it counts as clicked.
    `engine` is duckdb, spark, or one that is open; `options` go to `connect`.
    """
    opened = connect(engine, **options) if isinstance(engine, str) else engine
    try:
        with open_log(opened, source, Names.of(columns), [*required(feedback), *segments]) as given:
            place = str(place_of(source))
            if feedback is not None:
                weighed, _ = weights(opened, given, feedback)
                given = weighed.mutate(click=(weighed.click > 0).cast("int64"))
            check_rows(opened, given)
            chosen, left_out = choose_segments(opened, given, segments, serp=serp)
            shown = _typed(given, chosen)
    except BaseException:
        if isinstance(engine, str):
            opened.close()
        raise
    return LogTables(opened, shown, tuple(chosen), place, left_out, owned=isinstance(engine, str))


def bucket_of(query: Any) -> Any:
    """A hash of the query to 0 ... 99, from the first three hexadecimal digits of its MD5 on every engine."""
    return _hashed(query, 0) % BUCKETS


def _hashed(query: Any, first: int) -> Any:
    """Three hexadecimal digits of the MD5, from `first` on, the first one least."""
    import ibis

    digest = query.cast("string").hexdigest("md5")
    digits = [ibis.literal(DIGITS).find(digest.substr(first + place, 1)) * 16**place for place in range(3)]
    return sum(digits[1:], digits[0]).cast("int64")


def _typed(shown: Table, segments: Mapping[str, Any]) -> Table:
    """The columns that are counted, in the types that they are counted in."""
    import ibis

    told = "randomized" in shown.columns
    judged = {"label": shown.label.cast("string")} if "label" in shown.columns else {}
    random: Any = shown.randomized.cast("boolean").fill_null(False) if told else ibis.literal(False)
    return shown.select(
        *("page_id", "query_id", "doc_id"),
        position=shown.position.cast("int64"),
        click=shown.click.cast("int64"),
        shuffled=random,
        **judged | dict(segments),
    )
