"""Rows of a comparison's tables with their tests, and the answer in plain words: debias or not, and with what.

Each method is tested against naive, and against the best baseline, with a t-test of nDCG@10 that takes both
queries and seeds as drawn at random; p-values are Holm's, over the methods of a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

from unskew.measuring import ClickEvidence, GainEstimate, PairedTest, SeedSummary, crossed_t_test, gap_closed, holm
from unskew.pages.numbers import metric_title, p_value, spread
from unskew.settings import listed
from unskew.studies.compare.arms import REFERENCES
from unskew.studies.compare.cells import MEASURED
from unskew.types import Array

NAIVE = REFERENCES[0]
SHOWN = MEASURED[:4]
COLUMNS = ("method", *map(metric_title, SHOWN), "against naive", "p", "settings")
LEVELS = {0.005: 2, 0.05: 1}
"""How many signs a p-value below this gets."""
LESS_IS_BETTER = ("arp", "arp_legacy")
"""Metrics of where relevant documents stand."""


@dataclass(frozen=True)
class Row:
    """An arm with its chosen settings, over all seeds."""

    arm: str
    varied: str
    metrics: Mapping[str, SeedSummary]
    values: Mapping[str, Array]
    """Every metric of each seed and test query, [S, Q]."""
    seeds: tuple[float, ...] = ()
    """nDCG@10 of each seed."""
    against: PairedTest | None = None
    """The test against naive, its p-value after Holm's correction; none for the references."""
    versus: PairedTest | None = None
    """The same against the best baseline; none for baselines, and where naive is the best."""

    @property
    def mark(self) -> str:
        """The mark of the test against naive."""
        return marked(self.against)

    @property
    def ndcg(self) -> SeedSummary:
        """nDCG@10 over the seeds."""
        return self.metrics["ndcg@10"]

    def cells(self) -> list[str]:
        """The texts of the table's row, under the heads of `columns`."""
        means = [spread(self.metrics[name]) for name in SHOWN]
        return [self.arm, *means, *_tested(self.against), *_tested(self.versus), self.varied]


def columns(rows: Sequence[Row], baselines: Sequence[str]) -> list[str]:
    """The head of a table; `Row.cells` has as many."""
    best = best_baseline(rows, baselines)
    return [*COLUMNS[:-1], f"against {'best baseline' if best is None else best.arm}", "p", COLUMNS[-1]]


def best_baseline(rows: Sequence[Row], baselines: Sequence[str], metric: str = "ndcg@10") -> Row | None:
    """The baseline that is best on the test lists, as papers take it; none where there is none."""
    found, sign = [row for row in rows if row.arm in baselines], -1 if metric in LESS_IS_BETTER else 1
    return max(found, key=lambda row: sign * row.metrics[metric].mean, default=None)


def marks(rows: Sequence[Row], baselines: Sequence[str], metric: str) -> dict[str, str]:
    """The mark of each method that is no baseline, against the best of those: + is better, - is worse."""
    best, turned = best_baseline(rows, baselines, metric), str.maketrans("+-", "-+")
    methods = [row for row in rows if row.arm not in (*REFERENCES[1:], *baselines)]
    found = {arm: marked(test) for arm, test in _tests(methods, best, metric).items()}
    return {arm: mark.translate(turned) if metric in LESS_IS_BETTER else mark for arm, mark in found.items()}


def with_tests(rows: Sequence[Row], baselines: Sequence[str] = ("naive",)) -> list[Row]:
    """The rows, each method tested against naive, and each that is no baseline against the best of those."""
    methods = [row for row in rows if row.arm not in REFERENCES]
    naive = next((row for row in rows if row.arm == "naive"), None)
    best = best_baseline(rows, baselines)
    against = _tests(methods, naive)
    others = [row for row in methods if row.arm not in baselines]
    versus = {} if best is None or best.arm == "naive" else _tests(others, best)
    return [replace(row, against=against.get(row.arm), versus=versus.get(row.arm)) for row in rows]


def _tests(rows: Sequence[Row], other: Row | None, metric: str = "ndcg@10") -> dict[str, PairedTest]:
    """The test of each row against another, p-values after Holm's correction."""
    if other is None or not rows:
        return {}
    found = [crossed_t_test(row.values[metric], other.values[metric]) for row in rows]
    adjusted = holm([test.p for test in found])
    return {row.arm: replace(test, p=float(p)) for row, test, p in zip(rows, found, adjusted, strict=True)}


def marked(test: PairedTest | None) -> str:
    """+ or - below .05, ++ or -- below .005, nothing above."""
    if test is None or isnan(test.p):
        return ""
    signs = max((count for level, count in LEVELS.items() if test.p < level), default=0)
    return ("+" if test.difference > 0 else "-") * signs


def _tested(test: PairedTest | None) -> list[str]:
    if test is None:
        return ["", ""]
    return [f"{test.difference:+.4f} {marked(test)}".strip(), p_value(test.p)]


@dataclass(frozen=True)
class LogRow:
    """An arm with its chosen settings, over all seeds."""

    arm: str
    varied: str
    naive: ClickEvidence | None
    """Held against naive; None for naive itself."""
    shown: ClickEvidence
    """Held against what was shown."""
    graded: SeedSummary | None
    """nDCG@10 by labels, where there are some; beside."""


def leading(evidence: ClickEvidence | None) -> GainEstimate | None:
    """The estimate that stands for all: what decided, random slots, another with an interval, raw clicks last."""
    if evidence is None:
        return None
    told = [one for one in evidence.estimates if one.interval is not None and one.difference is not None]
    first = [one for name in (*evidence.decided_by, "direct") for one in told if one.name == name]
    return next(iter([*first, *sorted(told, key=lambda one: one.grounds == "shown")]), None)


def name_of(one: GainEstimate) -> str:
    """What an estimate is called in sentences."""
    return "raw clicks" if one.grounds == "shown" else one.name


# ---- in words


def verdict(behaviour: str, tables: Mapping[str, Sequence[Row]]) -> str:
    """Whether to debias, from the rows by the way that settings were chosen; clicks decide, labels may add."""
    rows = {row.arm: row for row in tables["clicks"]}
    methods = [row for row in rows.values() if row.against is not None]
    if "naive" not in rows or not methods:
        missing = "no method finished" if "naive" in rows else "naive has no result"
        return f"{behaviour}: nothing can be said, as {missing}."
    text = _debias(rows, winners(methods)) if winners(methods) else _do_not(rows, methods)
    worse = [row.arm for row in methods if row.mark.startswith("-")]
    if worse:
        text += f" Significantly worse than naive: {listed(worse)}."
    more = {row.arm for row in winners(tables.get("labels", ()))} - {row.arm for row in winners(methods)}
    if more:
        too = " too" if winners(methods) else ""
        text += (
            f" With settings chosen on labels, which a log does not have, {listed(sorted(more))} would win{too}."
        )
    return f"{behaviour}: {text}"


def winners(rows: Sequence[Row]) -> list[Row]:
    """Methods that beat naive significantly, best first."""
    return sorted((row for row in rows if row.mark.startswith("+")), key=lambda row: -row.ndcg.mean)


def _debias(rows: Mapping[str, Row], better: Sequence[Row]) -> str:
    best, others, naive = better[0], better[1:], rows["naive"].ndcg.mean
    text = f"debias, it is worth it here. {best.arm} reaches nDCG@10 {best.ndcg.mean:.3f} against {naive:.3f} of "
    wins = sum(ours > theirs for ours, theirs in zip(best.seeds, rows["naive"].seeds, strict=True))
    text += f"naive ({_difference(best)}; higher with {wins} of {len(best.seeds)} seeds)"
    closed = gap_closed(best.ndcg.mean, naive, rows["labeled"].ndcg.mean) if "labeled" in rows else nan
    if closed > 1:
        text += ", more than labels give here."
    else:
        text += "." if isnan(closed) else f", {100 * closed:.0f} % of the way to labels."
    return text + (f" Also better than naive: {listed([row.arm for row in others])}." if others else "")


def _do_not(rows: Mapping[str, Row], methods: Sequence[Row]) -> str:
    naive, best = rows["naive"].ndcg.mean, max(methods, key=lambda row: row.ndcg.mean)
    count = f"none of {len(methods)} methods beats" if len(methods) > 1 else f"{best.arm} does not beat"
    differs = f"; the best, {best.arm}, differs by" if len(methods) > 1 else ":"
    text = f"do not debias. On this data {count} naive (nDCG@10 {naive:.3f}) significantly"
    text += f"{differs} {_difference(best)}."
    if "labeled" in rows and rows["labeled"].ndcg.mean <= naive:
        text += " Labels do no better than clicks either, so there is no harm to undo."
    return text


def _difference(row: Row) -> str:
    against = row.against
    if against is None or isnan(against.p):
        return "too few queries to test"
    return f"{against.difference:+.4f}, {p_value(against.p, equals=True)}"


LITTLE = 0.01
"""A gain, as a share of what naive is worth, that nobody would debias for."""


def log_verdict(rows: Sequence[LogRow]) -> str:
    """Whether to debias, and with what."""
    held = {row.arm: row.naive for row in rows if row.naive is not None}
    if not held:
        missing = "no method finished" if any(row.arm == NAIVE for row in rows) else "naive has no result"
        return f"Nothing can be said, as {missing}."
    order = sorted(held, key=lambda arm: gain(held[arm]), reverse=True)
    best, evidence = order[0], held[order[0]]
    better = [arm for arm in order if held[arm].verdict == "better"]
    worse = [arm for arm in held if held[arm].verdict == "worse"]
    if better:
        first, shown = better[0], next(row.shown for row in rows if row.arm == better[0])
        text = f"Debias with {first}: it ranks better than naive ({told(held[first])})."
        text += f" Also better than naive: {listed(better[1:])}." if better[1:] else ""
        text += f" Against what was shown {first} is: {shown.verdict} ({told(shown)})."
        return text + (f" Worse than naive: {listed(worse)}." if worse else "")
    if len(worse) == len(held):
        return f"Do not debias: naive ranks better than {listed(worse)}."
    if all(each.verdict == "worse" or at_most(each) < LITTLE for each in held.values()):
        said = f"Do not debias: no method ranks better than naive by more than {LITTLE:.0%}; the best is "
        return f"{said}{best} ({told(evidence)})."
    more_pages = "Shuffled pages would tell: none, or too few, are known to be."
    if evidence.pages_needed:
        more_pages = f"About {evidence.pages_needed:,} shuffled pages would decide a difference of this size."
    said = f"The best is {best} ({told(evidence)}), and that may be chance."
    return f"Cannot tell whether to debias. {said} {more_pages}"


def gain(evidence: ClickEvidence | None) -> float:
    """What the leading estimate says, as a share of what naive is worth."""
    one = leading(evidence)
    return 0.0 if one is None or one.relative is None else one.relative


def at_most(evidence: ClickEvidence) -> float:
    """The upper end of what random slots say, as a share of what naive is worth; no bound without them."""
    ends = next((one.relative_interval for one in evidence.estimates if one.name == "direct"), None)
    return float("inf") if ends is None else ends[1]


def told(evidence: ClickEvidence | None) -> str:
    """The estimate that decides, in numbers."""
    one = leading(evidence)
    if one is None or one.interval is None or one.difference is None:
        return "no estimate has an interval"
    low, high = one.interval
    share = "" if one.relative is None else f" ({one.relative:+.1%})"
    return f"{name_of(one)} {one.difference:+.4f}{share}, interval {low:+.4f} to {high:+.4f}"
