"""Pages that no person made, or that a log cannot hold: found from one aggregation by page, removed by one join.

Every rule is a boolean column of the table of pages. Only pages that say a position twice are looked at row by
row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unskew.logs.ingest.columns import PEOPLE, REASON
from unskew.logs.ingest.visits import SECOND, clock
from unskew.names import CLUSTERS, HEAVY
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import bit_or, to_micros
from unskew.tables.reading.options import RULES, IngestOptions, Robots

DEEP = 30
"""Positions from here on share a bit, so that pages as deep as this are looked at row by row."""
FEWEST = 3
"""Results of a page that may be said to be clicked throughout."""
LARGE, MOSTLY, OFTEN = 0.05, 0.5, 20
"""Who has so much of all clicks is told of, if so much of these is on results that they clicked so often."""
LONG = 2
"""Hours from which on a page is a long one."""


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
    results: int = 0
    places: int = 0
    """Places from the first to the last position of all pages."""
    clicks: int = 0
    single: int = 0
    deepest: int = 1
    """The last position of all."""

    @property
    def base(self) -> int:
        """What positions count from: what most pages begin with."""
        return 0 if self.from_zero and self.from_zero >= self.from_one else 1

    def from_top(self, base: int) -> int:
        """Pages that begin at the first position, counted from `base`."""
        return self.from_zero if base == 0 else self.from_one


def find_pages(rows: Table, engine: Engine) -> PageFacts:
    """The pages of a log with all that the rules ask of them, in one aggregation."""
    pages = engine.keep(_page_table(rows))
    span = pages["last"] - pages["first"] + 1
    asked: dict[str, Any] = {"twice": pages.bits != pages.total, "gaps": _holed(span, pages.results)}
    asked |= {"from_zero": pages["first"] == 0, "from_one": pages["first"] == 1}
    asked |= {"results": pages.results, "places": span, "single": pages.results == 1, "clicks": pages.clicks}
    made: dict[str, Any] = {name: each.sum() for name, each in asked.items()}
    found = engine.rows(pages.agg(**made, pages=pages.count(), deepest=pages["last"].max()))[0]
    return PageFacts(pages, **{name: int(value or 0) for name, value in found.items()})


def _page_table(rows: Table, *, exact: bool = False) -> Table:
    """One row per page: results, clicks, positions, query, visitor and time.

    A page that says no position twice has `total` = `bits`: a sum of powers of two is their union only where no
    power comes twice. `exact` counts the distinct positions, which costs more.
    """
    bit = ibis.literal(1, "int32") << ibis.least(rows.position, DEEP).cast("int32")
    made: dict[str, Any] = {
        "results": rows.count(),
        "clicks": rows.click.sum(),
        "first": rows.position.min(),
        "last": rows.position.max(),
        "query": rows.query_id.min(),
        "last_query": rows.query_id.max(),
    }
    if not exact:
        made |= {"bits": bit_or(bit.cast("int64")), "total": bit.cast("int64").sum().cast("int64")}
    for visitor in [name for name in PEOPLE if name in rows.columns][:1]:  # whose clicks are counted by the minute
        made["visitor"] = rows[visitor].min()
    if "timestamp" in rows.columns:
        made |= {"at": rows.timestamp.min(), "until": rows.timestamp.max()}
    pages = rows.group_by("page_id").agg(**made)
    if not exact:
        return pages
    pairs = rows.group_by("page_id", "position").agg(documents=rows.doc_id.nunique())
    twice = pairs.group_by("page_id").agg(places=pairs.count(), most=pairs.documents.max())
    pages = pages.inner_join(twice, "page_id")
    return pages.drop(*(name for name in pages.columns if name.endswith("_right")))


def _holed(span: Any, there: Any) -> Any:
    """Whether a page lacks more than one, and more than a tenth, of the places from its first to its last result.

    A few holes are what broken rows leave, and results beside them keep their rank.
    """
    holes = span - there
    return (holes > 1) & (holes * 10 > span)


def page_rules(pages: Table) -> dict[str, Any]:
    """The rules that need nothing but the page, each as a boolean column of pages."""
    return {
        "two_queries_on_one_page": pages["query"] != pages.last_query,
        "two_documents_at_one_position": pages.most > 1,
        "gaps_in_positions": _holed(pages["last"] - pages["first"] + 1, pages.places),  # it may begin anywhere
        "everything_clicked": (pages.results >= FEWEST) & (pages.clicks >= pages.results),
    }


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


@dataclass
class Cleaned:
    """What the rules left of a log."""

    rows: Table
    removed: list[Table] = field(default_factory=list)
    """Rows that went, each with a reason."""
    found: dict[str, dict[str, int]] = field(default_factory=dict)
    """For every rule that could be asked: pages and rows that it found."""
    pages: dict[str, int] = field(default_factory=dict)
    """The pages that stay, in numbers."""
    time: tuple[str, str] | None = None
    """When the first and the last of them begin, in UTC."""
    kept: tuple[str, ...] = ()
    """Rules that find a trait of the log rather than faults, and remove nothing."""
    judged: Table | None = None
    """All pages, each with the rule that removes it."""


def clean(
    rows: Table, found: PageFacts, options: IngestOptions, engine: Engine, broken: Table | None = None
) -> Cleaned:
    """Apply every rule that is on; those that are off are counted all the same.

    `broken` are rows that were put aside before: their places count as there, so that they make no holes.
    """
    # most pages have holes, although most of their places are there: other things hold the rest
    holed = 2 * found.gaps > found.pages and 2 * found.results >= found.places
    result = Cleaned(rows, kept=("gaps_in_positions",) if holed else ())
    plain = found.table.filter(found.table.bits == found.table.total)
    pages = plain.mutate(places=plain.results, most=ibis.literal(1, "int64")).drop("bits", "total")
    pages = _without_duplicates(result, found.table, pages, options, engine) if found.twice else pages
    if broken is not None:
        lost = broken.group_by("page_id").agg(lost=broken.count())
        both = pages.left_join(lost, "page_id")
        places = both.places + both.lost.fill_null(0)
        kept = {name: both[name] for name in pages.columns}
        pages = engine.keep(both.select(**kept | {"places": places}))
    flags = page_rules(pages)
    busy = robots(pages, options.rules.robots)
    if busy is not None:
        busy = engine.keep(busy)
        who = busy.columns[0]
        flags["robots"] = pages[who].isin(busy[who]) if engine.count(busy) else pages.results < 0
    flagged = pages.mutate(**{name: flag.fill_null(False) for name, flag in flags.items()})
    _judge(result, flagged, [name for name in RULES if name in flags], options, engine)
    return result


def _without_duplicates(
    result: Cleaned, pages: Table, plain: Table, options: IngestOptions, engine: Engine
) -> Table:
    """Look at the pages that say a position twice, row by row; the exact table of all pages."""
    odd = pages.filter(pages.bits != pages.total)
    shown = result.rows.semi_join(odd, "page_id")
    same = {"group_by": ["page_id", "position", "doc_id"], "order_by": shown.click.desc()}  # a clicked one stays
    numbered = engine.keep(shown.mutate(unskew_nth=ibis.row_number().over(**same)))
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
    exact = _page_table(looked, exact=True)
    return engine.keep(plain.union(exact.select(*plain.columns).cast(dict(plain.schema().items()))))


def _judge(result: Cleaned, flagged: Table, names: list[str], options: IngestOptions, engine: Engine) -> None:
    """Count what rules find and what stays, and take away what rules that are on have found."""
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
        made["long"] = (stays & (judged.until > judged["at"] + ibis.interval(hours=LONG))).sum()
        ends = {"first": judged["at"].min(where=stays), "last": judged["at"].max(where=stays)}
        made |= {name: to_micros(moment, engine.name) for name, moment in ends.items()}
    for name in names:
        made |= {f"pages {name}": judged[name].sum(), f"rows {name}": judged.results.sum(where=judged[name])}
    told = engine.rows(judged.agg(**made))[0]
    if told.get("first") is not None:
        result.time = clock(told["first"] // SECOND), clock(told["last"] // SECOND)
    numbers = {name: int(value or 0) for name, value in told.items()}
    for name in names:
        result.found[name] = {kind: numbers[f"{kind} {name}"] for kind in ("pages", "rows")}
    result.pages = numbers
    result.judged = judged
    if numbers["gone"]:
        bad = engine.keep(judged.filter(~stays).select("page_id", REASON))
        result.removed.append(result.rows.drop(REASON).inner_join(bad, "page_id"))
        result.rows = result.rows.anti_join(bad, "page_id")


# ---- people who click far more than others


@dataclass(frozen=True)
class FewClickers:
    """A few people from whom many clicks come, most of them on results that hardly anybody else clicks."""

    column: str
    """What names them."""
    people: int
    share: float
    """Of all clicks that are theirs."""
    results: int
    """Results, documents of a query, most of whose clicks are theirs."""
    on_these: float
    """Of their clicks that are on those."""

    def __str__(self) -> str:
        theirs = f"{self.people:,} values of {self.column} have {self.share:.0%} of the clicks"
        where = f"{self.on_these:.0%} of them on {self.results:,} results that others hardly click"
        return f"{theirs}, {where}: are they people? Leave them out if not, as what is learned follows them"


def few_clickers(engine: Engine, shown: Table) -> FewClickers | None:
    """Who has more than HEAVY times the clicks of others, where most of these are on results of their own."""
    column = next((name for name in CLUSTERS if name in shown.columns), None)
    if column is None:
        return None
    clicked = shown.filter((shown.click > 0) & shown[column].notnull())
    clicked = clicked.select("query_id", "doc_id", person=clicked[column])
    people: Any = engine.keep(clicked.group_by("person").agg(n=clicked.count()))
    total = engine.rows(people.agg(n=people.n.sum(), people=people.count()))[0]
    if not total["people"]:
        return None
    heavy = engine.keep(people.filter(people.n > HEAVY * total["n"] / total["people"]))
    found = engine.rows(heavy.agg(n=heavy.n.sum(), people=heavy.count()))[0]
    if not found["people"]:
        return None
    theirs: Any = clicked.semi_join(heavy, "person").group_by("query_id", "doc_id").agg(own=ibis._.count())
    every: Any = clicked.group_by("query_id", "doc_id").agg(n=ibis._.count())
    both = theirs.join(every, ["query_id", "doc_id"])
    both = both.filter((both.own >= OFTEN) & (2 * both.own > both.n))
    own = engine.rows(both.agg(results=both.count(), clicks=both.own.sum()))[0]
    share, on_these = found["n"] / total["n"], (own["clicks"] or 0) / found["n"]
    if share < LARGE or on_these < MOSTLY:
        return None
    return FewClickers(column, found["people"], round(share, 4), own["results"], round(on_these, 4))
