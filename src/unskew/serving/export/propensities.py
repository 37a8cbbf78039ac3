"""`unskew export RUN --to propensities`: examination by rank, for who trains with LightGBM or XGBoost themselves.

OUT is a CSV of position, examination (relative to rank 1) and weight (its inverse). With `rows`, a log, OUT is the
name of their data file with a row for each impression of the log, in its order, and beside it lie

| file                      | a line for |                                           | LightGBM | XGBoost         |
|---------------------------|------------|-------------------------------------------|----------|-----------------|
| OUT.init, OUT.base_margin | a row      | log examination: what a score starts from | .init    | .base_margin    |
| OUT.weight                | a row      | 1 / examination where clicked, else 1     | yes      | but for `rank:` |
| OUT.position              | a row      | the rank                                  | yes      | no              |
| OUT.query, OUT.group      | a page     | how many rows it has                      | .query   | .group          |
| OUT.propensities.csv      | a rank     | as OUT without rows                       |          |                 |

They read these by their names when they read OUT; in Python they are `init_score=`, `base_margin=`, `weight=`,
`position=` and `group=`. With a count objective (`poisson`, `count:poisson`) the start makes the model
E[click] = examination exp(score), so that the score is of relevance alone. In `rank:` objectives of XGBoost a
weight belongs to a page, so clicks cannot have one; its `lambdarank_unbiased` and LightGBM's `position` estimate
bias by themselves and take no propensities.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.examination import Examination
from unskew.files import refuse_existing, write_text
from unskew.logs.reader import StoredLog
from unskew.names import Names
from unskew.options.serving import ExportArguments
from unskew.serving.export.exported import ExportedExamination
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
    """Write a line for each row of a log."""
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
