"""Debias with X, do not debias, or cannot tell: the answer of a comparison on a real log, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.measuring.counterfactual import ClickEvidence
from unskew.settings import listed
from unskew.studies.compare.logs.found import NAIVE, LogRow, leading, name_of

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
    text = _debias(better) if better else _do_not(methods) if no_gain(methods) else _cannot(methods)
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


def _debias(better: Sequence[LogRow]) -> str:
    best = better[0]
    assert best.naive is not None
    text = f"Debias with {best.arm}: it ranks better than naive ({told(best.naive)})."
    more = [row.arm for row in better[1:]]
    text += f" Also better than naive: {listed(more)}." if more else ""
    return text + f" Against what was shown {best.arm} is: {best.shown.verdict} ({told(best.shown)})."


def _do_not(methods: Sequence[LogRow]) -> str:
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
