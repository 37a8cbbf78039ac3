"""`unskew plan`: how many shuffled pages, which method, how long; tried on a twin of the log.

For each share of shuffled pages and each number of pages, logs are drawn from the twin. On each of them it is
asked, without labels, whether the best order of the results is better than the one shown: how often that is found,
and which gain would be found 8 times in 10. Where features are given, methods learn on each log, and are measured
by the twin's grades on queries that they have not seen.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError, DataError, Option
from unskew.logs.reader import AnyLog
from unskew.measuring import ClickEvidence, LoggedPages, ndcg_metric, places
from unskew.measuring.counterfactual.examination import examination_of
from unskew.measuring.experiments.effects import reach
from unskew.options.runs import PlanArguments
from unskew.pages.page import Page, Section, Table
from unskew.results import Result
from unskew.types import Array, Lists, Log
from unskew.workflows.proofs.proof import prove
from unskew.workflows.runs.learn import learn
from unskew.workflows.twins.simulate import shown_scores
from unskew.workflows.twins.twin import Twin, truth_table, twin

SHARES = (0.0, 0.01, 0.05)
METHODS = ("naive", "dla")
HELD_OUT = 0.25
"""Share of the queries that methods are measured on."""
MOST = 200_000
"""Pages tried at most, unless asked for more."""


@dataclass(frozen=True)
class PlanCell:
    """What one share of shuffled pages and one number of pages would give; means over repeats."""

    share: float
    pages: int
    days: float | None
    """At the daily pages that were said."""
    found: int
    """Repeats in which the better order was found better."""
    wrong: int
    """Repeats in which it was found worse."""
    repeats: int
    by: str | None
    """The estimate that the interval is of."""
    smallest: float | None
    """Gain, as a share of what is shown, that is found 8 times in 10; None where no estimate has an interval."""
    examination_off: float | None
    """Mean distance of examination, as that log tells it, from the twin's; None where it does not tell."""
    ndcg: Mapping[str, float | None]
    """True nDCG@10 of each method on unseen queries."""


@dataclass(frozen=True)
class Plan(Result):
    """A table of what to expect."""

    cells: tuple[PlanCell, ...]
    gain: float
    """True gain of the best order over the one shown, in DCG@10: the most that there is to be found."""
    shown_ndcg: float | None
    """True nDCG@10 of the order shown, on the unseen queries."""
    model: str
    identified: bool
    examination_from: str
    notes: tuple[str, ...]


@PlanArguments.checks
def plan(
    log: AnyLog | Twin,
    *,
    features: Lists | Sequence[Path | str] | Path | str | None = None,
    shares: Sequence[float] = SHARES,
    pages: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    ranker: str = "linear",
    repeats: int = 3,
    daily: float | None = None,
    doc_ids: bool = False,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Plan:
    """Try shares of shuffled pages and numbers of pages on a twin of a log, or on one that was fitted before.

    `pages` are as many as the log has and four times as many unless given. `methods` learn only where there are
    features; naive and dla unless given. `daily` pages turn numbers of pages into days.
    """
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise ConfigError("give shares of shuffled pages between 0 and 1, such as 0,0.01,0.05", argument="shares")
    if pages is not None and (not pages or not all(size >= 1 for size in pages)):
        raise ConfigError("give numbers of pages, such as 10000,100000", argument="pages")
    bare = features is None and not isinstance(log, Log | Twin)
    if methods and (bare or (isinstance(log, Log) and not log.lists.dim)):
        raise ConfigError(
            (Option("methods"), " learn from features: give ", Option("features"), " of the log's documents")
        )
    given: dict[str, Any] = {"features": features, "doc_ids": doc_ids, "columns": columns, "seed": seed}
    made = log if isinstance(log, Twin) else twin(log, **given)
    own = len(made.layout)
    sizes = tuple(pages) if pages is not None else (min(own, MOST), min(4 * own, MOST))
    tried = () if not made.layout.lists.dim else tuple(METHODS if methods is None else methods)
    bench = _Bench(made, tried, ranker, repeats, seed)
    cells = [bench.cell(share, size, daily) for share in shares for size in sizes]
    notes = [*made.notes, *bench.notes]
    if not made.identified:
        notes.append("What the table says of shares without shuffled pages rests on a curve that was assumed.")
    how = (made.model.name, made.identified, made.examination_from)
    return Plan(tuple(cells), bench.gain, bench.shown, *how, tuple(dict.fromkeys(notes)))


class _Bench:
    """A twin, and what is tried on it."""

    def __init__(self, made: Twin, methods: Sequence[str], ranker: str, repeats: int, seed: int) -> None:
        self.made, self.methods, self.ranker, self.repeats, self.seed = made, methods, ranker, repeats, seed
        self.best = truth_table(made).drop_columns(["label"]).rename_columns(["query_id", "doc_id", "score"])
        self.theta = made.examination()
        self.notes: list[str] = []
        lists = made.layout.lists
        rng = np.random.default_rng(seed)
        self.unseen = np.zeros(len(lists), bool)
        if methods:
            count = max(1, round(HELD_OUT * len(lists)))
            self.unseen[rng.choice(len(lists), count, replace=False)] = True
        self.test = lists.take(self.unseen)
        self.gain = _gain(made)
        self.shown = self._ndcg(shown_scores(made.layout)) if methods else None

    def cell(self, share: float, pages: int, daily: float | None) -> PlanCell:
        """One share and number of pages, several times."""
        seeds = range(self.seed + 1, self.seed + 1 + self.repeats)
        logs = [self.made.simulate(pages, randomized=share, seed=seed) for seed in seeds]
        proofs = [_quietly(prove, self.best, log=log) for log in logs]
        told = [_resolution(proof) for proof in proofs if proof is not None]
        smallest = [each[1] for each in told if each is not None]
        told_of = [each for log in logs if (each := examination_of(LoggedPages.from_log(log))) is not None]
        ranks = [min(len(self.theta), len(each.theta)) for each in told_of]
        off = [np.abs(e.values[:n] - self.theta[:n]).mean() for e, n in zip(told_of, ranks, strict=True)]
        verdicts = [proof.verdict for proof in proofs if proof is not None]
        return PlanCell(
            share,
            pages,
            None if daily is None else pages / daily,
            verdicts.count("better"),
            verdicts.count("worse"),
            self.repeats,
            next((each[0] for each in told if each is not None), None),
            float(np.median(smallest)) if smallest else None,
            float(np.mean(off)) if off else None,
            {method: self._learned(method, logs) for method in self.methods},
        )

    def _learned(self, method: str, logs: Sequence[Log]) -> float | None:
        """Mean true nDCG@10 of a method; None where it cannot learn, with a note."""
        found = []
        for number, log in enumerate(logs):
            seen = log.take(~self.unseen[log.query])
            bare = replace(seen, columns={name: each for name, each in seen.columns.items() if name != "label"})
            run = _quietly(learn, bare, method, ranker=self.ranker, seed=self.seed + number, failed=self.notes)
            if run is not None:
                found.append(self._ndcg(run.model.score(self.made.layout.lists)))
        return float(np.mean(found)) if found else None

    def _ndcg(self, scores: Array) -> float:
        lists = self.made.layout.lists
        own = scores[np.repeat(self.unseen, lists.sizes)]
        return float(np.nanmean(ndcg_metric(own, self.test.labels, offsets=self.test.offsets)))


def _quietly(function: Callable[..., Any], *given: Any, failed: list[str] | None = None, **options: Any) -> Any:
    """The result without warnings of small data; None where it is refused, with the reason in `failed`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*given, **options)
    except DataError as error:
        if failed is None:
            raise
        failed.append(f"{given[-1]}: {error}")
        return None


def _resolution(proof: ClickEvidence) -> tuple[str, float] | None:
    """The estimate to go by, and the relative gain that it finds 8 times in 10."""
    told = {one.name: one.relative_interval for one in proof.estimates if one.grounds != "shown"}
    half = {name: float(ends[1] - ends[0]) / 2 for name, ends in told.items() if ends is not None}
    if not half:
        return None
    chosen = "direct" if "direct" in half else min(half, key=lambda name: half[name])
    return chosen, half[chosen] * reach() / 1.959964


def _gain(made: Twin) -> float:
    """True relative gain of the best order over the one shown, in DCG@10 of relevance, on the log's pages."""
    pages, gain = LoggedPages.from_log(made.layout), made.relevance[made.layout.row]
    shown = np.arange(len(gain)) - pages.offsets[pages.page] + 1
    discounts = [np.where(place <= 10, 1 / np.log2(1.0 + place), 0.0) for place in (places(gain, pages), shown)]
    value = [float((gain * discount).sum()) for discount in discounts]
    return value[0] / value[1] - 1


# ---- as a page

HOW = (
    "Found: how often the best order of the results was found better than the one shown, by clicks alone. "
    "Smallest gain: the gain in DCG@10, as a share of what is shown, that would be found 8 times in 10, by the "
    "estimate named. Examination: how far the curve that such a log tells is off, on average over ranks."
)
LEARNED = "Methods: true nDCG@10 on queries that they have not seen, after learning from such a log."


def plan_page(told: Plan, origin: str = "", command: str = "") -> Page:
    """What to expect, as a page."""
    methods = list(told.cells[0].ndcg) if told.cells else []
    columns = ["shuffled", "pages", "days", "found", "smallest gain", "by", "examination off", *methods]
    rows = [_row(cell, methods) for cell in told.cells]
    legend = f"{HOW} {LEARNED}" if methods else HOW
    table = Table(columns, rows, text=["by"], wide=["examination off", "by"], legend=legend).without_empty(but=2)
    shown = told.shown_ndcg
    known = [] if shown is None else [f"The order shown has a true nDCG@10 of {shown:.4f} on those queries."]
    return Page(
        "What to expect",
        lead(told),
        [Section("On a twin of the log", tables=[table])],
        notes=[*known, *told.notes],
        origin=origin,
        command=command,
    )


def lead(told: Plan) -> str:
    """The cheapest cell that finds the gain there is, and the best method there."""
    sure = [cell for cell in told.cells if cell.found == cell.repeats]
    gain = f"The best order of the results is worth {told.gain:+.1%} in DCG@10 over the one shown"
    if not sure:
        return f"{gain}; none of these logs was sure to find even that. Try more pages, or a larger share."
    first = min(sure, key=lambda cell: (cell.share * cell.pages, cell.pages))
    said = f"{gain}; {first.pages:,} pages with {first.share:.1%} shuffled found it every time."
    values = {method: [cell.ndcg[method] for cell in told.cells] for method in told.cells[0].ndcg}
    means = {method: sum(filter(None, each)) for method, each in values.items() if None not in each}
    best = max(means, key=lambda method: means[method], default=None)
    return said + (f" Of the methods {best} ranked best on average." if len(means) > 1 else "")


def _row(cell: PlanCell, methods: Sequence[str]) -> list[str]:
    off, smallest, days = cell.examination_off, cell.smallest, cell.days
    wrong = f", {cell.wrong} worse" if cell.wrong else ""
    return [
        f"{cell.share:.1%}",
        f"{cell.pages:,}",
        "" if days is None else f"{days:,.1f}",
        f"{cell.found} of {cell.repeats}{wrong}",
        "cannot tell" if smallest is None else f"{smallest:.1%}",
        cell.by or "",
        "not known" if off is None else f"{off:.3f}",
        *("" if cell.ndcg[method] is None else f"{cell.ndcg[method]:.4f}" for method in methods),
    ]
