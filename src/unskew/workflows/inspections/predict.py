"""`unskew predict`: scores and ranks of documents by a run, block after block, under the names of their owner.

    query_id, doc_id, score, rank       a row for each document of each query, as they come; rank 1 is best

Features from files are laid out on disk once and mapped into memory, so a table may be larger than memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from unskew.errors import warn
from unskew.files import complete_file, refuse_existing
from unskew.learning.scoring.scorer import Scorer, load_scorer
from unskew.names import Names
from unskew.results import Result
from unskew.settings import known
from unskew.workflows.inputs.rankings import documents, score_blocks, write_blocks

if TYPE_CHECKING:
    from unskew.workflows.runs.run import Run

KINDS = (".parquet", ".csv")
STANDARD = "-"
"""Standard output, as CSV."""


@dataclass(frozen=True)
class Predictions(Result):
    """Documents that were scored and ranked."""

    out: str | None
    """The file that was written."""
    queries: int
    documents: int
    table: Any = None
    """query_id, doc_id, score and rank as an Arrow table, where nothing was written."""
    untold = ("table",)


def predict(
    run: Run | Scorer | Path | str,
    features: Any,
    *,
    candidates: Any = None,
    columns: Mapping[str, str] | None = None,
    out: Path | str | None = None,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
    force: bool = False,
) -> Predictions:
    """Score and rank the documents of queries: as an Arrow table, or written to `out`.

    `features` are `Lists`, files or tables in memory, one or several, as those that the run was trained with;
    where none of them has both query_id and doc_id, `candidates` does: a table of pairs, such as a log. `columns`
    says theirs for ours, those of the run unless given, and theirs come back. `out` ends in .parquet or .csv, or
    is - for standard output.
    """
    place = None if out is None else str(out)
    if place not in (None, STANDARD):
        known("out", Path(str(place)).suffix, KINDS)
        refuse_existing(Path(str(place)), force=force)
    model = load_scorer(run) if isinstance(run, str | Path) else run if isinstance(run, Scorer) else run.model
    names = Names.of(columns, run)
    lists = documents(model, features, names, candidates=candidates, doc_ids=doc_ids, tracked=tracked)
    if model.combination is not None and lists.shown is None and model.combination.pairs is None:
        warn(
            "nothing says at which rank the engine has these documents, so they are scored by features alone; "
            "name a log, or a table with query_id, doc_id and position, as candidates"
        )
    blocks = score_blocks(model, lists, names)
    table = None
    if place is None:
        table = pa.concat_tables(blocks)
    elif place == STANDARD:
        sys.stdout.flush()
        write_blocks(blocks, getattr(sys.stdout, "buffer", sys.stdout), pacsv.CSVWriter)
    else:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        with complete_file(Path(place)) as ready:
            write_blocks(blocks, ready, pacsv.CSVWriter if place.endswith(".csv") else pq.ParquetWriter)
    return Predictions(place, len(lists), len(lists.features), table)
