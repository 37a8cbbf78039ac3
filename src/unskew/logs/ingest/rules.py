"""Pages that no person made, or that a log cannot hold: found from one aggregation by page, removed by one join.

Every rule is a function from the table of pages to a boolean column; `PAGE_RULES` names them. Only pages that say
a position twice are looked at row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from unskew.tables.engine.functions import bit_or
from unskew.tables.reading.options import Robots

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
