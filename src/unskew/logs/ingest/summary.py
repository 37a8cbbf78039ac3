"""What `ingest` returns and writes as summary.json: a log in numbers, and what it cannot teach in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unskew.errors import Option, Sentence, Words, parts_of
from unskew.logs.ingest.advice import SourceColumn
from unskew.logs.ingest.columns import REASON
from unskew.logs.ingest.rules import LONG, Cleaned, FewClickers, PageFacts, few_clickers
from unskew.results import Result
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.reading.options import RULES, IngestOptions

COMMON = 200
"""Queries, the most frequent ones, that are asked whether their results ever move."""
ENOUGH = 20
"""Results shown again, or pages, from which on a warning is more than chance."""
FIND = ("let pages be found with ", Option("page_gap", "30m"))
CLICKS_ALONE = (
    "every row is clicked: this log has no impressions without clicks. Examination cannot be learned, nor what "
    "people like: log the results that were shown and not clicked, too"
)


@dataclass(frozen=True)
class TimeSpan:
    """When a log begins and ends, in UTC."""

    first: str
    last: str


@dataclass(frozen=True)
class PositionCount:
    """What was shown and clicked at a position."""

    position: int
    impressions: int
    clicks: int
    click_rate: float


@dataclass(frozen=True)
class PageShares:
    """Shares of the pages that tell whether they are whole."""

    with_one_row: float
    from_the_top: float
    longer_than_hours: float | None = None
    """Share of pages that took longer than `LONG` hours; None where there are no times."""


@dataclass(frozen=True)
class Moves:
    """Whether results of the most frequent queries ever move."""

    queries: int
    results: int
    """Those that were shown more than once."""
    moved: int
    """Those of them that were shown at more than one position."""


@dataclass(frozen=True)
class RuleCount(Result):
    """What a rule found, and whether it removed it."""

    what: str
    on: bool
    asked: bool
    """Whether the log has what the rule needs."""
    pages: int | None = None
    """None where the rule finds rows or events."""
    rows: int | None = None
    share: float | None = None
    """Share of all rows that were read."""
    absent = ("pages", "rows", "share")


@dataclass(frozen=True)
class RejectedRows:
    """Rows that could not be used."""

    rows: int
    share: float
    reasons: Mapping[str, int]


@dataclass(frozen=True)
class IngestedLog(Result):
    """An ingested log in numbers."""

    format: str
    impressions: int
    pages: int
    queries: int
    documents: int
    clicks: int
    click_rate: float
    pages_without_clicks: float
    time: TimeSpan | None
    by_position: Sequence[PositionCount]
    page_facts: PageShares
    moves: Moves
    rows_read: int
    """Rows of the source; records, where a reader of a format made rows of them."""
    positions_from: int | None
    """What positions count from in the source; None where its format says so."""
    positions_detected: bool
    pages_found: bool
    """Whether pages were found by person, query and pause."""
    rules: Mapping[str, RuleCount]
    rejected: RejectedRows
    ignored: Mapping[str, int]
    """Records that say nothing of clicks, by kind."""
    notes: Sequence[str]
    columns: Sequence[str]
    names: Mapping[str, str]
    """Our names of columns to theirs."""
    sides: Mapping[str, int]
    """Rows of the tables beside the log, such as labels."""
    source_columns: Mapping[str, SourceColumn]
    """What further columns of the source could be for."""
    few_clickers: FewClickers | None = None
    """Where many clicks come from a few people, most on results of their own."""
    warnings: Sequence[str] = ()
    """What its reader should not miss."""


def log_numbers(cleaned: Cleaned, found: PageFacts, base: int, written: Table, engine: Engine) -> dict[str, Any]:
    """The log as it was written, in numbers: those fields of its summary that the tables tell."""
    pages = cleaned.pages
    shown, clicks, count, clickless = (pages[name] for name in ("rows", "clicks", "pages", "clickless"))
    ranks = written.group_by("position").agg(impressions=written.count(), clicks=written.click.sum())
    return {
        "impressions": shown,
        "pages": count,
        "queries": pages["queries"],
        "documents": engine.rows(written.agg(n=written.doc_id.nunique()))[0]["n"],
        "clicks": clicks,
        "click_rate": _share(clicks, shown),
        "pages_without_clicks": _share(clickless, count),
        "time": None if cleaned.time is None else TimeSpan(*cleaned.time),
        "by_position": [
            PositionCount(**row, click_rate=_share(row["clicks"], row["impressions"]))
            for row in engine.rows(ranks.order_by("position"))
        ],
        "page_facts": PageShares(
            _share(pages["single"], count),
            _share(found.from_top(base), found.pages),
            _share(pages["long"], count) if "long" in pages else None,
        ),
        "moves": _moves(cleaned, written, engine),
        "few_clickers": few_clickers(engine, written),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def rule_counts(found: Mapping[str, Mapping[str, int]], off: Sequence[str], rows: int) -> dict[str, RuleCount]:
    """What every rule found of so many rows; duplicates can always be asked for."""
    found = {"duplicate_events": {"rows": 0}, **found}
    made = {}
    for name, what in RULES.items():
        counts = found.get(name)
        numbers: dict[str, Any] = {} if counts is None else {**counts, "share": _share(counts["rows"], rows)}
        made[name] = RuleCount(what, name not in off, counts is not None, **numbers)
    return made


def _moves(cleaned: Cleaned, written: Table, engine: Engine) -> Moves:
    pages: Any = cleaned.judged
    stays = pages.filter(pages[REASON].isnull())
    often = stays.group_by("query").agg(n=stays.count())
    often = often.filter(often.n > 1).order_by(ibis.desc("n"), "query").limit(COMMON)
    often = engine.keep(often.select(query_id="query"))
    rows = written.semi_join(often, "query_id")
    places = {"low": rows.position.min(), "high": rows.position.max()}
    seen = rows.group_by("query_id", "doc_id").agg(n=rows.count(), **places)
    counts = engine.rows(seen.agg(results=(seen.n > 1).sum(), moved=(seen.high > seen.low).sum()))[0]
    return Moves(engine.count(often), **{name: int(value or 0) for name, value in counts.items()})


# ---- in words ----


def suspicion(found: PageFacts, base: int, options: IngestOptions, by_person: bool) -> Words | None:
    """That only clicks were logged, or that pages are torn apart, before any rule is asked."""
    if found.clicks == found.results:
        return CLICKS_ALONE
    shares = PageShares(_share(found.single, found.pages), _share(found.from_top(base), found.pages))
    return _torn_pages(shares, found.results < 4 * found.pages, found.deepest + 1 - base, options, by_person)


def warnings_of(made: IngestedLog, options: IngestOptions) -> list[str]:
    """What a summary says that its reader should not miss."""
    warned = [*_of_clicks(made), *_of_pages(made, options)]
    if made.few_clickers is not None:
        warned.append(str(made.few_clickers))
    if made.queries == 1 and made.pages >= ENOUGH:
        name = options.source("query_id")
        warned.append(
            f"there is one query only ({name}): nothing is learned that holds for others. Is it the right column?"
        )
    if made.moves.results >= ENOUGH and not made.moves.moved:
        warned.append(
            f"no result ever moves: of the {made.moves.queries:,} most frequent queries, {made.moves.results:,} "
            "results were shown again, each where it was before. Bias and relevance cannot be told apart by the "
            "log alone; a share of shuffled pages would do"
        )
    return [*warned, *column_warnings(made.source_columns, options)]


def _of_clicks(made: IngestedLog) -> list[str]:
    clicks, ranks = made.clicks, made.by_position
    if not clicks:
        return ["there is no click in this log: nothing can be learned from it"]
    if clicks == made.impressions:
        return [CLICKS_ALONE]
    warned = []
    clicked = [row.position for row in ranks if row.clicks]
    if len(ranks) == 1:
        warned.append(
            f"every result was shown at position {ranks[0].position}: what positions do to clicks cannot be "
            "learned"
        )
    elif len(clicked) == 1 and clicks >= ENOUGH:
        warned.append(
            f"all clicks are at position {clicked[0]} of {len(ranks)}: examination cannot be learned. Are clicks "
            "recorded at the right results?"
        )
    throughout = [row.position for row in ranks if 0 < row.clicks == row.impressions >= ENOUGH]
    if len(ranks) > 1 and throughout:
        warned.append(
            f"at position {', '.join(map(str, throughout[:5]))} every result was clicked: what was not clicked "
            "there seems not to be logged"
        )
    if made.pages >= 10 * ENOUGH and made.pages_without_clicks == 0 and len(ranks) > 1:
        warned.append(
            "no page is without a click: pages without one seem not to be logged. Click rates are too high by "
            "that, and queries that show nothing good look better than they are"
        )
    return warned


def _of_pages(made: IngestedLog, options: IngestOptions) -> list[Sentence]:
    if made.pages < ENOUGH or made.clicks == made.impressions:
        return []
    short = made.impressions < 4 * made.pages
    torn = _torn_pages(made.page_facts, short, len(made.by_position), options, made.pages_found)
    long = made.page_facts.longer_than_hours or 0.0
    warned = [] if torn is None else [Sentence(torn)]
    if long > 0.05:
        what = (
            f"{long:.0%} of the pages last for more than {LONG} hours: {options.source('page_id')} names a visit"
        )
        warned.append(Sentence((f"{what} or a day rather than a page; ", *FIND)))
    return warned


def _torn_pages(
    shares: PageShares, short: bool, positions: int, options: IngestOptions, by_person: bool
) -> Words | None:
    """That an id names less than a page, where it looks so; or that rows are missing, of pages found by person."""
    name = " and ".join(map(options.source, options.page)) or options.source("page_id")
    row: Words = (f"{name} names a row rather than a page; ", *FIND)
    part: Words = (f"{name} tears pages apart; ", *FIND)
    if by_person:
        row = part = (
            "results seem to be missing from the log, or the column that names people names something else"
        )
    if shares.with_one_row > 0.5 and positions > 1:
        return (f"{shares.with_one_row:.0%} of the pages hold one row: ", *parts_of(row))
    if shares.from_the_top < 0.5 and short and positions > 1:
        begin = f"only {shares.from_the_top:.0%} of the pages begin at the first position, and they are short: "
        return (begin, *parts_of(part))
    return None


def column_warnings(found: Mapping[str, SourceColumn], options: IngestOptions) -> list[str]:
    """Positions that begin again, and kept columns that give the click away."""
    warned: list[str] = []
    for name, about in found.items():
        if about.advice == "begins again" and options.positions.page_number is None:
            rank = options.source("position")
            what = f"{rank} begins again on every {name}: further results pass for first ones; count on with "
            warned.append(Sentence((what, Option("page_number", name))))
        kept = name in options.keep or name.startswith("serp_")
        if about.advice == "gives the click away" and kept:
            warned.append(f"{name} gives the click away: it must be neither a bias factor nor a feature")
    return warned
