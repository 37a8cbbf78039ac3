"""What was learned of clicks, as tables: examination by rank with weights of rows, and judgments as grades.

`--to propensities` is for who trains with LightGBM or XGBoost themselves, `--to quepid` and `--to workbench` for
tools that read grades; docs/how_to/export.md says what files they write.

Grades are 0 to GRADES - 1, of equal width on relevances 0 to `top`. With estimate m and standard error s, the
confidence in the grade whose relevances are [a, b) is Phi((b - m) / s) - Phi((a - m) / s), the outer grades open
outwards. Intervals (low, high) hold in 90 % of cases.

What is too thin is left out and counted: no relevance or no standard error, shown less than SHOWN times, or less
`confidence` than asked for. With confidence 0 all that has a relevance is written.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from scipy.special import ndtr

from unskew.diagnosis.click_models import fit
from unskew.errors import ConfigError, DataError, Option
from unskew.examination import Examination
from unskew.files import refuse_existing, write_json, write_text
from unskew.logs.reader import StoredLog
from unskew.names import Names
from unskew.options.runs import ExportArguments
from unskew.serving.export.exported import ExportedExamination, ExportedJudgments
from unskew.settings import known, require_columns
from unskew.tables.frames import read_table
from unskew.types import Array
from unskew.workflows.inspections.propensity import propensity

BESIDE = ("init", "base_margin", "weight", "position", "query", "group", "propensities.csv")


def write_propensities(asked: ExportArguments, out: Path) -> ExportedExamination:
    """Write what a run or a log says of examination, and of each row of a log where asked."""
    rows, names = asked.rows, Names.of(asked.columns)
    table = out if rows is None else out.with_name(f"{out.name}.{BESIDE[-1]}")
    beside = [] if rows is None else [out.with_name(f"{out.name}.{end}") for end in BESIDE]
    for place in {table, *beside}:
        refuse_existing(place, force=asked.force)
    own = names if rows is None or asked.run == rows else Names()
    found = propensity(asked.run, max_weight=asked.max_weight, columns=own)
    out.parent.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {} if rows is None else _write_rows(found, out, Path(rows), names)
    write_text(table, found.csv_text())
    return ExportedExamination(str(table), positions=len(found.weight), found_by=found.found_by, **facts)


def _write_rows(found: Examination, out: Path, place: Path, names: Names) -> dict[str, Any]:
    log = StoredLog.open(place, names).table([])
    position, click = (np.asarray(log[name].to_numpy()) for name in ("position", "click"))
    if not (np.isfinite(position).all() and np.isfinite(click).all() and (position >= 1).all()):
        raise DataError("has ranks below 1, or rows without rank or click", path=place, hint="ingest it first")
    rank = position.astype(np.int64)
    sizes = page_sizes(np.asarray(log["page_id"].to_numpy(zero_copy_only=False)), place)
    start = np.log(found.at(rank))
    weight = np.where(click > 0, found.weights(rank), 1.0)
    for end, values in zip(BESIDE, (start, start, weight, rank, sizes, sizes), strict=False):
        lines = "".join(f"{each:.9g}\n" for each in values.tolist())
        write_text(out.with_name(f"{out.name}.{end}"), lines)
    return {"rows": len(rank), "pages": len(sizes), "beside": str(out)}


def page_sizes(page: Array, path: Path) -> Array:
    """Rows of each page, in the order of the log, where pages are in one piece.

    >>> page_sizes(np.array(["a", "a", "b"]), Path("log")).tolist()
    [2, 1]
    """
    starts = np.flatnonzero(np.append(True, page[1:] != page[:-1])) if len(page) else np.zeros(0, np.int64)
    if len({*page[starts].tolist()}) != len(starts):
        hint = "sort it by page_id, as your data file has to be"
        raise DataError("rows of a page are not together", path=path, hint=hint)
    sizes: Array = np.diff(np.append(starts, len(page)))
    return sizes


# ---- judgments ----


def judged_log(path: Path, names: Names, labels: Path | str | None) -> tuple[pa.Table, str | None]:
    """Judgments of a log by the position-based model, with texts of queries; why it tells no examination."""
    stored = StoredLog.open(path, names)
    fitted = fit(path, "pbm", columns=names)
    judged = fitted.relevance(labels=labels)
    if "query_text" in stored.present.values():
        texts = stored.table(["query_text"]).group_by("query_id").aggregate([("query_text", "min")])
        keys = {str(key): text for key, text in zip(*(each.to_pylist() for each in texts.columns), strict=True)}
        asked = [keys[str(key)] for key in judged["query_id"].to_pylist()]
        judged = judged.append_column("query", pa.array(asked, pa.string()))
    return judged, fitted.unknown


GRADED = "grades come of clicks: of a log, or of judgments by unskew judge or unskew compare-click-models"
GRADES = 4
"""As Quepid has them by default: 0 to 3."""
SHOWN = 5
"""Impressions below which a pair is too thin, where the table counts them."""
QUANTILE, SIDES = 95, 1.6449
"""Percentile of the relevance where grades end, at most 1; standard errors to both sides of an interval."""
WANTED = ("query_id", "doc_id", "relevance", "standard_error")
COUNTS = ("displays", "impressions")
Grades = dict[str, list[Any]]
"""Columns of a table of grades."""


def grade(relevance: Array, top: float = 1.0) -> Array:
    """The grades of relevances.

    >>> grade(np.array([-0.1, 0.2, 0.25, 0.6, 1.0, 1.3])).tolist()
    [0, 0, 1, 2, 3, 3]
    """
    return np.clip(np.floor(relevance / top * GRADES), 0, GRADES - 1).astype(np.int64)


def confidence(relevance: Array, error: Array, top: float = 1.0) -> Array:
    """How likely the grades are the right ones.

    >>> confidence(np.array([0.625, 0.9]), np.array([0.125, 0.0])).round(4).tolist()  # one error to both edges
    [0.6827, 1.0]
    """
    at = grade(relevance, top)
    low = np.where(at == 0, -np.inf, at / GRADES * top)
    high = np.where(at == GRADES - 1, np.inf, (at + 1) / GRADES * top)
    spread = np.where(error > 0, error, 1.0)
    inside: Array = ndtr((high - relevance) / spread) - ndtr((low - relevance) / spread)
    return np.where(error > 0, inside, 1.0)


def has_judgments(path: Path) -> bool:
    """Whether a table has judgments; else it is taken for a log."""
    if path.suffix not in (".csv", ".parquet") or not path.is_file():
        return False
    try:
        if path.suffix == ".parquet":
            return "relevance" in pq.read_schema(path).names
        with pacsv.open_csv(path) as read:
            return "relevance" in read.schema.names
    except (OSError, pa.ArrowInvalid):
        return False


def graded(table: pa.Table, asked: ExportArguments) -> tuple[Grades, float, dict[str, int]]:
    """Grades, the relevance where they end, and how many pairs were left out for which reason."""
    judged = table.filter(pc.is_finite(table["relevance"].cast(pa.float64())))
    named = "query" if "query" in table.column_names else "query_id"
    counted = next((name for name in COUNTS if name in table.column_names), None)
    relevance, error = (judged[name].cast(pa.float64()).to_numpy() for name in WANTED[2:])  # null becomes NaN
    shown = [None] * len(judged) if counted is None else judged[counted].to_pylist()
    often = np.array([count is None or count >= SHOWN for count in shown], bool)
    top = asked.top or (min(float(np.percentile(relevance[often], QUANTILE)), 1.0) if often.any() else 1.0)
    top = top if top > 0 else 1.0
    sure = np.isfinite(error)
    chance = np.where(sure, confidence(relevance, np.nan_to_num(error), top), np.nan)
    rare = ~often & (asked.confidence > 0)
    unsure = ~rare & (np.nan_to_num(chance) < asked.confidence)
    left = {
        "no relevance": len(table) - len(judged),
        "shown too rarely": rare.sum(),
        "too uncertain": unsure.sum(),
    }
    low, high = (relevance + side * SIDES * np.nan_to_num(error) for side in (-1, 1))
    measured = {
        "confidence": chance.round(6),
        "relevance": relevance,
        "low": low,
        "high": high,
        "rating_low": grade(low, top),
        "rating_high": grade(high, top),
    }
    kept = ~rare & ~unsure
    ids = {"query": judged[named], "docid": judged["doc_id"]}
    rows: Grades = {name: [str(each) for each in values.filter(kept).to_pylist()] for name, values in ids.items()}
    rows["rating"] = grade(relevance, top)[kept].tolist()
    for name, values in measured.items():
        rows[name] = np.where(sure | (name == "relevance"), values, None)[kept].tolist()
    return rows, top, {why: int(count) for why, count in left.items()}


def write_judgments(asked: ExportArguments, out: Path) -> ExportedJudgments:
    """Write judgments for a tool, of a table or made of a log, and the confidence in them beside."""
    if not isinstance(asked.run, str | Path) or (Path(asked.run) / "model.json").exists():
        raise ConfigError(GRADED)
    source, names = Path(asked.run), Names.of(asked.columns)
    told = out.with_name(f"{out.name}.confidence.csv")
    if asked.to == "workbench":
        known("out", out.suffix, (".csv", ".json"))
    for place in (out, told):
        refuse_existing(place, force=asked.force)
    given = (read_table(source), None) if has_judgments(source) else None
    judged, unknown = given or judged_log(source, names, asked.labels)
    require_columns(WANTED, judged.column_names, path=source)
    rows, top, left = graded(judged, asked)
    if not rows["query"]:
        why = ", ".join(f"left out, {name}: {count:,}" for name, count in left.items() if count)
        raise DataError(f"no judgment is left ({why})", path=source, hint=(Option("confidence", 0), " writes all"))
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".json" and asked.to == "workbench":
        write_json(out, workbench(source.stem, rows))
    else:
        write_csv(out, rows, ("query", "docid", "rating"))
    write_csv(told, rows, tuple(rows))
    counts = {"queries": len({*rows["query"]}), "judgments": len(rows["query"])}
    return ExportedJudgments(
        str(out), str(told), **counts, top_relevance=round(top, 4), left_out=left, unknown=unknown
    )


def workbench(name: str, rows: Grades) -> dict[str, Any]:
    """The body that imports judgments."""
    found: dict[str, list[dict[str, str]]] = {}
    for query, document, rating in zip(rows["query"], rows["docid"], rows["rating"], strict=True):
        found.setdefault(query, []).append({"docId": document, "rating": str(rating)})
    return {
        "name": name,
        "description": "Relevance estimated from clicks by unskew",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": ratings} for query, ratings in found.items()],
    }


def write_csv(path: Path, rows: Grades, names: Sequence[str]) -> None:
    """Some columns, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*(rows[name] for name in names), strict=True))
    write_text(path, text.getvalue())
