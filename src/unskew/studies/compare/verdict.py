"""The answer in plain words: debias or not, and with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan

from unskew.measuring import ClickEvidence, gap_closed
from unskew.pages.numbers import p_value
from unskew.settings import listed
from unskew.studies.compare.rows import NAIVE, LogRow, Row, leading, name_of


def verdict(behaviour: str, tables: Mapping[str, Sequence[Row]]) -> str:
    """Whether to debias, from the rows by the way that settings were chosen; clicks decide, labels may add."""
    rows = {row.arm: row for row in tables["clicks"]}
    methods = [row for row in rows.values() if row.against is not None]
    if "naive" not in rows or not methods:
        missing = "no method finished" if "naive" in rows else "naive has no result"
        return f"{behaviour}: nothing can be said, as {missing}."
    text = _debias(rows, methods) if any(winners(methods)) else _do_not(rows, methods)
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


def _debias(rows: Mapping[str, Row], methods: Sequence[Row]) -> str:
    best, others = winners(methods)[0], winners(methods)[1:]
    naive = rows["naive"].ndcg.mean
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
    text = f"do not debias. On this data {count} naive (nDCG@10 {naive:.3f}) significantly"
    text += (
        f"; the best, {best.arm}, differs by {_difference(best)}."
        if len(methods) > 1
        else f": {_difference(best)}."
    )
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
    methods = [row for row in rows if row.naive is not None]
    if not methods:
        missing = "no method finished" if any(row.arm == NAIVE for row in rows) else "naive has no result"
        return f"Nothing can be said, as {missing}."
    better = sorted((row for row in methods if answer(row) == "better"), key=gain, reverse=True)
    worse = [row.arm for row in methods if answer(row) == "worse"]
    text = _log_debias(better) if better else _log_do_not(methods) if no_gain(methods) else _cannot(methods)
    return text + (f" Worse than naive: {listed(worse)}." if worse and better else "")


def answer(row: LogRow) -> str:
    """What clicks say of a method against naive."""
    return "" if row.naive is None else row.naive.verdict


def gain(row: LogRow) -> float:
    """What the leading estimate says, as a share of what naive is worth."""
    one = None if row.naive is None else leading(row.naive)
    return 0.0 if one is None or one.relative is None else one.relative


def no_gain(methods: Sequence[LogRow]) -> bool:
    """Whether it is known of every method that it is worse than naive, or better by next to nothing."""
    return all(answer(row) == "worse" or at_most(row) < LITTLE for row in methods)


def at_most(row: LogRow) -> float:
    """The upper end of what random slots say, as a share of what naive is worth; no bound without them."""
    for one in () if row.naive is None else row.naive.estimates:
        if one.name == "direct" and one.interval is not None and one.other:
            return one.interval[1] / abs(one.other)
    return float("inf")


def told(evidence: ClickEvidence) -> str:
    """The leading estimate in numbers."""
    one = leading(evidence)
    if one is None or one.interval is None or one.difference is None:
        return "no estimate has an interval"
    low, high = one.interval
    share = "" if one.relative is None else f" ({one.relative:+.1%})"
    return f"{name_of(one)} {one.difference:+.4f}{share}, interval {low:+.4f} to {high:+.4f}"


def _log_debias(better: Sequence[LogRow]) -> str:
    best = better[0]
    assert best.naive is not None
    text = f"Debias with {best.arm}: it ranks better than naive ({told(best.naive)})."
    more = [row.arm for row in better[1:]]
    text += f" Also better than naive: {listed(more)}." if more else ""
    return text + f" Against what was shown {best.arm} is: {best.shown.verdict} ({told(best.shown)})."


def _log_do_not(methods: Sequence[LogRow]) -> str:
    if all(answer(row) == "worse" for row in methods):
        return f"Do not debias: naive ranks better than {listed([row.arm for row in methods])}."
    best = max(methods, key=gain)
    assert best.naive is not None
    return (
        f"Do not debias: no method ranks better than naive by more than {LITTLE:.0%}; the best is {best.arm} "
        f"({told(best.naive)})."
    )


def _cannot(methods: Sequence[LogRow]) -> str:
    best = max(methods, key=gain)
    assert best.naive is not None
    needed = best.naive.pages_needed
    more = (
        f" About {needed:,} shuffled pages would decide a difference of this size."
        if needed
        else " Shuffled pages would tell: none, or too few, are known to be."
    )
    said = f"The best is {best.arm} ({told(best.naive)}), and that may be chance."
    return f"Cannot tell whether to debias. {said}{more}"
