"""JSON lines to batches of text columns; a line that is no JSON object is rejected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.tables.reading.csv_text import Reject
from unskew.tables.reading.files import MARK, Guarded, opened
from unskew.tables.reading.options import Texts

BLOCK = 4 * 2**20
"""Bytes parsed at once."""
LONGEST = 16 * 2**20
"""Bytes of the longest line; a longer one is rejected without being held."""
_IN_ORDER: dict[str, Any] = {"threads": 1}  # rows keep their order
SERP = re.compile(r'"(serp_\w{1,100})"\s*:')
"""Keys that look like serp columns, also nested ones."""


def json_columns(path: Path, texts: Texts) -> list[str]:
    """The keys of the first block of a file, in the order in which they come."""
    with opened(path, texts.max_expansion) as file, duckdb.connect(config=_IN_ORDER) as con:
        for _, lines in _blocks(file, lambda *_: None):
            table = _good(con, pa.table({"line": pa.array(lines, pa.string())}))[0]
            sql = "SELECT k FROM (SELECT unnest(json_keys(line)) AS k FROM given) GROUP BY k ORDER BY k"
            return [name for name in _run(con, sql, table)["k"].to_pylist() if name]
    return []


def json_batches(
    path: Path, wanted: list[str], texts: Texts, reject: Reject, late: set[str]
) -> Iterator[tuple[Any, Any]]:
    """Batches of text columns with the line of each row; `late` gets names that begin after the first block."""
    paths = [name if name.startswith("/") else "/" + name.replace("~", "~0").replace("/", "~1") for name in wanted]
    picked = ", ".join(f'v[{at + 1}] AS "c{at}"' for at in range(len(wanted)))
    sql = f"SELECT {picked} FROM (SELECT json_extract_string(line, $paths) AS v FROM given)"
    known: set[str] | None = None
    with opened(path, texts.max_expansion) as file, duckdb.connect(config=_IN_ORDER) as con:
        for first, lines in _blocks(file, reject):
            names = {name for line in lines if '"serp_' in line for name in SERP.findall(line)}
            known = {*wanted, *names} if known is None else known
            late |= names - known
            table = pa.table({"line": pa.array(lines, pa.string()), "row": np.arange(first, first + len(lines))})
            table = table.filter(pc.not_equal(pc.utf8_trim_whitespace(table["line"]), ""))
            good, bad = _good(con, table)
            for row, line in zip(bad["row"].to_pylist(), bad["line"].to_pylist(), strict=True):
                reject(row, "not_utf8" if MARK in line else "not_json", line.replace(MARK, "\ufffd"))
            if len(good):
                found = _run(con, sql, good.select(["line"]), {"paths": paths})
                yield found.rename_columns(wanted), good["row"].to_numpy()


def _blocks(file: Guarded, reject: Reject) -> Iterator[tuple[int, list[str]]]:
    """Lines in blocks, each with the number of its first line."""
    number, rest, skipping = 1, b"", False
    while data := file.read(BLOCK):
        if skipping:  # the rest of a line that was too long
            _, newline, data = data.partition(b"\n")
            if not newline:
                continue
            number, skipping = number + 1, False
        text, newline, rest = (rest + data).rpartition(b"\n")
        if newline:
            lines = text.decode("utf-8").split("\n")
            yield number, lines
            number += len(lines)
        if len(rest) > LONGEST:
            reject(number, "line_too_long", rest[:2000].decode("utf-8", "ignore"))
            rest, skipping = b"", True
    if rest:
        yield number, [rest.decode("utf-8")]


def _good(con: Any, table: Any) -> tuple[Any, Any]:
    """Lines that are JSON objects, and those that are not."""
    sql = "SELECT CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END AS ok FROM given"
    valid = _run(con, sql, table.select(["line"]))["ok"]
    return table.filter(valid), table.filter(pc.invert(valid))


def _run(con: Any, sql: str, given: Any, params: dict[str, Any] | None = None) -> Any:
    """Run a query over an Arrow table."""
    con.register("given", given)
    return con.sql(sql, params=params).to_arrow_table()
