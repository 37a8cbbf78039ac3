"""How values are written in cells and sentences, and commands as they are typed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from unskew.measuring import SeedSummary

EMPTY = "–"
REASON = "reason"
"""What says why there is no number; where there is one, nothing stands there."""


def number(value: float | None, form: str = ".4f", empty: str = "n/a") -> str:
    """A number, n/a where there is none.

    >>> number(0.5), number(0.5, "+.2f"), number(None), number(None, ",", empty="")
    ('0.5000', '+0.50', 'n/a', '')
    """
    return empty if value is None or isnan(value) else format(value, form)


def span(ends: Sequence[float] | None, form: str = "+.4f", empty: str = "") -> str:
    """An interval by its ends.

    >>> span((0.1, 0.25), ".0%"), span(None)
    ('10% to 25%', '')
    """
    return empty if ends is None else " to ".join(number(end, form) for end in ends)


def p_value(p: float | None, *, equals: bool = False) -> str:
    """A p-value, with no more digits than it deserves.

    >>> p_value(0.00001), p_value(0.25, equals=True)
    ('< 0.0001', 'p = 0.2500')
    """
    text = "< 0.0001" if p is not None and p < 0.0001 else number(p)
    return text if not equals else f"p {text}" if text[0] == "<" else f"p = {text}"


def said(value: object, key: str = "") -> str:
    """Any value of a result; `key` is what it is called.

    >>> said(1234), said(0.25), said(0.00001), said(None), said([0.1, 0.2]), said(True)
    ('1,234', '0.2500', '1.00e-05', '–', '0.1000 to 0.2000', 'yes')
    """
    if value is None:
        return "" if key == REASON else EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if key == "p" or key.endswith("_p"):
            return p_value(value)
        if key.startswith("effective"):
            return f"{value:,.1f}"
        return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.2e}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {said(each)}" for name, each in value.items()) or EMPTY
    if isinstance(value, Sequence) and not isinstance(value, str):
        parts = [said(each) for each in value]
        return (" to " if is_interval(value) else ", ").join(parts) or EMPTY
    return str(value)


def said_each(values: Sequence[object], key: str = "") -> list[str]:
    """Every value of a column."""
    return [said(value, key) for value in values]


def spread_each(values: Sequence[float | None], intervals: Sequence[Sequence[float] | None]) -> list[str]:
    """Every number of a column with its interval, where it has one.

    >>> spread_each([0.5, 1.0, None], [(0.4, 0.6), (1.0, 1.0), None])
    ['0.5000 (0.4000 to 0.6000)', '1.0000', '–']
    """
    return [
        said(value) + (f" ({said(ends)})" if value is not None and ends is not None and ends[0] < ends[1] else "")
        for value, ends in zip(values, intervals, strict=True)
    ]


def is_interval(value: object) -> bool:
    """Two numbers with a point."""
    ends = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return len(ends) == 2 and all(isinstance(end, float) for end in ends)


def words(key: str) -> str:
    """A key in words.

    >>> words("effective_sample_size")
    'effective sample size'
    """
    return key.replace("_", " ")


def metric_title(metric: str) -> str:
    """A metric as it is written.

    >>> metric_title("ndcg@10"), metric_title("arp_legacy"), metric_title("err@5")
    ('nDCG@10', 'ARP over slots', 'ERR@5')
    """
    name, sign, at = metric.partition("@")
    known = {"ndcg": "nDCG", "arp_legacy": "ARP over slots"}
    known |= {each: each.upper() for each in ("dcg", "err", "arp", "map", "mrr")}
    return known.get(name, name) + sign + at


def spread(summary: SeedSummary) -> str:
    """Mean and standard deviation over seeds, the mean alone where there is one seed."""
    return f"{summary.mean:.3f}" + ("" if isnan(summary.sd) else f" ± {summary.sd:.3f}")


def around(summary: SeedSummary) -> dict[str, Any]:
    """Mean over seeds, and one standard deviation to either side."""
    sd = 0.0 if isnan(summary.sd) else summary.sd
    return {"mean": summary.mean, "low": summary.mean - sd, "high": summary.mean + sd}


def command_line(name: str, *arguments: object, **flags: object) -> str:
    """A command as it is typed; flags that are None, False or empty are left out.

    >>> command_line("reproduce", "lbd-eta", on=["mq2008", "generated"], quick=True, seeds=None, out="my runs")
    "unskew reproduce lbd-eta --on mq2008 --on generated --quick --out 'my runs'"
    """
    words = ["unskew", name, *map(str, arguments)]
    for key, value in flags.items():
        flag = f"--{key.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            each = value if isinstance(value, list | tuple) else [value]
            words += [word for one in each for word in (flag, str(one))]
    return shlex.join(words)
