"""How numbers are written in tables and sentences, and commands as they are typed."""

from __future__ import annotations

import shlex
from math import isnan
from typing import Any

from unskew.measuring import SeedSummary


def number(value: float | None, form: str = ".4f") -> str:
    """A number, n/a where there is none.

    >>> number(0.5), number(0.5, "+.2f"), number(None)
    ('0.5000', '+0.50', 'n/a')
    """
    return "n/a" if value is None or isnan(value) else format(value, form)


def metric_title(metric: str) -> str:
    """A metric as it is written.

    >>> metric_title("ndcg@10"), metric_title("arp_legacy"), metric_title("err@5")
    ('nDCG@10', 'ARP over slots', 'ERR@5')
    """
    name, _, at = metric.partition("@")
    known = {"ndcg": "nDCG", "arp_legacy": "ARP over slots"}
    return known.get(
        name, name.upper() if name in ("dcg", "err", "arp", "map", "mrr") else name
    ) + f"@{at}" * bool(at)


def p_value(p: float | None, *, equals: bool = False) -> str:
    """A p-value, with no more digits than it deserves.

    >>> p_value(0.00001), p_value(0.25, equals=True)
    ('< 0.0001', 'p = 0.2500')
    """
    text = "< 0.0001" if p is not None and p < 0.0001 else number(p)
    return text if not equals else f"p {text}" if text[0] == "<" else f"p = {text}"


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
