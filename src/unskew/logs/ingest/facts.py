"""What a log can teach and what it cannot: facts of the pages that stay, and warnings in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.errors import Option, Sentence, Words, parts_of
from unskew.logs.ingest.columns import REASON
from unskew.logs.ingest.rules import LONG, Cleaned, PageFacts
from unskew.tables.engine.engine import Engine
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table

COMMON = 200
"""Queries, the most frequent ones, that are asked whether their results ever move."""
ENOUGH = 20
"""Results shown again, or pages, from which on a warning is more than chance."""

FIND = ("let pages be found with ", Option("page_gap", "30m"))


CLICKS_ALONE = (
    "every row is clicked: this log has no impressions without clicks. Examination cannot be learned, nor what "
    "people like: log the results that were shown and not clicked, too"
)


def page_facts(cleaned: Cleaned, found: PageFacts, base: int) -> dict[str, float | None]:
    """Shares of pages: with one row, that begin at the top, that last for hours."""
    count = int(cleaned.pages["pages"] or 0)
    top = found.from_zero if base == 0 else found.from_one
    long = cleaned.pages.get("long")
    return {
        "with_one_row": _share(cleaned.pages["single"], count),
        "from_the_top": _share(top, found.pages),
        "longer_than_hours": None if long is None else _share(long, count),
    }


def suspicion(found: PageFacts, base: int, options: IngestOptions, by_person: bool) -> Words | None:
    """That only clicks were logged, or that pages are torn apart, before any rule is asked."""
    if found.clicks == found.results:
        return CLICKS_ALONE
    top = found.from_zero if base == 0 else found.from_one
    shares = {"with_one_row": _share(found.single, found.pages), "from_the_top": _share(top, found.pages)}
    return torn_pages(shares, found.results < 4 * found.pages, found.deepest + 1 - base, options, by_person)


def _share(part: Any, whole: int) -> float:
    return round(int(part or 0) / whole, 6) if whole else 0.0


def moves(cleaned: Cleaned, written: Table, engine: Engine) -> dict[str, int]:
    """Of the most frequent queries: results shown more than once, and those of them at more than one position."""
    import ibis

    pages: Any = cleaned.judged
    stays = pages.filter(pages[REASON].isnull())
    often = stays.group_by("query").agg(n=stays.count())
    often = often.filter(often.n > 1).order_by(ibis.desc("n"), "query").limit(COMMON)
    often = engine.keep(often.select(query_id="query"))
    rows = written.semi_join(often, "query_id")
    seen = rows.group_by("query_id", "doc_id").agg(
        n=rows.count(), low=rows.position.min(), high=rows.position.max()
    )
    again = seen.n > 1
    counts = engine.rows(seen.agg(results=again.sum(), moved=(seen.high > seen.low).sum()))[0]
    asked = engine.count(often)
    return {"queries": asked, **{name: int(value or 0) for name, value in counts.items()}}


def warnings_of(made: Mapping[str, Any], options: IngestOptions) -> list[str]:
    """What a summary says that its reader should not miss."""
    warned = [*_of_clicks(made), *_of_pages(made, options)]
    if made["queries"] == 1 and made["pages"] >= ENOUGH:
        name = options.source("query_id")
        warned.append(
            f"there is one query only ({name}): nothing is learned that holds for others. Is it the right column?"
        )
    moved = made["moves"]
    if moved["results"] >= ENOUGH and not moved["moved"]:
        warned.append(
            f"no result ever moves: of the {moved['queries']:,} most frequent queries, {moved['results']:,} "
            "results were shown again, each where it was before. Bias and relevance cannot be told apart by the "
            "log alone; a share of shuffled pages would do"
        )
    return warned


def _of_clicks(made: Mapping[str, Any]) -> list[str]:
    shown, clicks, ranks = made["impressions"], made["clicks"], made["by_position"]
    if not clicks:
        return ["there is no click in this log: nothing can be learned from it"]
    if clicks == shown:
        return [CLICKS_ALONE]
    warned = []
    clicked = [row["position"] for row in ranks if row["clicks"]]
    if len(ranks) == 1:
        warned.append(
            f"every result was shown at position {ranks[0]['position']}: what positions do to clicks cannot be "
            "learned"
        )
    elif len(clicked) == 1 and clicks >= ENOUGH:
        warned.append(
            f"all clicks are at position {clicked[0]} of {len(ranks)}: examination cannot be learned. Are clicks "
            "recorded at the right results?"
        )
    throughout = [row["position"] for row in ranks if 0 < row["clicks"] == row["impressions"] >= ENOUGH]
    if len(ranks) > 1 and throughout:
        warned.append(
            f"at position {', '.join(map(str, throughout[:5]))} every result was clicked: what was not clicked "
            "there seems not to be logged"
        )
    if made["pages"] >= 10 * ENOUGH and made["pages_without_clicks"] == 0 and len(ranks) > 1:
        warned.append(
            "no page is without a click: pages without one seem not to be logged. Click rates are too high by "
            "that, and queries that show nothing good look better than they are"
        )
    return warned


def _of_pages(made: Mapping[str, Any], options: IngestOptions) -> list[Sentence]:
    facts = made["page_facts"]
    if made["pages"] < ENOUGH or made["clicks"] == made["impressions"]:
        return []
    short = made["impressions"] < 4 * made["pages"]
    torn = torn_pages(facts, short, len(made["by_position"]), options, bool(made["pages_found"]))
    long = facts["longer_than_hours"] or 0.0
    warned = [] if torn is None else [Sentence(torn)]
    if long > 0.05:
        name = options.source("page_id")
        what = (
            f"{long:.0%} of the pages last for more than {LONG} hours: {name} names a visit or a day rather than"
        )
        warned.append(Sentence((f"{what} a page; ", *FIND)))
    return warned


def torn_pages(
    shares: Mapping[str, float | None], short: bool, positions: int, options: IngestOptions, by_person: bool
) -> Words | None:
    """That an id names less than a page, where it looks so; or that rows are missing, of pages found by person."""
    name = " and ".join(map(options.source, options.page)) or options.source("page_id")
    row: Words = (f"{name} names a row rather than a page; ", *FIND)
    part: Words = (f"{name} tears pages apart; ", *FIND)
    if by_person:
        row = part = (
            "results seem to be missing from the log, or the column that names people names something else",
        )
    single, top = shares["with_one_row"] or 0.0, shares["from_the_top"] or 0.0
    if single > 0.5 and positions > 1:
        return (f"{single:.0%} of the pages hold one row: ", *parts_of(row))
    if top < 0.5 and short and positions > 1:
        begin = f"only {top:.0%} of the pages begin at the first position, and they are short"
        return (f"{begin}: ", *parts_of(part))
    return None
