"""The numbers of a diagnosis as tables, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unskew.diagnosis.curves.factors import FactorEffects
from unskew.diagnosis.curves.matrix import RateMatrix
from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.curves.rates import Curves
from unskew.diagnosis.curves.trust import TrustFit
from unskew.diagnosis.evidence.evidence import Contexts, Evidence
from unskew.diagnosis.evidence.links import RankGraph, SwapPlan
from unskew.diagnosis.evidence.segments import in_order
from unskew.diagnosis.verdicts.conclusion import runs
from unskew.examination import Examination
from unskew.pages.details import detail_tables, said, words
from unskew.pages.documents.diagnosis_words import EXAMINATION
from unskew.pages.page import Table
from unskew.results import plain
from unskew.settings import listed

MOST_LINKS = 20
"""Rows of the table of links, the best known ones; all are in the JSON."""


def with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    """A number, and its interval where it has one.

    >>> with_interval(0.5, [0.4, 0.6]), with_interval(1.0, [1.0, 1.0]), with_interval(None, None)
    ('0.5000 (0.4000 to 0.6000)', '1.0000', '–')
    """
    spread = value is not None and interval is not None and interval[0] < interval[1]
    return said(value) + (f" ({said(list(interval or ()))})" if spread else "")


def spans(ranks: Sequence[int]) -> str:
    """Ranks in a row told by their ends.

    >>> spans([2, 3, 4, 7])
    '2 to 4, 7'
    """
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs(ranks))


def _by_rank(heads: Sequence[str], columns: Sequence[Sequence[str]], title: str, legend: str = "") -> Table:
    """A row for each rank, a column for each list."""
    rows = [[str(at), *row] for at, row in enumerate(zip(*columns, strict=True), start=1)]
    return Table(("rank", *heads), rows, title, legend=legend)


def _spread(values: Sequence[float | None], intervals: Sequence[Any]) -> list[str]:
    """Numbers with their intervals."""
    return [with_interval(*pair) for pair in zip(values, intervals, strict=True)]


def _facts(part: Any, names: Sequence[str], title: str) -> Table:
    """Fields of a part by name, those that it tells."""
    told = {name: getattr(part, name) for name in names}
    rows = [[words(name), said(value, name)] for name, value in told.items() if value is not None]
    return Table(("", "value"), rows, title)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


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


def _curve_tables(part: Curves) -> list[Table]:
    """The log by rank, each segment by rank and value, and what pages show."""
    rates = part.rates
    heads = ("click rate", "pages", "clicks", "effective pages", "deepest click", "skipped")
    columns = [
        _spread(rates.rate, rates.interval),
        [said(each, "pages") for each in rates.pages],
        [said(each, "clicks") for each in rates.clicks],
        [said(each, "effective_pages") for each in rates.effective_pages],
        *([said(each) for each in values] for values in (part.last_click, part.skip_above)),
    ]
    legend = "Deepest click: pages whose last click was there. Skipped: of pages clicked further down, the share."
    whole = _by_rank(heads, columns, "click rate by rank", legend)
    return [whole, *_reasons({"all": rates.reason}), *_segments(part), _pages(part)]


def _segments(part: Curves) -> list[Table]:
    tables = []
    for each in part.segments:
        order = in_order(each.rates)
        told = {name: rates for name in order if (rates := each.rates[name]) is not None}
        columns = [_spread(rates.rate, rates.interval) for rates in told.values()]
        tables += [_by_rank(list(told), columns, f"click rate by {each.segment}")] if columns else []
        tables += _reasons({name: [each.reason[name]] for name in order if each.reason[name]}, each.segment)
    return tables


def _pages(part: Curves) -> Table:
    """What pages show."""
    asked = {
        "pages without a click": part.no_click,
        "mean rank of the deepest click": part.click_depth,
        "a clicked result stood above an unclicked one": part.order,
    }
    rows = [[text, with_interval(each.value, each.interval)] for text, each in asked.items()]
    rows += [[words(key), said(getattr(part, key), key)] for key in ("pages", "queries", "effective_queries")]
    why = [f"{text}: {each.reason}" for text, each in asked.items() if each.reason]
    return Table(("", "value"), rows, "pages", legend=f"{_capital('; '.join(why))}." if why else "")


def _evidence_tables(part: Evidence) -> list[Table]:
    """Estimators side by side by rank, why some tell nothing, whether they agree, and what they rest on."""
    rest = {name: plain(getattr(part, name)) for name in ("chosen", "flat", "agreement", "coverage")}
    told = [each for each in part.contexts if any(curve.known > 1 for curve in each.curves.values())]
    heads = ("segment", "why it tells nothing")
    rows = [
        [each.segment, next(filter(None, each.reason.values()), "")] for each in part.contexts if each not in told
    ]
    return [
        *_curves_by_rank(part.curves, "by estimator"),
        *(table for each in told for table in _context(each)),
        *([Table(heads, rows, "segments without a curve", heads[1:])] if rows else ()),
        *detail_tables(rest),
    ]


def _context(each: Contexts) -> list[Table]:
    """Curves of a segment, and whether one would do for all."""
    curves = {name: each.curves[name] for name in in_order(each.curves)}
    rows = [[name, said(each.p[name], "p"), each.reason[name] or ""] for name in curves]
    title = f"one curve for every {each.segment}? {said(each.one_curve)}"
    tested = Table((each.segment, "p", "reason"), rows, title, ("reason",)).without_empty(but=2)
    return [*_curves_by_rank(curves, f"by {each.segment}"), tested]


def _curves_by_rank(curves: Mapping[str, Examination], title: str) -> list[Table]:
    """A row for each rank, a column for each curve, and a table of what cannot be told."""
    told = {name: curve for name, curve in curves.items() if curve.known > 1}
    ranks = max((at for curve in told.values() for at, seen in enumerate(curve.theta, 1) if seen), default=0)
    columns = [[*_spread(curve.theta, curve.interval)[:ranks]] for curve in told.values()]
    columns = [[*column, *["–"] * (ranks - len(column))] for column in columns]
    tables = []
    if ranks:
        whole = _by_rank(list(map(words, told)), columns, f"{EXAMINATION}, {title}")
        clicks = ["clicks", *(said(curve.clicks) for curve in told.values())]
        tables = [Table(whole.columns, [*whole.rows, clicks], whole.title)]
    return tables + _reasons({name: curve.reason for name, curve in curves.items()})


def _factor_tables(part: FactorEffects) -> list[Table]:
    """A table for each column of the page."""
    tables = []
    for each in part.factors:
        columns = (each.values, _spread(each.effect, each.interval), _spread(each.decay, each.decay_interval))
        tested = {"effect": each.p, "decay": each.decay_p}
        told = [f"{name}: p {said(p, 'p')}" for name, p in tested.items() if p is not None]
        told += [f"{each.pairs:,} pairs of query and document seen under several values"]
        told += [each.reason] if each.reason else []
        rows = list(map(list, zip(*columns, strict=True)))
        legend = f"{_capital('; '.join(told))}."
        tables.append(Table((each.name, "effect", "decay"), rows, each.name, legend=legend))
    return tables


def _graph_tables(graph: RankGraph) -> list[Table]:
    """Parts of the graph, the best known links, and one table of swaps."""
    facts = _facts(graph, ("ranks", "pairs", "clicks", "share", "connected", "unplanned"), "graph over ranks")
    if weak := sorted({rank for pair in graph.weak for rank in pair}):
        named = "ranks with a neighbour that they are badly compared with"
        facts = Table(facts.columns, [*facts.rows, [named, spans(weak)]], facts.title)
    parts = [[str(at), spans(ranks)] for at, ranks in enumerate(graph.components, start=1)]
    compared = Table(("part", "ranks"), parts, "ranks that can be compared", ("ranks",))
    return [facts, compared, *_links(graph), *_plan(graph.plan)]


def _links(graph: RankGraph) -> list[Table]:
    links = sorted(graph.links, key=lambda link: -link.information)
    rows = [
        [listed([str(rank) for rank in link.ranks]), *map(said, (link.pairs, link.clicks, link.information))]
        for link in links[:MOST_LINKS]
    ]
    rest = f"The {MOST_LINKS} best known of {len(links)}; all are in the JSON." if len(links) > MOST_LINKS else ""
    heads = ("ranks", "documents at both", "clicks", "information")
    return [Table(heads, rows, "links", legend=rest)] if rows else []


def _plan(plan: SwapPlan | None) -> list[Table]:
    """Swaps that would mend the graph, in one table."""
    if plan is None or not plan.swaps:
        return []
    rows = [
        [listed([str(rank) for rank in swap.ranks]), *map(said, (swap.pages, swap.impressions, swap.share))]
        for swap in plan.swaps
    ]
    told = [f"For a standard error of {said(plan.precision)} of the logarithm of the ratio"]
    told += [f"{plan.pages:,} pages in all", f"{said(plan.logs)} times the pages of this log"]
    told += [f"{plan.shuffled_pages:,} wholly shuffled pages would do as well"] if plan.shuffled_pages else []
    heads = ("swap ranks", "pages", "impressions", "share")
    return [Table(heads, rows, "swap plan", legend=f"{'; '.join(told)}.")]


def _matrix_tables(part: RateMatrix) -> list[Table]:
    """Rates by level and rank, singular values, and the test."""
    if not part.rates:
        return []
    facts = _facts(part, ("p", "second", "d", "by"), "test of one curve for all levels")
    if part.flatter is not None:
        flatter = ["flatter, upper half of levels", with_interval(part.flatter, part.flatter_interval)]
        facts = Table(facts.columns, [*facts.rows, flatter], facts.title)
    ranks = [f"rank {rank}" for rank in part.ranks]
    rates, shown = (
        [[level, *map(said, row)] for level, row in zip(part.levels, table, strict=True)]
        for table in (part.rates, part.impressions)
    )
    values = zip(part.singular_values, part.null_values, strict=True)
    single = [[str(at), said(value), said(chance)] for at, (value, chance) in enumerate(values, start=1)]
    return [
        Table(("level", *ranks), rates, "click rates by level and rank"),
        Table(("level", *ranks), shown, "impressions that these are of"),
        Table(("", "singular value", "95 % of drawn ones are below"), single, "singular values"),
        facts,
    ]


def _trust_tables(part: TrustFit) -> list[Table]:
    """The affine fit by rank, and what it says."""
    fitted = {
        "alpha": _spread(part.alpha, part.alpha_interval),
        "beta": _spread(part.beta, part.beta_interval),
        "informative": _spread(part.informative, part.informative_interval),
    }
    by_rank = [_by_rank(list(fitted), list(fitted.values()), "affine fit by rank")] if part.alpha else []
    names = ("ranks", "clicks", "slope", "slope_error", "documents", "documents_error")
    return [*by_rank, _facts(part, names, "random slots")]


def _ordering_tables(part: RankByFeatures) -> list[Table]:
    """Where features put what was shown at each rank, and how well they tell it."""
    facts = _facts(part, ("r2", "correlation", "pages", "by"), "order by features against the order shown")
    if parts := "; ".join(map(spans, part.linked)):
        linked = ["ranks that documents of equal features link", parts]
        facts = Table(facts.columns, [*facts.rows, linked], facts.title)
    places = zip(part.predicted, part.spread, strict=True)
    rows = [[str(at), with_interval(*each)] for at, each in enumerate(places, start=1) if each[0] is not None]
    heads, legend = ("rank", "mean place by features"), "In brackets: the middle half."
    return [facts, *([Table(heads, rows, "place by features", legend=legend)] if rows else [])]


TABLES: Mapping[str, Callable[[Any], list[Table]]] = {
    "curves": _curve_tables,
    "evidence": _evidence_tables,
    "matrix": _matrix_tables,
    "judged": _matrix_tables,
    "trust": _trust_tables,
    "factors": _factor_tables,
    "graph": _graph_tables,
    "ordering": _ordering_tables,
}
"""Sections whose tables are made by hand; the others are told as they are."""
