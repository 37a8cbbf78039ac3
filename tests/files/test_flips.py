"""A bit that flipped on a disk is told, with its file and what to do; never another answer, nor a raw error.

FLIPS=25 takes that many of each kind: docs/explanation/faults.md has what came out of it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unskew
from unskew.diagnosis import click_models
from unskew.errors import DataError, RunError, UnskewError
from unskew.files import check_below, digest_of, manifests, read_json, read_manifest, write_manifest
from unskew.logs.counts.rankings import read_counts
from unskew.logs.counts.shard_writer import ShardSource
from unskew.logs.counts.shards import open_shards
from unskew.logs.ingest.ingest import ingest
from unskew.logs.log import write_log
from unskew.logs.reader import StoredLog, open_log
from unskew.serving.scoring.models import Served
from unskew.simulation import Traffic
from unskew.studies.compare.cells import Cell, read_cell, run_cell
from unskew.studies.compare.config import CompareData
from unskew.tables.engine.engine import connect
from unskew.tracking.display_times import display_times, load_examination
from unskew.tracking.store import open_tracking
from unskew.tracking.traces import TRACE
from unskew.tracking.track import track
from unskew.tracking.windows import WINDOWS, Lookup, read_window
from unskew.types import Lists

FLIPS = int(os.environ.get("FLIPS", "3"))


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def shown(log: Path) -> Any:
    return rows_of(StoredLog.open(log).table())


def on_an_engine(log: Path) -> Any:
    with connect("duckdb", threads=1) as engine, open_log(engine, log) as table:
        return rows_of(engine.to_arrow(table))


def counted(folder: Path) -> Any:
    counts = read_counts(folder, lists(), "pairs")
    return [getattr(counts, name).tolist() for name in ("query", "row", "impressions", "clicks", "pairs")]


def in_windows(store: Path) -> Any:
    with connect("duckdb", threads=1) as engine:
        tables = [read_window(engine, store, name) for name in WINDOWS]
        assert all(table is not None for table in tables)
        return [rows_of(engine.to_arrow(table)) for table in tables]


def looked_up(store: Path) -> Any:
    lookup = Lookup(store)
    return lookup.until, [lookup(query, document) for query in range(QUERIES) for document in range(5)]


def in_hours(store: Path) -> Any:
    opened = open_tracking(store)
    with connect("duckdb", threads=1) as engine:
        tables = [opened.read(engine, kind, 0, opened.manifest.clock or 0) for kind in ("partials", "pages")]
        return opened.manifest, [rows_of(engine.to_arrow(table)) for table in tables]


def looked_at(folder: Path) -> Any:
    model = load_examination(folder)
    traces = {name: np.arange(1, 30) for name in TRACE}
    return model(traces).tolist(), model.facts, model.settings


def attractive(folder: Path) -> Any:
    model = click_models.load_model(folder)
    return {name: values.tolist() for name, values in model.parameters.items()}, model.pairs.query_id.to_pylist()


def scored(folder: Path) -> Any:
    return unskew.load(folder).score(lists()).tolist(), Served.load(folder).score(lists()).tolist()


def in_shards(folder: Path) -> Any:
    source = ShardSource(log=str(folder / "log"), counts=None, lists=(str(folder / "lists.txt"),), shards=2)
    shards = open_shards(source, cache=folder / "cache")
    parts = [shards.load(shard) for shard in range(len(shards))]
    return shards.totals(), [(part.clicks.tolist(), part.lists.features.tolist()) for part in parts]


class Measured(Cell):
    """A cell that has no need to learn."""

    def found(self) -> tuple[dict[str, Any], Any]:
        return {"test": {"ndcg@10": 0.625}}, np.linspace(0, 1, 50)

    def unpacked(self, kept: Any) -> dict[str, Any]:
        return {"kept": kept.tolist()}


CELL = Measured("position", "dla", 0, None, 0, CompareData(synthetic={}), Path(), "cell")


def finished(folder: Path) -> Any:
    found = read_cell(folder, CELL)
    if found is None:
        raise RunError(f"{folder}: to be run again")
    return found["status"], found["test"], found["kept"]


QUERIES = 12


@functools.cache
def lists() -> Lists:
    return unskew.make_lists(queries=QUERIES, features=4, documents=(4, 6), seed=0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each folder that we write."""
    place = tmp_path_factory.mktemp("flips")
    write_log(Traffic(pages=1500, days=3.0, seed=0).draw(lists()), place / "log.parquet")
    ingest(place / "log.parquet", place / "log")
    unskew.write_letor(lists(), place / "lists.txt")
    unskew.split(place / "log", place / "parts")
    unskew.counts(place / "log", place / "counts", pairs=True)
    track(place / "log", place / "store", refresh="all")
    display_times(place / "log", place / "seen", trees=3)
    unskew.learn(place / "log.parquet", "naive", features=lists(), steps=3).save(place / "model")
    click_models.save_model(click_models.fit(place / "log", "dctr"), place / "clicks")
    run_cell(CELL, place)
    in_shards(place)
    return place


KINDS = {
    "a log": ("log", "**/*", shown),
    "a log on an engine": ("log", "**/*", on_an_engine),
    "a part": ("parts/train", "*.parquet", on_an_engine),
    "counts": ("counts", "**/*", counted),
    "windows": ("store", "windows/**/*.parquet", in_windows),
    "windows looked up": ("store", "windows/**/*.parquet", looked_up),
    "hours": ("store", "p*/**/*.parquet", in_hours),
    "a store": ("store", "store.json", in_hours),
    "an examination model": ("seen", "*", looked_at),
    "a click model": ("clicks", "*", attractive),
    "a model": ("model", "*", scored),
    "a cell": (".", "cell.*", finished),
    "shards": (".", "cache/entries/*/*[0-9s].*s*", in_shards),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_told_and_never_another_answer(kind: str, place: Path) -> None:
    below, pattern, read = KINDS[kind]
    folder, drawn = place / below, np.random.default_rng(len(kind))
    files = sorted(path for path in folder.glob(pattern) if path.is_file())
    whole, told = read(folder), 0
    for _ in range(FLIPS):
        file = files[drawn.integers(len(files))]
        with flipped(file, drawn):
            said = None
            try:
                found = read(folder)
            except UnskewError as error:
                found, said = whole, str(error)
            assert found == whole, f"{file} has another answer"
            assert said is None or str(place) in said
            told += said is not None
    print(f"{kind}: {told} of {FLIPS} told, the others changed nothing that is read")


@contextmanager
def flipped(file: Path, drawn: np.random.Generator) -> Iterator[None]:
    """A file with one bit that is another."""
    content = file.read_bytes()
    damaged = bytearray(content)
    damaged[drawn.integers(len(content))] ^= 1 << int(drawn.integers(8))
    file.write_bytes(damaged)
    try:
        yield
    finally:
        file.write_bytes(content)


def test_files_that_were_changed_are_told(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    file, manifest = tmp_path / "rows" / "a.bin", tmp_path / "summary.json"
    file.write_bytes(b"rows")
    write_manifest(manifest, {"rows": 4}, [file])
    assert read_manifest(manifest)["rows"] == 4
    check_below(file)
    check_below(tmp_path / "rows")
    whole = manifest.read_text()
    manifest.write_text(whole.replace("4", "5", 1))
    with pytest.raises(DataError, match=r"summary\.json: damaged, it is not what was written; put a copy back"):
        read_json(manifest)
    manifest.write_text(json.dumps(json.loads(whole)))  # laid out anew, it says the same
    file.write_bytes(b"r0ws")
    for check in (
        lambda: read_manifest(manifest),
        lambda: check_below(file),
        lambda: check_below(tmp_path / "rows"),
    ):
        with pytest.raises(DataError, match=r"a\.bin: damaged, it is not what was written; put a copy back"):
            check()
    file.unlink()
    with pytest.raises(DataError, match=r"a\.bin: cannot be read: No such file"):
        check_below(tmp_path / "rows")
    (tmp_path / "rows" / "mine.bin").touch()
    check_below(tmp_path / "rows" / "mine.bin")  # which no manifest names
    manifest.write_text('["of somebody else"]')
    check_below(tmp_path / "rows")


def test_a_file_that_was_just_written_is_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tick of the clock its times tell nothing; a file that is left alone is hashed once in a process."""
    file, manifest, hashed = tmp_path / "a.bin", tmp_path / "summary.json", []
    file.write_bytes(b"rows")
    write_manifest(manifest, {}, [file])
    monkeypatch.setattr(manifests, "digest_of", lambda path: hashed.append(path) or digest_of(path))
    for _ in range(3):
        read_manifest(manifest)
    assert len(hashed) == 3
    monkeypatch.setattr(manifests, "SETTLED", -(10**18))
    for _ in range(3):
        read_manifest(manifest)
    assert len(hashed) == 4


def test_a_damaged_file_of_others_is_an_error_that_names_it(place: Path, tmp_path: Path) -> None:
    """DuckDB and Arrow complain in words of their own, of one of several files."""
    (tmp_path / "log").mkdir()
    for part in ("a.parquet", "b.parquet"):
        shutil.copy(place / "log.parquet", tmp_path / "log" / part)
    content = bytearray((tmp_path / "log" / "b.parquet").read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    (tmp_path / "log" / "b.parquet").write_bytes(content)
    verbs = {
        "diagnose": lambda: unskew.diagnose(tmp_path / "log"),
        "counts": lambda: unskew.counts(tmp_path / "log", tmp_path / "out"),
        "track": lambda: track(tmp_path / "log", tmp_path / "store"),
    }
    for verb in verbs.values():
        with pytest.raises(DataError, match=r"b\.parquet: .*cannot be read .*put a copy back, or write it anew"):
            verb()
    with pytest.raises(DataError, match=r"log: not a readable Parquet file"):
        StoredLog.open(tmp_path / "log").table()


def test_a_name_of_a_column_that_is_no_text_is_an_error_of_ours(place: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    log.write_bytes((place / "log.parquet").read_bytes().replace(b"position", b"\xecosition"))
    with pytest.raises(DataError, match=r"log\.parquet: not a Parquet file .*codec"):
        StoredLog.open(log)
    with pytest.raises(DataError, match=r"log\.parquet"):
        unskew.diagnose(log)


def test_pages_of_a_single_file_have_checksums_that_arrow_checks(place: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    content = bytearray((place / "log.parquet").read_bytes())
    content[len(content) // 3] ^= 1
    log.write_bytes(content)
    with pytest.raises(DataError, match=r"log\.parquet: not a readable Parquet file .*(CRC|crc)"):
        StoredLog.open(log).table()
