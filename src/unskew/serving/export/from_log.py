"""Judgments of a log, by the examination that its own shuffled pages or swaps show (`unskew propensity`).

With C clicks on a document for a query and E = sum of examination over the ranks where it was shown, relevance
(the click rate at rank 1) is

    r = (C + K m) / (E + K),    standard error  sqrt(r (1 - r) / (E + K + 1))

as if K more readers had looked at it, who click like the mean m = sum of C / sum of E: the mean and spread of a
Beta distribution. For logs that do not fit into memory, `unskew track` and `unskew judge`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from unskew.errors import DataError
from unskew.logs.opening import StoredLog
from unskew.workflows.inspections.propensity import propensity

READERS = 2.0
"""K."""


def judged_log(path: Path, columns: Mapping[str, str] | None = None) -> pa.Table:
    """query_id, doc_id, relevance, standard_error, displays and clicks of each pair that was shown."""
    seen = propensity(path, columns=columns).values
    stored = StoredLog.open(path, columns)
    named = {"query_text"} & {*stored.present.values()}
    table = stored.table(sorted(named))
    position = np.asarray(table["position"].to_numpy(), np.int64)
    examined = np.minimum(seen[np.clip(position, 1, len(seen)) - 1], 1.0)
    keys = ["query_id", "doc_id"]
    counted = table.select(keys).append_column("examined", pa.array(examined))
    counted = counted.append_column("click", table["click"].cast(pa.float64()))
    asked = [("examined", "sum"), ("click", "sum"), ("click", "count")]
    if named:
        counted = counted.append_column("query", table["query_text"])
        asked.append(("query", "min"))
    sums = counted.group_by(keys).aggregate(asked).sort_by([(key, "ascending") for key in keys])
    clicks, looked = sums["click_sum"].to_numpy(), sums["examined_sum"].to_numpy()
    if not clicks.sum() > 0:
        raise DataError("has no click", path=path, hint="give a log with clicks")
    mean = min(clicks.sum() / looked.sum(), 1.0)
    relevance = np.minimum((clicks + READERS * mean) / (looked + READERS), 1.0)
    made = {
        "query_id": sums["query_id"],
        "doc_id": sums["doc_id"],
        "relevance": relevance,
        "standard_error": np.sqrt(relevance * (1 - relevance) / (looked + READERS + 1)),
        "displays": sums["click_count"],
        "clicks": clicks.astype(np.int64),
    }
    return pa.table(made | ({"query": sums["query_min"]} if named else {}))
