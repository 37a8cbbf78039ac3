"""Labelled lists from and to LETOR / SVMlight text.

    label qid:ID 1:0.5 7:2 # comment

Parsed files are kept as memory-mapped arrays in the cache (`store.py`).
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import ConfigError, DataError
from unskew.files import WRITERS, PathLike, complete_file
from unskew.tables.joins import encodable
from unskew.tables.lists.store import parsed_files
from unskew.tables.lists.svmlight import HIGHEST_GRADE, MOST_FEATURES, find_sources, parse_files
from unskew.types import Array, Lists

WRITTEN_AT_ONCE = 2**20
"""Entries turned into text at once."""


def read_letor(
    path_or_paths: PathLike | Sequence[PathLike],
    *,
    doc_ids: bool = False,
    features: int | None = None,
    cache: bool | PathLike = True,
    name: str | None = None,
) -> Lists:
    r"""Read one set of labelled lists from one or several files, which may end in .gz, .xz or .bz2.

    A file without qid has one group size per line in `FILE.query` beside it; queries are then numbered from 1.
    `doc_ids=True` takes each document's id from the comment (`# docid = X`). `features` declares the width. The
    parsed arrays are kept in `cache` (True: the user's cache folder) and memory-mapped from there.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> _ = path.write_text("2 qid:7 1:0.5 3:1\n0 qid:7 2:4\n1 qid:9 1:1 # the second query\n")
    >>> lists = read_letor(path, cache=False)
    >>> lists.features.tolist(), lists.offsets.tolist(), lists.query_ids.tolist()
    ([[0.5, 0.0, 1.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.0]], [0, 2, 3], [7, 9])
    """
    sources = find_sources(path_or_paths)
    if features is not None and not 1 <= features <= MOST_FEATURES:
        raise ConfigError(f"features must be from 1 to {MOST_FEATURES:,}, not {features}")
    write = partial(parse_files, sources, doc_ids=doc_ids, width=features)
    read = [[file for file in source if file is not None] for source in sources]
    endings = [[file.suffix for file in files] for files in read]
    options = {"doc_ids": doc_ids, "features": features, "sources": endings}
    arrays: dict[str, Any] = parsed_files([file for files in read for file in files], options, cache, write)
    return Lists(**arrays, name=name or "+".join(source.path.name for source in sources))


def write_letor(lists: Lists, path: PathLike) -> None:
    r"""Write lists so that `read_letor` gives the same arrays; a name in .gz, .xz or .bz2 compresses.

    Entries that `lists.present` leaves out are left out; without it all are written, zeros too. Document ids go
    into the comment, for `doc_ids=True`. What text cannot hold: a feature that no line names needs
    `features=WIDTH` when reading, and query ids that are all integers come back as numbers.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> features = np.array([[0.5, 0], [0.1, 3]], np.float32)
    >>> write_letor(Lists(features, np.array([0, 2]), np.array([2, 0]), np.array([7])), path)
    >>> path.read_text()
    '2 qid:7 1:0.5 2:0\n0 qid:7 1:0.1 2:3\n'
    """
    path = Path(path)
    _check_lists(lists, path)
    queries = _as_tokens(lists.query_ids, "query id", path, forbidden="#")
    documents = None if lists.doc_ids is None else _as_tokens(lists.doc_ids, "document id", path)
    of_row = np.repeat(np.arange(len(lists)), lists.sizes)  # [N] query of each document
    step = max(1, WRITTEN_AT_ONCE // lists.dim)
    with complete_file(path) as ready, WRITERS.get(path.suffix, open)(ready, "wb") as file:
        for start in range(0, len(of_row), step):
            rows = slice(start, start + step)
            heads = pa.array(lists.labels[rows].astype(np.int64)).cast(pa.string())
            names = pc.binary_join_element_wise("qid", queries.take(pa.array(of_row[rows])), ":")
            columns = [heads, names, _entry_texts(lists, rows, path)]
            if documents is not None:
                columns.append(pc.binary_join_element_wise("#docid", "=", documents[rows], " "))
            lines = pc.binary_join_element_wise(*columns, " ")
            file.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())


def _check_lists(lists: Lists, path: Path) -> None:
    labels = lists.labels
    if np.any((labels < 0) | (labels > HIGHEST_GRADE) | (labels != np.rint(labels))):
        raise DataError("a label is not an integer from 0", path=path, hint="map the grades to 0, 1, 2, ... first")
    if len(np.unique(lists.query_ids)) != len(lists):
        raise DataError("two queries have one id", path=path, hint="make the query ids of the lists distinct")
    if not len(lists) or not lists.sizes.all():
        hint = "write lists.take(lists.sizes > 0)"
        raise DataError("there is a query without documents, or no query", path=path, hint=hint)
    if not 1 <= lists.dim <= MOST_FEATURES:
        raise DataError(
            f"{lists.dim} features cannot be written", path=path, hint=f"from 1 to {MOST_FEATURES:,} can"
        )


def _as_tokens(ids: Array, what: str, path: Path, forbidden: str = "") -> Any:
    """Ids as an Arrow array of strings that stay whole when a line is split at blanks."""
    try:
        tokens = encodable(ids).cast(pa.string())
    except UnicodeEncodeError as error:
        raise DataError(f"{what} is not Unicode text: {error.object!r}", path=path, hint="rename it") from None
    broken = pc.match_substring_regex(tokens, rf"^$|[\x00\t\n\v\f\r {forbidden}]")
    if pc.any(broken).as_py():
        first = tokens.filter(broken)[0].as_py()
        raise DataError(f"{what} cannot be written: {first!r}", path=path, hint="use ids without blanks or #")
    return tokens


def _entry_texts(lists: Lists, rows: slice, path: Path) -> Any:
    """The features of each row as text: `1:0.5 7:2`."""
    with np.errstate(over="ignore"):
        values = lists.features[rows].astype(np.float32, copy=False)
    named = np.ones(values.shape, bool)
    if lists.present is not None:
        named = np.unpackbits(lists.present[rows], axis=1, count=lists.dim).astype(bool)
    wrong = ~np.isfinite(values) | (~named & (values != 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        place = f"row {rows.start + row}, feature {column + 1}"
        hint = "values must be finite, and 0 where `present` leaves them out; present=None writes them all"
        raise DataError(f"cannot write {values[row, column]} in {place}", path=path, hint=hint)
    names = pa.array([str(feature) for feature in range(1, lists.dim + 1)])
    texts = pa.array(values[named]).cast(pa.string())  # the fewest digits that are read as the same 32-bit float
    # readers that take a 64-bit float first round twice, which moves one value, 7.038531e-26; it gets more digits
    moved = texts.cast(pa.float64()).to_numpy().astype(np.float32) != values[named]
    if moved.any():
        longer = pa.array([f"{value:.9g}" for value in values[named][moved]])
        texts = pc.replace_with_mask(texts, pa.array(moved), longer)
    entries = pc.binary_join_element_wise(names.take(pa.array(np.nonzero(named)[1])), texts, ":")
    ends = np.concatenate([[0], np.cumsum(named.sum(1))]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), entries), " ")
