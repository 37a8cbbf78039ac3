"""The exact reduction on the engine: a log of any size becomes counts that one machine trains on.

The same reduction as `counts.reduce_log`, as two group-bys and a join:

    pages     one row per result page: a hash of its (query, position, document, presentation)
    slots     one row per (hash, query, position, document, presentation): impressions and clicks

A ranking is named after the smallest page_id that showed it. The hash only finds candidates: where all pages
under one hash are the same, every slot was shown once on each of them, and this is checked on the result. Should
two rankings ever collide, another hash is tried, so the counts are exact. Values are checked first, in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from unskew.errors import Column, DataError
from unskew.files import refuse_existing
from unskew.logs.counts.folder import COUNTED, write_counts
from unskew.logs.reader import check_rows, open_log
from unskew.options.base import EngineConnection
from unskew.results import Result
from unskew.settings import require_columns
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.schema import required

if TYPE_CHECKING:
    from ibis.expr.types import Table

SLOT = ("query_id", "position", "doc_id")
RANKING = "page_hash"


@dataclass(frozen=True)
class Rankings:
    """A reduced log on its engine."""

    slots: Table
    """One row per slot: ranking_id, query_id, position, doc_id, the presentation, impressions, clicks."""
    pairs: Table | None
    """ranking_id, position, other_position (larger), pages with a click on both; where asked for."""
    summary: dict[str, Any]
    """What it is made of, in numbers."""


@dataclass(frozen=True)
class CountedLog(Result):
    """A log that was reduced to counts, in numbers."""

    out: str
    impressions: int
    clicks: float
    """Or the sum of weights."""
    slots: int
    pages: int
    rankings: int
    feedback: str | None = None
    """The column of weights; None where clicks were counted."""
    absent = ("feedback",)


def count_rankings(
    engine: Engine,
    impressions: Table,
    *,
    serp: Sequence[str] = (),
    pairs: bool = False,
    feedback: str | None = None,
) -> Rankings:
    """Reduce impressions to counts; `serp` names presentation columns to keep apart and carry.

    Slots that were filled at random are kept apart too, where there is a column `randomized`. `feedback` is a
    column of weights to add up in the place of clicks.
    """
    require_columns([*required(feedback), *serp], impressions.columns)
    extra = [*serp, *(["randomized"] if "randomized" in impressions.columns else [])]
    log = impressions.select(*required(feedback), *extra)
    weighted = feedback is not None and add_up(engine, log, feedback, pairs)
    if feedback is not None:
        log = log.mutate(click=weight_of(log, feedback).cast("float64" if weighted else "int64"))
    if "randomized" in extra:
        log = log.mutate(randomized=log.randomized.fill_null(False))
    check_rows(engine, log, weighted=weighted)
    for salt in range(3):
        pages = engine.keep(hash_pages(engine, log, extra, salt))
        slots = engine.keep(
            count_slots(log, pages, extra, weighted=weighted)
        )  # kept before the join, which needs memory of its own
        slots = engine.keep(slots.join(name_rankings(pages), RANKING))
        summary = summarise(engine, slots, pages)
        if not summary.pop("unlike"):
            final = slots.select("ranking_id", *SLOT, *extra, "impressions", "clicks")
            both = count_pairs(log, pages) if pairs else None
            return Rankings(final, both, summary | ({"feedback": feedback} if weighted else {}))
        refuse_repeated(engine, log)
    raise DataError("could not tell the rankings apart: three different hashes collided")


def counts(
    log: Path | str,
    out: Path | str,
    *,
    serp: Sequence[str] = (),
    pairs: bool = False,
    feedback: str | None = None,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> CountedLog:
    """Reduce a log to counts in the folder `out`; what was counted. `connection` says how the engine is reached.

    `feedback` is a column of weights from 0 to add up in the place of clicks. `columns` says theirs for
    ours, as for `ingest`.
    """
    place, out = Path(log), Path(out)
    refuse_existing(out, force=force, ours=COUNTED)  # before minutes of counting
    needed = [*required(feedback), *serp]
    with connect(engine, **connection) as running, open_log(running, place, columns, needed) as shown:
        rankings = count_rankings(running, shown, serp=serp, pairs=pairs, feedback=feedback)
        write_counts(running, rankings, out, force=force)
    return CountedLog(str(out), **rankings.summary)


def hash_pages(engine: Engine, log: Table, extra: Sequence[str], salt: int) -> Table:
    """One row per page: page_id, page_hash."""
    import ibis

    fields = {name: log[name] for name in (*SLOT, *extra)}
    absent = {f"no_{name}": log[name].isnull() for name in extra}  # Spark's hash passes over what is absent
    row = ibis.struct(fields | absent | {"salt": ibis.literal(salt)})
    return log.group_by("page_id").agg(page_hash=engine.set_hash(row))


def count_slots(log: Table, pages: Table, extra: Sequence[str], *, weighted: bool = False) -> Table:
    """One row per slot of each ranking: page_hash, the slot, impressions and clicks, or the sum of weights."""
    shown = log.join(pages, "page_id")
    clicks = shown.click if weighted else shown.click.cast("int64")
    return shown.group_by([RANKING, *SLOT, *extra]).agg(impressions=shown.count(), clicks=clicks.sum())


def weight_of(log: Table, feedback: str) -> Any:
    """A column of weights, 0 where one is missing."""
    import ibis

    weight = log[feedback].cast("float64").fill_null(0.0)
    return ibis.ifelse(weight.isnan(), 0.0, weight)


def add_up(engine: Engine, log: Table, feedback: str, pairs: bool) -> bool:
    """Whether a column has weights and not 0 and 1 alone, after a check that it can be added up."""
    kind = log[feedback].type()
    if not (kind.is_numeric() or kind.is_boolean()):
        raise DataError((Column(feedback), f" is of type {kind}"), hint="feedback is a number from 0")
    weight = weight_of(log, feedback)
    wrong = (weight < 0) | weight.isinf()
    found = engine.rows(
        log.agg(wrong=wrong.cast("int64").sum(), other=(~weight.isin([0.0, 1.0])).cast("int64").sum())
    )[0]
    if found["wrong"]:
        what = (f"{found['wrong']:,} rows have a ", Column(feedback), " that is no weight")
        raise DataError(what, hint="feedback is a number from 0; clip or repair it")
    if found["other"] and pairs:
        raise DataError(("pairs are counted from clicks, and ", Column(feedback), " has weights"))
    return bool(found["other"])


def name_rankings(pages: Table) -> Table:
    """One row per ranking: its name, and on how many pages it was shown."""
    return pages.group_by(RANKING).agg(ranking_id=pages.page_id.min(), pages=pages.count())


def count_pairs(log: Table, pages: Table) -> Table:
    """Pages with a click on both of two slots, for every ranking and pair of slots that has any."""
    clicked = log.filter(log.click == 1).select("page_id", "position")
    other = clicked.select("page_id", other_position="position")
    both = clicked.join(other, ["page_id", clicked.position < other.other_position]).join(pages, "page_id")
    counted = both.group_by([RANKING, "position", "other_position"]).agg(pages=both.count())
    return counted.join(name_rankings(pages).drop("pages"), RANKING).select(
        "ranking_id", "position", "other_position", "pages"
    )


def summarise(engine: Engine, slots: Table, pages: Table) -> dict[str, Any]:
    """The numbers of a reduced log, after a check that no position is taken twice; all from reduced tables."""
    unlike = (slots.impressions != slots.pages).cast("int64").sum()
    sums = {"impressions": slots.impressions.sum(), "clicks": slots.clicks.sum(), "slots": slots.count()}
    found = engine.rows(slots.agg(**sums, unlike=unlike))[0]
    twice = slots.group_by(RANKING, "position").agg(rows=slots.count(), ranking_id=slots.ranking_id.min())
    twice = twice.filter(twice.rows > 1).order_by("ranking_id", "position").limit(1)
    taken = [] if found["unlike"] else engine.rows(twice)
    if taken:
        refuse_page(taken[0]["ranking_id"], taken[0]["position"])
    sizes = engine.rows(pages.agg(pages=pages.count(), rankings=pages[RANKING].nunique()))[0]
    return found | sizes


def refuse_repeated(engine: Engine, log: Table) -> None:
    """Whether a page has two rows at one position, which looks like a collision; a slow check, so made last."""
    taken = log.group_by("page_id", "position").agg(rows=log.count())
    first = engine.rows(taken.filter(taken.rows > 1).order_by("page_id", "position").limit(1))
    if first:
        refuse_page(first[0]["page_id"], first[0]["position"])


def refuse_page(page: Any, position: int) -> None:
    """Say which page has two rows at one position."""
    raise DataError(
        (Column("position"), f" {position} is taken twice in page {page}"),
        hint=("keep one document per position, and give each result page its own ", Column("page_id")),
    )
