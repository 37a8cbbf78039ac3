"""Ingest: formats, names, times, positions, click events, what is written and what is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError, RunError, UnskewError
from unskew.files import read_json
from unskew.logs.ingest.ingest import ingest_files, ingest_options
from unskew.logs.ingest.rejected import TooMuchAside
from unskew.logs.ingest.summary import IngestedLog, TimeSpan
from unskew.logs.reader import read_log
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.functions import micros_since_1970
from unskew.tables.reading.options import IngestOptions
from unskew.terminal.main import app
from unskew.types import Lists

Ingest = Callable[..., IngestedLog]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect("duckdb", threads=1) as opened:
        yield opened


@pytest.fixture
def run(engine: Engine, tmp_path: Path) -> Ingest:
    """Ingest into tmp_path/out, with options as keywords."""

    def call(
        source: Any, *, kind: str | None = None, clicks: Any = (), force: bool = False, **options: Any
    ) -> Any:
        given = IngestOptions.model_validate(options)
        return ingest_files(source, tmp_path / "out", engine, given, kind=kind, clicks=clicks, force=force)

    return call


def log(pages: int = 4, results: int = 3, base: int = 1) -> pa.Table:
    """Pages p0, p1, ... of queries q0, q1; the result at the first position is clicked on every other page."""
    cells = [(page, rank) for page in range(pages) for rank in range(results)]
    return pa.table(
        {
            "page_id": [f"p{page}" for page, _ in cells],
            "query_id": [f"q{page % 2}" for page, _ in cells],
            "doc_id": [f"d{rank}" for _, rank in cells],
            "position": pa.array([rank + base for _, rank in cells], pa.int64()),
            "click": pa.array([int(rank == 0 and page % 2 == 0) for page, rank in cells], pa.int64()),
        }
    )


def written(tmp_path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "out" / "impressions").to_pylist()
    return sorted(rows, key=lambda row: (str(row["page_id"]), row["position"]))


def rejected(tmp_path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "out" / "rejected.parquet").to_pylist()
    return rows


def csv_bytes(table: pa.Table, delimiter: str = ",") -> bytes:
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink, pa_csv.WriteOptions(delimiter=delimiter))
    return bytes(sink.getvalue())


def jsonl_bytes(table: pa.Table) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}


@pytest.mark.parametrize(
    ("ending", "packed"), [(".jsonl", ""), (".tsv", ".gz"), *((".csv", packed) for packed in PACK)]
)
def test_every_text_format_gives_what_parquet_gives(run: Ingest, tmp_path: Path, ending: str, packed: str) -> None:
    table = log()
    data = jsonl_bytes(table) if ending == ".jsonl" else csv_bytes(table, "\t" if ending == ".tsv" else ",")
    path = tmp_path / f"log{ending}{packed}"
    path.write_bytes(PACK[packed](data))
    found = run(path)
    expected = [{**row, "timestamp": None} for row in table.to_pylist()]
    assert [{**row, "timestamp": None} for row in written(tmp_path)] == expected
    assert (found.rows_read, found.pages, found.queries, found.documents) == (12, 4, 2, 3)
    assert found.clicks == 2
    assert found.pages_without_clicks == 0.5
    assert [row.click_rate for row in found.by_position] == [0.5, 0, 0]
    told = read_json(tmp_path / "out" / "summary.json")
    assert {name: told[name] for name in told if name != "files"} == found.to_dict()
    assert rejected(tmp_path) == []


def test_parquet_in_a_folder_and_by_a_pattern(run: Ingest, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "a[1]*"
    folder.mkdir(parents=True)
    table = log()
    pq.write_table(table.slice(0, 6), folder / "x.parquet")
    pq.write_table(table.slice(6), folder / "y.parquet")
    (folder / "notes.txt").write_text("not data")
    (folder / "loop").symlink_to(folder)
    assert run(folder).impressions == 12
    assert written(tmp_path) == table.to_pylist()
    assert run(str(tmp_path / "in" / "*" / "y*.parquet"), force=True).impressions == 6


def test_a_clean_log_of_our_types_is_copied_and_another_is_written_anew(run: Ingest, tmp_path: Path) -> None:
    table = log().set_column(3, "position", log()["position"].cast(pa.int32()))
    table = table.set_column(4, "click", table["click"].cast(pa.int8()))
    path = tmp_path / "clean.parquet"
    pq.write_table(table, path)
    run(path)
    assert (tmp_path / "out" / "impressions" / "part-00000.parquet").read_bytes() == path.read_bytes()
    pq.write_table(table.append_column("foo", [["x"] * 12]), path)
    assert run(path, force=True).columns == table.column_names
    assert written(tmp_path) == table.to_pylist()


def test_columns_are_renamed_kept_and_dropped(run: Ingest, tmp_path: Path) -> None:
    table = log().rename_columns(["sid", "query_id", "doc", "rank", "click"])
    further = {"serp_width": ["7"] * 12, "serp_kind": ["x"] * 12, "market": ["de"] * 12, "junk": ["j"] * 12}
    for name, values in further.items():
        table = table.append_column(name, [values])
    path = tmp_path / "log.csv"
    path.write_bytes(csv_bytes(table))
    found = run(path, columns={"page_id": "sid", "doc_id": "doc", "position": "rank"}, keep=["market"])
    assert set(found.columns) == {*log().column_names, "serp_width", "serp_kind", "market"}
    assert {(row["serp_width"], row["serp_kind"], row["market"]) for row in written(tmp_path)} == {(7, "x", "de")}


def test_nested_fields_of_json_are_named_by_pointers(run: Ingest, tmp_path: Path) -> None:
    lines = [{"page_id": 1, "query_id": "q", "hit": {"id": f"d{k}", "a/b": k}, "click": k == 1} for k in (1, 2)]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    run(path, columns={"doc_id": "/hit/id", "position": "/hit/a~1b"})
    assert [(row["doc_id"], row["position"], row["click"]) for row in written(tmp_path)] == [
        ("d1", 1, 1),
        ("d2", 2, 0),
    ]


@pytest.mark.parametrize(("base", "asked", "found"), [(0, None, 0), (1, None, 1), (1, 0, 0)])
def test_the_base_of_positions(run: Ingest, tmp_path: Path, base: int, asked: int | None, found: int) -> None:
    pq.write_table(log(base=base), tmp_path / "log.parquet")
    made = run(tmp_path / "log.parquet", positions={"base": asked})
    assert (made.positions_from, made.positions_detected) == (found, asked is None)
    assert [row["position"] for row in written(tmp_path)][:3] == [base - found + 1 + k for k in range(3)]


def test_a_stray_zero_does_not_move_the_base(run: Ingest, tmp_path: Path) -> None:
    stray = log(pages=1).slice(0, 1).set_column(3, "position", [pa.array([0], pa.int64())])
    pq.write_table(pa.concat_tables([log(pages=40), stray]), tmp_path / "log.parquet")
    made = run(tmp_path / "log.parquet")
    assert made.positions_from == 1
    assert made.rejected.reasons == {"position_below_1": 1}
    assert made.impressions == 120


def timed(texts: list[Any]) -> list[dict[str, Any]]:
    """A page for every time."""
    return [
        {"page_id": k, "query_id": "q", "doc_id": "d", "position": 1, "click": 0, "timestamp": text}
        for k, text in enumerate(texts)
    ]


def test_times_of_every_kind(run: Ingest, tmp_path: Path) -> None:
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    seconds = int(noon.timestamp())
    texts = [
        "2024-07-01T12:00:00Z",
        "2024-07-01T14:00:00+02:00",
        "2024-07-01 06:30:00-0530",
        "2024-07-01T14:00:00.000",
        "2024-07-01 14:00",
        str(seconds),
        seconds * 1_000,
        seconds * 1_000_000,
        seconds * 1_000_000_000,
        f"{seconds * 1_000_000_000 + 999}",
        f"{seconds}.0",
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in timed(texts)))
    made = run(path, time={"zone": "Europe/Berlin"}, rules={"off": ["robots"]})
    assert {row["timestamp"] for row in written(tmp_path)} == {noon}
    assert made.time == TimeSpan("2024-07-01T12:00:00Z", "2024-07-01T12:00:00Z")


def test_times_without_a_zone_in_parquet_and_in_a_format_of_their_own(run: Ingest, tmp_path: Path) -> None:
    naive = pa.Table.from_pylist(timed([datetime(2024, 1, 1, 12)]))
    pq.write_table(naive, tmp_path / "log.parquet")
    run(tmp_path / "log.parquet", time={"zone": "Europe/Berlin"})
    assert written(tmp_path)[0]["timestamp"] == datetime(2024, 1, 1, 11, tzinfo=UTC)
    (tmp_path / "log.csv").write_bytes(csv_bytes(pa.Table.from_pylist(timed(["01.02.2024 12:00", "gestern"]))))
    made = run(tmp_path / "log.csv", time={"format": "%d.%m.%Y %H:%M"}, max_rejected=0.5, force=True)
    assert [row["timestamp"] for row in written(tmp_path)] == [datetime(2024, 2, 1, 12, tzinfo=UTC)]
    assert made.rejected.reasons == {"unreadable_timestamp": 1}


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000, 1_000_000_000])
@pytest.mark.parametrize("kind", [int, float, str])
def test_the_engine_has_the_clock_of_the_readers(run: Ingest, tmp_path: Path, scale: int, kind: Any) -> None:
    numbers = [kind(1_717_200_000 * scale + more) for more in (0, scale // 2)]
    pq.write_table(pa.Table.from_pylist(timed(numbers)), tmp_path / "log.parquet")
    run(tmp_path / "log.parquet", rules={"off": ["robots"]})
    found = sorted(row["timestamp"] for row in written(tmp_path))
    assert found == [
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros_since_1970(int(n)) or 0) for n in numbers
    ]


@pytest.mark.parametrize("between", [",", "\t"])
def test_empty_fields_at_the_end_of_a_row_are_not_counted(run: Ingest, tmp_path: Path, between: str) -> None:
    lines = [
        "page_id,query_id,doc_id,position,click,serp_a,,",  # two columns without a name
        "p,q,a,1,0,x,,",
        "p,q,b,2,1,",
        "p,q,c,3,0,,,,,",
        'p,q,"d",4,0,"y",',
        "p,q,e,5,0,z,,,more",
        "p,q,f,5",
        "p,q,g,5,0,z,,",
    ]
    path = tmp_path / ("log.csv" if between == "," else "log.tsv")
    path.write_text("\n".join(lines).replace(",", between))
    made = run(path, max_rejected=1)
    assert [(row["doc_id"], row["click"], row["serp_a"]) for row in written(tmp_path)] == [
        ("a", 0, "x"),
        ("b", 1, None),
        ("c", 0, None),
        ("d", 0, "y"),
        ("g", 0, "z"),
    ]
    assert made.rejected.reasons == {"wrong_number_of_fields": 2}
    assert [row["row"] for row in rejected(tmp_path)] == [6, 7]


def test_broken_rows_are_named_with_their_place(run: Ingest, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(
        b"page_id,query_id,doc_id,position,click\n"
        b"p,q,a,1,yes\n"
        b"p,q,b,2,False\n"
        b"\n"
        b"p,q\n"
        b",q,c,3,0\n"
        b"p,q,c,2.5,0\n"
        b"p,q,c,-1,0\n"
        b"p,q,c,3,2\n"
        b"p,q,\xff,3,0\n"
    )
    made = run(path, max_rejected=1)
    assert [(row["doc_id"], row["click"]) for row in written(tmp_path)] == [("a", 1), ("b", 0)]
    assert made.rows_read == 8
    assert {row["file"] for row in rejected(tmp_path)} == {str(path)}
    assert sorted((row["row"], row["reason"]) for row in rejected(tmp_path)) == [
        (5, "wrong_number_of_fields"),
        (6, "missing_page_id"),
        (7, "position_not_a_whole_number"),
        (8, "position_not_a_whole_number"),
        (9, "click_not_0_or_1"),
        (10, "not_utf8"),
    ]
    assert "position=2.5" in next(row["detail"] for row in rejected(tmp_path) if row["row"] == 7)


def test_broken_json_lines(run: Ingest, tmp_path: Path) -> None:
    good = json.dumps(log(1, 1).to_pylist()[0])
    path = tmp_path / "log.jsonl"
    path.write_bytes(f'{good}\n\n{{"a":\n[1]\n'.encode() + b'"\xff"\n' + b"\x00\n{}\n")
    run(path, max_rejected=1)
    found = {row["row"]: row["reason"] for row in rejected(tmp_path)}
    assert found == {3: "not_json", 4: "not_json", 5: "not_utf8", 6: "not_json", 7: "missing_page_id"}
    assert len(written(tmp_path)) == 1


def test_too_many_broken_rows_write_nothing_but_themselves(run: Ingest, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(csv_bytes(log()) + b"p9,q,d,first,0\n")
    with pytest.raises(TooMuchAside, match=r"1 of 13 rows are broken \(7.69%\)(?s:.*)position=first"):
        run(path, max_rejected=0.05)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.csv", "out.rejected.parquet"]
    run(path, max_rejected=0.1)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.csv", "out"]


EVENTS = [
    ("impression", "p", "a", 1, 10),
    ("impression", "p", "b", 2, 10),
    ("click", "p", "b", None, 11),
    ("click", "p", "b", None, 12),  # again
    ("click", "p", "z", None, 12),  # never shown
    ("click", "p", "a", None, 9),  # before the page
    ("scroll", "p", None, None, 9),
]


def event_rows() -> list[dict[str, Any]]:
    keys = ("event", "page_id", "doc_id", "position", "timestamp")
    return [{**dict(zip(keys, row, strict=True)), "query_id": "q"} for row in EVENTS]


def test_events_in_one_file(run: Ingest, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in event_rows()))
    made = run(path)
    assert [(row["doc_id"], row["click"]) for row in written(tmp_path)] == [("a", 0), ("b", 1)]
    assert sorted(row["reason"] for row in rejected(tmp_path)) == [
        "clicks_before_query",
        "clicks_without_impression",
        "duplicate_events",
    ]
    assert {name: rule.rows for name, rule in made.rules.items() if rule.rows} == {
        "duplicate_events": 1,
        "clicks_without_impression": 1,
        "clicks_before_query": 1,
    }
    assert made.ignored == {"other_event": 1}
    made = run(path, force=True, rules={"off": ["clicks_before_query"]})
    assert [(row["doc_id"], row["click"]) for row in written(tmp_path)] == [("a", 1), ("b", 1)]
    assert made.rules["clicks_before_query"].rows == 1


def test_clicks_bring_what_they_alone_know(run: Ingest, tmp_path: Path) -> None:
    known = {"b": {"dwell_time": 7.5, "serp_x": 3, "serp_width": 9}}
    rows = [{**row, "serp_width": 5} if row["event"] == "impression" else row for row in event_rows()]
    rows = [{**row, **known.get(row["doc_id"], {})} if row["event"] == "click" else row for row in rows]
    rows.append({"event": "click", "page_id": "p", "query_id": "q", "position": 1, "timestamp": 13})
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    made = run(path)
    names = ("doc_id", "click", "dwell_time", "serp_x", "serp_width")
    assert [tuple(row[name] for name in names) for row in written(tmp_path)] == [
        ("a", 1, None, None, 5),  # by its position, and its click before the page does no harm
        ("b", 1, 7.5, 3, 5),  # what the page says of its width stands
    ]
    assert made.rejected.rows == 0
    assert made.rules["clicks_before_query"].rows == 0
    path.write_text("\n".join(json.dumps(row) for row in [*rows[:2], {"event": "click", "page_id": "p"}]))
    made = run(path, force=True, max_rejected=1)
    assert made.rejected.reasons == {"missing_doc_id": 1}


def test_a_format_with_a_reader_of_its_own(run: Ingest, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("0\t0\tQ\t8\t0\t7\t3\t5\n0\t10\tC\t3\n0\t20\tC\t9\n1\t0\tQ\t8\t0\t7\t5\n?\n")
    made = run(tmp_path / "log", kind="unskew_reproductions.formats.yandex:Yandex", max_rejected=0.2)
    assert [(row["position"], row["doc_id"], row["click"]) for row in written(tmp_path)] == [
        (1, "7", 0),
        (2, "3", 1),
        (3, "5", 0),
        (1, "7", 0),
        (2, "5", 0),
    ]
    assert made.rows_read == 5
    assert made.rejected.rows == 1
    assert made.rules["clicks_without_impression"].rows == 1
    with pytest.raises(ConfigError, match="Did you mean metarank"):
        run(tmp_path / "log", kind="metarnk", force=True)


@pytest.mark.parametrize("by", ["doc_id", "position"])
def test_clicks_in_a_file_of_their_own(run: Ingest, tmp_path: Path, by: str) -> None:
    pq.write_table(log().drop_columns(["click"]), tmp_path / "shown.parquet")
    value = "d1" if by == "doc_id" else "2"
    (tmp_path / "clicks.csv").write_text(f"page_id,{by}\np3,{value}\n")
    run(tmp_path / "shown.parquet", clicks=[tmp_path / "clicks.csv"])
    assert [(row["page_id"], row["doc_id"]) for row in written(tmp_path) if row["click"]] == [("p3", "d1")]


def test_a_missing_page_can_be_made_of_other_columns(run: Ingest, tmp_path: Path) -> None:
    table = log().rename_columns(["user_id", *log().column_names[1:]])
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"no page_id, and no timestamp to find pages by; there are user_id, "):
        run(tmp_path / "log.parquet")
    made = run(tmp_path / "log.parquet", page=["user_id", "query_id"])
    assert made.pages == 4
    assert written(tmp_path)[0]["page_id"] == "p0|q0"


def test_what_is_there_is_not_overwritten_unasked(run: Ingest, tmp_path: Path) -> None:
    pq.write_table(log(), tmp_path / "log.parquet")
    run(tmp_path / "log.parquet")
    with pytest.raises(RunError, match="exists and is never overwritten"):
        run(tmp_path / "log.parquet")
    run(tmp_path / "log.parquet", force=True)
    (tmp_path / "out" / "summary.json").unlink()
    with pytest.raises(RunError, match="is not ours"):
        run(tmp_path / "log.parquet", force=True)
    assert len(written(tmp_path)) == 12


def test_an_ingested_log_is_read_and_ingested_again(run: Ingest, tmp_path: Path, engine: Engine) -> None:
    import numpy as np

    pq.write_table(log(), tmp_path / "log.parquet")
    run(tmp_path / "log.parquet")
    lists = Lists(
        features=np.zeros((6, 1), np.float32),
        labels=np.zeros(6, np.float32),
        offsets=np.array([0, 3, 6]),
        query_ids=np.array(["q0", "q1"]),
        doc_ids=np.array(["d0", "d1", "d2"] * 2),
    )
    read = read_log(tmp_path / "out", lists)
    assert (len(read), int(read.click.sum())) == (4, 2)
    assert ingest_files(tmp_path / "out", tmp_path / "again", engine).impressions == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[columns]\npositon = 'rank'", "Did you mean position"),
        ("[time]\nzone = 'Europe/Belrin'", "there is no such time zone"),
        ("[rules]\noff = ['robot']", "Did you mean robots"),
        ("[rules.robots]\nclicks = 3", "rules.robots.clicks: unknown key"),
        ("[positions]\nbase = 2", "positions.base"),
        ("max_rejected = 2", "max_rejected"),
        ("colums = 1", "colums: unknown key. Did you mean columns"),
    ],
)
def test_mapping_files_are_checked(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "mapping.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        ingest_options(path, {})
    assert str(path) in str(error.value)


def test_flags_stand_over_a_mapping_file(tmp_path: Path) -> None:
    path = tmp_path / "mapping.toml"
    path.write_text("[columns]\nposition = 'rank'\nclick = 'c'\n[rules.robots]\nclicks_per_minute = 9\n")
    over = {"columns": {"click": "clicked"}, "off": ("robots",), "keep": ()}
    made = ingest_options(path, over | {"time_zone": "Asia/Tokyo", "positions_from": 0})
    assert made.columns == {"position": "rank", "click": "clicked"}
    assert (made.rules.off, made.rules.robots.clicks_per_minute) == (("robots",), 9)
    assert (made.time.zone, made.positions.base) == ("Asia/Tokyo", 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.csv", "no such file"), ("*.csv", "no file matches"), ("README", "does not say what the file holds")],
)
def test_sources_that_are_not_there(run: Ingest, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "README").write_text("x")
    with pytest.raises(UnskewError, match=message):
        run(tmp_path / name)


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(
        csv_bytes(log().rename_columns(["s", "query_id", "doc_id", "rank", "click"]))
    )
    words = ["ingest", str(tmp_path / "log.csv"), "--out", str(tmp_path / "out"), "--column", "position=rank"]
    wrong = CliRunner().invoke(app, [*words, "--column", "click"])
    assert (wrong.exit_code, "write it like position=rank" in wrong.stderr) == (2, True)
    missing = CliRunner().invoke(app, words)
    assert isinstance(missing.exception, DataError)
    words += ["--column", "page_id=s", "--threads", "1"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.exception
    assert "12 impressions from 12 rows read" in shown.stdout
    assert "positions count from 1" in shown.stdout
    assert "rank   1 " in shown.stdout
    as_json = CliRunner().invoke(app, [*words, "--force", "--json"])
    assert json.loads(as_json.stdout)["pages"] == 4
    (tmp_path / "log.csv").write_text("s,query_id,doc_id,rank,click\n1,1,1,x,0\n")
    failed = CliRunner().invoke(app, [*words, "--force"]).exception
    assert isinstance(failed, TooMuchAside)
    assert failed.status == 3
    assert len(pq.read_table(tmp_path / "out.rejected.parquet")) == 1
    assert len(written(tmp_path)) == 12


def test_from_files_to_a_model_in_python(tmp_path: Path) -> None:
    """The commands as functions: ingest, pages, counts, learn."""
    random = np.random.default_rng(0)
    rows = [
        {"page_id": page, "query_id": f"q{page % 9}", "product": f"d{rank}", "rank": rank}
        | {
            "click": int(random.random() < 0.5 / (rank + 1)),
            "user_id": page % 40,
            "timestamp": 1_700_000_000 + 60 * page,
        }
        for page in range(300)
        for rank in range(4)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "raw.parquet")
    features = [
        {"query_id": f"q{query}", "doc_id": f"d{rank}", "a": random.random(), "b": random.random()}
        for query in range(9)
        for rank in range(4)
    ]
    pq.write_table(pa.Table.from_pylist(features), tmp_path / "features.parquet")
    columns = {"doc_id": "product", "position": "rank"}
    made = unskew.ingest(tmp_path / "raw.parquet", tmp_path / "log", columns=columns, threads=1)
    assert (made.rows_read, made.positions_from) == (1200, 0)
    split = unskew.split(str(tmp_path / "log"), str(tmp_path / "split"), threads=1)
    counted = unskew.counts(str(tmp_path / "split" / "train"), str(tmp_path / "counts"), threads=1)
    assert 0 < counted.pages < made.pages
    assert sum(split.parts.values()) > 40
    (tmp_path / "run.toml").write_text(
        'out = "run"\n[data]\ncounts = "counts"\nfeatures = "features.parquet"\nshards = 2\n'
        '[method]\nname = "dla"\n'
        '[ranker]\nname = "linear"\n[training]\nsteps = 4\nvalidate_on = "nothing"\n'
    )
    model = unskew.learn(tmp_path / "run.toml", seed=3)
    assert model.score(np.zeros((2, 2), np.float32)).shape == (2,)
    assert (tmp_path / "run" / "model.json").exists()
    with pytest.raises(RunError, match=r"never overwritten|already"):
        unskew.learn(tmp_path / "run.toml")
    other = unskew.learn(tmp_path / "run.toml", method="naive", out=tmp_path / "other")
    assert other.model.card.method["name"] == "naive"


def test_a_column_to_keep_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("page_id,query_id,doc_id,position,click,device\np,q,d,1,1,phone\n")
    with pytest.raises(DataError, match="there is no column 'devise' to keep"):
        unskew.ingest(tmp_path / "log.csv", tmp_path / "out", keep=["devise"], threads=1)
    unskew.ingest(tmp_path / "log.csv", tmp_path / "out", keep=["device"], threads=1)
    assert written(tmp_path)[0]["device"] == "phone"


def test_a_click_at_the_moment_of_its_page_is_one(run: Ingest, tmp_path: Path) -> None:
    """Clocks of whole seconds: only what is earlier than the page is no click on it."""
    rows = [row for row in event_rows() if row["event"] == "impression"]
    clicks = [{**row, "event": "click", "position": None} for row in rows]
    clicks[1]["timestamp"] = 9
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, *clicks]))
    made = run(path)
    assert [(row["doc_id"], row["click"]) for row in written(tmp_path)] == [("a", 1), ("b", 0)]
    assert made.rules["clicks_before_query"].rows == 1


def test_the_earliest_click_on_a_result_is_taken(run: Ingest, tmp_path: Path) -> None:
    """But not one from before its page."""
    rows = [row for row in event_rows() if row["event"] == "impression" and row["doc_id"] == "b"]
    times = ((12, 2.0), (9, 1.0), (11, 7.5), (13, 3.0))
    clicks = [{**rows[0], "event": "click", "timestamp": at, "dwell_time": dwell} for at, dwell in times]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in [*rows, *clicks]))
    run(path)
    assert [(row["click"], row["dwell_time"]) for row in written(tmp_path)] == [(1, 7.5)]


def ingested_events(run: Ingest, tmp_path: Path, rows: list[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Documents and whether they are clicked, of a log of event, page, document, position and time."""
    keys = ("event", "page_id", "doc_id", "position", "timestamp")
    events = [{**dict(zip(keys, row, strict=True)), "query_id": "q"} for row in rows]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, events)))
    run(tmp_path / "log.jsonl", rules={"off": ["two_documents_at_one_position"]})
    return [(row["doc_id"], row["click"]) for row in written(tmp_path)]


def test_a_click_without_a_time_is_one(run: Ingest, tmp_path: Path) -> None:
    rows = [("impression", "p", "a", 1, 10), ("impression", "p", "b", 2, 10), ("click", "p", "b", None, None)]
    assert ingested_events(run, tmp_path, rows) == [("a", 0), ("b", 1)]


def test_a_click_between_two_showings_of_a_result_is_one(run: Ingest, tmp_path: Path) -> None:
    rows = [("impression", "p", "a", 1, 10), ("impression", "p", "a", 1, 30), ("click", "p", "a", None, 20)]
    assert ingested_events(run, tmp_path, rows) == [("a", 1)]


def test_clicks_that_rows_have_stay_beside_those_of_events(run: Ingest, tmp_path: Path) -> None:
    """An empty cell is no click where events tell them; what is neither 0 nor 1 is broken as ever."""
    clicks = ["1", "", "0", "", "twice"]
    lines = [f"p,q,d{rank},{rank},{click}" for rank, click in enumerate(clicks, start=1)]
    (tmp_path / "log.csv").write_text("\n".join(["page_id,query_id,doc_id,position,click", *lines]))
    (tmp_path / "clicks.csv").write_text("page_id,doc_id\np,d2\n")
    made = run(tmp_path / "log.csv", clicks=[tmp_path / "clicks.csv"], max_rejected=1.0)
    assert [(row["doc_id"], row["click"]) for row in written(tmp_path)] == [
        ("d1", 1),
        ("d2", 1),
        ("d3", 0),
        ("d4", 0),
    ]
    assert made.rejected.reasons == {"click_not_0_or_1": 1}


def test_a_rank_between_two_is_broken(run: Ingest, tmp_path: Path) -> None:
    table = log()
    ranks = pa.array([1.5 if at == 2 else float(rank) for at, rank in enumerate(table["position"].to_pylist())])
    pq.write_table(table.set_column(3, "position", ranks), tmp_path / "log.parquet")
    made = run(tmp_path / "log.parquet", max_rejected=0.5)
    assert made.rejected.reasons == {"position_not_a_whole_number": 1}
    assert [row["position"] for row in written(tmp_path)][:3] == [1, 2, 1]


def test_fractions_of_seconds_stay(run: Ingest, tmp_path: Path) -> None:
    moment = datetime(2024, 7, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    texts = [
        "2024-07-01T12:00:00.250Z",
        "2024-07-01 14:00:00,250+02:00",
        "2024-07-01T12:00:00.250000999Z",
        f"{moment.timestamp()}",
        moment.timestamp(),
        round(moment.timestamp() * 1000),
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in timed(texts)))
    run(tmp_path / "log.jsonl", rules={"off": ["robots"]})
    assert [row["timestamp"] for row in written(tmp_path)] == [moment] * len(texts)


def test_a_zone_that_nobody_lives_in_is_broken(run: Ingest, tmp_path: Path) -> None:
    texts = [
        "2024-07-01T12:00:00+99:99",
        "2024-07-01T12:00:00+05:60",
        "2024-07-01T12:00:00-15",
        "2024-07-01T12:00+14",
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(row) for row in timed(texts)))
    made = run(tmp_path / "log.jsonl", max_rejected=1.0)
    assert made.rejected.reasons == {"unreadable_timestamp": 3}
    assert [row["timestamp"] for row in written(tmp_path)] == [datetime(2024, 6, 30, 22, tzinfo=UTC)]
