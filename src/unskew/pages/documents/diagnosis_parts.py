"""The parts of a diagnosis: its numbers as tables, its charts, and what is said beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unskew.diagnosis.curves.co_clicks import CoClicks
from unskew.diagnosis.curves.factors import FactorEffects
from unskew.diagnosis.curves.matrix import RateMatrix
from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.curves.rates import Curves, LogNumber
from unskew.diagnosis.curves.trust import TrustFit
from unskew.diagnosis.diagnosis import runs
from unskew.diagnosis.evidence.evidence import Contexts, Evidence
from unskew.diagnosis.evidence.links import RankGraph, SwapPlan
from unskew.diagnosis.evidence.tables import in_order
from unskew.examination import Examination
from unskew.pages.figures import curves_figure, matrix_figure, points_of
from unskew.pages.numbers import (
    EMPTY,
    detail_tables,
    fact_table,
    record_table,
    said,
    said_each,
    spread_each,
    words,
)
from unskew.pages.page import Figure, Table, Term
from unskew.results import plain

MOST_LINKS = 20
"""Rows of the table of links, the best known ones; all are in the JSON."""
EXAMINATION = "examination relative to rank 1"
Part = tuple[list[Table], list[Figure]]
"""What a section of the page shows."""


def spans(ranks: Sequence[int]) -> str:
    """Ranks in a row told by their ends.

    >>> spans([2, 3, 4, 7])
    '2 to 4, 7'
    """
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs(ranks))


def _by_rank(columns: Mapping[str, Sequence[str]], title: str, legend: str = "") -> Table:
    rows = [[str(at), *row] for at, row in enumerate(zip(*columns.values(), strict=True), start=1)]
    return Table(("rank", *columns), rows, title, legend=legend)


def _facts(part: Any, names: Sequence[str], title: str, **more: str) -> Table:
    """Fields of a part by name, those that it tells, and more that is said of it."""
    told = {name: getattr(part, name) for name in names}
    facts = {words(name): said(value, name) for name, value in told.items() if value is not None}
    return fact_table(facts | {words(name): text for name, text in more.items() if text}, title)


def _reasons(reasons: Mapping[str, Sequence[str | None]], title: str = "") -> list[Table]:
    """What cannot be told, and why; ranks of one reason together."""
    rows = []
    for name, why in reasons.items():
        for reason in dict.fromkeys(filter(None, why)):
            at = [rank for rank, each in enumerate(why, start=1) if each == reason]
            rows.append([name, "" if len(why) == 1 else spans(at), str(reason)])
    heads = (title or "curve", "rank", "what it cannot tell")
    table = Table(heads, rows, f"what cannot be told{f' by {title}' if title else ''}", text=heads[1:])
    return [table.without_empty(but=1)] if rows else []


def sentence(*parts: str) -> str:
    """Words with a capital and a full stop.

    >>> sentence("shuffle some pages", "then learn")
    'Shuffle some pages; then learn.'
    """
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith(".") else ".")


def _curves(part: Curves) -> Part:
    """The log by rank, each segment by rank and value, and what pages show."""
    rates = part.rates
    columns = {
        "click rate": spread_each(rates.rate, rates.interval),
        "pages": said_each(rates.pages),
        "clicks": said_each(rates.clicks),
        "effective pages": said_each(rates.effective_pages, "effective"),
        "deepest click": said_each(part.last_click),
        "skipped": said_each(part.skip_above),
    }
    legend = "Deepest click: pages whose last click was there. Skipped: of pages clicked further down, the share."
    tables = [_by_rank(columns, "click rate by rank", legend), *_reasons({"all": rates.reason})]
    drawn = {"Click rate by rank": {"all": rates}}
    for each in part.segments:
        order = in_order(each.rates)
        told = {name: known for name in order if (known := each.rates[name]) is not None}
        title = f"Click rate by {each.segment}"
        if told:
            values = {name: spread_each(one.rate, one.interval) for name, one in told.items()}
            tables.append(_by_rank(values, f"click rate by {each.segment}"))
            drawn[title] = told
        tables += _reasons({name: [each.reason[name]] for name in order if each.reason[name]}, each.segment)
    figures = [
        curves_figure(
            title, {name: points_of(one.rate, one.interval) for name, one in rates.items()}, "click rate"
        )
        for title, rates in drawn.items()
        if any(value is not None for one in rates.values() for value in one.rate)
    ]
    return [*tables, _pages(part)], figures


def _pages(part: Curves) -> Table:
    asked: dict[str, LogNumber] = {
        "pages without a click": part.no_click,
        "mean rank of the deepest click": part.click_depth,
        "a clicked result stood above an unclicked one": part.order,
    }
    facts = {text: spread_each([each.value], [each.interval])[0] for text, each in asked.items()}
    facts |= {words(key): said(getattr(part, key), key) for key in ("pages", "queries", "effective_queries")}
    why = [f"{text}: {each.reason}" for text, each in asked.items() if each.reason]
    return Table(("", "value"), list(facts.items()), "pages", legend=sentence(*why))


def _evidence(part: Evidence) -> Part:
    """Estimators side by side by rank, why some tell nothing, whether they agree, and what they rest on."""
    rest = {name: plain(getattr(part, name)) for name in ("chosen", "flat", "agreement", "coverage")}
    tables, figures = _examined(part.curves, "estimator")
    untold = []
    for each in part.contexts:
        if any(curve.known > 1 for curve in each.curves.values()):
            curves = {name: each.curves[name] for name in in_order(each.curves)}
            more, drawn = _examined(curves, each.segment)
            tables, figures = [*tables, *more, _one_curve(each, list(curves))], [*figures, *drawn]
        else:
            untold.append([each.segment, next(filter(None, each.reason.values()), "")])
    heads = ("segment", "why it tells nothing")
    tables += [Table(heads, untold, "segments without a curve", heads[1:])] if untold else []
    return [*tables, *detail_tables(rest)], figures


def _one_curve(each: Contexts, names: Sequence[str]) -> Table:
    rows = [[name, said(each.p[name], "p"), each.reason[name] or ""] for name in names]
    title = f"one curve for every {each.segment}? {said(each.one_curve)}"
    return Table((each.segment, "p", "reason"), rows, title, ("reason",)).without_empty(but=2)


def _examined(curves: Mapping[str, Examination], by: str) -> Part:
    """A row for each rank, a column for each curve, and a table of what cannot be told; and the curves drawn."""
    told = {name: curve for name, curve in curves.items() if curve.known > 1}
    reasons = _reasons({name: curve.reason for name, curve in curves.items()})
    if not told:
        return reasons, []
    ranks = max(at for curve in told.values() for at, seen in enumerate(curve.theta, 1) if seen)
    columns = {
        words(name): [*spread_each(curve.theta, curve.interval), *[EMPTY] * ranks][:ranks]
        for name, curve in told.items()
    }
    table = _by_rank(columns, f"{EXAMINATION}, by {by}")
    table = replace(table, rows=[*table.rows, ["clicks", *(said(curve.clicks) for curve in told.values())]])
    points = {name: points_of(curve.theta, curve.interval) for name, curve in told.items()}
    return [table, *reasons], [curves_figure(f"By {by}", points, EXAMINATION)]


def _factors(part: FactorEffects) -> Part:
    tables = []
    for each in part.factors:
        told = {key: value for key, value in plain(each).items() if key != "name" and value is not None}
        tables += detail_tables(told, each.name)
    return tables, []


def _graph(graph: RankGraph) -> Part:
    """Parts of the graph, the best known links, and one table of swaps."""
    weak = spans(sorted({rank for pair in graph.weak for rank in pair}))
    names = ("ranks", "pairs", "clicks", "share", "connected", "unplanned")
    facts = _facts(graph, names, "graph over ranks", ranks_with_a_neighbour_that_they_are_badly_compared_with=weak)
    parts = [{"part": str(at), "ranks": spans(ranks)} for at, ranks in enumerate(graph.components, start=1)]
    tables = [facts, Table.of(parts, "ranks that can be compared", ("ranks",))]
    if not graph.links:
        return [*tables, *_plan(graph.plan)], []
    best = sorted(graph.links, key=lambda link: -link.information)[:MOST_LINKS]
    rows = [plain(link) | {"ranks": _both(link.ranks)} for link in best]
    count = len(graph.links)
    rest = f"The {MOST_LINKS} best known of {count}; all are in the JSON." if count > MOST_LINKS else ""
    ranks = range(1, graph.ranks + 1)
    known = {pair: link.information for link in graph.links for pair in (link.ranks, link.ranks[::-1])}
    values = [[known.get((one, other)) for other in ranks] for one in ranks]
    drawn = matrix_figure("How well ranks can be compared", [f"rank {rank}" for rank in ranks], ranks, values)
    return [*tables, record_table(rows, "links", rest), *_plan(graph.plan)], [drawn]


def _both(ranks: tuple[int, int]) -> str:
    return " and ".join(map(str, ranks))


def _plan(plan: SwapPlan | None) -> list[Table]:
    """Swaps that would mend the graph, in one table."""
    if plan is None or not plan.swaps:
        return []
    told = [f"For a standard error of {said(plan.precision)} of the logarithm of the ratio"]
    told += [f"{plan.pages:,} pages in all", f"{said(plan.logs)} times the pages of this log"]
    told += [f"{plan.shuffled_pages:,} wholly shuffled pages would do as well"] if plan.shuffled_pages else []
    rows = [plain(swap) | {"ranks": _both(swap.ranks)} for swap in plan.swaps]
    return [record_table(rows, "swap plan", sentence(*told))]


def _matrix(part: RateMatrix) -> Part:
    if not part.rates:
        return [], []
    (flatter,) = spread_each([part.flatter], [part.flatter_interval])
    title, more = "test of one curve for all levels", {"flatter, upper half of levels": flatter}
    facts = _facts(part, ("p", "second", "d", "by"), title, **more if part.flatter is not None else {})
    heads = ("level", *(f"rank {rank}" for rank in part.ranks))
    rates, shown = (
        [[level, *said_each(row)] for level, row in zip(part.levels, table, strict=True)]
        for table in (part.rates, part.impressions)
    )
    values = zip(part.singular_values, part.null_values, strict=True)
    single = [[str(at), *said_each(pair)] for at, pair in enumerate(values, start=1)]
    tables = [
        Table(heads, rates, "click rates by level and rank"),
        Table(heads, shown, "impressions that these are of"),
        Table(("", "singular value", "95 % of drawn ones are below"), single, "singular values"),
        facts,
    ]
    return tables, [matrix_figure("Click rates", part.levels, part.ranks, part.rates)]


def _trust(part: TrustFit) -> Part:
    points = points_of(part.informative, part.informative_interval)
    drawn = curves_figure("How much a click tells", {"a click": points}, "relative to rank 1")
    return detail_tables(told_of(part)), [drawn] if points else []


def _co_clicks(part: CoClicks) -> Part:
    ranks = [f"rank {rank + 1}" for rank in range(len(part.matrix))]
    values = [[None if a == b else value for b, value in enumerate(row)] for a, row in enumerate(part.matrix)]
    title, places = "How clicks hang together", range(1, len(ranks) + 1)
    drawn = [matrix_figure(title, ranks, places, values, least=0.1)] if ranks else []
    return detail_tables(told_of(part)), drawn


def _ordering(part: RankByFeatures) -> Part:
    points = points_of(part.predicted, part.spread)
    title = "Place by features, for what was shown"
    drawn = curves_figure(title, {"by features": points}, "mean place by features")
    return detail_tables(told_of(part)), [drawn] if points else []


def told_of(part: Any) -> dict[str, Any]:
    """What a part tells, without why it does not tell more."""
    told = part if isinstance(part, Mapping) else part.to_dict()
    return {key: value for key, value in told.items() if value not in (None, [], {}) and key != "reason"}


PARTS: Mapping[str, Callable[[Any], Part]] = {
    "curves": _curves,
    "evidence": _evidence,
    "matrix": _matrix,
    "judged": _matrix,
    "trust": _trust,
    "factors": _factors,
    "co_clicks": _co_clicks,
    "graph": _graph,
    "ordering": _ordering,
    "log": lambda part: (detail_tables(told_of(part)), []),
}
"""What is shown of each part."""


# ---- words ----

HEADINGS = {
    "curves": "Click curves",
    "evidence": "Examination: estimators and coverage",
    "matrix": "Click matrix",
    "judged": "Click matrix by label",
    "trust": "Trust",
    "factors": "Other bias factors",
    "co_clicks": "Clicks of one page",
    "graph": "What can be told apart",
    "ordering": "Do features tell the rank?",
    "log": "The log",
}
"""The sections for engineers, in order, by the parts of a diagnosis."""
TEXTS = {
    "curves": (
        "Who clicks where. Intervals are of pages, or of queries, drawn again, not of single rows. Effective "
        "pages are the independent ones that would tell as much."
    ),
    "evidence": (
        "Documents that one query saw at several ranks, and shuffled pages: what differs between ranks is "
        "examination, since the document is the same. Estimators that disagree warn that something else moved too."
    ),
    "matrix": (
        "Click rates by relevance and rank. Where examination and relevance multiply, one singular value stands "
        "out; a second one says that a curve of positions is not enough. p is of one being enough, d the width of "
        "vectors that is worth trying."
    ),
    "judged": (
        "Click rates of documents with the same label, by rank. A label is coarse: within one, what stands higher "
        "may be better, so p below 0.01 says that one curve times one number a label is not enough, and not why."
    ),
    "trust": (
        "Does a click at the top mean less? Clicks are alpha times relevance plus beta; informative says how much "
        "a click tells, relative to rank 1."
    ),
    "factors": (
        "Which columns of the page change clicks, at one rank and for one query and document. Effect is clicks "
        "relative to the first value; decay is how much slower they fall with the logarithm of the rank."
    ),
    "co_clicks": "Whether clicks of one page hang together: several kinds of people, or reading that ends.",
    "graph": (
        "Two ranks can be compared where a query saw a document at both; what stands out more is better known. "
        "Ranks in different parts cannot; which links are weak, and which swaps would mend them, is told below."
    ),
    "ordering": (
        "Two towers explain clicks by features and by rank, each by itself. Where features tell the rank, they "
        "cannot keep the two apart. A line and trees were fitted on half of the queries and tried on the others. "
        "Predicted is the mean place by features at each rank, spread the middle half of places, and linked the "
        "ranks that documents of equal features were shown at."
    ),
    "log": "What was read.",
}
TERMS = (
    Term("page", "One list of results, shown once."),
    Term("rank", "The place of a result on its page, 1 at the top."),
    Term("relevance", "How likely a result is clicked once somebody looks at it, wherever it stands."),
    Term("bias", "What changes clicks besides relevance."),
    Term("examination", "How often a rank is looked at, relative to rank 1. Files and papers call it propensity."),
    Term(
        "swap", "One query that showed a document at two ranks: the document is the same, so the rest is the rank."
    ),
    Term("shuffled page", "A page in random order: every rank holds the same mix of documents."),
    Term("random slot", "A place on a page that was filled at random."),
    Term("trust", "Readers take the top for better than it is: a click there tells less."),
    Term("segment", "A column that results are told apart by, such as the device."),
    Term("interval", "Where the true number lies in 95 of 100 such logs."),
    Term("p", "How often chance alone shows as much; below 0.01 is believed here."),
    Term("link", "Documents that one query saw at both of two ranks, so that the two can be compared."),
    Term("information", "How sure a link is: 1 over the variance of the logarithm of the ratio of examination."),
    Term(
        "singular value", "A pattern in the click matrix; one is enough where examination and relevance multiply."
    ),
)
"""The words of the page, for who has not met them."""
