"""The store of features: one suite over LMDB and a real Redis; replaced whole, never half-seen, never wrong."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import DataError, RunError, StoreError
from unskew.names import Names
from unskew.serving.store import Store, View, contents, lmdb_files, open_store, redis_keys
from unskew.serving.store.store import StoreHead, item_key, rows_of
from unskew.tracking.features import FEATURES, feature_vector
from unskew.tracking.windows import Lookup

pytest.importorskip("lmdb")
redis = pytest.importorskip("redis")

ITEMS = {
    "doc_id": ["a", "b", "c"],
    "price": [1.5, None, 3.0],
    "brand": ["acme", "bolt", None],
    "seen": [1, 2, 3],
}


class Server:
    """A redis-server of our own on loopback, ended by its process id."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.start()

    def start(self) -> None:
        words = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        words += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=self.port)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                self.client.ping()
                return
            except redis.RedisError:
                time.sleep(0.02)
        raise AssertionError("redis-server did not start")

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    running = Server(tmp_path_factory.mktemp("redis"))
    yield running
    running.stop()


@pytest.fixture(params=["lmdb", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new, empty store may be."""
    if request.param == "lmdb":
        return f"lmdb:{tmp_path / 'features'}"
    running: Server = request.getfixturevalue("server")
    running.client.flushall()
    return f"redis://127.0.0.1:{running.port}/0"


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with open_store(place) as opened:
        yield opened


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked")
    lists = unskew.make_lists(queries=4, features=4, documents=(6, 8), seed=1)
    unskew.write_log(unskew.Traffic(pages=200, days=10, seed=0).draw(lists), folder / "log.parquet")
    unskew.track(folder / "log.parquet", folder / "store", refresh="all")
    return folder / "store"


def soon(holds: Callable[[], bool]) -> bool:
    """Whether something holds within the second that updates may take."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.01)
    return False


# ---- what is looked up is what was put ----


def test_numbers_categories_gaps_and_unknown_items(store: Store) -> None:
    store.put(items=[ITEMS])
    found = store.view().get_items(["c", "x", "a", "b"])
    assert found.names == ("price", "brand", "seen")
    assert found.head.categories == {"brand": ("acme", "bolt")}
    assert found.known.tolist() == [True, False, True, True]
    assert found.values.dtype == np.float32
    np.testing.assert_array_equal(found.values, [[3, np.nan, 3], [np.nan] * 3, [1.5, 0, 1], [np.nan, 1, 2]])
    assert found.named() == [
        {"price": 3.0, "brand": None, "seen": 3.0},
        None,
        {"price": 1.5, "brand": "acme", "seen": 1.0},
        {"price": None, "brand": "bolt", "seen": 2.0},
    ]
    assert store.view().get_items([]).values.shape == (0, 3)


def test_files_of_several_tables_and_other_names(store: Store, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("sku,price\n7,1.5\n8,2\n")
    pq.write_table(pa.table({"sku": [8, 7], "size": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "sizes.parquet")
    store.put(items=[tmp_path / "prices.csv", tmp_path / "sizes.parquet"], names=Names({"doc_id": "sku"}))
    found = store.view().get_items([7, "8"])  # an id is what it is as text
    assert found.names == ("price", "size[0]", "size[1]")
    assert found.values.tolist() == [[1.5, 3.0, 4.0], [2.0, 1.0, 2.0]]


def test_ids_of_any_length_and_letters(store: Store) -> None:
    ids = ["", "ä" * 150, "x" * 900, "x" * 901, "a b\n", "a\x00b", "\x01", "h" + "0" * 32]
    store.put(items=[{"doc_id": ids, "n": np.arange(len(ids))}])
    assert store.view().get_items(ids).values[:, 0].tolist() == list(range(len(ids)))
    assert not store.view().get_items(["x" * 902, "ä", "t", "\x02"]).known.any()


def test_clicks_are_the_vector_that_tracking_makes(store: Store, tracked: Path) -> None:
    store.put(tracked=tracked)
    window = pq.read_table(next((tracked / "windows").glob("month-*")))
    pairs = sorted({(row["query_id"], row["doc_id"]) for row in window.to_pylist()})
    lookup, query = Lookup(tracked), pairs[0][0]
    shown = [document for one, document in pairs if one == query]
    found = store.view().get_clicks(query, [*shown, "never"])
    assert found.names == FEATURES
    assert found.known.tolist() == [True] * len(shown) + [False]
    np.testing.assert_allclose(
        found.values[:-1], [feature_vector(lookup(query, each)) for each in shown], rtol=1e-6
    )
    assert not found.values[-1].any()
    assert not store.view().get_clicks("another query", shown).known.any()
    held = store.view().contents().clicks
    assert held is not None
    assert held.rows == len(pairs)
    assert set(held.until) == {"day", "week", "month"}


# ---- replaced while it is read ----


def test_others_see_an_update_soon_and_a_view_stays_as_it_was(store: Store, place: str, tracked: Path) -> None:
    store.put(items=[ITEMS], tracked=tracked)
    with open_store(place) as other:
        before, view = other.view().version, other.view()
        store.put(items=[{"doc_id": ["a"], "weight": [9.0]}])
        assert soon(lambda: other.view().get_items(["a"]).named() == [{"weight": 9.0}])
        assert view.version == before
        assert view.get_items(["b"]).named() == [{"price": None, "brand": "bolt", "seen": 2.0}]
        after = other.view().version
        assert after["items"] != before["items"]
        assert after["clicks"] == before["clicks"]  # which was not replaced


def test_no_reader_sees_half_of_an_update(store: Store, place: str) -> None:
    """Generation g has g everywhere: what a request sees is all of one number."""
    ids, wrong, seen, done = list(range(300)), [], set(), threading.Event()

    def read() -> None:
        with open_store(place) as mine:
            while not done.is_set():
                found = mine.view().get_items(ids)
                numbers = set(found.values.ravel().tolist())
                seen.update(numbers)
                if len(numbers) != 1 or not found.known.all():
                    wrong.append(numbers)

    store.put(items=[{"doc_id": ids, "g": [0.0] * len(ids)}])
    reader = threading.Thread(target=read)
    reader.start()
    for g in range(1, 6):
        store.put(
            items=[{"doc_id": ids, **{("g", "h")[each]: [float(g)] * len(ids) for each in range(1 + g % 2)}}]
        )
        assert soon(lambda g=g: g in seen)
    done.set()
    reader.join()
    assert wrong == []


def test_a_failed_update_changes_nothing(store: Store) -> None:
    store.put(items=[ITEMS])
    before = store.view().version
    bad: list[tuple[Any, str]] = [
        ({"doc_id": ["a", "a"], "price": [1.0, 2.0]}, "document a"),
        ({"query_id": [1], "doc_id": ["a"], "price": [1.0]}, "has query_id, and a store has features of items"),
        ({"doc_id": ["a", None], "price": [1.0, 2.0]}, "doc_id"),
        ({"doc_id": ["a"], "price": [np.inf]}, "price is infinite"),
        ({"sku": ["a"], "price": [1.0]}, "neither query_id nor doc_id"),
    ]
    for table, says in bad:
        with pytest.raises(DataError, match=says):
            store.put(items=[table])
    with pytest.raises(RunError, match="no tracking store"):
        store.put(items=[{"doc_id": ["z"], "price": [1.0]}], tracked="nowhere")
    assert store.view().version == before
    assert store.view().get_items(["a", "z"]).known.tolist() == [True, False]


def test_what_is_not_there_is_an_error_and_no_unknown_item(store: Store) -> None:
    with pytest.raises(StoreError, match="make one with `unskew store PLACE --items TABLE`"):
        store.view().get_items(["a"])
    store.put(items=[ITEMS])
    with pytest.raises(StoreError, match=r"has no click features; put them there with .* --tracked"):
        store.view().get_clicks("q", ["a"])


MOMENTS = {"first block": 1.0, "second block": 1.0, "before the switch": 1.0, "after the switch": 2.0}
"""Where a writer of 2.0 is killed, and what holds then in the place of 1.0."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_writer_leaves_a_whole_generation(store: Store, place: str, moment: str) -> None:
    ids = list(range(5000))  # two blocks
    store.put(items=[{"doc_id": ids, "g": [1.0] * len(ids)}])
    pid = os.fork()
    if not pid:
        try:
            _die_at(moment)
            open_store(place).put(items=[{"doc_id": ids, "g": [2.0] * len(ids)}])
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    with open_store(place) as other:
        found = other.view().get_items(ids)
    assert found.known.all()
    assert set(found.values.ravel().tolist()) == {MOMENTS[moment]}
    store.put(items=[{"doc_id": ids, "g": [3.0] * len(ids)}])  # and nobody holds a lock
    assert set(store.view().get_items(ids).values.ravel().tolist()) == {3.0}


def _die_at(moment: str) -> None:
    """Kill this process, which is to write, at a moment."""
    blocks = 0

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def rows(values: Any) -> list[bytes]:
        nonlocal blocks
        blocks += 1
        if moment == ("first block", "second block")[min(blocks, 2) - 1]:
            die()
        return rows_of(values)

    contents.rows_of = rows
    if moment.endswith("switch"):
        lmdb_switch, redis_switch = lmdb_files.write_manifest, redis_keys.RedisKeys._switch
        before = moment.startswith("before")
        lmdb_files.write_manifest = die if before else lambda *given: die(lmdb_switch(*given))
        redis_keys.RedisKeys._switch = die if before else lambda *given: die(redis_switch(*given))


# ---- LMDB alone ----


def test_old_files_go_and_leftovers_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "features") as store:
        store.put(items=[ITEMS])
        (tmp_path / "features" / "items-dead.lmdb").write_bytes(b"half")
        store.put(items=[ITEMS])
        generation = store.view().version["items"]
    left = {path.name for path in (tmp_path / "features").iterdir()}
    assert left == {"features.json", f"items-{generation}.lmdb"}


def test_a_file_that_was_cut_or_damaged_is_an_error(tmp_path: Path) -> None:
    with open_store(tmp_path / "features") as store:
        store.put(items=[ITEMS])
        file = tmp_path / "features" / f"items-{store.view().version['items']}.lmdb"
    content = file.read_bytes()
    for damage, says in (
        (content[:5000], "was cut"),
        (b"x" * len(content), "damaged, it is not what was written"),
    ):
        file.write_bytes(damage)
        with pytest.raises(StoreError, match=says):
            open_store(tmp_path / "features").view().get_items(["a"])
    (tmp_path / "features" / "features.json").write_text("{")
    with pytest.raises(StoreError, match="damaged, or of another version"):
        open_store(tmp_path / "features").view().get_items(["a"])


def look_up(view: View) -> None:
    assert {*view.parts} == {"items", "clicks"}
    view.get_items(["a"])
    view.get_clicks("q1", ["a"])


def test_no_flipped_bit_is_silent(tmp_path: Path, tracked: Path) -> None:
    place, drawn = tmp_path / "features", np.random.default_rng(0)
    with open_store(place) as store:
        store.put(items=[ITEMS], tracked=tracked)
    files = sorted(place.iterdir())
    assert len(files) == 3
    for at in range(150):
        file = files[at % 3]
        content = file.read_bytes()
        flipped = bytearray(content)
        flipped[drawn.integers(len(content))] ^= 1 << int(drawn.integers(8))
        file.write_bytes(flipped)
        with pytest.raises(StoreError, match=r"damaged|missing|cut|no store|has no") as told:
            look_up(open_store(place).view())
        assert str(place) in str(told.value)
        file.write_bytes(content)
    assert open_store(place).view().get_items(["a"]).known.all()


def test_what_a_disk_or_lmdb_says_is_told_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lmdb

    place = tmp_path / "features"
    with open_store(place) as store:
        store.put(items=[ITEMS])
        view = store.view()

        def broken(*_: object, **__: object) -> None:
            raise lmdb.CorruptedError("MDB_CORRUPTED: Located page was wrong type")

        part: Any = view.parts["items"]
        monkeypatch.setattr(part, "_env", type("Env", (), {"begin": staticmethod(broken)}))
        with pytest.raises(StoreError, match=r"items-.*MDB_CORRUPTED.*; put the features there anew"):
            view.get_items(["a"])
        monkeypatch.setattr(lmdb, "open", broken)
        with pytest.raises(StoreError, match=f"{place}: MDB_CORRUPTED.*what was there stays"):
            store.put(items=[ITEMS])
    (tmp_path / "a_file").write_text("")
    with pytest.raises(StoreError, match=r"Not a directory.*choose another place"):
        open_store(tmp_path / "a_file" / "features").put(items=[ITEMS])
    (place / "features.json").unlink()
    (place / "features.json").mkdir()
    with pytest.raises(StoreError, match=r"Is a directory|damaged"):
        open_store(place).view()


def test_others_look_up_in_the_old_while_a_new_file_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path / "features") as store:
        store.put(items=[ITEMS])
        old = store.view().version
        begun, go_on, hashed = threading.Event(), threading.Event(), lmdb_files.digest_of

        def slow(path: Path) -> str:
            begun.set()
            assert go_on.wait(20)
            return hashed(path)

        with open_store(tmp_path / "features") as writer:
            new = writer.put(items=[ITEMS])
        lmdb_files._open_files.clear()  # else this process has it open
        monkeypatch.setattr(lmdb_files, "digest_of", slow)
        opening = threading.Thread(target=store.view)
        opening.start()
        assert begun.wait(20)
        assert store.view().version == old
        go_on.set()
        opening.join()
        assert store.view().version == new


def test_what_is_not_ours_is_left_alone(tmp_path: Path, tracked: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for other in (tmp_path / "mine", tmp_path / "file", tracked):
        with pytest.raises(RunError, match="choose another place"):
            open_store(other).put(items=[ITEMS])


def test_a_process_that_forks_reads_on(tmp_path: Path) -> None:
    store = open_store(tmp_path / "features")
    store.put(items=[ITEMS])
    assert store.view().get_items(["a"]).known.all()
    pid = os.fork()
    if not pid:
        os._exit(
            0 if store.view().get_items(["a"]).named() == [{"price": 1.5, "brand": "acme", "seen": 1.0}] else 1
        )
    assert os.waitpid(pid, 0)[1] == 0


# ---- Redis alone ----


def answer(store: Store) -> Any:
    """What is known of an item; None while the store is away."""
    try:
        return store.view().get_items(["a"]).named()
    except StoreError:
        return None


def test_a_silent_redis_is_waited_for_once(tmp_path: Path, server: Server) -> None:
    """Who asks right after is told at once, and it is asked again soon."""
    mine = Server(tmp_path)
    try:
        store = open_store(f"redis://127.0.0.1:{mine.port}/0")
        store.put(items=[ITEMS])
        expected, asked = answer(store), 0
        os.kill(mine.process.pid, signal.SIGSTOP)
        client = store._client  # type: ignore[attr-defined]
        ask = client.execute_command

        def counted(*words: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            return ask(*words, **options)

        client.execute_command = counted
        assert [answer(store) for _ in range(50)] == [None] * 50
        assert asked < 5
        os.kill(mine.process.pid, signal.SIGCONT)
        assert soon(lambda: answer(store) == expected)
    finally:
        mine.stop()


def test_a_redis_that_goes_away_and_comes_back(tmp_path: Path, server: Server) -> None:
    mine = Server(tmp_path)
    try:
        store = open_store(f"redis://127.0.0.1:{mine.port}/0")
        store.put(items=[ITEMS])
        expected = store.view().get_items(["a"]).named()
        mine.stop()
        for _ in range(3):
            with pytest.raises(StoreError, match=f"redis://127.0.0.1:{mine.port}/0 does not answer"):
                store.view().get_items(["a"])
        mine.start()
        assert soon(lambda: answer(store) == expected)
        mine.client.flushall()  # as one does that comes back without what it had
        time.sleep(0.3)
        with pytest.raises(StoreError, match="has no store of features"):
            store.view().get_items(["a"])
    finally:
        mine.stop()


def test_replaced_and_unfinished_generations_go(server: Server) -> None:
    server.client.flushall()
    with open_store(f"redis://127.0.0.1:{server.port}/0") as store:
        store.put(items=[ITEMS])
        old = store.view().version["items"]
        store.put(items=[ITEMS])
        new = store.view().version["items"]
    assert 0 < server.client.ttl(f"unskew:items:{old}") <= 15
    assert server.client.ttl(f"unskew:items:{new}") == -1


def test_a_generation_that_is_gone_is_no_list_of_unknown_items(server: Server) -> None:
    server.client.flushall()
    with open_store(f"redis://127.0.0.1:{server.port}/0") as store:
        store.put(items=[ITEMS])
        view = store.view()
        server.client.delete(f"unskew:items:{view.version['items']}")  # evicted, or long replaced
        with pytest.raises(StoreError, match="replaced or removed just now"):
            view.get_items(["a"])


# ---- names and bytes ----


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("lmdb:", "names no folder"),
        ("http://x/0", "http:// is no store"),
        ("redis://h:port/0", "no address of Redis"),
    ],
)
def test_places_that_are_none(place: str, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        open_store(place)


def test_looking_up_imports_no_torch_and_no_engine(tmp_path: Path) -> None:
    open_store(tmp_path / "features").put(items=[ITEMS])
    code = "import sys; from unskew.serving.store import open_store\n"
    code += "open_store(sys.argv[1]).view().get_items(['a']); "
    code += "print([name for name in ('torch', 'duckdb', 'ibis', 'pyarrow') if name in sys.modules])"
    words = [sys.executable, "-c", code, str(tmp_path / "features")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_passwords_are_not_told() -> None:
    store = open_store("redis://me:secret@127.0.0.1:1/0")
    with pytest.raises(StoreError) as told:
        store.view().get_items(["a"])
    assert "secret" not in str(told.value)


def test_heads_of_other_versions_are_refused() -> None:
    head = StoreHead(3, ("price",), {}, "2026-01-01", {})
    assert StoreHead.unpacked(head.packed(), "here") == head
    with pytest.raises(StoreError, match="here: made by another version"):
        StoreHead.unpacked(b"\x63" + head.packed()[1:], "here")
    with pytest.raises(StoreError, match="here: damaged"):
        StoreHead.unpacked(head.packed()[:-3], "here")
    assert len(item_key("x" * 10_000)) < 511 - 16
