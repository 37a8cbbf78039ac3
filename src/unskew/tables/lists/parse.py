"""Parse LETOR files into .npy files in a folder, block after block, with features as a dense matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from unskew.errors import DataError
from unskew.tables.lists.sources import ListFile, read_blocks, read_groups
from unskew.tables.lists.store import GrowingMatrix
from unskew.tables.lists.svmlight import MOST_FEATURES, Entries, Parsing, fast_entries, parse_heads, slow_entries
from unskew.types import Array

INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)


def parse_files(sources: Sequence[ListFile], folder: Path, *, doc_ids: bool, width: int | None) -> None:
    """Parse the sources into .npy files in a folder."""
    progress = Parsing(doc_ids, sources[0].groups is not None, width or MOST_FEATURES)
    with ExitStack() as stack:
        matrix = stack.enter_context(GrowingMatrix(folder / "features.npy", "<f4", width or 0))
        present = stack.enter_context(GrowingMatrix(folder / "present.npy", "|u1", ((width or 0) + 7) // 8))
        entries = 0
        for source in sources:
            before = progress.rows
            progress.last = b""
            for first, block in read_blocks(source.path):
                entries += _parse_block(block, first, source.path, progress, matrix, present)
            if progress.rows == before:
                raise DataError("no data lines", path=source.path, hint="the file is empty or has only comments")
            if source.groups is not None:
                progress.starts += read_groups(source, before, progress.rows - before)
        if matrix.width == 0:
            raise DataError("no line has a feature", path=sources[0].path, hint="write `label qid:ID 1:value ...`")
    if entries == progress.rows * matrix.width:
        (folder / "present.npy").unlink()
    _save_columns(folder, progress)


def _parse_block(
    block: bytes, first: int, path: Path, progress: Parsing, matrix: GrowingMatrix, present: GrowingMatrix
) -> int:
    """Add the lines of a block; returns the number of entries in it."""
    lines, rests = parse_heads(block, first, path, progress)
    if not rests:
        return 0
    entries = fast_entries(rests, progress.limit)
    if entries is None:
        entries = slow_entries(rests, lines, path, progress.limit)
    width = max(matrix.width, int(entries.ids.max(initial=0)))
    ends = np.cumsum(entries.counts)
    step = max(1, 2**23 // max(1, width))
    for start in range(0, len(rests), step):
        rows = slice(start, start + step)
        cut = slice(int(ends[start - 1]) if start else 0, int(ends[rows][-1]))
        dense, mask = _dense(Entries(entries.counts[rows], entries.ids[cut], entries.values[cut]), width)
        matrix.append(dense)
        present.append(mask)
    return len(entries.ids)


def _dense(entries: Entries, width: int) -> tuple[Array, Array]:
    """Rows [n, width] with 0 where absent, and packed bits [n, ceil(width / 8)] of what is present."""
    rows = len(entries.counts)
    if len(entries.ids) == rows * width:  # ids ascend within a line, so these are 1..width in every line
        return entries.values.reshape(rows, width), np.packbits(np.ones((1, width), bool), axis=1).repeat(rows, 0)
    flat = np.repeat(np.arange(rows) * width - 1, entries.counts) + entries.ids
    dense, mask = np.zeros(rows * width, np.float32), np.zeros(rows * width, bool)
    dense[flat], mask[flat] = entries.values, True
    return dense.reshape(rows, width), np.packbits(mask.reshape(rows, width), axis=1)


def _save_columns(folder: Path, progress: Parsing) -> None:
    columns = {
        "labels": np.concatenate(progress.labels),
        "offsets": np.array([*progress.starts, progress.rows], dtype=np.int64),
    }
    if progress.grouped:
        columns["query_ids"] = np.arange(1, len(progress.starts) + 1)
    elif all(INTEGER.fullmatch(query) and abs(int(query)) < 2**63 for query in progress.queries):
        columns["query_ids"] = np.array([int(query) for query in progress.queries], dtype=np.int64)
    else:
        columns["query_ids"] = np.array(progress.queries, dtype=np.str_)
    if progress.doc_ids:
        columns["doc_ids"] = np.concatenate(progress.docs)
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)
