"""The page of short tables: columns of a log, rules of ingest, scalings, metrics."""

from __future__ import annotations

import re

from markdown_parts import first, table

from unskew.measuring.ranking import METRICS
from unskew.names import OURS, REQUIRED
from unskew.tables.lists import scaling
from unskew.tables.reading.options import RULES


def tables_page() -> str:
    """What has a name and no settings."""
    columns = [(f"`{name}`", about, "yes" if name in REQUIRED else "") for name, about in OURS.items()]
    scalings = re.findall(r"^\| (`\w+`) +\| (.+?) +\|$", scaling.__doc__ or "", re.MULTILINE)
    metrics = [(f"`{name}`", first(metric.__doc__)) for name, metric in METRICS.items()]
    return "\n".join(
        [
            "# Columns, rules, scalings, metrics",
            "",
            "## Columns of a log",
            "",
            "Parquet, one row for each result shown. `serp_*` are presentation features of any type; others are",
            "carried along and may be named as bias factors or feedback.",
            "",
            *table(("column", "what it is", "needed"), columns),
            "## Rules of ingest",
            "",
            "What `unskew ingest` removes, in this order; `--off NAME` counts and does not remove.",
            "",
            *table(("rule", "removes"), ((f"`{name}`", about) for name, about in RULES.items())),
            "## Scalings",
            "",
            "`--scaling`, `data.scaling`, `scaling=`: fitted on training data and saved with the model.",
            "",
            *table(("name", "what a value v becomes"), scalings),
            "## Metrics",
            "",
            "`--metric NAME`, with a cut-off as in `ndcg@10` where it has one; what they mean:",
            "[numbers](../explanation/numbers.md#on-labelled-lists).",
            "",
            *table(("metric", ""), metrics),
        ]
    )
