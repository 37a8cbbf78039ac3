"""A log in files joined to the scores of rankings on an engine, and read in parts of whole queries.

    pairs    (query_id, doc_id) with the scores of the rankings, numbered by query; `order` is the place of the
             document among all of its query by the first ranking
    joined   one row per impression: page, query, pair, position, click, shuffled, cluster, scores, order

The join is kept by the engine, in memory or spilled to disk; a part of it is some million impressions, so memory
does not grow with the log. Pages with a result that has no score are left out, and counted.

Legend: P pages, N impressions of a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError, warn
from unskew.examination import Examination
from unskew.logs.log import page_starts, reading_order
from unskew.logs.reader import StoredLog, TableLog, check_rows, open_log
from unskew.measuring import LoggedPages, examination_of
from unskew.measuring.counterfactual.evidence import HeavyClusters
from unskew.measuring.counterfactual.examination import from_shuffled, from_swaps
from unskew.measuring.counterfactual.pages import FEW_QUERIES, stable_codes
from unskew.names import CLUSTERS, HEAVY
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.reading.files import kind_of
from unskew.tables.schema import check_pages, to_array
from unskew.types import Array
from unskew.workflows.inputs.rankings import KEYS, Ranking

PART = 2_000_000
"""Impressions of a part, more where a single query has more."""
TABLES = ("parquet", "csv", "tsv")
"""Files of features that a group may be a column of."""
GROUP = "_group"
"""The column that results are told by, until they are read."""
MISSING = "(none)"
"""The group of results that have none."""
NONE = -1
"""The number of a pair that has no score."""
MOST_LOST = 0.2
"""Share of the pages with a result that has no score past which nothing is judged."""


@dataclass(frozen=True)
class JudgedPart:
    """Pages of whole queries with the scores of their results; a score is None for the order that was shown."""

    pages: LoggedPages
    new: Array | None
    """[N]."""
    other: Array | None
    """[N]."""
    order: Array | None
    """[N] place of the result among all documents of its query by `new`, from 1."""
    candidates: Array | None
    """[N] how many those are."""
    group: Array | None = None
    """[N] the group of each result, where one was asked for."""

    def take(self, pages: Array) -> JudgedPart:
        """Some pages, by a mask."""
        kept = pages[self.pages.page]
        columns = (self.new, self.other, self.order, self.candidates, self.group)
        return JudgedPart(self.pages.take(pages), *(None if each is None else each[kept] for each in columns))


@dataclass(frozen=True)
class HeldLog:
    """A log in memory, which is one part."""

    part: JudgedPart
    unit: str
    """What its clusters are."""

    def parts(self) -> Iterator[JudgedPart]:
        """The part."""
        return iter([self.part])

    def examination(self) -> Examination | None:
        """Examination by rank, as the pages tell it."""
        return examination_of(self.part.pages)

    def heavy(self) -> tuple[Array, HeavyClusters]:
        """The clusters that hold far more clicks than others."""
        names, cluster = np.unique(self.part.pages.cluster, return_inverse=True)
        clicks = np.bincount(cluster, self.part.pages.per_page(self.part.pages.click))
        most = HEAVY * clicks.sum() / max(int((clicks > 0).sum()), 1)
        return names[clicks > most], _heavy(self.unit, clicks[clicks > most], float(clicks.sum()))

    def without(self, clusters: Array) -> HeldLog:
        """The rest of the log."""
        return replace(self, part=self.part.take(~np.isin(self.part.pages.cluster, clusters)))


def _heavy(unit: str, clicks: Array, total: float) -> HeavyClusters:
    share, largest = float(clicks.sum()) / total, float(clicks.max(initial=0.0)) / total
    return HeavyClusters(unit, len(clicks), share, largest)


@dataclass(frozen=True)
class JoinedLog:
    """A log joined to scores, on an engine."""

    engine: Engine
    table: Table
    """One row per impression of a page that is judged."""
    codes: Array
    """`stable_codes` of the ids of queries, by the number that a query has in the table."""
    place: str
    """What errors call the log."""
    person: str
    """The kind of people that clusters are, user or visit; "" where the log names none."""

    @cached_property
    def unit(self) -> str:
        """What its clusters are."""
        return self.person or ("query" if len(self.sizes[0]) >= FEW_QUERIES else "page")

    @property
    def named(self) -> str:
        """The column that names them."""
        return "cluster" if self.person else self.unit

    def examination(self) -> Examination | None:
        """Examination by rank of as many queries as a part has room for, by shuffled pages where there are any."""
        random = replace(self, table=self.table.filter(self.table.shuffled))
        found = None
        if self.engine.count(random.table.filter(random.table.click > 0)):
            found = from_shuffled(next(random.parts()).pages)
        return found or from_swaps(self.first.pages)

    def heavy(self) -> tuple[Array, HeavyClusters]:
        """The clusters that hold far more clicks than others."""
        clicks: Any = self.table.group_by(id=self.table[self.named]).agg(n=self.table.click.cast("int64").sum())
        clicks = self.engine.keep(clicks)
        found = self.engine.rows(clicks.agg(all=clicks.n.sum(), some=(clicks.n > 0).sum()))[0]
        most = HEAVY * found["all"] / max(found["some"], 1)
        rows = self.engine.to_arrow(clicks.filter(clicks.n > most))
        return to_array(rows["id"]), _heavy(self.unit, to_array(rows["n"]), float(found["all"]))

    def without(self, clusters: Array) -> JoinedLog:
        """The rest of the log."""
        named: Any = self.table[self.named]
        return replace(self, table=self.table.filter(~named.isin(clusters.tolist())))

    @cached_property
    def sizes(self) -> tuple[Array, Array]:
        """Queries in their order, and how many impressions each has."""
        counted = self.engine.to_arrow(self.table.group_by("query").agg(n=self.table.count()).order_by("query"))
        return to_array(counted["query"]), to_array(counted["n"])

    @cached_property
    def first(self) -> JudgedPart:
        """The first part, which is read once."""
        return next(self._read())

    def parts(self) -> Iterator[JudgedPart]:
        """Whole queries, about PART impressions at once."""
        yield self.first
        yield from islice(self._read(), 1, None)

    def _read(self) -> Iterator[JudgedPart]:
        queries, sizes = self.sizes
        step = np.maximum(np.cumsum(sizes) - sizes, 0) // PART
        edges = [*np.flatnonzero(np.diff(step, prepend=-1) != 0).tolist(), len(queries)]
        for start, stop in pairwise(edges):
            part = self.table
            if stop - start < len(queries):
                part = part.filter(part.query.between(int(queries[start]), int(queries[stop - 1])))
            yield self._part(self.engine.to_arrow(part))

    def _part(self, rows: Any) -> JudgedPart:
        columns = {name: to_array(rows[name]) for name in rows.column_names}
        if reading_order(columns["page"], columns["position"]) is not None:
            order = np.argsort(columns["page"], kind="stable")  # pages that come in runs are sorted fast
            inside = reading_order(columns["page"][order], columns["position"][order])
            order = order if inside is None else order[inside]
            columns = {name: column[order] for name, column in columns.items()}
        page, query = columns["page"], columns["query"].astype(np.int64)
        starts = page_starts(page)
        number = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(page)))
        check_pages(number, columns["position"], query, page[starts], self.place)
        query = self.codes[query]
        cluster = columns.get("cluster", query if len(self.sizes[0]) >= FEW_QUERIES else page)
        first = int(columns["pair"].min(initial=np.iinfo(np.int64).max))
        pages = LoggedPages(
            offsets=np.append(starts, len(page)).astype(np.int64),
            position=columns["position"].astype(np.int64),
            click=columns["click"].astype(np.float64),
            shuffled=columns["shuffled"].astype(bool),
            query=query[starts],
            document=columns["pair"] - first,
            cluster=cluster[starts].astype(np.int64),
            propensity=columns.get("propensity"),
        )
        others = (columns.get(name) for name in ("new", "other", "order", "candidates", "group"))
        return JudgedPart(pages, *others)


def join_log(
    engine: Engine,
    log: StoredLog | TableLog,
    ranking: Ranking,
    against: Ranking,
    *,
    group: str | None = None,
    features: Any = None,
) -> JoinedLog:
    """A log in files with the scores of two rankings, after a check of its rows; what has no score is told.

    `group` is a column of the log, or of one of the tables of `features`, to tell results by.
    """
    with open_log(engine, log) as opened:
        check_rows(engine, opened)
        shown = opened if group is None else grouped(engine, opened, group, features, str(log.place))
    pairs = _pairs(engine, log, shown, ranking, against)
    joined = engine.keep(_joined(shown, pairs))
    lost = joined.filter(joined.pair == NONE)
    impressions, before = engine.count(joined), engine.count(shown)
    if impressions > before:
        both = [each.name for each in (ranking, against)]
        hint = "keep one row for each query_id and doc_id"
        raise DataError("a document of a query has two scores", path=" or ".join(both), hint=hint)
    if unscored := engine.count(lost):
        pages, without = (
            engine.count(joined.select("page").distinct()),
            engine.keep(lost.select("page").distinct()),
        )
        tell_lost(engine.count(without), pages, unscored, impressions, str(log.place))
        joined = joined.anti_join(without, "page")
    ids = engine.to_arrow(pairs.select("query", "query_id").distinct().order_by("query"))["query_id"]
    person = next((name.removesuffix("_id") for name in CLUSTERS if name in shown.columns), "")
    return JoinedLog(engine, joined, stable_codes(to_array(ids)), str(log.place), person)


def _pairs(engine: Engine, log: StoredLog | TableLog, shown: Table, ranking: Ranking, against: Ranking) -> Table:
    """Every document of a query with the scores that it has, numbered."""
    scored = {"new": ranking.table(engine, log), "other": against.table(engine, log)}
    tables = [each.select(*KEYS, **{name: each.score}) for name, each in scored.items() if each is not None]
    pairs = tables[0] if tables else shown.select(*KEYS).distinct()
    for other in tables[1:]:
        pairs = pairs.join(_like(other, pairs), [*KEYS])
    pairs = _like(pairs, shown)
    for name in ("new", "other"):
        if name in pairs.columns:
            pairs = pairs.filter(pairs[name].notnull() & ~pairs[name].isnan())
    mixed = pairs.query_id.hash()  # so that the queries of a part are any
    made: dict[str, Any] = {
        "pair": ibis.row_number().over(order_by=[mixed, pairs.query_id, pairs.doc_id]),
        "query": ibis.dense_rank().over(order_by=[mixed, pairs.query_id]),
    }
    if "new" in pairs.columns:
        window = {"group_by": pairs.query_id, "order_by": [pairs.new.desc(), pairs.doc_id]}
        made["order"] = ibis.row_number().over(**window) + 1
        made["candidates"] = pairs.count().over(group_by=pairs.query_id)
    return engine.keep(pairs.mutate(**made))


def grouped(engine: Engine, shown: Table, group: str, features: Any, place: str) -> Table:
    """Impressions with the group of each as text: a column of theirs, or of a table of features by document."""
    if group in shown.columns:
        told: Any = shown[group]
        return shown.mutate(**{GROUP: told.cast("string").fill_null(MISSING)})
    for each in [features] if isinstance(features, str | Path) or is_frame(features) else features or []:
        table = arrow_table(each) if is_frame(each) or kind_of(Path(each)) in TABLES else None
        keys = [] if table is None else [key for key in KEYS if key in table.column_names]
        if table is not None and group in table.column_names and keys:
            read = engine.from_arrow(table.select([*keys, group]))
            named: Any = _like(read.select(*keys, **{GROUP: read[group].cast("string")}), shown).distinct(on=keys)
            joined: Any = shown.join(named, keys, how="left")
            return joined.select(*shown.columns, **{GROUP: joined[GROUP].fill_null(MISSING)})
    raise DataError(f"there is no column {group}", path=place, hint="name one of the log, or of its features")


def _like(table: Table, other: Table) -> Table:
    """A table with keys of the types that another has; a key that is no such number joins nothing."""
    kinds = {
        name: other[name].type()
        for name in KEYS
        if name in table.columns and other[name].type() != table[name].type()
    }
    return table.mutate(**{name: table[name].try_cast(kind) for name, kind in kinds.items()}) if kinds else table


def _joined(shown: Table, pairs: Table) -> Table:
    """The columns that estimates need, one row per impression."""
    both: Any = shown.join(pairs, [*KEYS], how="left")
    random = (
        both.randomized.cast("boolean").fill_null(False) if "randomized" in shown.columns else ibis.literal(False)
    )
    more: dict[str, Any] = {name: both[name] for name in ("new", "other") if name in pairs.columns}
    if "order" in pairs.columns:
        more |= {name: both[name].cast("int32") for name in ("order", "candidates")}
    if GROUP in shown.columns:
        more["group"] = both[GROUP]
    people = [name for name in CLUSTERS if name in shown.columns][:1]
    if people:  # a page that tells none is one by itself
        more["cluster"] = ibis.coalesce(_number(both[people[0]]), both.page_id.hash())
    if "propensity" in shown.columns:
        more["propensity"] = both.propensity.cast("float64")
    return both.select(
        page=_number(both.page_id),
        query=both.query.cast("int64").fill_null(NONE),
        pair=both.pair.cast("int64").fill_null(NONE),
        position=both.position.cast("int16"),
        click=both.click.cast("int8"),
        shuffled=random,
        **more,
    )


def _number(ids: Any) -> Any:
    return ids.cast("int64") if ids.type().is_integer() else ids.hash()


def tell_lost(left_out: int, pages: int, unscored: int, impressions: int, place: str) -> None:
    """Warn of pages that are not judged; refuse where they are many."""
    what = (
        f"{unscored:,} of {impressions:,} impressions have no score, so {left_out:,} of {pages:,} pages "
        f"({left_out / pages:.1%}) cannot be judged"
    )
    if left_out > MOST_LOST * pages:
        raise DataError(what, path=place, hint="give features or scores of every document of the log")
    warn(f"{place}: {what} and are left out")
