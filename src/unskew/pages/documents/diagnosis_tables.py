"""The numbers of a diagnosis as tables, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unskew.diagnosis.evidence.segments import in_order
from unskew.pages.details import detail_tables, said, words
from unskew.pages.documents.diagnosis_words import EXAMINATION
from unskew.pages.page import Table
from unskew.settings import listed

Part = Mapping[str, Any]
MOST_LINKS = 20
"""Rows of the table of links, the best known ones; all are in the JSON."""


def with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    """A number, and its interval where it has one.

    >>> with_interval(0.5, [0.4, 0.6]), with_interval(1.0, [1.0, 1.0]), with_interval(None, None)
    ('0.5000 (0.4000 to 0.6000)', '1.0000', '–')
    """
    spread = value is not None and interval is not None and interval[0] < interval[1]
    return said(value) + (f" ({said(list(interval or ()))})" if spread else "")


def _curve_tables(part: Part) -> list[Table]:
    """The log by rank, each segment by rank and value, and what pages show."""
    rates = part["rates"]
    rows = [
        [str(at + 1), with_interval(rates["rate"][at], rates["interval"][at])]
        + [said(rates[name][at], name) for name in ("pages", "clicks", "effective_pages")]
        + [said(part[name][at]) for name in ("last_click", "skip_above")]
        for at in range(len(rates["rate"]))
    ]
    heads = ("rank", "click rate", "pages", "clicks", "effective pages", "deepest click", "skipped")
    legend = "Deepest click: pages whose last click was there. Skipped: of pages clicked further down, the share."
    whole = Table(heads, rows, "click rate by rank", legend=legend)
    return [whole, *_reasons({"all": rates["reason"]}), *_segments(part), _pages(part)]


def _segments(part: Part) -> list[Table]:
    tables = []
    for each in part["segments"]:
        rates = {name: each["rates"][name] for name in in_order(each["rates"])}
        told = {name: value for name, value in rates.items() if value is not None}
        ranks = max((len(value["rate"]) for value in told.values()), default=0)
        rows = [
            [str(at + 1), *(with_interval(value["rate"][at], value["interval"][at]) for value in told.values())]
            for at in range(ranks)
        ]
        title = f"click rate by {each['segment']}"
        tables += [Table(("rank", *told), rows, title)] if rows else []
        why = {name: [each["reason"][name]] for name in rates if each["reason"][name]}
        tables += _reasons(why, each["segment"])
    return tables


def _pages(part: Part) -> Table:
    """What pages show."""
    asked = {"no_click": "pages without a click", "click_depth": "mean rank of the deepest click"}
    asked["order"] = "a clicked result stood above an unclicked one"
    rows = [[text, with_interval(part[key]["value"], part[key]["interval"])] for key, text in asked.items()]
    rows += [[words(key), said(part[key], key)] for key in ("pages", "queries", "effective_queries")]
    why = [f"{text}: {part[key]['reason']}" for key, text in asked.items() if part[key]["reason"]]
    return Table(("", "value"), rows, "pages", legend=f"{_capital('; '.join(why))}." if why else "")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _reasons(reasons: Mapping[str, Sequence[str | None]], title: str = "") -> list[Table]:
    """What cannot be told, and why; ranks of one reason together."""
    rows = []
    for name, why in reasons.items():
        for reason in dict.fromkeys(filter(None, why)):
            at = [str(rank + 1) for rank, each in enumerate(why) if each == reason]
            rows.append([name, "" if len(why) == 1 else runs(at), str(reason)])
    heads = (title or "curve", "rank", "what it cannot tell")
    table = Table(heads, rows, f"what cannot be told{f' by {title}' if title else ''}", text=heads[1:])
    return [table.without_empty(but=1)] if rows else []


def runs(ranks: Sequence[str]) -> str:
    """Ranks in a row told by their ends.

    >>> runs(["2", "3", "4", "7"])
    '2 to 4, 7'
    """
    found: list[list[int]] = []
    for rank in map(int, ranks):
        if found and rank == found[-1][-1] + 1:
            found[-1].append(rank)
        else:
            found.append([rank])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in found)


def _intervention_tables(part: Part) -> list[Table]:
    """Estimators side by side by rank, why some tell nothing, whether they agree, and what they rest on."""
    rest = {key: value for key, value in part.items() if key not in ("curves", "contexts")}
    contexts = part.get("contexts", ())
    told = [each for each in contexts if any(map(_tells, each["curves"].values()))]
    untold = [each for each in contexts if each not in told]
    rows = [[each["segment"], next(filter(None, each["reason"].values()), "")] for each in untold]
    nothing = Table(
        ("segment", "why it tells nothing"), rows, "segments without a curve", ("why it tells nothing",)
    )
    by_segment = [table for each in told for table in _context(each)]
    return [
        *_by_rank(part["curves"], "by estimator"),
        *by_segment,
        *([nothing] if rows else ()),
        *detail_tables(rest),
    ]


def _tells(curve: Part) -> bool:
    """Whether a curve knows more than rank 1."""
    return sum(value is not None for value in curve["examination"]) > 1


def _context(each: Part) -> list[Table]:
    """Curves of a segment, and whether one would do for all."""
    curves = {name: each["curves"][name] for name in in_order(each["curves"])}
    rows = [[name, said(each["p"][name], "p"), each["reason"][name] or ""] for name in curves]
    title = f"one curve for every {each['segment']}? {said(each['one_curve'])}"
    tested = Table((each["segment"], "p", "reason"), rows, title, ("reason",)).without_empty(but=2)
    return [*_by_rank(curves, f"by {each['segment']}"), tested]


def _by_rank(curves: Mapping[str, Any], title: str) -> list[Table]:
    """A row for each rank, a column for each curve, and a table of what cannot be told."""
    told = {name: curve for name, curve in curves.items() if _tells(curve)}
    known = (at + 1 for curve in told.values() for at, v in enumerate(curve["examination"]) if v is not None)
    ranks = max(known, default=0)
    rows = [
        [str(at + 1)]
        + [with_interval(_get(curve["examination"], at), _get(curve["interval"], at)) for curve in told.values()]
        for at in range(ranks)
    ]
    clicks = ["clicks", *(said(curve["clicks"]) for curve in told.values())]
    whole = [Table(("rank", *map(words, told)), [*rows, clicks], f"{EXAMINATION}, {title}")] if rows else []
    return whole + _reasons({name: curve["reason"] for name, curve in curves.items()})


def _get(values: Sequence[Any], at: int) -> Any:
    return values[at] if at < len(values) else None


def _factor_tables(part: Part) -> list[Table]:
    """A table for each column of the page."""
    tables = []
    for each in part.get("factors", ()):
        rows = [
            [value] + [with_interval(each[name][at], each[span][at]) for name, span in _EFFECTS]
            for at, value in enumerate(each["values"])
        ]
        tested = [
            f"{name}: p {said(each[key], 'p')}"
            for name, key in (("effect", "p"), ("decay", "decay_p"))
            if each[key] is not None
        ]
        told = [*tested, f"{each['pairs']:,} pairs of query and document seen under several values"]
        told += [each["reason"]] if each["reason"] else []
        tables.append(
            Table((each["name"], "effect", "decay"), rows, each["name"], legend=f"{_capital('; '.join(told))}.")
        )
    return tables


_EFFECTS = (("effect", "interval"), ("decay", "decay_interval"))


def _identifiability_tables(part: Part) -> list[Table]:
    """Parts of the graph, the curve within documents, the best known links, and one table of swaps."""
    facts = {key: part[key] for key in ("ranks", "pairs", "clicks", "share", "connected", "by")}
    rows = [[words(key), said(value)] for key, value in facts.items()]
    if weak := sorted({rank for pair in part.get("weak", ()) for rank in pair}):
        rows.append(
            ["ranks with a neighbour that they are badly compared with", runs([str(rank) for rank in weak])]
        )
    rows.append(["p of ranks that are examined alike", said(part.get("flat"), "p")])
    parts = [
        [str(at), runs([str(rank) for rank in ranks])] for at, ranks in enumerate(part["components"], start=1)
    ]
    tables = [
        Table(("", "value"), rows, "graph over ranks"),
        Table(("part", "ranks"), parts, "ranks that can be compared", ("ranks",)),
    ]
    curve = [
        [str(at + 1), with_interval(value, part["interval"][at])]
        for at, value in enumerate(part["examination"])
        if value is not None
    ]
    tables += [Table(("rank", EXAMINATION), curve, "within one query and document")] if len(curve) > 1 else []
    return [*tables, *(_links(part) if "links" in part else ()), *_plan(part.get("plan"))]


def _links(part: Part) -> list[Table]:
    links = sorted(part["links"], key=lambda link: -link["information"])
    rows = [
        [
            listed([str(rank) for rank in link["ranks"]]),
            said(link["pairs"]),
            said(link["clicks"]),
            said(link["information"]),
        ]
        for link in links[:MOST_LINKS]
    ]
    rest = f"The {MOST_LINKS} best known of {len(links)}; all are in the JSON." if len(links) > MOST_LINKS else ""
    heads = ("ranks", "documents at both", "clicks", "information")
    return [Table(heads, rows, "links", legend=rest)] if rows else []


def _plan(plan: Part | None) -> list[Table]:
    """Swaps that would mend the graph, in one table."""
    if plan is None or not plan["swaps"]:
        return []
    keys = [key for key in plan["swaps"][0] if key not in ("ranks", "precision")]
    rows = [
        [listed([str(rank) for rank in swap["ranks"]]), *(said(swap[key]) for key in keys)]
        for swap in plan["swaps"]
    ]
    aim = f"For a standard error of {said(plan['precision'])} of the logarithm of the ratio"
    told = [aim, f"{plan['pages']:,} pages in all"]
    told += [f"{said(plan['logs'])} times the pages of this log"]
    told += (
        [f"{plan['shuffled_pages']:,} wholly shuffled pages would do as well"] if plan["shuffled_pages"] else []
    )
    return [Table(("swap ranks", *map(words, keys)), rows, "swap plan", legend=f"{'; '.join(told)}.")]


def _matrix_tables(part: Part) -> list[Table]:
    """Rates by level and rank, singular values, and the test."""
    if "rates" not in part:
        return []
    facts = [[words(key), said(part[key], key)] for key in ("p", "second", "d", "by") if key in part]
    if part.get("flatter") is not None:
        facts.append(["flatter, upper half of levels", with_interval(part["flatter"], part["flatter_interval"])])
    ranks = [f"rank {rank}" for rank in part["ranks"]]
    rates, shown = (
        [[level, *map(said, row)] for level, row in zip(part["levels"], part[key], strict=True)]
        for key in ("rates", "impressions")
    )
    values = zip(part["singular_values"], part["null_values"], strict=True)
    single = [[str(at), said(value), said(chance)] for at, (value, chance) in enumerate(values, start=1)]
    return [
        Table(("level", *ranks), rates, "click rates by level and rank"),
        Table(("level", *ranks), shown, "impressions that these are of"),
        Table(("", "singular value", "95 % of drawn ones are below"), single, "singular values"),
        Table(("", "value"), facts, "test of one curve for all levels"),
    ]


def _trust_tables(part: Part) -> list[Table]:
    """The affine fit by rank, and what it says."""
    names = [name for name in ("alpha", "beta", "informative") if part.get(name)]
    rows = [
        [str(at + 1), *(with_interval(part[name][at], part[f"{name}_interval"][at]) for name in names)]
        for at in range(len(part[names[0]]) if names else 0)
    ]
    facts = {key: part[key] for key in ("ranks", "clicks", "slope", "slope_error", "documents") if key in part}
    if "documents_error" in part:
        facts["documents_error"] = part["documents_error"]
    by_rank = [Table(("rank", *names), rows, "affine fit by rank")] if rows else []
    return [
        *by_rank,
        Table(("", "value"), [[words(key), said(value)] for key, value in facts.items()], "random slots"),
    ]


def _ordering_tables(part: Part) -> list[Table]:
    """Where features put what was shown at each rank, and how well they tell it."""
    facts = [[words(key), said(part[key])] for key in ("r2", "correlation", "pages", "by") if key in part]
    rows = [
        [str(at + 1), with_interval(value, part["spread"][at])]
        for at, value in enumerate(part.get("predicted", ()))
        if value is not None
    ]
    parts = "; ".join(runs([str(rank) for rank in ranks]) for ranks in part.get("linked", ()))
    facts += [["ranks that documents of equal features link", parts]] if parts else []
    legend = "In brackets: the middle half."
    by_rank = [Table(("rank", "mean place by features"), rows, "place by features", legend=legend)] if rows else []
    return [Table(("", "value"), facts, "order by features against the order shown"), *by_rank]


TABLES: Mapping[str, Callable[[Part], list[Table]]] = {
    "curves": _curve_tables,
    "interventions": _intervention_tables,
    "matrix": _matrix_tables,
    "judged": _matrix_tables,
    "trust": _trust_tables,
    "factors": _factor_tables,
    "identifiability": _identifiability_tables,
    "ordering": _ordering_tables,
}
"""Sections whose tables are made by hand; the others are told as they are."""
