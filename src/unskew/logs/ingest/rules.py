"""Pages that no person made, or that a log cannot hold: found from one aggregation by page, removed by one join.

Every rule is a function from the table of pages to a boolean column; `PAGE_RULES` names them. Only pages that say
a position twice are looked at row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unskew.logs.ingest.columns import REASON
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.functions import bit_or
from unskew.tables.reading.options import RULES, IngestOptions, Robots

if TYPE_CHECKING:
    from ibis.expr.types import Table


DEEP = 30
"""Positions from here on share a bit, so that pages as deep as this are looked at row by row."""
FEWEST = 3
"""Results of a page that may be said to be clicked throughout."""


def visitor_column(rows: Table) -> str | None:
    """Whose clicks are counted by the minute; None where only pages are known."""
    return next((name for name in ("visit_id", "user_id") if name in rows.columns), None)


def page_table(rows: Table, *, exact: bool = False) -> Table:
    """One row per page: results, clicks, positions, query, visitor and time.

    A page that says no position twice has `total` = `bits`: a sum of powers of two is their union only where no
    power comes twice. `exact` counts the distinct positions, which costs more.
    """
    import ibis

    bit = ibis.literal(1, "int32") << ibis.least(rows.position, DEEP).cast("int32")
    made: dict[str, Any] = {
        "results": rows.count(),
        "clicks": rows.click.sum(),
        "first": rows.position.min(),
        "last": rows.position.max(),
        "query": rows.query_id.min(),
        "last_query": rows.query_id.max(),
    }
    if exact:
        pairs = rows.group_by("page_id", "position").agg(documents=rows.doc_id.nunique())
        twice = pairs.group_by("page_id").agg(places=pairs.count(), most=pairs.documents.max())
    else:
        made |= {"bits": bit_or(bit.cast("int64")), "total": bit.cast("int64").sum().cast("int64")}
    if (visitor := visitor_column(rows)) is not None:
        made["visitor"] = rows[visitor].min()
    if "timestamp" in rows.columns:
        made |= {"at": rows.timestamp.min(), "until": rows.timestamp.max()}
    pages = rows.group_by("page_id").agg(**made)
    if exact:
        pages = pages.inner_join(twice, "page_id")
        return pages.drop(*(name for name in pages.columns if name.endswith("_right")))
    return pages


def plain_pages(pages: Table) -> Table:
    """Pages that say no position twice, with the columns of exact ones."""
    import ibis

    plain = pages.filter(pages.bits == pages.total)
    return plain.mutate(places=plain.results, most=ibis.literal(1, "int64")).drop("bits", "total")


def numbered_duplicates(rows: Table) -> Table:
    """Rows with a number among those of the same document, position and page; clicked ones come first."""
    import ibis

    nth = ibis.row_number().over(group_by=["page_id", "position", "doc_id"], order_by=rows.click.desc())
    return rows.mutate(unskew_nth=nth)


def two_queries_on_one_page(pages: Table) -> Any:
    """Rows of one page name different queries."""
    return pages["query"] != pages.last_query


def two_documents_at_one_position(pages: Table) -> Any:
    """A position of the page is held by two documents."""
    return pages.most > 1


def gaps_in_positions(pages: Table) -> Any:
    """Of the places from first to last more than one and more than a tenth is missing; a page may begin anywhere.

    A few holes are what broken rows leave, and results beside them keep their rank.
    """
    return _holed(pages["last"] - pages["first"] + 1, pages.places)


def maybe_gaps(pages: Table) -> Any:
    """The same of pages that are not looked at row by row."""
    return _holed(pages["last"] - pages["first"] + 1, pages.results)


def _holed(span: Any, there: Any) -> Any:
    holes = span - there
    return (holes > 1) & (holes * 10 > span)


def everything_clicked(pages: Table) -> Any:
    """Three results or more, and every one was clicked."""
    return (pages.results >= FEWEST) & (pages.clicks >= pages.results)


PAGE_RULES: Mapping[str, Callable[[Table], Any]] = {
    "two_queries_on_one_page": two_queries_on_one_page,
    "two_documents_at_one_position": two_documents_at_one_position,
    "gaps_in_positions": gaps_in_positions,
    "everything_clicked": everything_clicked,
}
"""Rules that need nothing but the page."""


def robots(pages: Table, limits: Robots) -> Table | None:
    """Visitors with more clicks or queries within a minute of the clock than a person makes.

    None where there are no times. Without visitors a page stands for one. Only those with as many in all are
    counted by the minute.
    """
    if "at" not in pages.columns:
        return None
    who = "visitor" if "visitor" in pages.columns else "page_id"
    pages = pages.filter(pages[who].notnull())
    active = pages.group_by(who).agg(n=pages.count(), c=pages.clicks.sum())
    active = active.filter((active.n > limits.queries_per_minute) | (active.c > limits.clicks_per_minute))
    busy = pages.semi_join(active, who)
    minutes = busy.group_by(who, minute=busy["at"].truncate("m")).agg(n=busy.count(), c=busy.clicks.sum())
    over = minutes.filter((minutes.n > limits.queries_per_minute) | (minutes.c > limits.clicks_per_minute))
    return over.select(who).distinct()


# ---- rules applied ----


LONG = 2
"""Hours from which on a page is a long one."""


@dataclass
class Cleaned:
    """What the rules left of a log."""

    rows: Table
    removed: list[Table] = field(default_factory=list)
    """Rows that went, each with a reason."""
    found: dict[str, dict[str, int]] = field(default_factory=dict)
    """For every rule that could be asked: pages and rows that it found."""
    pages: dict[str, Any] = field(default_factory=dict)
    """The pages that stay, in numbers."""
    kept: tuple[str, ...] = ()
    """Rules that find a trait of the log rather than faults, and remove nothing."""
    judged: Table | None = None
    """All pages, each with the rule that removes it."""


@dataclass(frozen=True)
class PageFacts:
    """The table of pages, with what must be known before the rules."""

    table: Table
    twice: int
    """Pages that say a position twice, or are too deep to tell."""
    from_zero: int
    from_one: int
    pages: int = 0
    gaps: int = 0
    """Pages with holes."""
    results: int = 0
    places: int = 0
    """Places from the first to the last position of all pages."""
    clicks: int = 0
    single: int = 0
    """Pages with one row."""
    deepest: int = 1
    """The last position of all."""

    @property
    def base(self) -> int:
        """What positions count from: what most pages begin with."""
        return 0 if self.from_zero and self.from_zero >= self.from_one else 1

    @property
    def holes_are_usual(self) -> bool:
        """Whether most pages have holes, although most of their places are there: other things hold the rest."""
        return 2 * self.gaps > self.pages and 2 * self.results >= self.places


def find_pages(rows: Table, engine: Engine) -> PageFacts:
    """The one aggregation by page."""
    pages = engine.keep(page_table(rows))
    asked: dict[str, Any] = {"twice": pages.bits != pages.total, "gaps": maybe_gaps(pages)}
    asked |= {"from_zero": pages["first"] == 0, "from_one": pages["first"] == 1}
    asked |= {"results": pages.results, "places": pages["last"] - pages["first"] + 1}
    asked |= {"single": pages.results == 1, "clicks": pages.clicks}
    made: dict[str, Any] = {name: each.sum() for name, each in asked.items()}
    found = engine.rows(pages.agg(**made, pages=pages.count(), deepest=pages["last"].max()))[0]
    return PageFacts(pages, **{name: int(value or 0) for name, value in found.items()})


def clean(
    rows: Table, found: PageFacts, options: IngestOptions, engine: Engine, broken: Table | None = None
) -> Cleaned:
    """Apply every rule that is on; those that are off are counted all the same.

    `broken` are rows that were put aside before: their places count as there, so that they make no holes.
    """
    result = Cleaned(rows, kept=("gaps_in_positions",) if found.holes_are_usual else ())
    pages = _without_duplicates(result, found, options, engine) if found.twice else plain_pages(found.table)
    pages = pages if broken is None else engine.keep(_with_broken(pages, broken))
    flags: dict[str, Any] = {name: rule(pages) for name, rule in PAGE_RULES.items()}
    busy = robots(pages, options.rules.robots)
    if busy is not None:
        busy = engine.keep(busy)
        who = busy.columns[0]
        any_busy = engine.count(busy)
        flags["robots"] = pages[who].isin(busy[who]) if any_busy else pages.results < 0
    flagged = pages.mutate(**{name: flag.fill_null(False) for name, flag in flags.items()})
    _count(result, flagged, [name for name in RULES if name in flags], options, engine)
    return result


def _count(result: Cleaned, flagged: Table, names: list[str], options: IngestOptions, engine: Engine) -> None:
    import ibis

    on = [(flagged[name], name) for name in names if name not in (*options.rules.off, *result.kept)]
    judged = flagged.mutate(**{REASON: ibis.cases(*on, else_=ibis.null("string")) if on else ibis.null("string")})
    stays = judged[REASON].isnull()
    made: dict[str, Any] = {
        "pages": stays.sum(),
        "clickless": (stays & (judged.clicks == 0)).sum(),
        "rows": judged.results.sum(where=stays),
        "clicks": judged.clicks.sum(where=stays),
        "queries": judged["query"].nunique(where=stays),
        "gone": (~stays).sum(),
        "single": (stays & (judged.results == 1)).sum(),
    }
    if "at" in judged.columns:
        made |= {"first": judged["at"].min(where=stays), "last": judged["at"].max(where=stays)}
        made["long"] = (stays & (judged.until > judged["at"] + ibis.interval(hours=LONG))).sum()
    for name in names:
        made |= {f"pages {name}": judged[name].sum(), f"rows {name}": judged.results.sum(where=judged[name])}
    numbers = _one_row(engine.to_arrow(judged.agg(**made)))
    for name in names:
        result.found[name] = {
            "pages": int(numbers[f"pages {name}"] or 0),
            "rows": int(numbers[f"rows {name}"] or 0),
        }
    result.pages = {name: numbers[name] for name in made if " " not in name}
    result.judged = judged
    if numbers["gone"]:
        bad = engine.keep(judged.filter(~stays).select("page_id", REASON))
        result.removed.append(result.rows.drop(REASON).inner_join(bad, "page_id"))
        result.rows = result.rows.anti_join(bad, "page_id")


def _with_broken(pages: Table, broken: Table) -> Table:
    lost = broken.group_by("page_id").agg(lost=broken.count())
    both = pages.left_join(lost, "page_id")
    both = both.select(*(both[name] for name in pages.columns), both.lost)
    return both.mutate(places=both.places + both.lost.fill_null(0)).drop("lost")


def _one_row(table: pa.Table) -> dict[str, Any]:
    """The only row, with times as plain UTC; pyarrow would load pandas to make them."""
    row: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        moment = pa.types.is_timestamp(column.type)
        value = (column.cast(pa.timestamp("us")).cast(pa.int64()) if moment else column)[0].as_py()
        row[name] = datetime(1970, 1, 1) + timedelta(microseconds=value) if moment and value is not None else value
    return row


def _without_duplicates(result: Cleaned, found: PageFacts, options: IngestOptions, engine: Engine) -> Table:
    """Look at the pages that say a position twice, row by row; the exact table of all pages."""
    import ibis

    odd = found.table.filter(found.table.bits != found.table.total)
    numbered = engine.keep(numbered_duplicates(result.rows.semi_join(odd, "page_id")))
    again = numbered.filter(numbered.unskew_nth > 0)
    counts = engine.rows(again.agg(n=again.count(), p=again.page_id.nunique()))[0]
    result.found["duplicate_events"] = {"pages": counts["p"], "rows": counts["n"]}
    looked = numbered
    if counts["n"] and "duplicate_events" not in options.rules.off:
        looked = numbered.filter(numbered.unskew_nth == 0)
        again = again.drop("unskew_nth", REASON).mutate(**{REASON: ibis.literal("duplicate_events")})
        result.removed.append(again)
        others = result.rows.anti_join(odd, "page_id")
        result.rows = others.union(looked.select(*others.columns).cast(dict(others.schema().items())))
    plain = plain_pages(found.table)
    exact = page_table(looked, exact=True)
    return engine.keep(plain.union(exact.select(*plain.columns).cast(dict(plain.schema().items()))))


# ---- in numbers ----


def by_position(rows: Table, engine: Engine) -> list[dict[str, Any]]:
    """Impressions, clicks and click rate of every position."""
    table = rows.group_by("position").agg(impressions=rows.count(), clicks=rows.click.sum()).order_by("position")
    return [{**row, "click_rate": round(row["clicks"] / row["impressions"], 6)} for row in engine.rows(table)]


def rules_table(found: Mapping[str, Mapping[str, int]], off: Collection[str], rows: int) -> dict[str, Any]:
    """What every rule found, and whether it removed it; a rule that could not be asked says so."""
    table: dict[str, Any] = {}
    for name, what in RULES.items():
        counts = found.get(name)
        if name == "duplicate_events":
            counts = counts or {"rows": 0}
        entry: dict[str, Any] = {"what": what, "on": name not in off, "asked": counts is not None}
        if counts is not None:
            entry |= {**counts, "share": round(counts["rows"] / rows, 6) if rows else 0.0}
        table[name] = entry
    return table


def log_numbers(pages: Mapping[str, Any], written: Table, engine: Engine) -> dict[str, Any]:
    """The log as it was written, in numbers; `pages` are those of `Cleaned`."""
    shown, clicks, count = (int(pages[name] or 0) for name in ("rows", "clicks", "pages"))
    first, last = pages.get("first"), pages.get("last")
    return {
        "format": "unskew impressions 1",
        "impressions": shown,
        "pages": count,
        "queries": int(pages["queries"] or 0),
        "documents": engine.rows(written.agg(n=written.doc_id.nunique()))[0]["n"],
        "clicks": clicks,
        "click_rate": round(clicks / shown, 6) if shown else None,
        "pages_without_clicks": round(int(pages["clickless"] or 0) / count, 6) if count else None,
        "time": None if first is None else {"first": _utc(first), "last": _utc(last)},
        "by_position": by_position(written, engine),
    }


def _utc(moment: Any) -> str:
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"
