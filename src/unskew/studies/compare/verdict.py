"""The answer in plain words: debias or not, and with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan

from unskew.measuring import gap_closed
from unskew.pages.numbers import p_value
from unskew.settings import listed
from unskew.studies.compare.rows import Row


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
