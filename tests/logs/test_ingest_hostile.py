"""Files made to break a reader: an error of ours or rejected rows, never a crash and never a hang."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from unskew.errors import DataError, UnskewError
from unskew.files import FREE
from unskew.logs.ingest.columns import ROW as NUMBER
from unskew.logs.ingest.ingest import ingest_files
from unskew.logs.ingest.summary import IngestedLog
from unskew.logs.ingest.text import TextStream
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.reading import text as text_files
from unskew.tables.reading.files import Guarded, find_files, opened
from unskew.tables.reading.options import IngestOptions

HEADER = b"page_id,query_id,doc_id,position,click\n"
ROW = b"p,q,d,1,0\n"
LINE = json.dumps({"page_id": "p", "query_id": "q", "doc_id": "d", "position": 1, "click": 0}).encode() + b"\n"
ALL = IngestOptions(max_rejected=1)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect("duckdb", threads=1) as opened:
        yield opened


def reasons(out: Path) -> list[str]:
    found: list[str] = pq.read_table(out / "rejected.parquet")["reason"].to_pylist()
    return sorted(found)


def run(engine: Engine, tmp_path: Path, name: str, data: bytes, options: IngestOptions = ALL) -> IngestedLog:
    (tmp_path / name).write_bytes(data)
    return ingest_files(tmp_path / name, tmp_path / "out", engine, options, force=True)


def test_a_line_of_100_megabytes(engine: Engine, tmp_path: Path) -> None:
    made = run(engine, tmp_path, "log.jsonl", LINE + b'{"page_id": "' + b"x" * 100_000_000 + b'"}\n' + LINE)
    assert made.rejected.reasons == {"line_too_long": 1}
    assert pq.read_table(tmp_path / "out" / "impressions").num_rows == 1
    assert pq.read_table(tmp_path / "out" / "rejected.parquet")["row"].to_pylist() in ([2, 3], [3, 2])
    assert made.rules["duplicate_events"].rows == 1  # the line after it was read
    with pytest.raises(DataError, match=r"longer than|does not end"):
        run(engine, tmp_path, "log.csv", HEADER + b"x" * 100_000_000 + b"\n")
    with pytest.raises(DataError, match="does not end"):
        run(engine, tmp_path, "log.csv", b"x" * 100_000_000)


@pytest.mark.parametrize("quote", [b"", b'"'])
@pytest.mark.parametrize("before", [0, 120_000])
def test_a_cell_of_3_megabytes_is_a_broken_row(engine: Engine, tmp_path: Path, quote: bytes, before: int) -> None:
    """Wherever in the file it stands, across the blocks that are parsed at once too."""
    rows = b"".join(b"%d,q,d,1,0\n" % page for page in range(before))
    cell = quote + b"x" * 3_000_000 + quote
    made = run(engine, tmp_path, "log.csv", HEADER + rows + b"p,q," + cell + b",1,0\n" + ROW)
    assert made.rejected.reasons == {"value_too_long": 1}
    assert (made.rows_read, made.impressions) == (before + 2, before + 1)
    assert pq.read_table(tmp_path / "out" / "rejected.parquet")["row"].to_pylist() == [before + 2]


def test_a_long_line_is_counted_like_any_other(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "LONGEST", 200)
    monkeypatch.setattr(text_files, "BLOCK", 50)
    run(engine, tmp_path, "log.jsonl", LINE + b"x" * 1000 + b"\n" + b"broken\n" + LINE)
    table = pq.read_table(tmp_path / "out" / "rejected.parquet").to_pylist()
    found = {(row["row"], row["reason"]) for row in table}
    assert {(2, "line_too_long"), (3, "not_json")} <= found


GOOD = b"p,q,a,1,0\n"
HALF = b'p,q,"b,2,0\n'


@pytest.mark.parametrize(
    ("data", "reason", "lines", "left"),
    [
        # one opens, and the next one to come closes it: two rows that look like one
        (GOOD + HALF + b'p,q,"c,3,0\n' + b"r,q,a,1,0\n", "unclosed_quote", 2, 2),
        (GOOD + HALF + b"p,q,c,3,0\r\n" * 3 + b'p,q,c",3,0\n', "unclosed_quote", 5, 1),
        (GOOD + b'p,q,b,2,"0\np,q,c,3,0\n', "unclosed_quote", 2, 1),  # to the end of the file
        (GOOD + HALF + b"p,q,c,3,0\n" * 9, "wrong_number_of_fields", 10, 1),
    ],
)
def test_a_quote_that_is_not_closed_loses_no_line(
    engine: Engine, tmp_path: Path, data: bytes, reason: str, lines: int, left: int
) -> None:
    made = run(engine, tmp_path, "log.csv", HEADER + data)
    assert made.rejected.reasons == {reason: lines}
    assert (made.impressions, made.rows_read) == (left, lines + left)


def test_quotes_around_several_lines(engine: Engine, tmp_path: Path) -> None:
    header = HEADER.strip() + b",title,note\n"
    good = b'p,q,a,1,0,"one, or\nmore, or\n\n""less""",x\n' * 1 + b'p,q,b,2,0,t,"a\nb, c"\n'
    made = run(engine, tmp_path, "log.csv", header + good)
    assert (made.impressions, made.rejected.rows) == (2, 0)
    titles = pq.read_table(tmp_path / "out" / "impressions")["title"].to_pylist()
    assert sorted(titles) == ['one, or\nmore, or\n\n"less"', "t"]
    # in a column that is not read, rows could vanish unseen
    with pytest.raises(DataError, match="a quote is not closed"):
        run(
            engine,
            tmp_path,
            "log.csv",
            header + good + b'p,q,c,3,0,t,"x\n' + b"p,q,d,4,0,t,x\n" + b'p,q,d,4,0,t,"x\n',
        )


def test_keys_that_come_late(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "BLOCK", 100)
    row = {"page_id": "p", "query_id": "q", "doc_id": "d", "position": 1, "click": 0, "in": {"serp_y": 1}}
    late = [{**row, "position": at, "doc_id": str(at)} for at in range(1, 9)]
    late[-1] |= {"timestamp": "2024-01-01", "serp_x": 3, "market": "de"}
    data = "\n".join(json.dumps(each) for each in late).encode()
    made = run(engine, tmp_path, "log.jsonl", data, IngestOptions(keep=("market",)))
    assert made.columns == ["page_id", "query_id", "doc_id", "position", "click", "timestamp", "market"]
    assert made.notes == ["not read, since they begin after the first 4 MB: serp_x; name them in `keep`"]
    made = run(engine, tmp_path, "log.jsonl", data, IngestOptions(keep=("serp_x",)))
    table = pq.read_table(tmp_path / "out" / "impressions").sort_by("position").to_pylist()
    assert [each["serp_x"] for each in table] == [None] * 7 + [3]
    assert made.notes == []


def test_ten_thousand_columns(engine: Engine, tmp_path: Path) -> None:
    names = b",".join(b"c%d" % at for at in range(10_000))
    values = b",".join([b"1"] * 10_000)
    data = HEADER.strip() + b"," + names + b"\n" + ROW.strip() + b"," + values + b"\n"
    made = run(engine, tmp_path, "log.csv", data)
    assert made.columns == ["page_id", "query_id", "doc_id", "position", "click"]
    with pytest.raises(DataError, match=r"missing columns.{0,700}$"):
        run(engine, tmp_path, "log.csv", names + b",click\n" + values + b",1\n")


def test_json_nested_very_deep(engine: Engine, tmp_path: Path) -> None:
    deep = b'{"page_id": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001 + b"\n"
    made = run(engine, tmp_path, "log.jsonl", LINE + deep + b"[" * 1_000_000 + b"\n")
    assert made.rejected.rows == 2
    assert len(reasons(tmp_path / "out")) == 2


def test_nul_bytes_and_bytes_that_are_no_text(engine: Engine, tmp_path: Path) -> None:
    made = run(engine, tmp_path, "log.csv", HEADER + ROW + b"p,q,\x00,2,0\n" + b"p,q,\xed\xa0\x80,3,0\n\xff\n")
    assert made.rejected.reasons == {"not_utf8": 2}
    assert made.impressions == 2
    assert run(engine, tmp_path, "bom.csv", b"\xef\xbb\xbf" + HEADER + ROW).impressions == 1


def test_a_bomb_is_not_unpacked(engine: Engine, tmp_path: Path) -> None:
    bomb = gzip.compress(LINE + b" " * (FREE + 2**20))
    with pytest.raises(DataError, match="grows past"):
        run(engine, tmp_path, "log.jsonl.gz", bomb)
    meant = IngestOptions.model_validate({"max_rejected": 1, "files": {"max_expansion": 2000}})
    assert run(engine, tmp_path, "log.jsonl.gz", bomb, meant).impressions == 1


@pytest.mark.parametrize("name", ["log.csv.gz", "log.jsonl.zst", "log.csv.xz", "log.csv.bz2"])
def test_damaged_archives(engine: Engine, tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="log"):
        run(engine, tmp_path, name, b"\x1f\x8b\x08\x00 not an archive at all")
    cut = gzip.compress(HEADER + ROW * 10_000)[:-20]
    with pytest.raises(DataError, match=r"log.csv.gz:1: .*damaged"):
        run(engine, tmp_path, "log.csv.gz", cut)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_damaged_parquet(engine: Engine, tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError):
        run(engine, tmp_path, "log.parquet", data)


def test_folders_that_lead_back_and_names_on_two_lines(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("loop", "other"):
        (folder / name).symlink_to(folder)
    (folder / "a\nb.csv").write_bytes(HEADER + ROW + b"p,q\n")
    os.mkfifo(folder / "pipe.csv")
    assert len(find_files([str(folder / "**" / "*.csv")])) == 1
    made = ingest_files(folder, tmp_path / "out", engine, ALL)
    assert made.impressions == 1
    table = pq.read_table(tmp_path / "out" / "rejected.parquet")
    assert table["file"].to_pylist() == [str(folder / "a\\nb.csv")]
    with pytest.raises(DataError, match="not a file"):
        find_files([folder / "pipe.csv"])
    with pytest.raises(DataError):
        find_files(["no\x00name.csv"])


SETTINGS = settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MANY = settings(SETTINGS, max_examples=30)
PIECES = st.sampled_from(
    [
        b",",
        b"\n",
        b'"',
        b"\t",
        b"\r\n",
        b"p",
        b"1",
        b"0",
        b"\x00",
        b"\xff",
        b"{",
        b"}",
        b'"click":',
        b"[",
        b"NaN",
        ROW,
    ]
)
BYTES = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=60).map(b"".join))


def never_crashes(engine: Engine, tmp_path: Path, name: str, data: bytes) -> None:
    try:
        made = run(engine, tmp_path, name, data)
    except UnskewError:
        return
    rows = pq.read_table(tmp_path / "out" / "impressions")
    assert len(rows) == made.impressions > 0
    assert made.rows_read >= made.impressions + made.rejected.rows


@SETTINGS
@given(BYTES)
@example(b'"\n')
@example(b'p,q,"d,1,0\n')
@example(b"\r\r\n")
def test_csv_of_any_bytes(engine: Engine, tmp_path: Path, data: bytes) -> None:
    never_crashes(engine, tmp_path, "log.csv", HEADER + ROW + data)
    never_crashes(engine, tmp_path, "log.tsv", data)


@SETTINGS
@given(BYTES)
@example(b'{"page_id": 1e999}\n')
@example(b'{"page_id": "\\ud800", "page_id": {}}\n')
def test_json_lines_of_any_bytes(engine: Engine, tmp_path: Path, data: bytes) -> None:
    never_crashes(engine, tmp_path, "log.jsonl", LINE + data)
    never_crashes(engine, tmp_path, "other.jsonl", data)


def staged(folder: Path, name: str, data: bytes) -> tuple[int, list[dict[str, Any]]]:
    """A text file as the engine gets it, or an error of ours; without the engine, so that many can be tried."""
    place = Path(tempfile.mkdtemp(dir=folder))
    (place / name).write_bytes(data)
    stream = TextStream(find_files([place / name]), ALL, place / "staged")
    rows = [row for batch in stream.batches() for row in batch.to_pylist()]
    assert len({row[NUMBER] for row in rows}) == len(rows)
    return stream.close()[1], rows


@MANY
@given(BYTES)
@example(b'p,q,"d,1,0\np,q,d",1,0')
def test_text_of_any_bytes(tmp_path: Path, data: bytes) -> None:
    for name, start in (("a.csv", HEADER), ("b.tsv", b""), ("c.jsonl", LINE)):
        with contextlib.suppress(DataError):
            staged(tmp_path, name, start + data)


@MANY
@given(
    st.lists(
        st.sampled_from([b'p,q,"d,1,0', b'p,q,d,1,"0', b'"p,q,d,1,0', b'p,q,d",1,0', b'p,"q",d,1,0']), max_size=9
    )
)
def test_every_line_of_csv_is_a_row_or_rejected(tmp_path: Path, lines: list[bytes]) -> None:
    for end in (b"", b"\n"):
        lost, rows = staged(tmp_path, "log.csv", HEADER + ROW + b"\n".join(lines) + end)
        assert len(rows) + lost == 1 + len(lines)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))


@SETTINGS
@given(st.fixed_dictionaries(dict.fromkeys(("page_id", "position", "click", "timestamp"), VALUES)))
@example({"page_id": "s", "position": 1, "click": 1, "timestamp": 1e300})
@example({"page_id": "s", "position": 1, "click": 1, "timestamp": -(2**63)})
def test_json_values_of_any_kind(engine: Engine, tmp_path: Path, values: dict[str, Any]) -> None:
    row = {"page_id": "p2", "query_id": "q", "doc_id": "d", "position": 1, "click": 0} | values
    never_crashes(engine, tmp_path, "log.jsonl", LINE + json.dumps(row).encode() + b"\n")


def test_a_file_is_closed_while_a_parser_still_reads_it(tmp_path: Path) -> None:
    """Arrow reads ahead in a thread of its own; leaving the file early must wait for it, not fail."""
    (tmp_path / "log.csv").write_bytes(b"x" * 40_000_000)
    for _ in range(20):
        seen: list[int] = []
        with opened(tmp_path / "log.csv", 200) as text:

            def read(text: Guarded = text, seen: list[int] = seen) -> None:
                while block := text.read(None):
                    seen.append(len(block))

            reader = threading.Thread(target=read)
            reader.start()
            while not seen:
                threading.Event().wait(0.001)
        reader.join(10)
        assert not reader.is_alive()
        assert text.read(10) == b""
