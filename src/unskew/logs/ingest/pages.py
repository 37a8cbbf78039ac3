"""Pages of a log that names none, positions that begin again on each page, and click events joined to results.

`logs/ingest/visits.py` says what a page is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unskew.errors import DataError, Option
from unskew.logs.ingest.columns import DEEPEST, PEOPLE, REASON
from unskew.logs.ingest.visits import SECOND
from unskew.names import OURS, Names, guess_columns
from unskew.settings import did_you_mean, second_count
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import to_micros
from unskew.tables.reading.options import IngestOptions


@dataclass(frozen=True)
class PageFinding:
    """How results are gathered into pages where the log has no page_id."""

    by: tuple[str, ...]
    gap: int
    """Seconds of a pause that ends a page."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns that no row may lack."""
        return (*self.by, "timestamp")

    def note(self, options: IngestOptions) -> str:
        """How pages were found, as a sentence of the summary."""
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
        page, parts = Option("columns", {"page_id": "THEIRS"}), Option("page_columns", ["A", "B"])
        other = (", or the id of a page with ", page, ", or what makes one with ", parts)
        raise DataError(what, hint=("name it with ", guess, *other))
    return PageFinding(tuple(by), second_count("page_gap", options.pages.gap or "30m"))


def pages_of_clicks(impressions: Table, clicks: Table, finding: PageFinding, engine: Engine) -> Table:
    """Click events with the page_id of what they click, by person, query where they name one, and document.

    It is the page that showed it last before the click, within the pause; else one within the pause after it,
    which the rule `clicks_before_query` then finds. Events that fit no page get an id that no page has.
    """
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


# ---- click events ----


def event_column(columns: Sequence[str], options: IngestOptions) -> str | None:
    """The column that says what an event is, of a log whose rows are events."""
    name = options.events.column or ("event" if "event" in columns and "click" not in columns else None)
    if name is not None and name not in columns:
        raise DataError(f"there is no column {name!r} that says what an event is", hint="set events.column")
    return name


def split_events(raw: Table, name: str, options: IngestOptions) -> tuple[Table, Table, Table]:
    """Impressions, clicks, and the events that are neither, of a table whose rows are events."""
    kind = raw[name].cast("string").lower()
    shown, clicked = (
        kind.isin([value.lower() for value in values])
        for values in (options.events.impression, options.events.click)
    )
    rest = raw.filter(ibis.coalesce(~(shown | clicked), True))
    return raw.filter(shown).drop(name), raw.filter(clicked).drop(name), rest


def join_clicks(
    impressions: Table, clicks: Table, options: IngestOptions, engine: Engine
) -> tuple[Table, list[Table], dict[str, int]]:
    """Impressions with `click` set where there is an event; events that are put aside, and counts of each rule.

    Those go that have no result, or come before it. Of several clicks on a result the earliest one that does not
    come before its page is taken.
    """
    # a click is tied to a result by its document, or by its position where there are no documents
    key = ["page_id", *[name for name in ("doc_id", "position") if name in clicks.columns][:1]]
    if len(key) < 2 or "page_id" not in clicks.columns:
        missing = "page_id" if "page_id" not in clicks.columns else "doc_id or position"
        raise DataError(f"click events have no {missing}", hint=f"they have {', '.join(clicks.columns)[:300]}")
    clicks = _with_documents(impressions, clicks, engine)
    looked = _looked_up(impressions, clicks, key)
    groups = [*key, *(["unskew_place"] if "unskew_place" in looked.columns else [])]
    order = [looked.unskew_early, *([looked.timestamp] if "timestamp" in looked.columns else [])]
    events = engine.keep(looked.mutate(unskew_nth=ibis.row_number().over(group_by=groups, order_by=order)))
    first, shown = events.unskew_nth == 0, events.unskew_found.notnull()
    found = {"duplicate_events": ~first, "clicks_without_impression": first & ~shown}
    if "timestamp" in impressions.columns and "timestamp" in clicks.columns:
        found["clicks_before_query"] = first & shown & events.unskew_early
    numbers = engine.rows(events.agg(**{name: which.sum() for name, which in found.items()}))[0]
    counts = {name: int(number or 0) for name, number in numbers.items()}
    kept = {"clicks_before_query"} & set(options.rules.off)
    removed = [
        events.filter(which).mutate(**{REASON: ibis.literal(name)})
        for name, which in found.items()
        if counts[name] and name not in kept
    ]
    taken = events.filter(first & shown if kept else first & shown & ~events.unskew_early)
    return _clicked(impressions, taken, key), removed, counts


def _with_documents(impressions: Table, clicks: Table, engine: Engine) -> Table:
    """Events with ids of the same types as the impressions, and with the document where they name a position only.

    An event whose position shows nothing keeps no document; `unskew_place` tells such events of a page apart.
    """
    made: dict[str, Any] = {}
    both = "doc_id" in clicks.columns and "position" in clicks.columns
    if both:
        made["unskew_place"] = ibis.ifelse(clicks.doc_id.isnull(), clicks.position, ibis.null("int32"))
    for name in ("page_id", "doc_id"):
        if name in clicks.columns and impressions[name].type() != clicks[name].type():
            made[name] = clicks[name].try_cast(impressions[name].type())  # 7 and "7" are the same id
    clicks = clicks.mutate(**made) if made else clicks
    if not both or not engine.count(clicks.filter(clicks.unskew_place.notnull())):
        return clicks.drop("unskew_place") if both else clicks
    place = [("page_id", "page_id"), ("unskew_place", "position")]
    asked = impressions.semi_join(clicks, [("page_id", "page_id"), ("position", "unskew_place")])
    there = asked.group_by("page_id", "position").agg(unskew_doc=asked.doc_id.min())
    filled = clicks.left_join(there, place)
    filled = filled.select(*(filled[name] for name in clicks.columns), filled.unskew_doc)
    found = filled.unskew_doc.notnull()
    return filled.mutate(
        doc_id=ibis.coalesce(filled.doc_id, filled.unskew_doc),
        unskew_place=ibis.ifelse(found, ibis.null("int32"), filled.unskew_place),
    ).drop("unskew_doc")


def _looked_up(impressions: Table, clicks: Table, key: list[str]) -> Table:
    """Events with the number of results that they may mean, and whether they are earlier than these."""
    timed = "timestamp" in impressions.columns and "timestamp" in clicks.columns
    meant = impressions.semi_join(clicks, key)
    made: dict[str, Any] = {"unskew_found": meant.count()}
    if timed:
        made["unskew_shown"] = meant.timestamp.min()
    there = clicks.left_join(meant.group_by(key).agg(**made), key)
    there = there.select(*(there[name] for name in (*clicks.columns, *made)))
    early = (there.timestamp < there.unskew_shown).fill_null(False) if timed else ibis.literal(False)
    return there.mutate(unskew_early=early)


def _clicked(impressions: Table, taken: Table, key: list[str]) -> Table:
    """The impressions with `click`, and with what the clicks alone know: dwell_time and serp columns."""
    carried = [name for name in taken.columns if name == "dwell_time" or name.startswith("serp_")]
    named = {f"unskew_{name}": taken[name] for name in carried}
    right = taken.select(*key, unskew_clicked=ibis.literal(1, "int8"), **named)
    both = impressions.left_join(right, key)
    both = both.select(*(both[name] for name in (*impressions.columns, "unskew_clicked", *named)))
    clicked = both.unskew_clicked.fill_null(0)
    if "click" in impressions.columns:
        clicked = ibis.greatest(clicked, both.click.fill_null(0))
    filled: dict[str, Any] = {"click": clicked.cast("int8")}
    for name in carried:
        filled[name] = value = both[f"unskew_{name}"]
        if name in impressions.columns:  # what the page says of its results stands over what a click says
            own = both[name]
            filled[name] = ibis.coalesce(own, value if value.type() == own.type() else value.try_cast(own.type()))
    return both.mutate(**filled).drop("unskew_clicked", *named)
