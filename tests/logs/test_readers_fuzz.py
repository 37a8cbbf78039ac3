"""Whatever the bytes, a reader rejects rows or raises an error of ours, and loses track of no record."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unskew.errors import UnskewError
from unskew.logs.ingest.columns import ROW
from unskew.logs.ingest.formats import READERS as NAMED
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.text import TextStream
from unskew.tables.reading.options import IngestOptions
from unskew_reproductions.formats import READERS as BESIDE

READERS = {**NAMED, **BESIDE}

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {name: sorted((ROOT / "tests" / "samples" / name).iterdir()) for name in READERS}
TEXT = ("csv", "jsonl")
CORPUS = sorted(path for path in (ROOT / "fuzz" / "corpus").rglob("*") if path.is_file())
TOKENS = [b"\n", b"\t", b"\x00", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b"null", b"-1", b"1e999", b"0"]
TOKENS += [b"9" * 30, b"<interaction", b"</interaction>", b"<page num='", b"\\ud800", b"NaN", b"\xed\xa0\x80"]


def check(reader: str, data: bytes, suffix: str = "") -> None:
    """Read the bytes; every record is taken, ignored or rejected."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{suffix}"
        path.write_bytes(data)
        target = Stage(Path(folder) / "staged", batch=7)
        options = IngestOptions(reader={"item_fields": True, "longest_line": 4_000})
        try:
            READERS[reader](target, options).read([path])
        except UnskewError:
            return
        staged = target
        staged.close()
        assert staged.records_taken + sum(staged.ignored.values()) + staged.rows("rejected") == staged.rows_read
        assert staged.rows("impressions") + staged.rows("clicks") <= 10_000 * staged.rows_read


def check_text(kind: str, data: bytes) -> None:
    """Read CSV or JSON lines; rows have numbers of their own, and there are no more of them than bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(data)
        try:
            stream = TextStream({path: kind}, IngestOptions(), Path(folder) / "staged")
            rows = [row for batch in stream.batches() for row in batch[ROW].to_pylist()]
        except UnskewError:
            return
        assert len(set(rows)) == len(rows)
        assert len(rows) + stream.close()[1] <= len(data) + 1


def mutated(name: str) -> st.SearchStrategy[bytes]:
    """A sample with pieces cut out, doubled, or replaced by nasty ones."""
    edit = st.tuples(
        st.floats(0, 1), st.integers(0, 40), st.one_of(st.sampled_from(TOKENS), st.binary(max_size=9))
    )
    sources = st.sampled_from([path.read_bytes() for path in SAMPLES[name]])
    return st.builds(_edit, sources, st.lists(edit, min_size=1, max_size=6))


def _edit(data: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    for where, length, piece in edits:
        at = int(where * len(data))
        data = data[:at] + piece + data[at + length :]
    return data


SETTINGS: Callable[..., Any] = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.parametrize("reader", READERS)
@SETTINGS
@given(data=st.data())
def test_mutations_of_the_samples(reader: str, data: st.DataObject) -> None:
    check(reader, data.draw(mutated(reader)))


@pytest.mark.parametrize("reader", READERS)
@SETTINGS
@given(data=st.binary(max_size=400), suffix=st.sampled_from(["", "", ".gz", ".xz", ".bz2", ".zst"]))
def test_any_bytes(reader: str, data: bytes, suffix: str) -> None:
    check(reader, data, suffix)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
NAMES = {
    "ubi": [
        "query_id",
        "action_name",
        "user_query",
        "client_id",
        "page_id",
        "timestamp",
        "query_attributes",
        "hits",
        "_source",
        "query_response_hit_ids",
        "query_response_id",
        "event_attributes",
        "queryResponse",
        "query_attributes.propensity",
        "event_attributes.object.object_id",
        "event_attributes.position.ordinal",
    ],
    "metarank": ["event", "id", "items", "item", "fields", "type", "ranking", "timestamp", "user", "page"],
}
VALUES = st.sampled_from(["click", "ranking", "interaction", "item", "q", 1, 0, [], ["a", "b"], [{"id": "a"}]])


@pytest.mark.parametrize("reader", NAMES)
@SETTINGS
@given(data=st.data())
def test_any_value_in_any_field(reader: str, data: st.DataObject) -> None:
    names = st.sampled_from(NAMES[reader])
    record = data.draw(st.dictionaries(names, JSON | VALUES, min_size=1, max_size=8))
    check(reader, json.dumps(record).encode())


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_corpus(path: Path) -> None:
    kind = path.parent.name
    (check if kind in READERS else check_text)(kind, path.read_bytes())


def test_the_corpus_is_there() -> None:
    assert {path.parent.name for path in CORPUS} == {*READERS, *TEXT}
