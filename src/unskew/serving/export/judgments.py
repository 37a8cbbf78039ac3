"""`unskew export SOURCE --to quepid` (or workbench): relevance from clicks as the grades that tools read.

SOURCE is a table (CSV or Parquet) of query_id, doc_id, relevance and standard_error, as `unskew judge` and `unskew
click-models` write it, or a log (`judged_log`). A column `query`, where there is one, says what was asked, else
the query goes by its id.

| to          | what is written                                                                                 |
|-------------|-------------------------------------------------------------------------------------------------|
| `quepid`    | CSV of query, docid, rating                                                                     |
| `workbench` | OUT.json: body of `PUT _plugins/_search_relevance/judgments` of OpenSearch; OUT.csv: as above   |

Beside both, OUT.confidence.csv has query, docid, rating, confidence, the relevance with its interval (low, high:
90 % of cases) and the grades at its ends. Grades are 0 to GRADES - 1, of equal width on relevances 0 to `top`.
With estimate m and standard error s, the confidence in the grade whose relevances are [a, b) is
Phi((b - m) / s) - Phi((a - m) / s),  the outer grades open outwards.

What is too thin is left out and counted: no relevance or no standard error, shown less than SHOWN times, or less
`confidence` than asked for. With confidence 0 all that has a relevance is written.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unskew.errors import DataError, Option
from unskew.files import complete_file, refuse_existing, write_json
from unskew.logs.reader import StoredLog
from unskew.names import Names
from unskew.serving.export.options import ExportOptions
from unskew.settings import known, require_columns
from unskew.workflows.inspections.propensity import propensity

PRIOR = 2.0
"""Readers who are added to those of a pair, and click like the mean."""


def judged_log(path: Path, columns: Mapping[str, str] | None = None) -> pa.Table:
    """Judgments of a log by the examination that its own shuffled pages or swaps show: a row for each pair shown.

    With C clicks on a document for a query, and E = sum of examination over the ranks where it was shown, its
    relevance (the click rate at rank 1) is the mean of a Beta distribution, its error the spread, with K = PRIOR
    and m = sum of C / sum of E:

        r = (C + K m) / (E + K),    standard error  sqrt(r (1 - r) / (E + K + 1))
    """
    seen = propensity(path, columns=columns).values
    stored = StoredLog.open(path, Names.of(columns))
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
    relevance = np.minimum((clicks + PRIOR * mean) / (looked + PRIOR), 1.0)
    made = {
        "query_id": sums["query_id"],
        "doc_id": sums["doc_id"],
        "relevance": relevance,
        "standard_error": np.sqrt(relevance * (1 - relevance) / (looked + PRIOR + 1)),
        "displays": sums["click_count"],
        "clicks": clicks.astype(np.int64),
    }
    return pa.table(made | ({"query": sums["query_min"]} if named else {}))


GRADES = 4
"""As Quepid has them by default: 0 to 3."""
SHOWN = 5
"""Impressions below which a pair is too thin, where the table counts them."""
QUANTILE, SIDES = 95, 1.6449
"""Percentile of the relevance where grades end; standard errors to both sides of an interval."""
READERS = {".csv": pacsv.read_csv, ".parquet": pq.read_table}
WANTED = ("query_id", "doc_id", "relevance", "standard_error")
COUNTS = ("displays", "impressions")
Row = dict[str, Any]


def grade(relevance: float, top: float = 1.0) -> int:
    """The grade of a relevance.

    >>> [grade(each) for each in (-0.1, 0.2, 0.25, 0.6, 1.0, 1.3)]
    [0, 0, 1, 2, 3, 3]
    """
    return min(max(math.floor(relevance / top * GRADES), 0), GRADES - 1)


def confidence(relevance: float, error: float, top: float = 1.0) -> float:
    """How likely the grade is the right one.

    >>> round(confidence(0.5 + 0.125, 0.125), 4)  # one standard error to both edges
    0.6827
    >>> confidence(0.9, 0.0)
    1.0
    """
    at = grade(relevance, top)
    low = -math.inf if at == 0 else at / GRADES * top
    high = math.inf if at == GRADES - 1 else (at + 1) / GRADES * top
    if error <= 0:
        return 1.0
    return below((high - relevance) / error) - below((low - relevance) / error)


def below(z: float) -> float:
    """Phi, the share of a normal distribution below z."""
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def read_judgments(path: Path, options: ExportOptions) -> pa.Table:
    """The table of judgments, of a file or made of a log."""
    if not has_judgments(path):
        return judged_log(path, options.columns)
    try:
        table: pa.Table = READERS[path.suffix](path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"cannot be read: {error}", path=path) from error
    require_columns(WANTED, table.column_names, path=path)
    return table


def has_judgments(path: Path) -> bool:
    """Whether a table has judgments; else it is taken for a log."""
    if path.suffix not in READERS or not path.is_file():
        return False
    try:
        if path.suffix == ".parquet":
            return "relevance" in pq.read_schema(path).names
        with pacsv.open_csv(path) as read:
            return "relevance" in read.schema.names
    except (OSError, pa.ArrowInvalid):
        return False


def graded(table: pa.Table, options: ExportOptions) -> tuple[list[Row], dict[str, Any]]:
    """Rows with their grades, and what was left out for which reason."""
    names = ("query" if "query" in table.column_names else "query_id", *WANTED[1:])
    counted = next((name for name in COUNTS if name in table.column_names), None)
    shown = [None] * len(table) if counted is None else table[counted].to_pylist()
    columns = [table[name].to_pylist() for name in names]
    top = options.top or usual_top(columns[2], shown)
    rows, left = list[Row](), dict.fromkeys(("no relevance", "shown too rarely", "too uncertain"), 0)
    for query, document, relevance, error, count in zip(*columns, shown, strict=True):
        if relevance is None or not math.isfinite(relevance):
            left["no relevance"] += 1
            continue
        row = _row(str(query), str(document), float(relevance), error, top)
        if options.confidence > 0 and count is not None and count < SHOWN:
            left["shown too rarely"] += 1
        elif (row["confidence"] or 0.0) < options.confidence:
            left["too uncertain"] += 1
        else:
            rows.append(row)
    return rows, {"top relevance": round(top, 4)} | {f"left out, {why}": count for why, count in left.items()}


def usual_top(relevance: Sequence[float | None], shown: Sequence[int | None]) -> float:
    """Where grades end unless it is said: the 95th percentile of what was shown often enough, at most 1."""
    found = [
        each
        for each, count in zip(relevance, shown, strict=True)
        if each is not None and math.isfinite(each) and (count is None or count >= SHOWN)
    ]
    top = float(np.percentile(found, QUANTILE)) if found else 1.0
    return min(top, 1.0) if top > 0 else 1.0


def _row(query: str, document: str, relevance: float, error: float | None, top: float) -> Row:
    sure = error is not None and math.isfinite(error)
    ends = [relevance + side * SIDES * (error or 0.0) if sure else None for side in (-1, 1)]
    return {
        "query": query,
        "docid": document,
        "rating": grade(relevance, top),
        "confidence": round(confidence(relevance, error or 0.0, top), 6) if sure else None,
        "relevance": relevance,
        "low": ends[0],
        "high": ends[1],
        "rating_low": None if ends[0] is None else grade(ends[0], top),
        "rating_high": None if ends[1] is None else grade(ends[1], top),
    }


def write_judgments(source: Path, to: str, out: Path, options: ExportOptions) -> dict[str, Any]:
    """Write judgments for a tool, and the confidence in them beside; in numbers."""
    told = out.with_name(f"{out.name}.confidence.csv")
    if to == "workbench":
        known("out", out.suffix, (".csv", ".json"))
    for place in (out, told):
        refuse_existing(place, force=options.force)
    rows, facts = graded(read_judgments(source, options), options)
    if not rows:
        why = ", ".join(f"{name}: {count:,}" for name, count in facts.items() if count)
        raise DataError(f"no judgment is left ({why})", path=source, hint=(Option("confidence", 0), " writes all"))
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".json" and to == "workbench":
        write_json(out, workbench(source.stem, rows))
    else:
        write_csv(out, rows, ("query", "docid", "rating"))
    write_csv(told, rows, tuple(rows[0]))
    queries = len({row["query"] for row in rows})
    counts = {"queries": queries, "judgments": len(rows)}
    return {"out": str(out), "confidence in": str(told), **counts, **facts}


def workbench(name: str, rows: list[Row]) -> dict[str, Any]:
    """The body that imports judgments."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row["query"], []).append({"docId": row["docid"], "rating": str(row["rating"])})
    return {
        "name": name,
        "description": "Relevance estimated from clicks by unskew",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": ratings} for query, ratings in found.items()],
    }


def write_csv(path: Path, rows: list[Row], names: tuple[str, ...]) -> None:
    """Some columns of the rows, as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with complete_file(path) as ready:
        ready.write_text(text.getvalue(), encoding="utf-8")
