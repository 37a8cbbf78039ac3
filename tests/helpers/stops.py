"""Finds out what a command leaves when it is killed before any one of its file operations, and how it goes on.

    python stops.py FOLDER        reads the name of a job in each line, and prints one JSON line for each point

An empty line ends what is found of a job. A process of its own imports everything once, for all jobs, and forks.
One child runs the command to its end and keeps, before each operation, a copy of all that is on the disk: that is
there when `kill -9` comes then. Another child is given the copy, reads what is there, and runs the command again.

Operations are what Python's audit hook tells of files below the folder: opened to be written, renamed, removed,
made, truncated, linked. Libraries that write by themselves (DuckDB, Arrow, safetensors, LightGBM) open files that
the hook does not see; what they have written is in the copies from the next operation on. What lies inside a name
such as `.run.4711-1a2b3c4d.part` is removed without being looked at: copies that differ there alone count as one.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import io
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
"""Audit events that change files, beside `open`."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OWN = re.compile(r"\d+-[0-9a-f]{8}|unskew-\w{8}")
"""What differs from run to run in a name: a process and a number, or letters."""

unloaded: set[str] = set()
"""Modules that were asked for once: what cannot be imported by its name is not tried again."""


@dataclass(frozen=True)
class Job:
    """A command in a folder: what must be there before it, and what a reader of its result sees."""

    begin: Callable[[], None]
    """Make what it reads."""
    new: Callable[[], None]
    """The command that is stopped, and repeated."""
    read: Callable[[], Any]
    """What a reader gets; raises where nothing is there."""
    old: Callable[[], None] | None = None
    """Make what is there before it; None where nothing is."""
    adds: bool = False
    """Whether it adds to what is there, and does not replace it."""


@dataclass
class Copies:
    """The disk before each operation."""

    folder: Path
    """What is watched."""
    kept: Path
    """Where copies go, by what they hold."""
    points: list[tuple[str, str]] = field(default_factory=list)
    """Each operation, and the name of its copy."""
    busy: bool = False

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        """Python's audit hook."""
        if self.busy or (what := self.operation(event, given)) is None:
            return
        self.busy = True
        name = tree(self.folder)
        if not (self.kept / name).exists():
            shutil.copytree(self.folder, self.kept / name, symlinks=True)
        self.points.append((what, name))
        self.busy = False

    def operation(self, event: str, given: tuple[Any, ...]) -> str | None:
        """The change to a file below the folder that an event tells of; None for all others."""
        if event == "open":
            flags = given[2]
            if not (isinstance(flags, int) and flags & WRITING):
                return None
        elif event not in CHANGES:
            return None
        if isinstance(given[0], int) or given[0] is None:
            return None
        name = os.path.abspath(os.fsdecode(given[0]))
        inside = name.startswith(f"{self.folder}/")
        return OWN.sub("PID", f"{event} {os.path.relpath(name, self.folder)}") if inside else None


def tree(folder: Path) -> str:
    """A hash of the names and contents below a folder, without what lies inside names that are removed anyway."""
    digest = hashlib.blake2b(digest_size=12)
    for root, folders, files in os.walk(folder):
        apart = [name for name in folders if OWN.search(name)]
        folders[:] = sorted(set(folders) - set(apart))
        for name in sorted([*files, *folders, *apart]):
            path = Path(root, name)
            digest.update(OWN.sub("PID", str(path.relative_to(folder))).encode() + b"\0")
            digest.update(path.read_bytes() if path.is_file() and not OWN.search(name) else b"")
    return digest.hexdigest()


def forked(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run it in a child: its exit status, and what it returned; or how it failed."""
    gc.freeze()  # else a child that collects garbage copies every page of what is imported
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        status, said = 1, b""
        try:
            os.close(there)
            sys.stderr = sys.stdout = io.StringIO()
            answer = work()
            said = json.dumps([answer, [*sys.modules]], default=str).encode()
            status = 0
        except BaseException:
            said = json.dumps([traceback.format_exc()[-1500:], []]).encode()
        with os.fdopen(here, "wb") as pipe:
            pipe.write(said)
        os._exit(status)
    os.close(here)
    with os.fdopen(there, "rb") as pipe:
        heard = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answer, modules = json.loads(heard) if heard else (None, [])
    load(modules)
    return status, answer


def must(work: Callable[[], Any]) -> Any:
    """What a child returned, which must not fail."""
    status, answer = forked(work)
    if status != 0:
        sys.exit(f"{status}: {answer}")
    return answer


def put_back(copy: Path, folder: Path) -> None:
    """The folder as it was; the folder itself stays, since processes stand in it."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(copy, folder, dirs_exist_ok=True, symlinks=True)


def load(modules: list[str]) -> None:
    """Import what a child needed, so that those after it need not."""
    for name in modules:
        if name not in sys.modules and name not in unloaded and not name.startswith("_"):
            unloaded.add(name)
            with suppress(Exception):
                import_module(name)


def names(folder: Path) -> list[str]:
    """What lies below a folder; of a cache and a store, whose names are made, only what is half-written."""
    every = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    made = ("cache/", "store/")
    named = {OWN.sub("PID", name) for name in every if not name.startswith(made) or OWN.search(name)}
    return sorted(name for name in named if not re.fullmatch(r"tmp/\w{8}", name))  # Python asks if it can write


def found_in(job: Job) -> Any:
    """What a reader gets, or "nothing"."""
    try:
        return job.read()
    except Exception:
        return "nothing"


def points(job: Job, folder: Path) -> Iterator[dict[str, Any]]:
    """What was found at each point."""
    copies = folder.with_name(folder.name + ".copies")
    must(job.begin)
    shutil.copytree(folder, copies / "bare")

    def undisturbed() -> Any:
        job.new()
        return job.read()

    if job.adds and job.old is not None:
        must(job.old)
    new = must(undisturbed)
    after = names(folder)
    put_back(copies / "bare", folder)
    if job.old is not None:
        must(job.old)
    old = must(lambda: found_in(job))
    (copies / "states").mkdir()

    def watched() -> list[tuple[str, str]]:
        watching = Copies(folder, copies / "states")
        sys.addaudithook(watching)
        job.new()
        return watching.points

    def gone_on() -> list[Any]:
        first = found_in(job)
        with suppress(SystemExit) if job.old is None and first == new else nullcontext():  # it was done, and stays
            job.new()
        return [first, job.read()]

    kinds = {json.dumps(new): "new", json.dumps(old): "old"}
    tried: dict[str, dict[str, Any]] = {}
    for number, (what, state) in enumerate(must(watched), 1):
        if state not in tried:
            put_back(copies / "states" / state, folder)
            status, answer = forked(gone_on)
            tried[state] = {
                "reads": "?" if status else kinds.get(json.dumps(answer[0]), "neither"),
                "again": "ok" if status == 0 else answer,
                "result": status == 0 and answer[1] == new,
                "left": sorted(set(names(folder)) - set(after)),
            }
        yield {"point": number, "before": what} | tried[state]


def full(job: Job, folder: Path) -> Iterator[dict[str, Any]]:
    """What a command says and leaves when the disk is full from some point on: nothing more is opened or made."""
    copies = folder.with_name(folder.name + ".copies")
    must(job.begin)
    if job.old is not None:
        must(job.old)
    old = must(lambda: found_in(job))
    shutil.copytree(folder, copies / "old")
    before = names(folder)
    must(job.new)
    for number in count(1):
        put_back(copies / "old", folder)
        status, answer = forked(partial(until_full, job, folder, number))
        if status or answer[0] == "done":
            yield {"point": number, "status": status, "said": answer}
            return
        reads = "old" if must(lambda: found_in(job)) == old else "neither"
        left = [
            name for name in names(folder) if name not in before and not name.startswith(("run.partial", "tmp"))
        ]
        told = {"before": answer[2], "said": answer[1], "status": answer[0]}
        yield {"point": number, "reads": reads, "left": left} | told


def until_full(job: Job, folder: Path, number: int) -> tuple[Any, list[str], str]:
    """Run a command whose disk takes nothing from its operation of that number on: its status, what it says."""
    said, seen = io.StringIO(), list[str]()
    watching = Copies(folder, folder)

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in ("open", "os.mkdir") and (what := watching.operation(event, given)) is not None:
            seen.append(what)
            if len(seen) >= number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(given[0]))

    sys.addaudithook(hook)
    sys.stderr = said
    try:
        job.new()
    except SystemExit as left:
        return left.code, said.getvalue().splitlines(), seen[number - 1]
    except Exception as error:  # in Python
        return 1, [f"unskew: {error}"], seen[number - 1]
    return "done", [], ""


def main() -> None:
    """Print what is found at each point of the jobs asked for; after the word `full`, on a disk that is full."""
    from stopped_jobs import JOBS

    base = Path(sys.argv[1]).resolve()
    for asked in map(str.strip, sys.stdin):
        name = asked.removeprefix("full ")
        folder = base / asked.replace(" ", "_")
        folder.mkdir(parents=True)
        os.chdir(folder)
        (folder / "tmp").mkdir()
        os.environ |= {"UNSKEW_CACHE": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
        for found in (points if name == asked else full)(JOBS[name], folder):
            print(json.dumps(found), flush=True)
        print(flush=True)


if __name__ == "__main__":
    main()
