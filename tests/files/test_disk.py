"""Files and folders appear whole, never over what is not ours; the dead leave nothing, bombs do not go off."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from unskew.errors import DataError, RunError
from unskew.files import (
    CACHED,
    Ours,
    complete_file,
    complete_folder,
    publish,
    read_json,
    refuse_existing,
    restore,
    unpacked,
    write_json,
    writing,
)
from unskew.files import (
    reading as disk_reading,
)
from unskew.files import writing as swapping
from unskew.files.writing import scratch_folder
from unskew.learning.fitting.runtime import write_tensors
from unskew.workflows.runs.folder import claimed

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
DEAD = 2**22 + 1
"""Linux gives no process a number as high."""
MARKED = Ours("mark", ("other",))
RUN = Ours("run.json")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_folder(place: Path, content: str, **options: object) -> None:
    with complete_folder(place, **options) as working:  # type: ignore[arg-type]
        (working / "mark").write_text(content)


# ------------------------------------------------------------------------------------------- refusing


def test_what_exists_is_never_overwritten(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    folder.mkdir()
    refuse_existing(tmp_path / "free")
    refuse_existing(folder)  # an empty folder is nobody's work
    (folder / "thesis.txt").touch()
    for place in (file, folder):
        with pytest.raises(RunError) as told:
            refuse_existing(place, ours=RUN)
        hint = "choose another place, or pass force=True"
        assert str(told.value) == f"{place} exists and is never overwritten; {hint}"


def test_force_takes_only_what_is_ours(tmp_path: Path) -> None:
    file, ours, theirs, link = (tmp_path / name for name in ("file", "ours", "theirs", "link"))
    file.touch()
    for folder, name in ((ours, "run.json"), (theirs, "thesis.txt")):
        folder.mkdir()
        (folder / name).touch()
    link.symlink_to(ours)
    refuse_existing(file, force=True)
    refuse_existing(ours, force=True, ours=RUN)
    refuse_existing(theirs, force=True, ours=CACHED)
    for place, kind in ((theirs, RUN), (file, RUN), (link, RUN), (link, CACHED), (ours, None)):
        with pytest.raises(
            RunError, match=r"exists and is not ours .*, so it is not overwritten; choose another place"
        ):
            refuse_existing(place, force=True, ours=kind)


# ------------------------------------------------------------------------------------------- writing


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_everything_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": 1})
    write_tensors(tmp_path / "w.safetensors", {"w": torch.ones(2)}, {})
    write_folder(tmp_path / "folder", "x")
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
        "a.json": "0o640",
        "w.safetensors": "0o640",
        "folder": "0o750",
    }


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path, folder = tmp_path / "a.json", tmp_path / "folder"
    write_json(path, {"a": "é"})
    write_folder(folder, "old")

    def break_file() -> None:
        with complete_file(path) as ready:
            ready.write_text("half")
            raise KeyboardInterrupt

    def break_folder() -> None:
        with complete_folder(folder, force=True, ours=MARKED) as working:
            (working / "mark").write_text("half")
            raise KeyboardInterrupt

    for write in (break_file, break_folder):
        with pytest.raises(KeyboardInterrupt):
            write()
    assert read_json(path) == {"a": "é"}
    assert (folder / "mark").read_text() == "old"
    assert names(tmp_path) == ["a.json", "folder"]


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def exchanging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system can exchange two folders; what cannot steps aside."""
    if not request.param:
        monkeypatch.setattr(writing, "exchange", lambda one, other: False)
    return bool(request.param)


def test_two_folders_change_places(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        write_folder(place, place.name)
    assert swapping.exchange(one, other)
    assert [(place / "mark").read_text() for place in (one, other)] == ["other", "one"]
    with pytest.raises(FileNotFoundError):
        swapping.exchange(one, tmp_path / "nowhere")


def test_a_replaced_folder_leaves_nothing(tmp_path: Path, exchanging: bool) -> None:
    place = tmp_path / "out"
    for content in ("old", "new"):
        write_folder(place, content, force=True, ours=MARKED)
        assert (place / "mark").read_text() == content
        assert names(tmp_path) == ["out"]


def test_an_error_between_two_renames_puts_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanging: bool
) -> None:
    place, rename = tmp_path / "out", Path.rename
    write_folder(place, "old")

    def interrupted(path: Path, to: Path) -> Path:
        if to == place and path.suffix == ".part":
            raise KeyboardInterrupt
        return rename(path, to)

    def stopped(one: Path, other: Path) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    if exchanging:
        monkeypatch.setattr(writing, "exchange", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_folder(place, "new", force=True, ours=MARKED)
    assert (place / "mark").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_folder_that_cannot_be_put_in_place_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "TRIES", 2)
    with pytest.raises(OSError, match="No such file"):
        publish(tmp_path / "nowhere", tmp_path / "out")


def test_of_many_writers_one_has_the_place_and_none_mix(tmp_path: Path) -> None:
    """Threads of one process, which share its number."""
    place, together, refused = tmp_path / "out", threading.Barrier(8), []

    def write(number: int, force: bool) -> None:
        try:
            with complete_folder(place, force=force, ours=MARKED) as working:
                together.wait()
                for name in ("mark", "other"):
                    (working / name).write_text(str(number))
        except RunError as error:
            refused.append(str(error))

    for force, losers in ((False, 7), (True, 0)):
        threads = [threading.Thread(target=write, args=(number, force)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == losers
        assert (place / "mark").read_text() == (place / "other").read_text()
        assert names(tmp_path) == ["out"]
        refused.clear()


def test_a_place_that_was_taken_at_the_last_moment_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer comes between the look at the place and the move into it."""
    place = tmp_path / "out"

    def looked(*_: object, **__: object) -> None:
        if not place.exists():
            place.mkdir()
            (place / "mark").write_text("other")
            return
        raise RunError("exists")

    working = tmp_path / "working"
    working.mkdir()
    (working / "mark").write_text("ours")
    monkeypatch.setattr("unskew.files.writing.refuse_existing", looked)
    with pytest.raises(RunError, match="exists"):
        publish(working, place, ours=MARKED)
    assert (place / "mark").read_text() == "other"


# ------------------------------------------------------------------------------------------- dead processes


def test_leftovers_of_dead_processes_go_and_of_others_stay(tmp_path: Path) -> None:
    for pid in (DEAD, os.getpid(), os.getppid()):
        (tmp_path / f".out.{pid}-0123abcd.part").mkdir()
    (tmp_path / f".a.json.{DEAD}-0123abcd.part").touch()
    (tmp_path / f".thesis.{DEAD}.part").touch()  # no name of ours
    write_json(tmp_path / "b.json", {})
    living = f".out.{os.getppid()}-0123abcd.part"
    assert names(tmp_path) == sorted([f".thesis.{DEAD}.part", living, "b.json"])


def test_what_stepped_aside_comes_back(tmp_path: Path) -> None:
    place, aside = tmp_path / "out", tmp_path / f".out.{DEAD}-0123abcd.old"
    aside.mkdir()
    (aside / "mark").write_text("old")
    with pytest.raises(RunError, match="never overwritten"):
        write_folder(place, "new")
    assert (place / "mark").read_text() == "old"
    aside.mkdir()  # died after the second rename
    assert (restore(place) / "mark").read_text() == "old"
    write_folder(place, "new", force=True, ours=MARKED)
    assert (place / "mark").read_text() == "new"
    assert names(tmp_path) == ["out"]


CLAIM = """
import sys, time
from pathlib import Path
from unskew.workflows.runs.folder import claimed
with claimed(Path(sys.argv[1]), False) as working:
    (working / "checkpoint.safetensors").write_text("half")
    print("claimed", flush=True)
    time.sleep(60)
"""


def test_two_runs_do_not_share_a_folder_and_a_killed_one_is_taken_up(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", CLAIM, str(out)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for force in (False, True):
            with (
                pytest.raises(RunError, match=rf"run is being written by another process \({other.pid}\); wait"),
                claimed(out, force),
            ):
                pass
        other.kill()
    assert names(tmp_path) == [".run.unskew-lock", "run.partial"]
    with claimed(out, False) as working:
        assert names(working) == ["checkpoint.safetensors"]
    assert names(tmp_path) == ["run.partial"]  # what an error leaves, and the same process tries again
    with claimed(out, True) as working:
        assert names(working) == []
        (working / "run.json").write_text("{}")
        publish(working, out, force=True, ours=RUN)
    assert names(tmp_path) == ["run"]


# ------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("end", ["", *COMPRESS])
@pytest.mark.parametrize("size", [None, 7])
def test_files_come_back_as_they_were(tmp_path: Path, end: str, size: int | None) -> None:
    path, text = tmp_path / f"a.txt{end}", b"\xef\xbb\xbfone\ntwo\n" * 50
    path.write_bytes(COMPRESS.get(end, bytes)(text))
    blocks = list(unpacked(path, size=size))
    assert b"".join(blocks) == text[3:]  # without the byte order mark
    assert size is None or max(map(len, blocks)) <= size + 2


def test_streams_one_after_another(tmp_path: Path) -> None:
    for end, compress in COMPRESS.items():
        path = tmp_path / f"a{end}"
        padding = bytes(40) if end == ".xz" else b""
        path.write_bytes(compress(b"one") + padding + compress(b"two"))
        assert b"".join(unpacked(path, size=16)) == b"onetwo"


@pytest.mark.parametrize("end", COMPRESS)
def test_damage_is_named_with_its_place(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"a.txt{end}"
    whole = COMPRESS[end](os.urandom(300_000).replace(b"\n", b"x") + b"\n" * 2)
    path.write_bytes(COMPRESS[end](b"a\nb\n") + whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"a\.txt\{end}:[13]: the archive is cut short or damaged"):
        list(unpacked(path, size=1000))


@pytest.mark.parametrize("end", COMPRESS)
def test_a_bomb_does_not_go_off(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"bomb{end}"
    path.write_bytes(COMPRESS[end](bytes(4_000_000)))
    blocks = unpacked(path, size=2**16, expansion=10, floor=2**20)
    with pytest.raises(DataError, match=r"bomb.*grows past 1,048,576 bytes when decompressed"):
        list(itertools.islice(blocks, 18))


def test_an_xz_header_may_not_ask_for_endless_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"x", filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**24}]))
    assert list(unpacked(path)) == [b"x"]
    monkeypatch.setattr(disk_reading, "XZ_MEMORY", 2**23)
    with pytest.raises(DataError, match="Memory usage limit"):
        list(unpacked(path))


def test_archives_and_missing_files(tmp_path: Path) -> None:
    for name in ("a.zip", "a.tar.gz", "a.TGZ"):
        with pytest.raises(DataError, match="an archive of several files is not read"):
            list(unpacked(tmp_path / name))
    with pytest.raises(DataError, match=r"nothing\.gz: cannot be read: No such file"):
        list(unpacked(tmp_path / "nothing.gz"))


@pytest.mark.parametrize("text", ["{", "[1]", "\xff"])
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=r"a\.json: damaged, not"):
        read_json(tmp_path / "a.json")
    with pytest.raises(DataError, match="cannot be read"):
        read_json(tmp_path / "b.json")


def test_a_scratch_folder_that_another_process_tidied_away_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, real = [], tempfile.mkdtemp

    def tidied(**given: str) -> str:
        made.append(real(**given))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", tidied)
    with scratch_folder(tmp_path) as path:
        assert path.is_dir()
    assert len(made) == 2
    assert not any(tmp_path.iterdir())
