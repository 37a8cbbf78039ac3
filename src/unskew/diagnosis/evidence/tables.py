"""A log as the two small tables that a diagnosis reads, counted once on the engine: cells and pages.

    cells   one row per (query_id, doc_id, position, shuffled, segments ...): impressions, clicks, bucket, turn
    pages   one row per page: page_id, query_id, results, clicks, first_position, last_click, clicked_positions
            (their sum), shuffled (all of it), segments ...
    queries one row per query: bucket, turn

`bucket` is a hash of the query, 0 to 99, the same on every engine: leaving buckets out, or weighing them, is a
jackknife or a bootstrap over queries without another pass over the log. `turn` is another one, 0 to 4095: those
below some number are a sample of whole queries. Nothing is read before it is asked for.

Segments are columns to tell results by, as text of few values: `serp_*` columns and those that somebody named.

    text, booleans       as they are; more than 50 values are a name, not a kind
    numbers              up to 12 values as they are, else cut at quartiles, the edges in the names: "12 to 30"
    everything else      dates, lists and the like are left out

A column that was named and cannot be taken is an error; one that was found is left out, and the reason is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy as np

from unskew.errors import ConfigError
from unskew.logs.ingest.rules import FewClickers, few_clickers
from unskew.logs.reader import check_rows, open_log, place_of, weights
from unskew.names import NO_NAMES, Names
from unskew.options.base import EngineConnection
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.schema import required
from unskew.types import Array, Log

Made = TypeVar("Made")
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
    few_clickers: FewClickers | None = None
    """Where many clicks come from a few people, most on results of their own."""
    fetched: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """By key, what `once` made."""

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

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """What is made of the log, the first time that it is asked for; several parts of a diagnosis read it."""
        if key not in self.fetched:
            self.fetched[key] = make()
        found: Made = self.fetched[key]
        return found

    def sample(self, most: int) -> tuple[Any, float]:
        """Cells of so many queries that there are about `most` of them at the most, and the share of queries."""
        turns = TURNS if self.size <= most else max(1, TURNS * most // self.size)
        cells: Any = self.cells
        return (cells if turns == TURNS else cells.filter(cells.turn < turns)), turns / TURNS

    def read_cells(self, cells: Any, ranks: int, by: str | None = None) -> Any:
        """Cells of the first ranks as Arrow, in any order; those that differ by other than `by` are one."""
        cells = cells.filter(cells.position <= ranks)
        keys = ["query_id", "doc_id", "position", *([by] if by else [])]
        sums = {name: cells[name].sum() for name in ("impressions", "clicks")}
        return self.engine.to_arrow(cells.group_by(keys).agg(**sums, bucket=cells.bucket.min()))

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
    names: Names = NO_NAMES,
    segments: Sequence[str] = (),
    serp: bool = False,
    feedback: str | None = None,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> LogTables:
    """A log (Parquet files, a table in memory, a `Log`) as tables to diagnose; use it in a `with`.

    `names` says theirs for ours; `segments` are columns to tell results by, such as the
    device, to which `serp` adds all serp_* columns. With `feedback`, a result with any of it counts as clicked.
    `engine` is duckdb, spark, or one that is open; `connection` goes to `connect`.
    """
    opened = connect(engine, **connection) if isinstance(engine, str) else engine
    try:
        with open_log(opened, source, names, [*required(feedback), *segments]) as given:
            place = str(place_of(source))
            if feedback is not None:
                weighed, _ = weights(opened, given, feedback)
                given = weighed.mutate(click=(weighed.click > 0).cast("int64"))
            check_rows(opened, given)
            chosen, left_out = choose_segments(opened, given, segments, serp=serp)
            shown, few = _typed(given, chosen), few_clickers(opened, given)
    except BaseException as error:
        if isinstance(engine, str):
            opened.__exit__(type(error), error, None)
        raise
    return LogTables(opened, shown, tuple(chosen), place, left_out, isinstance(engine, str), few)


def bucket_of(query: Any) -> Any:
    """A hash of the query to 0 ... 99, from the first three hexadecimal digits of its MD5 on every engine."""
    return _hashed(query, 0) % BUCKETS


def _hashed(query: Any, first: int) -> Any:
    """Three hexadecimal digits of the MD5, from `first` on, the first one least."""
    digest = query.cast("string").hexdigest("md5")
    digits = [ibis.literal(DIGITS).find(digest.substr(first + place, 1)) * 16**place for place in range(3)]
    return sum(digits[1:], digits[0]).cast("int64")


def _typed(shown: Table, segments: Mapping[str, Any]) -> Table:
    """The columns that are counted, in the types that they are counted in."""
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


# ---- segments ----


FOUND = "serp_"
"""How columns begin that are taken unasked."""
MOST_VALUES = 50
"""Values that a column of text may have; one with more is no kind but a name."""
MOST_NUMBERS = 12
"""Values of a column of numbers that are taken as they are."""
MOST_FOUND = 12
"""Columns that are taken unasked; each costs another look at the log."""
QUANTILES = (0.25, 0.5, 0.75)
"""Where numbers are cut."""
MISSING = "(missing)"
"""What stands for a value that a row does not tell."""


def choose_segments(
    engine: Engine, shown: Table, named: Sequence[str], *, serp: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns that were named and, with `serp`, all that begin with serp_; why others are not among them.

    Columns are Ibis expressions of text without a missing value.
    """
    found = [name for name in shown.columns if serp and name.startswith(FOUND) and name not in named]
    wanted = {name: _clean(shown[name]) for name in (*named, *found[:MOST_FOUND])}
    asked = {name: column.nunique() for name, column in wanted.items() if column is not None}
    values = engine.rows(shown.agg(**asked))[0] if asked else {}
    chosen: dict[str, Any] = {}
    left_out = dict.fromkeys(found[MOST_FOUND:], f"is past the first {MOST_FOUND}, which are looked at")
    for name, column in wanted.items():
        kind, count = shown[name].type(), int(values.get(name, 0))
        if column is None:
            reason = f"holds values of the type {kind}, not text or numbers"
        elif kind.is_string() and count > MOST_VALUES:
            reason = f"has {count:,} values, and {MOST_VALUES} is the most"
        elif name in found and count < 2:
            reason = "has fewer than two values"
        else:
            many = kind.is_numeric() and not kind.is_boolean() and count > MOST_NUMBERS
            text = ranges(column, edges_of(engine, shown, column)) if many else column.cast("string")
            chosen[name] = text.fill_null(MISSING)
            continue
        if name in named:
            what = f"it {reason}; give a column of few kinds, such as the device"
            raise ConfigError(what, argument="segments", value=[name])
        left_out[name] = reason
    return chosen, left_out


def _clean(column: Any) -> Any:
    """A column without numbers that are none; None where it holds nothing that can be told apart."""
    kind = column.type()
    if kind.is_floating():
        return ibis.cases((column.isnan() | column.isinf(), ibis.null(kind)), else_=column)
    return column if kind.is_string() or kind.is_boolean() or kind.is_numeric() else None


def edges_of(engine: Engine, shown: Table, column: Any) -> list[float]:
    """Where ranges begin, but for the first: quartiles in three digits, fewer where values repeat."""
    number = column.cast("float64")
    cuts = {f"cut_{at}": number.quantile(share) for at, share in enumerate(QUANTILES)}
    told = engine.rows(shown.agg(least=number.min(), **cuts))[0]
    least = float(told["least"])
    edges = sorted({float(f"{float(told[name]):.3g}") for name in cuts})
    if kept := [edge for edge in edges if edge > least]:
        return kept
    above = engine.rows(shown.agg(next=number.min(where=number > least)))[0]["next"]
    return [float(above)]


def ranges(column: Any, edges: Sequence[float]) -> Any:
    """The range of every number, in words; null where there is none."""
    names = range_names(edges)
    below = [(column < edge, ibis.literal(name)) for edge, name in zip(edges, names[:-1], strict=True)]
    return ibis.cases(*below, (column.notnull(), ibis.literal(names[-1])), else_=ibis.null("string"))


def range_names(edges: Sequence[float]) -> list[str]:
    """What ranges are called.

    >>> range_names([1.5, 12000.0])
    ['below 1.5', '1.5 to 12,000', 'from 12,000']
    """
    told = [f"{edge:,.0f}" if abs(edge) >= 1000 else f"{edge:g}" for edge in edges]
    inner = [f"{low} to {high}" for low, high in pairwise(told)]
    return [f"below {told[0]}", *inner, f"from {told[-1]}"]


def in_order(values: Iterable[str]) -> list[str]:
    """Values as people read them: numbers and ranges by size, the missing ones last.

    >>> in_order(["from 30", "(missing)", "below 4", "4 to 30"]), in_order(["10", "9", "b", "a"])
    (['below 4', '4 to 30', 'from 30', '(missing)'], ['9', '10', 'a', 'b'])
    """
    return sorted(values, key=_size)


def _size(value: str) -> tuple[int, float, int, str]:
    number = re.match(r"(below |from |)(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?= to |$)", value)
    if number is None:
        return 2 if value == MISSING else 1, 0.0, 0, value
    return 0, float(number[2].replace(",", "")), 0 if number[1] == "below " else 1, value
