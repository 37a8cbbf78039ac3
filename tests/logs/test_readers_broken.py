"""Broken records are rejected with a reason and their line, and cost no other record; broken files are errors."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.errors import ConfigError, DataError
from unskew.files import FREE
from unskew.logs.ingest.formats import READERS as NAMED
from unskew.logs.ingest.formats.stage import Stage
from unskew.tables.reading.options import IngestOptions
from unskew_reproductions.formats import READERS as BESIDE

READERS = {**NAMED, **BESIDE}

PAGE = '{"query_id":"q","user_query":"u","query_response_hit_ids":["a","b"]}'
EVENT = '{"action_name":"click","query_id":"q","event_attributes":{"object":{"object_id":"a"}}}'
RESULT = "1\tmd5\t5\t6\t14\t0" + "\t0" * 26
GOOD = {
    "ubi": PAGE,
    "baidu": "7\t1\x012\t\n" + RESULT,
    "tiangong": '<session num="1">\n<interaction num="1">\n<query_id>q</query_id><results>\n'
    '<result rank="1"><docid>d</docid></result></results>\n</interaction>\n</session>',
    "yandex": "1\t0\tQ\t2\t3\t4\t5",
    "metarank": '{"event":"ranking","id":"r","items":[{"id":"m"}]}',
}


def stage(folder: Path, reader: str, /, *paths: Path, **options: Any) -> Stage:
    target = Stage(folder / "staged")
    READERS[reader](target, IngestOptions(**options)).read(paths)
    target.close()
    return target


def rejected(staged: Stage) -> list[dict[str, Any]]:
    return (
        [] if staged.folders.get("rejected") is None else pq.read_table(staged.folders.get("rejected")).to_pylist()
    )


HEAD = b'{"query_id":"q","query_response_hit_ids":["a"],'
CLICK = b'{"action_name":"click","query_id":"q","event_attributes":{"rank":'
BROKEN = [
    ("ubi", b'{"query_id": "q', "not_json"),
    ("ubi", b"\xff\xfe{}", "not_utf8"),
    ("ubi", b"[" * 100_000, "nested_too_deeply"),
    ("ubi", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested_too_deeply"),
    ("ubi", b"[1]", "not_an_object"),
    ("ubi", b"[]", "not_an_object"),
    ("ubi", b'{"what": 1}', "neither_query_nor_event"),
    ("ubi", b'{"query_id":"q","query_response_hit_ids":["a",null]}', "missing_hit_id"),
    ("ubi", b'{"query_id":"q","query_response_hit_ids":["\\ud800"]}', "bad_hit_id"),
    ("ubi", b'{"query_id":"q","query_response_hit_ids":["' + b"x" * 2000 + b'"]}', "bad_hit_id"),
    ("ubi", b'{"query_id":"","query_response_hit_ids":["a"]}', "missing_query_id"),
    ("ubi", b'{"query_id":{"a":1},"query_response_hit_ids":["a"]}', "bad_query_id"),
    ("ubi", b'{"query_id":"q","query_response_hit_ids":[' + b"1," * 20_000 + b"1]}", "too_many_results"),
    ("ubi", HEAD + b'"timestamp":"yesterday, at noon"}', "unreadable_timestamp"),
    ("ubi", HEAD + b'"timestamp":1e300}', "unreadable_timestamp"),
    ("ubi", HEAD + b'"timestamp":"9999-12-31T23:59:59-23:00"}', "unreadable_timestamp"),
    ("ubi", HEAD + b'"query_attributes":{"propensity":1.5}}', "bad_propensity"),
    ("ubi", HEAD + b'"query_attributes":{"propensity":NaN}}', "not_json"),
    ("ubi", HEAD + b'"query_attributes":{"propensity":[1,1]}}', "bad_propensity"),
    ("ubi", HEAD + b'"query_attributes":{"positions":[0]}}', "bad_positions"),
    ("ubi", HEAD + b'"query_attributes":{"randomized":"x"}}', "bad_randomized"),
    ("ubi", HEAD + b'"query_attributes":{"propensity":1e999}}', "bad_propensity"),
    ("ubi", b'{"action_name":"click","query_id":"q"}', "missing_object_id"),
    ("ubi", CLICK + b'-1}}', "bad_ordinal"),
    ("ubi", CLICK + b'1.5}}', "bad_ordinal"),
    ("ubi", CLICK + b'1' + b"0" * 400 + b"}}", "bad_ordinal"),
    ("baidu", b"\xff\t1\t2", "not_utf8"),
    ("baidu", b"only one column", "wrong_number_of_fields"),
    ("baidu", b"\t".join([b"x"] * 10_000), "wrong_number_of_fields"),
    ("baidu", b"7\t\t", "missing_query"),
    ("baidu", RESULT.replace("1\t", "0\t", 1).encode(), "bad_position"),
    ("baidu", RESULT.replace("md5", "").encode(), "missing_url"),
    ("baidu", RESULT.replace("14\t0", "14\t2").encode(), "bad_click"),
    ("baidu", RESULT.replace("14\t0", "14\t").encode(), "missing_click"),
    ("baidu", RESULT.replace("14\t0\t0\t0\t0\t0", "14\t0\t0\t0\t0\ttall").encode(), "bad_serp_height"),
    ("baidu", b"9\t1\t2\t3\t5\t0", "bad_label"),
    ("baidu", b"9\t1\t2\t3\t4\t11", "bad_bucket"),
    ("tiangong", b"words that are no xml", "bad_label"),
    ("tiangong", b"<a>words</a>", "wrong_number_of_fields"),
    ("tiangong", b"1 7 q d 5 1", "bad_label"),
    ("tiangong", b"<interaction num='1'>&bad;</interaction>", "not_xml"),
    ("tiangong", b"<interaction num='1'><results/></interaction>", "missing_results"),
    ("tiangong", b"<interaction num='1'><results><result rank='x'><docid>d</docid></result></results>"
     b"<query_id>q</query_id></interaction>", "bad_rank"),
    ("tiangong", b"<interaction num='1'><results><result rank='1'/></results><query_id>q</query_id></interaction>",
     "missing_docid"),
    ("tiangong", b"<interaction num='1'>\xff</interaction>", "not_utf8"),
    ("tiangong", b"<interaction num='1'>" + b"<a>" * 300_000 + b"</interaction>", "not_xml"),
    ("tiangong", b"<interaction num='1'>" + b"x" * (2**20 + 1) + b"</interaction>", "interaction_too_long"),
    ("tiangong", b"<interaction num='1'>\n<interaction num='2'>", "interaction_without_end"),
    ("yandex", b"1\t0\tQ\t2", "wrong_number_of_fields"),
    ("yandex", b"1\t0\tC", "wrong_number_of_fields"),
    ("yandex", b"1 0 Q 2 3 4", "wrong_number_of_fields"),
    ("yandex", b"1\tM\t23\t9\t9", "unknown_action"),
    ("yandex", b"1\t-4\tQ\t2\t3\t4", "bad_time"),
    ("yandex", b"1\t0\tQ\t2\t3\t", "wrong_number_of_fields"),
    ("yandex", b"1\t0\tQ\t2\t3" + b"\t4" * 20_000, "too_many_results"),
    ("yandex", b"1\t2\t3\t7", "bad_label"),
    ("yandex", b"1\t0\tC\t\xff", "not_utf8"),
    ("metarank", b"{}", "missing_event"),
    ("metarank", b'{"event":"dance"}', "unknown_event"),
    ("metarank", b'{"event":"ranking","id":"r","items":[]}', "missing_items"),
    ("metarank", b'{"event":"ranking","id":"r","items":["m"]}', "bad_items"),
    ("metarank", b'{"event":"ranking","items":[{"id":"m"}]}', "missing_id"),
    ("metarank", b'{"event":"ranking","id":"r","items":[{"id":"m","relevancy":"high"}]}', "bad_relevancy"),
    ("metarank", b'{"event":"ranking","id":"r","fields":{},"items":[{"id":"m"}]}', "bad_fields"),
    ("metarank", b'{"event":"interaction","ranking":"r","type":"click"}', "missing_item"),
    ("metarank", b'{"event":"item","item":"m","fields":[{"name":"n","value":{"a":1}}]}', "bad_fields"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "line", "reason"), BROKEN)
def test_a_broken_record_is_rejected_with_its_reason_and_line(
    tmp_path: Path, reader: str, line: bytes, reason: str
) -> None:
    good = GOOD[reader].encode()
    if reader == "tiangong":
        good = good.removesuffix(b"</session>").rstrip()  # the broken lines stand within the session
    (tmp_path / "log").write_bytes(good + b"\n\n" + line + b"\n" + GOOD[reader].encode() + b"\n")
    staged = stage(tmp_path, reader, tmp_path / "log", reader={"item_fields": True})
    found = rejected(staged)
    row = good.count(b"\n") + 3
    assert [(one["row"], one["reason"]) for one in found][:1] == [(row, reason)]
    assert found[0]["file"] == str(tmp_path / "log")
    assert found[0]["detail"].encode()[:5] == line.decode("utf-8", "replace").encode()[:5]
    assert len(found) == 1 + (reason == "interaction_without_end")
    clean = tmp_path / "clean"
    clean.mkdir()
    (clean / "log").write_bytes(good + b"\n" + GOOD[reader].encode())
    assert staged.rows("impressions") == stage(clean, reader, clean / "log").rows("impressions") > 1


@pytest.mark.parametrize("reader", READERS)
def test_a_line_without_end_is_rejected_and_not_held(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(GOOD[reader].encode() + b"\n")
        for _ in range(60):
            file.write(b"x" * 2**20)
        file.write(b"\n" + GOOD[reader].encode() + b"\n")
    tracemalloc.start()
    staged = stage(tmp_path, reader, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one["reason"] for one in rejected(staged)] == ["line_too_long"]
    assert len(rejected(staged)[0]["detail"]) == 1000
    assert peak < 35 * 2**20
    assert staged.rows("impressions") == 2 * stage_of_good(tmp_path / "one", reader)


def test_an_element_without_end_is_rejected_and_not_held(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    with path.open("wb") as file:
        file.write(b"[\n" + PAGE.encode() + b',\n{"text": "')
        for _ in range(40):
            file.write(b"x" * 2**20)
        file.write(b'"}, ' + EVENT.encode() + b"]")
    tracemalloc.start()
    staged = stage(tmp_path, "ubi", path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(one["row"], one["reason"]) for one in rejected(staged)] == [(2, "line_too_long")]
    assert (staged.rows("impressions"), staged.rows("clicks")) == (2, 1)
    assert peak < 35 * 2**20


def stage_of_good(folder: Path, reader: str) -> int:
    folder.mkdir()
    (folder / "log").write_text(GOOD[reader])
    return stage(folder, reader, folder / "log").rows("impressions")


def test_results_after_a_broken_query_line_belong_to_no_page(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("7\t1\t\n" + RESULT + "\n8\t\t\n" + RESULT + "\n9\t3\t\n" + RESULT + "\n")
    staged = stage(tmp_path, "baidu", tmp_path / "log")
    found = [(one["row"], one["reason"]) for one in rejected(staged)]
    assert found == [(3, "missing_query"), (4, "no_query_line")]
    assert pq.read_table(staged.folders.get("impressions"))["page_id"].to_pylist() == ["7-1", "9-5"]


def test_pages_after_a_broken_session_tag_belong_to_no_session(tmp_path: Path) -> None:
    page = GOOD["tiangong"].split("\n", 1)[1]
    (tmp_path / "log").write_text(GOOD["tiangong"] + "\n<session num=>\n" + page)
    staged = stage(tmp_path, "tiangong", tmp_path / "log")
    assert [one["reason"] for one in rejected(staged)] == ["missing_session"]


def test_elements_of_an_array_are_rejected_by_their_number(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(f'[\n{PAGE},\n{{"oops": 1}},\n  3, "a ] text",\n{EVENT}, {{"x": tru}}\n]\ntail\n')
    staged = stage(tmp_path, "ubi", path)
    found = [(one["row"], one["reason"], one["detail"]) for one in rejected(staged)]
    assert found == [
        (2, "neither_query_nor_event", '{"oops": 1}'),
        (3, "not_json", '3, "a ] text"'),
        (5, "not_json", '{"x": tru}'),
        (6, "not_json", "tail"),
    ]
    assert (staged.rows("impressions"), staged.rows("clicks"), staged.rows_read) == (2, 1, 6)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_elements_may_be_cut_anywhere(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.files.reading.READ", size)
    path = tmp_path / "log.json"
    page = '{"query_id": "\\\\\\"}{", "user_query": "é]", "query_response_hit_ids": ["a", "b"]}'
    path.write_text("[\n" + page + ',\n{"a": 1}]')
    staged = stage(tmp_path, "ubi", path)
    assert pq.read_table(staged.folders.get("impressions"))["page_id"].to_pylist() == ['\\"}{'] * 2
    assert [one["reason"] for one in rejected(staged)] == ["neither_query_nor_event"]


@pytest.mark.parametrize("text", ['[\n{"a": 1', "[\n}]", '[\n"', "{\n]]"])
def test_brackets_that_do_not_match_are_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(DataError, match=r"log\.json: (the JSON value does not end|brackets do not match)"):
        stage(tmp_path, "ubi", tmp_path / "log.json")


def test_one_long_line_may_be_an_array(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text("[" + ",".join([PAGE] * 50) + "]")
    staged = stage(tmp_path, "ubi", tmp_path / "log.json", reader={"longest_line": 1000})
    assert (staged.rows("impressions"), staged.rows_read, staged.folders.get("rejected")) == (100, 50, None)


COMPRESSORS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def zstandard(data: bytes) -> bytes:
    sink = io.BytesIO()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
        stream.flush()
        sink.close = lambda: None  # type: ignore[method-assign]
    return sink.getvalue()


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_compressed_files(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESSORS.get(suffix, zstandard)
    path = tmp_path / f"log.tsv{suffix}"
    whole = compress(GOOD["yandex"].encode() + b"\n")
    path.write_bytes(whole + (whole if suffix in COMPRESSORS else b""))  # several streams in one file
    assert stage(tmp_path, "yandex", path).rows("impressions") == (4 if suffix in COMPRESSORS else 2)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cut short or damaged"):
        stage(tmp_path / "cut", "yandex", path)
    path.write_bytes(b"not compressed at all")
    with pytest.raises(DataError, match="cut short or damaged"):
        stage(tmp_path / "plain", "yandex", path)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_a_stream_may_not_expand_without_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(COMPRESSORS.get(suffix, zstandard)(b" " * (FREE + 2**20)))
    with pytest.raises(DataError, match=r"grows past"):
        stage(tmp_path, "yandex", path, files={"max_expansion": 100})


def test_an_xz_header_may_not_ask_for_endless_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.xz"
    path.write_bytes(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**24}]))
    assert stage(tmp_path, "yandex", path).rows("rejected") == 1
    monkeypatch.setattr("unskew.files.reading.XZ_MEMORY", 2**23)
    with pytest.raises(DataError, match="cut short or damaged"):
        stage(tmp_path, "yandex", path)


@pytest.mark.parametrize("name", ["log.zip", "log.tar", "log.tar.gz", "log.TGZ"])
def test_archives_are_refused_whatever_their_members_are_called(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("../../escape.tsv", GOOD["yandex"])
    with pytest.raises(DataError, match="an archive of several files is not read; unpack it"):
        stage(tmp_path, "yandex", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_a_missing_file_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: cannot be read: No such file"):
        stage(tmp_path, "yandex", tmp_path / "nowhere")
    (tmp_path / "empty").touch()
    for reader in READERS:
        staged = stage(tmp_path, reader, tmp_path / "empty")
        assert (
            staged.folders.get("impressions"),
            staged.folders.get("clicks"),
            staged.folders.get("rejected"),
            staged.rows_read,
        ) == (None, None, None, 0)


def test_a_file_may_begin_with_a_byte_order_mark_and_end_lines_as_windows_does(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xef\xbb\xbf" + GOOD["yandex"].encode() + b"\r\n1\t4\tC\t5\r\n")
    staged = stage(tmp_path, "yandex", tmp_path / "log")
    assert pq.read_table(staged.folders.get("impressions"))["doc_id"].to_pylist() == ["4", "5"]
    assert pq.read_table(staged.folders.get("clicks"))["doc_id"].to_pylist() == ["5"]


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"IngestOptions.time.zone: there is no such time zone"):
        IngestOptions(time={"zone": "../../etc/passwd"})
    with pytest.raises(ConfigError):
        IngestOptions(positions={"base": 2})


def test_a_session_that_shows_documents_without_end_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew_reproductions.formats.yandex.MOST_SHOWN", 3)
    (tmp_path / "log").write_text("1\t0\tQ\t1\t1\t1\t2\t3\n1\t1\tQ\t1\t1\t4\n2\t0\tQ\t1\t1\t4\n")
    assert [one["reason"] for one in rejected(stage(tmp_path, "yandex", tmp_path / "log"))] == ["visit_too_long"]


def test_parts_of_a_stage_have_one_schema_and_bounded_size(tmp_path: Path) -> None:
    target = Stage(tmp_path, batch=2)
    for at in range(5):
        more: dict[str, Any] = {"policy_id": "p", "serp_x": 1.0} if at == 4 else {}
        target.add("impressions", page_id="s", query_id="q", doc_id=str(at), position=at + 1, **more)
        target.add("clicks", page_id="s", position=at)
    staged = target.close()
    parts = sorted((tmp_path / "impressions").iterdir())
    assert [len(pq.read_table(part)) for part in parts] == [2, 2, 1]
    assert len({tuple(pq.read_schema(part).names) for part in parts}) == 1
    assert pq.read_table(staged["impressions"])["policy_id"].to_pylist() == [None] * 4 + ["p"]
    assert pq.read_table(staged["clicks"])["position"].to_pylist() == [0, 1, 2, 3, 4]


def test_a_batch_heavy_with_text_is_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.logs.ingest.formats.stage.HEAVIEST", 1000)
    target = Stage(tmp_path)
    for at in range(4):
        target.add("impressions", page_id="s", query_id="q", doc_id=str(at), position=at + 1, title="t" * 600)
    target.close()
    assert len(list((tmp_path / "impressions").iterdir())) == 2


def test_empty_cells_at_the_end_of_a_line_are_not_counted(tmp_path: Path) -> None:
    label = "9\t1\t2\t3\t4\t1"
    for reader, text, rows in (
        ("yandex", "1\t0\tQ\t2\t3\t4\t5\t\t\n1\t3\tC\t5\t\n2\t3\t4\t1\t\t\n", 2),
        ("baidu", f"7\t1\x012\t\t\t\n{RESULT}\t\t\n{label}\t\t\n{label.removeprefix('9')[1:]}\t\n", 1),
    ):
        (tmp_path / reader).write_text(text)
        staged = stage(tmp_path / f"of {reader}", reader, tmp_path / reader)
        assert rejected(staged) == []
        assert staged.rows("impressions") == rows
        assert staged.folders["labels"] is not None


MOMENT = 1_717_200_000_500_000
"""Microseconds."""


UNITS = [MOMENT / 1e6, MOMENT // 1_000, MOMENT, MOMENT * 1_000 + 999, str(MOMENT * 1_000)]


@pytest.mark.parametrize("when", UNITS)
def test_every_reader_has_the_same_clock(tmp_path: Path, when: float | str) -> None:
    ubi = {"query_id": "q", "query_response_hit_ids": ["a"], "timestamp": when}
    ranking = {"event": "ranking", "id": "r", "items": [{"id": "m"}], "timestamp": when}
    pages = {
        "ubi": json.dumps(ubi),
        "metarank": json.dumps(ranking),
        "tiangong": GOOD["tiangong"].replace("<interaction", f'<interaction starttime="{when}"'),
    }
    for reader, text in pages.items():
        (tmp_path / reader).write_text(text)
        staged = stage(tmp_path / f"of {reader}", reader, tmp_path / reader)
        assert staged.folders.get("impressions") is not None
        moments = pq.read_table(staged.folders.get("impressions"))["timestamp"].cast(pa.int64()).to_pylist()
        assert moments == [MOMENT], reader
