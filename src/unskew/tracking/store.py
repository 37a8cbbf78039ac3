"""A tracking store on disk: what was counted, published so that a run that dies has done nothing.

    STORE/store.json                          what holds: clock, deliveries, windows; its replacement is the commit
    STORE/partials/<delivery>/day=<n>/*.parquet   sums per hour, query, document and position
    STORE/pages/<delivery>/day=<n>/*.parquet      hour, page_id, ranks and start of every page that was counted
    STORE/windows/<name>-<number>/*.parquet       sums per query, document and position, sorted by them

Days and hours are numbers since 1970, in UTC. Folders are written under names of their own and never changed. What
store.json does not name is not there: a run that died left it, or a newer one has replaced it, and the next run
removes it; so who reads while a run ends has an hour to finish. One run at a time writes, others wait.

A wrong clock may move the store's past all that comes. So the latest days that have pages stay, wherever the clock
is, and `rewind` goes back to them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from math import inf
from pathlib import Path

from pydantic import Field

from unskew.errors import ConfigError, DataError, RunError
from unskew.files import check_files, read_json, remove, write_manifest
from unskew.settings import Config, checked
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table
from unskew.tracking.delivery import KEY, SUMS

MANIFEST = "store.json"
FOLDERS = ("partials", "pages", "windows")
DAY = 24
"""Hours of a day."""
KEPT_DAYS = 35
"""Days with pages that are kept: those of the longest window, and some that a wrong clock may have made."""


class Delivery(Config):
    """The folders and numbers of one run of `track`."""

    name: str
    """What its folders are called."""
    days: tuple[int, ...] = Field(strict=False)
    """Days that it has pages of."""
    pages: int
    """Pages that it counted."""


class Published(Config):
    """A window as it was last written: its folder and its hours."""

    folder: str
    """Its folder below windows/."""
    since: int
    """The first hour that it counts, in hours since 1970."""
    until: int
    """The first hour after it."""


class Manifest(Config):
    """The content of manifest.json: deliveries, windows and counts; what it does not name does not hold."""

    format: int = 3
    """The version of the layout of files."""
    number: int = 0
    """How many runs of `track` there were."""
    clock: int | None = None
    """First hour that no page was counted of; it never goes back."""
    kinds: dict[str, str] = Field(default_factory=dict)
    """Types of the ids."""
    deliveries: tuple[Delivery, ...] = Field((), strict=False)
    """What was counted and is not too old."""
    windows: dict[str, Published] = Field(default_factory=dict)
    """The windows that were written, by name."""
    files: dict[str, str] = Field(default_factory=dict)
    """Hashes of all files, by their names below the store."""


class TrackingStore:
    """A store that is open: what it holds, and where."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest

    def read(self, engine: Engine, kind: str, first: int, last: int) -> Table | None:
        """The `partials` or `pages` of hours first to last, both included; None where there are none."""
        found = {
            f"{kind}/{delivery.name}/day={day}"
            for delivery in self.manifest.deliveries
            for day in delivery.days
            if first // DAY <= day <= last // DAY
        }
        if not found:
            return None
        table = engine.read_parquet(self.checked(found))
        columns = ("hour", *KEY, *SUMS) if kind == "partials" else ("hour", "page_id", "ranks", "start")
        return table.filter(table.hour.between(first, last)).select(*columns)

    def checked(self, names: Set[str]) -> list[Path]:
        """Folders by their names below the store, whose files are what was written, or refused."""
        files = self.manifest.files
        check_files(self.path, {name: files[name] for name in files if name.rpartition("/")[0] in names})
        return [self.path / name for name in sorted(names)]

    def window(self, name: str) -> Path:
        """The folder of a window that was written."""
        return self.checked({f"windows/{self.manifest.windows[name].folder}"})[0]

    def rewind(self, clock: int) -> None:
        """Go back to an hour: forget the windows, and the days that begin later."""
        kept = within(self.manifest.deliveries, 0, (clock - 1) // DAY)
        self.manifest = self.manifest.model_copy(update={"clock": clock, "deliveries": kept, "windows": {}})

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest; from then on everybody reads what it names."""
        write_manifest(self.path / MANIFEST, manifest, self.path.rglob("*.parquet"), self.manifest.files)
        self.manifest = open_tracking(self.path).manifest

    def tidy(self) -> None:
        """Remove folders that the manifest does not name."""
        named = {delivery.name for delivery in self.manifest.deliveries}
        named |= {window.folder for window in self.manifest.windows.values()}
        for kind in FOLDERS:
            if (self.path / kind).is_dir():
                remove(*(path for path in (self.path / kind).iterdir() if path.name not in named))


def within(deliveries: Sequence[Delivery], first: int, last: float = inf) -> tuple[Delivery, ...]:
    """The deliveries with their days from first to last, without those that have none."""
    some = [
        each.model_copy(update={"days": tuple(day for day in each.days if first <= day <= last)})
        for each in deliveries
    ]
    return tuple(each for each in some if each.days)


def open_tracking(path: Path | str) -> TrackingStore:
    """A store to read from."""
    path = Path(path)
    if not (path / MANIFEST).is_file():
        raise RunError(f"{path} is no tracking store (it has no {MANIFEST}); make one with `unskew track`")
    try:
        manifest = checked(Manifest, read_json(path / MANIFEST), MANIFEST)
    except ConfigError as error:
        raise DataError(f"damaged, or of another version ({error})", path=path / MANIFEST) from error
    if manifest.format != Manifest().format:
        raise DataError(f"of format {manifest.format}, not {Manifest().format}", path=path, hint="track anew")
    return TrackingStore(path, manifest)


@contextmanager
def writing(path: Path) -> Iterator[TrackingStore]:
    """A store to write to, new where there is none; nobody else writes meanwhile."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; choose another place for the store")
    # a run that died may have left a half-written manifest
    ours = {".lock", *FOLDERS, *(each.name for each in path.glob(f".{MANIFEST}.*"))}
    fresh = path.is_dir() and not (path / MANIFEST).is_file()
    if fresh and {each.name for each in path.iterdir()} - ours:
        raise RunError(f"{path} exists and is not a tracking store, so it is left alone; choose another place")
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store = open_tracking(path) if (path / MANIFEST).is_file() else TrackingStore(path, Manifest())
        store.tidy()
        for kind in FOLDERS:
            (path / kind).mkdir(exist_ok=True)
        yield store
    finally:
        os.close(lock)  # which gives the lock back, as a death does
