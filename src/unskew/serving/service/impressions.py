"""What was shown and clicked, as files that `unskew ingest` reads without a mapping file.

A line is one event: an `impression` of a result, with the columns of the impressions table, or a `click`.
Clicks come later, perhaps in another file or by another process; `ingest` joins them by page_id and doc_id.

    unskew ingest FOLDER --out impressions

A file is written under a name that begins with a dot, which `ingest` passes over, and takes its own name when
it is full, old or closed. So a file that is read is whole. The writer holds a lock on its open file; what a
dead one left is cut after its last whole line and named by the next writer, or by `recover`. Lines go to the
system when a page is logged: killing the process loses none, cutting the power may lose what the system had not
written yet.

One writer per process and folder; threads of a process may share it.
"""

import hmac
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import numpy as np

from unskew.errors import ConfigError, DataError, Option
from unskew.files import taken, told_of_disks
from unskew.serving.explore.policy import Decision
from unskew.types import Array

ENDING = ".jsonl"
OPEN = ".open"
"""What the name of a file that is being written ends with; it begins with a dot."""
Id = str | int
encoded = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


class ImpressionLog(AbstractContextManager["ImpressionLog"]):
    """Appends pages and clicks to files in a folder, `rows` lines or `seconds` each."""

    def __init__(
        self,
        folder: Path | str,
        *,
        rows: int = 100_000,
        seconds: float = 300.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if rows < 1 or seconds <= 0:
            told = ": a file has at least a row and takes some time"
            raise ConfigError((Option("rows", rows), ", ", Option("seconds", seconds), told))
        self.folder, self.rows, self.seconds, self._clock = Path(folder), rows, seconds, clock
        self._lock, self._file, self._name = Lock(), -1, ""
        self._written, self._opened = 0, 0.0
        with told_of_disks(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        recover(self.folder)

    def shown(
        self,
        page_id: Id,
        query_id: Id,
        doc_ids: Sequence[Id],
        decision: Decision,
        *,
        results: int | None = None,
        scores: Array | Sequence[float] | None = None,
        user_id: Id | None = None,
    ) -> None:
        """Log a page: its first `results`, all unless given.

        `doc_ids` and `scores` are those of the candidates that `decision` orders.
        """
        if len(doc_ids) != len(decision.order):
            raise DataError(f"{len(doc_ids)} documents for a decision on {len(decision.order)}")
        order = decision.order[:results].tolist()
        slots = len(order)
        rows: dict[str, Sequence[object]] = {
            "position": range(1, slots + 1),
            "propensity": np.round(decision.propensity[:slots], 12).tolist(),
            "randomized": decision.randomized[:slots].tolist(),
            "doc_id": [doc_ids[at] for at in order],
        }
        if decision.team is not None:
            rows["team"] = decision.team[:slots]
        if scores is not None:
            rows["logging_score"] = np.asarray(scores, np.float64)[order].tolist()
        lines = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
        page = {"page_id": page_id, "query_id": query_id, "user_id": user_id, "policy_id": decision.policy_id}
        self._append(lines, event="impression", **page)

    def clicked(self, page_id: Id, doc_id: Id, *, dwell_time: float | None = None) -> None:
        """Log a click on a result of a page that was shown, here or by another process."""
        row = {} if dwell_time is None else {"dwell_time": dwell_time}
        self._append([{"doc_id": doc_id, **row}], event="click", page_id=page_id)

    def close(self) -> None:
        """Give the open file its own name, so that it can be read; a further line would begin another."""
        with self._lock:
            self._close()

    def end_old(self) -> None:
        """The same, where the file is as old as it may get; a service that nobody asks has none that waits."""
        with self._lock:
            if self._file >= 0 and self._clock() - self._opened > self.seconds:
                self._close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, lines: Sequence[Mapping[str, object]], **page: object) -> None:
        """Lines of one page at once, each with what is said of the page; a file ends before it is too long."""
        said = {name: value for name, value in page.items() if value is not None}
        said["timestamp"] = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="microseconds")
        try:
            head = encoded(said)[:-1]  # encoded once, without its bracket
            text = "".join(f"{head}, {encoded(line)[1:]}\n" for line in lines)
        except ValueError as error:
            raise DataError(f"a page cannot be logged: {error}", hint="log finite numbers and text") from None
        with self._lock, told_of_disks(self.folder):
            old = self._clock() - self._opened > self.seconds
            if self._file >= 0 and (old or self._written + len(lines) > self.rows):
                self._close()
            if self._file < 0:
                self._open()
            _write_all(self._file, text.encode("utf-8", "backslashreplace"))
            self._written += len(lines)

    def _open(self) -> None:
        at = datetime.fromtimestamp(self._clock(), UTC)
        self._name = f"events-{at:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}{ENDING}"
        path = self.folder / f".{self._name}{OPEN}"
        while (file := taken(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)) is None:
            continue  # somebody took it for a dead one's before it was locked
        self._file = file
        self._written, self._opened = 0, self._clock()

    def _close(self) -> None:
        if self._file < 0:
            return
        os.fsync(self._file)
        (self.folder / f".{self._name}{OPEN}").rename(self.folder / self._name)
        os.close(self._file)
        self._file = -1


def signed(page_id: str, secret: bytes) -> str:
    """The id of a page with a signature, which nobody can make who lacks the secret.

    >>> page = signed("7f3a", b"secret")
    >>> is_signed(page, b"secret"), is_signed(page, b"another"), is_signed("7f3a", b"secret")
    (True, False, False)
    """
    return f"{page_id}.{hmac.digest(secret, b'page' + page_id.encode(), 'sha256')[:16].hex()}"


def is_signed(page_id: str, secret: bytes) -> bool:
    """Whether `signed` made this id, of any page."""
    own = signed(page_id.rpartition(".")[0], secret)
    return hmac.compare_digest(own.encode(), page_id.encode())


def recover(folder: Path) -> list[Path]:
    """Finish the files that dead writers left, cut after their last whole lines; their new names."""
    found = []
    for path in sorted(folder.glob(f".events-*{ENDING}{OPEN}")):
        if (file := taken(path, os.O_RDWR)) is None:  # its writer is alive, or ended it, or another one was faster
            continue
        try:
            end = os.pread(file, os.fstat(file).st_size, 0).rfind(b"\n") + 1
            os.ftruncate(file, end)
            if end:
                found.append(path.rename(folder / path.name[1 : -len(OPEN)]))
            else:
                path.unlink()
        finally:
            os.close(file)
    return found


def _write_all(file: int, content: bytes) -> None:
    """Write it all; a disk that takes a part takes nothing."""
    before, done = os.fstat(file).st_size, 0
    try:
        while done < len(content):
            done += os.write(file, content[done:])
    except OSError:
        os.ftruncate(file, before)
        raise
