"""Pages of a log that names none, the page of every click event, and positions that begin again on each page.

`logs/pages.py` says what a page is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.errors import DataError, Option
from unskew.logs.ingest.columns import DEEPEST, PEOPLE
from unskew.logs.pages import SECOND
from unskew.names import OURS, Names, guess_columns
from unskew.settings import did_you_mean, second_count
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.functions import to_micros
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table


OTHER_WAYS = (
    "the id of a page with ",
    Option("columns", {"page_id": "THEIRS"}),
    ", or what makes one with ",
    Option("page_columns", ["A", "B"]),
)
"""How else a user says what a page is."""


@dataclass(frozen=True)
class PageFinding:
    """How pages are found."""

    by: tuple[str, ...]
    """Columns that name a person."""
    gap: int
    """Seconds of a pause that ends a page."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that no row may lack."""
        return (*self.by, "timestamp")

    def note(self, options: IngestOptions) -> str:
        """How it was done, for the summary."""
        people = ", ".join(map(options.source, self.by))
        query, rank = options.source("query_id"), options.source("position")
        ends = f"a pause of more than {self.gap / 60:g} min, or where a {rank} returns"
        return f"pages were found: the rows of one {people} and {query}, until {ends}"


def how_to_find(columns: Sequence[str], options: IngestOptions, present: Sequence[str]) -> PageFinding | None:
    """How to find pages, where there is no page_id or finding is asked for.

    `columns` have our names, `present` are all of the source, under theirs.
    """
    asked = options.pages.by or options.pages.gap is not None
    if options.page or ("page_id" in columns and not asked):
        return None
    names = Names(options.columns)
    by = [name if name in OURS else names.ours(name) for name in options.pages.by]
    for theirs, ours in zip(options.pages.by, by, strict=True):
        if ours not in columns:
            what = f"there is no such column. {did_you_mean(theirs, columns)}"
            raise DataError(what, argument="by", value=[theirs])
    by = by or [name for name in PEOPLE if name in columns][:1]
    lacking = {"user_id": "user_id or visit_id"} if not by else {}
    lacking |= {"timestamp": "timestamp"} if "timestamp" not in columns else {}
    for name, meant in lacking.items():
        there = [each for each in present if not each.startswith("unskew_")]
        what = f"there is no page_id, and no {meant} to find pages by; there are {', '.join(there)[:300]}"
        guess = Option("columns", {name: guess_columns(there).get(name, "THEIRS")})
        raise DataError(what, hint=("name it with ", guess, ", or ", *OTHER_WAYS))
    return PageFinding(tuple(by), second_count("page_gap", options.pages.gap or "30m"))


def pages_of_clicks(impressions: Table, clicks: Table, finding: PageFinding, engine: Engine) -> Table:
    """Click events with the page_id of what they click, by person, query where they name one, and document.

    It is the page that showed it last before the click, within the pause; else one within the pause after it,
    which the rule `clicks_before_query` then finds. Events that fit no page get an id that no page has.
    """
    import ibis

    what = next((name for name in ("doc_id", "position") if name in clicks.columns), None)
    missing = [name for name in finding.needed if name not in clicks.columns]
    if what is None or missing:
        lacks = ", ".join(missing) or "doc_id or position"
        hint = f"they have {', '.join(clicks.columns)[:300]}"
        raise DataError(f"click events have no {lacks}, which ties them to pages that have no id", hint=hint)
    key = [*finding.by, *(["query_id"] if "query_id" in clicks.columns else []), what]
    casts = {name: impressions[name].type() for name in key if clicks[name].type() != impressions[name].type()}
    clicks = clicks.mutate(**{name: clicks[name].try_cast(kind) for name, kind in casts.items()})
    clicks = engine.keep(clicks.mutate(unskew_at=to_micros(clicks.timestamp, engine.name)))
    shown = impressions.select(*key, "page_id", unskew_shown=to_micros(impressions.timestamp, engine.name))
    both: Any = clicks.select(*key, "unskew_at").distinct().inner_join(shown, key)
    later = both.unskew_at - both.unskew_shown
    most = finding.gap * SECOND
    page = ibis.coalesce(
        both.page_id.argmax(both.unskew_shown, where=(later >= 0) & (later <= most)),
        both.page_id.argmin(both.unskew_shown, where=(later < 0) & (later >= -most)),
    )
    found = both.group_by([*key, "unskew_at"]).agg(page_id=page)
    tied = clicks.left_join(found, [*key, "unskew_at"])
    tied = tied.select(*(tied[name] for name in clicks.columns), tied.page_id)
    nobody = "no page at " + tied.unskew_at.cast("string")
    return tied.mutate(page_id=ibis.coalesce(tied.page_id, nobody)).drop("unskew_at")


def counted_on(rows: Table, options: IngestOptions, engine: Engine) -> tuple[Table, str]:
    """The rows with the rank among all results, and a note; the first page of results has the smallest number."""
    name = str(options.positions.page_number)
    page = rows[name]
    asked = {"low": page.min(), "high": page.max(), "least": rows.position.min(), "most": rows.position.max()}
    found = {key: int(value or 0) for key, value in engine.rows(rows.agg(**asked))[0].items()}
    size = options.positions.page_size or found["most"] - found["least"] + 1
    if found["most"] + (found["high"] - found["low"]) * size > DEEPEST:
        what = f"{name} goes up to {found['high']:,}, so that positions go beyond {DEEPEST:,}"
        raise DataError(what, hint=(Option("page_size", 1), " is for a column that is an offset already"))
    moved = rows.mutate(position=(rows.position + (page - found["low"]) * size).cast("int32"))
    kept = name in (*options.keep, *options.columns.values()) or name.startswith("serp_")
    note = f"{options.source('position')} was counted on by {size} for every {name}"
    return (moved if kept else moved.drop(name)), note
