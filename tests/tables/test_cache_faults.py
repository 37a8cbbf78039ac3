"""A cache that cannot be written is passed over, a damaged one is written anew, and shards are read by threads."""

from __future__ import annotations

import ast
import contextlib
import errno
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew import make_lists, read_letor, simulate, write_letor, write_log
from unskew.errors import DataError
from unskew.logs.counts.batches import ShardedBatches
from unskew.logs.counts.shard_writer import ABOUT, ShardSource
from unskew.logs.counts.shards import Shards, open_shards
from unskew.simulation import PositionBias
from unskew.tables.lists.inputs import Vectors
from unskew.tables.lists.store import open_entry, seal_entry
from unskew.types import Lists


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ShardSource:
    place = tmp_path_factory.mktemp("source")
    lists = make_lists(queries=40, features=4, documents=6, seed=0)
    write_letor(lists, place / "lists.txt")
    read = read_letor(place / "lists.txt", cache=False)
    write_log(simulate(read, PositionBias(), pages=400, seed=0, logger="random"), place / "log.parquet")
    return ShardSource(log=str(place / "log.parquet"), counts=None, lists=(str(place / "lists.txt"),), shards=8)


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let nothing be written below a folder, whoever runs this: root writes to folders of mode 555."""
    real = Path.touch, os.mkdir

    def closed(folder: Path) -> None:
        def refuse(path: object) -> None:
            if os.path.abspath(os.fsdecode(path)).startswith(str(folder)):  # type: ignore[arg-type]
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fsdecode(path))  # type: ignore[arg-type]

        def mkdir(path: object, *given: object, **more: object) -> None:
            refuse(path)
            real[1](path, *given, **more)  # type: ignore[arg-type]

        def touch(path: Path, *given: object, **more: object) -> None:
            refuse(path)
            real[0](path, *given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "mkdir", mkdir)
        monkeypatch.setattr(Path, "touch", touch)

    return closed


# ------------------------------------------------------------------------------------------- caches


def test_a_read_only_cache_is_passed_over(
    source: ShardSource, tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    whole = read_letor(source.lists[0], cache=False)
    cache = tmp_path / "cache"
    read_only(tmp_path)
    with pytest.warns(UserWarning, match=r"cache: cannot be written .Read-only file system.; files are parsed"):
        lists = read_letor(source.lists[0], cache=cache)
    np.testing.assert_array_equal(lists.features, whole.features)
    assert not cache.exists()


def test_what_a_read_only_cache_has_is_used(
    source: ShardSource, tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    whole = read_letor(source.lists[0], cache=tmp_path)
    for note in (tmp_path / "index").iterdir():
        note.unlink()  # as after a copy, whose times are others
    read_only(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lists = read_letor(source.lists[0], cache=tmp_path)
    assert isinstance(lists.features, np.memmap)
    np.testing.assert_array_equal(lists.features, whole.features)


def test_shards_of_a_read_only_cache_lie_in_a_scratch_folder(
    source: ShardSource, tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    read_only(tmp_path / "cache")
    with pytest.warns(UserWarning, match="files are parsed anew each time, set UNSKEW_CACHE to keep them"):
        shards = open_shards(source, cache=tmp_path / "cache")
    assert shards.folder.parent.name.endswith(".scratch")
    assert shards.load(int(shards.pages.argmax())).clicks.sum() > 0


def test_a_cache_that_is_a_file_is_passed_over(source: ShardSource, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("mine")
    with pytest.warns(UserWarning, match=r"cache: cannot be written"):
        read_letor(source.lists[0], cache=tmp_path / "cache")
    assert (tmp_path / "cache").read_text() == "mine"


@pytest.mark.parametrize("damage", ["cut", "empty", "meta", "stranger"])
def test_a_damaged_entry_is_written_anew(source: ShardSource, tmp_path: Path, damage: str) -> None:
    whole = read_letor(source.lists[0], cache=tmp_path)
    (entry,) = (tmp_path / "entries").iterdir()
    if damage == "stranger":
        for path in entry.iterdir():
            path.unlink()
        (entry / "thesis.txt").write_text("not an entry")
    else:
        path = entry / ("meta.json" if damage == "meta" else "features.bin")
        content = path.read_bytes()
        path.unlink()  # others may have it mapped
        path.write_bytes({"cut": content[:-5], "empty": b"", "meta": b'{"format": 3, "arrays": {"x": 3}}'}[damage])
    np.testing.assert_array_equal(read_letor(source.lists[0], cache=tmp_path).features, whole.features)
    assert (entry / "features.bin").exists()


@pytest.mark.parametrize("content", ["{}", "nonsense", '{"facts": "x"}'])
def test_damaged_shards_are_named(source: ShardSource, tmp_path: Path, content: str) -> None:
    shards = open_shards(source, cache=tmp_path)
    about = shards.folder / ABOUT
    about.write_text(content.ljust(about.stat().st_size))
    with pytest.raises(DataError, match=rf"{ABOUT}: damaged"):
        open_shards(source, cache=tmp_path)
    (shards.folder / "00000.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(DataError, match=r"00000.safetensors: damaged \(\w+ is missing\); delete its folder"):
        shards.load(0)


# ------------------------------------------------------------------------------------------- threads


@pytest.fixture(scope="module")
def shards(source: ShardSource, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return open_shards(source, cache=tmp_path_factory.mktemp("cache"))


def busy(stop: threading.Event) -> None:
    """What else a process may do meanwhile: parse, and hold the interpreter."""
    while not stop.is_set():
        with contextlib.suppress(
            SystemError
        ):  # the parser of 3.11 fails in threads now and then: no reader may use it
            ast.parse("[" * 20 + "]" * 20)
        json.loads(json.dumps({"a": [1, 2, 3] * 50}))
        sum(range(2000))


def test_shards_are_read_in_the_background_under_load(shards: Shards) -> None:
    """Every step takes another shard, which a thread has read meanwhile; the batches are those of one thread."""

    def prepare(lists: Lists) -> Vectors:
        return Vectors.of(lists.features)

    batches = ShardedBatches(shards, prepare, size=4, seed=0, stay=1)
    alone = {shard: shards.load(shard).lists.features.copy() for shard in batches.own.tolist()}
    stop, switch = threading.Event(), sys.getswitchinterval()
    others = [threading.Thread(target=busy, args=(stop,)) for _ in range(2)]
    for other in others:
        other.start()
    sys.setswitchinterval(1e-4)
    try:
        for step in range(500):
            batch = batches.at(step)
            shard, _ = batches.visit(step)
            known = {row.tobytes() for row in alone[shard]}
            shown = batch.input.gather(batch.rows).numpy()
            assert {row.tobytes() for row in shown} <= known, f"step {step} has documents of another shard"
    finally:
        stop.set()
        sys.setswitchinterval(switch)
        for other in others:
            other.join()


def test_reading_needs_no_parser_of_python(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ast`, which NumPy parses headers with, fails at random where two threads are in it (Python 3.11)."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a parser that is not safe in threads")

    monkeypatch.setattr(ast, "literal_eval", never)
    monkeypatch.setattr(np, "load", never)
    shards.load(int(shards.pages.argmax()))
    seal_entry(tmp_path, {"a": np.ones((3, 2), np.float32), "b": np.arange(3)})
    arrays = open_entry(tmp_path)
    assert arrays is not None
    assert arrays["a"].tolist() == [[1, 1]] * 3
    assert arrays["b"].tolist() == [0, 1, 2]


def test_an_array_of_objects_is_no_entry(tmp_path: Path) -> None:
    seal_entry(tmp_path, {"a": np.arange(3)})
    assert open_entry(tmp_path) is not None
    meta = tmp_path / "meta.json"
    meta.write_text(meta.read_text().replace("<i8", "|O"))
    assert open_entry(tmp_path) is None


def test_a_table_of_features_is_cached_like_a_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query_id": [1, 1], "doc_id": [1, 2], "f": [0.5, 1.0]}), tmp_path / "f.parquet")
    from unskew.tables.features.features import read_features

    first, again = (read_features([tmp_path / "f.parquet"], cache=tmp_path / "c") for _ in range(2))
    np.testing.assert_array_equal(first.features, again.features)
