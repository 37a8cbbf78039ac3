"""Logs that workflows are given: files, the parts that `unskew split` wrote, and tables in memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.files import restore
from unskew.logs.ingest.ingest import IngestKeywords
from unskew.logs.reader import TableLog
from unskew.names import Names
from unskew.tables.engine.parquet import impressions_in, parquet_files
from unskew.tables.features.features import several
from unskew.tables.frames import arrow_table, is_frame
from unskew.types import Log
from unskew.workflows.inputs.lists import read_lists

MissingFeatures = Literal["error", "drop"]
PARTS = ("train", "validation", "test")
"""Folders of a log that was cut."""
UNREADABLE = (DataError, pa.ArrowInvalid, OSError)
"""What looking into files may end with; whoever opens them says what is wrong."""


def log_parts(path: Path) -> dict[str, Path]:
    """The parts of a log that was cut into train, validation and test, those that have rows; none of another."""
    folder = restore(path)
    inside = {name: folder / name for name in PARTS if (folder / name).is_dir()}
    if "train" not in inside or len(inside) < 2:
        return {}
    return {name: part for name, part in inside.items() if name == "train" or _rows(part)}


def _rows(part: Path) -> int:
    try:
        return sum(pq.read_metadata(file).num_rows for file in parquet_files(part))
    except UNREADABLE:
        return 0


def is_log(source: object, names: Names) -> bool:
    """Whether a file, a folder or a table in memory holds impressions, by its columns."""
    if isinstance(source, str | Path):
        path, needed = Path(source), ["page_id", "doc_id", "position"]
        if path.suffix != ".parquet" and not path.is_dir():
            return False
        try:
            present = pq.read_schema(parquet_files(impressions_in(path))[0]).names
        except UNREADABLE:
            return False
    elif is_frame(source):
        present, needed = arrow_table(source).column_names, ["doc_id", "position"]
    else:
        return isinstance(source, Log)
    return all(names.theirs(name) in present or name in present for name in needed)


def log_from_table(
    source: object,
    features: object,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    feedback: str | None = None,
    missing_features: MissingFeatures = "error",
    **reading: Unpack[IngestKeywords],
) -> Log:
    """A log from a table of impressions and the features of its documents, by the checks and rules of `ingest`.

    `features` are `Lists`, or tables of features (frames or files, one or several: see `read_features`). `columns`
    says theirs for ours in all of these tables. `keep` names further columns of the log, `feedback` the one to
    learn from in the place of click; `missing_features="drop"` leaves out impressions without features.
    `reading` are arguments of `ingest`, such as off=, positions_from= and page_gap=. What was found is the log's
    `summary`; what rules removed is warned of.
    """
    table, names = arrow_table(source), Names.of(columns)
    names.check_some([table, *(arrow_table(each) for each in several(features) if is_frame(each))])
    opened = TableLog.open(table, names, feedback, keep=keep, **reading)
    lists = read_lists(features, names=names, candidates=opened.candidates)
    return opened.log(lists, drop=missing_features == "drop")
