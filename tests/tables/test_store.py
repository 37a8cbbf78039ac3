"""The cache: instant, never stale, never half-written, whatever dies and whoever else is at work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from unskew.errors import DataError
from unskew.tables.lists import letor, store
from unskew.tables.lists.letor import read_letor
from unskew.tables.lists.store import cache_root, content_digest
from unskew.tables.lists.svmlight import GrowingMatrix

TEXT = "1 qid:1 1:1 2:5 #docid = a\n0 qid:1 2:3 #docid = b\n2 qid:x 1:4 #docid = c\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def entries(root: Path) -> list[Path]:
    return sorted(path for path in (root / "entries").iterdir() if path.name[0] != ".")


def count_parses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with each parse."""
    calls: list[int] = []
    parse = letor.parse_files

    def counted(*args: object, **options: object) -> object:
        calls.append(1)
        return parse(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(letor, "parse_files", counted)
    return calls


def age(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock of the index run ten seconds ahead, as if the file were old."""
    clock = time.time_ns
    monkeypatch.setattr(store.time, "time_ns", lambda: clock() + 10**10)


def test_second_read_comes_from_the_cache(path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_parses(monkeypatch)
    first = read_letor(path, cache=root, doc_ids=True)
    second = read_letor(path, cache=root, doc_ids=True, name="other")
    assert len(calls) == 1
    assert isinstance(second.features, np.memmap)
    assert not second.features.flags.writeable
    assert second.name == "other"
    for field in ("features", "offsets", "labels", "query_ids", "doc_ids", "present"):
        np.testing.assert_array_equal(getattr(first, field), getattr(second, field))
        np.testing.assert_array_equal(
            getattr(first, field), getattr(read_letor(path, cache=False, doc_ids=True), field)
        )
    assert second.query_ids.tolist() == ["1", "x"]


def test_options_and_content_make_the_key(path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_parses(monkeypatch)
    assert read_letor(path, cache=root).dim == 2
    assert read_letor(path, cache=root, features=5).dim == 5
    assert read_letor(path, cache=root, doc_ids=True).doc_ids is not None
    assert len(calls) == 3
    copy = path.with_name("b.txt")
    copy.write_text(TEXT)
    assert read_letor(copy, cache=root).name == "b.txt"
    assert len(calls) == 3  # same content, same entry
    assert len(entries(root)) == 3


def test_reopening_reads_neither_the_file_nor_the_matrix(
    path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("".join(f"0 qid:{query} 1:{query} 400:1\n" for query in range(5_000)))
    age(path, monkeypatch)
    read_letor(path, cache=root)

    def refuse(*_: object) -> None:
        raise AssertionError("the file was hashed again")

    monkeypatch.setattr(store.hashlib, "file_digest", refuse)
    tracemalloc.start()
    lists = read_letor(path, cache=root)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(lists) == 5_000
    assert peak < lists.features.nbytes / 4  # 8 MB of features stay on disk


def test_a_rewrite_of_the_same_size_is_seen(path: Path, root: Path) -> None:
    for value in range(1, 10):  # as fast as we can: often within one tick of the file system's clock
        path.write_text(TEXT.replace("1:1", f"1:{value}"))
        assert read_letor(path, cache=root).features[0, 0] == value


def test_a_rewrite_with_the_old_time_stamp_is_seen(
    path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(path, monkeypatch)
    before = path.stat()
    assert read_letor(path, cache=root).features[0, 1] == 5
    time.sleep(0.05)
    path.write_text(TEXT.replace("2:5", "2:6"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert read_letor(path, cache=root).features[0, 1] == 6  # ctime gives it away


def test_a_young_index_entry_is_not_trusted(path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache_root(root)
    hashed: list[int] = []
    digest = store.hashlib.file_digest
    monkeypatch.setattr(store.hashlib, "file_digest", lambda *args: (hashed.append(1), digest(*args))[1])
    one = content_digest(path, folder)
    assert content_digest(path, folder) == one
    assert len(hashed) == 2
    age(path, monkeypatch)
    assert [content_digest(path, folder) for _ in range(3)] == [one] * 3
    assert len(hashed) == 3


def test_a_changed_group_file_is_seen(path: Path, root: Path) -> None:
    path.write_text("0 1:1\n0 1:1\n")
    side = path.with_name("a.txt.query")
    side.write_text("2\n0"[:2])
    assert read_letor(path, cache=root).sizes.tolist() == [2]
    side.write_text("1\n1\n")
    assert read_letor(path, cache=root).sizes.tolist() == [1, 1]


def test_a_file_that_changes_while_it_is_read(path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = letor.parse_files

    def parse_and_change(*args: object, **options: object) -> object:
        arrays = parse(*args, **options)  # type: ignore[arg-type]
        path.write_text(TEXT.replace("2:5", "2:6"))
        return arrays

    monkeypatch.setattr(letor, "parse_files", parse_and_change)
    with pytest.raises(DataError, match="changed while it was read"):
        read_letor(path, cache=root)
    assert entries(root) == []


def test_nothing_stays_after_an_error(path: Path, root: Path) -> None:
    path.write_text(TEXT + "0 qid:2 1:broken\n")
    with pytest.raises(DataError, match=r"a\.txt:4"):
        read_letor(path, cache=root)
    assert entries(root) == []
    assert sorted(child.name for child in root.iterdir()) == ["entries", "index"]


@pytest.mark.parametrize("damage", ["truncate", "delete", "empty meta", "no meta", "wrong shape"])
def test_a_damaged_entry_is_built_again(path: Path, root: Path, damage: str) -> None:
    expected = np.array(read_letor(path, cache=root).features)
    (entry,) = entries(root)
    features = entry / "features.bin"
    if damage == "truncate":
        os.truncate(features, features.stat().st_size - 4)
    elif damage == "delete":
        (entry / "labels.bin").unlink()
    elif damage == "empty meta":
        (entry / "meta.json").write_text("")
    elif damage == "no meta":
        (entry / "meta.json").unlink()
    else:
        np.zeros((1, 4), np.int16).tofile(entry / "labels.bin")
    again = read_letor(path, cache=root)
    np.testing.assert_array_equal(again.features, expected)
    assert again.labels.tolist() == [1, 0, 2]
    assert store.open_entry(entry) is not None
    assert list(root.glob("entries/.*")) == []


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSKEW_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "own"
    monkeypatch.delenv("UNSKEW_CACHE")
    assert cache_root() == tmp_path / "xdg" / "unskew"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_root() == tmp_path / "home" / ".cache" / "unskew"


def test_growing_matrix(tmp_path: Path) -> None:
    blocks = [np.full((rows, width), width, np.float32) for rows, width in [(3, 2), (1, 1), (2, 5), (1, 3)]]
    matrix = GrowingMatrix(tmp_path / "m.bin", "<f4")
    for block in blocks:
        matrix.append(block)
    expected = np.vstack([np.pad(block, ((0, 0), (0, 5 - block.shape[1]))) for block in blocks])
    np.testing.assert_array_equal(matrix.array(), expected)
    assert [child.name for child in tmp_path.iterdir()] == ["m.bin"]


READER = """
import sys
from pathlib import Path
from unskew.tables.lists import letor, svmlight
svmlight.BLOCK = 1 << 14
blocks = svmlight.read_blocks
def slow_blocks(path, size=None):
    import time
    for number, block in enumerate(blocks(path, size)):
        if number == 3:
            print("reading", flush=True)
        time.sleep(float(sys.argv[3]))
        yield block
svmlight.read_blocks = slow_blocks
print("ready", flush=True)
sys.stdin.readline()
lists = letor.read_letor(Path(sys.argv[1]), cache=Path(sys.argv[2]))
print(len(lists), float(lists.features.sum()))
"""


def start_reader(path: Path, root: Path, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READER, str(path), str(root), str(pause)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def let_go(*readers: subprocess.Popen[str]) -> None:
    """Wait until all have started up, then let them read."""
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("\n")
        reader.stdin.flush()


def test_a_reader_killed_half_way_leaves_nothing_that_is_used(path: Path, root: Path) -> None:
    path.write_text("".join(f"0 qid:{query} 1:1 2:1\n" for query in range(10_000)))
    with start_reader(path, root, 0.2) as reader:
        let_go(reader)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        reader.kill()
    assert entries(root) == []
    assert len(list(root.glob("entries/.*.part"))) == 1
    lists = read_letor(path, cache=root)
    assert (len(lists), lists.features.sum()) == (10_000, 20_000)
    assert len(entries(root)) == 1


def test_two_readers_at_once_both_succeed(path: Path, root: Path) -> None:
    path.write_text("".join(f"0 qid:{query} 1:1 2:1\n" for query in range(5_000)))
    readers = [start_reader(path, root, 0.05) for _ in range(2)]
    let_go(*readers)
    outputs = [reader.communicate(timeout=60)[0] for reader in readers]
    assert outputs == ["reading\n5000 10000.0\n"] * 2
    assert len(entries(root)) == 1
    assert list(root.glob("entries/.*")) == []
