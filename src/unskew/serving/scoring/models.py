"""Models that follow their run folders: a new one is loaded beside the old, then takes its place in one step.

A request takes the model once and keeps it, so none is dropped and none sees two. A folder is taken up whole: one
that cannot be read, or that was written to just now or while it was read, leaves the old model where it is, and is
looked at again whenever one of its files changes. So it does not matter whether a folder is replaced in one step,
is a link that is switched, or is copied over file by file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from unskew.errors import RunError, UnskewError, printable
from unskew.learning.scoring.scorer import MODEL
from unskew.serving.scoring.served import Served

Stamp = tuple[tuple[str, int, int, int, int], ...]
"""Name, inode, size and times of each file of a model."""
SETTLING = 0.1
"""Seconds without a change after which a folder is read; longer than a tick of the clocks of file systems."""
WRITTEN = 10.0
"""Seconds to wait for a folder that is being written when a server starts."""


def stamp_of(folder: Path) -> Stamp | None:
    """What changes whenever a file of the model does; None where there is no model."""
    found = {}
    for below in ("", "text/"):
        try:
            with os.scandir(folder / below) as entries:
                for entry in entries:
                    name = f"{below}{entry.name}"
                    if any(fnmatchcase(name, own) for own in (MODEL.marker, *MODEL.names)):
                        found[name] = entry.stat()
        except OSError:  # it is not there, or is being replaced
            continue
    if MODEL.marker not in found:
        return None
    return tuple(
        (name, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for name, each in sorted(found.items())
    )


def is_settled(stamp: Stamp) -> bool:
    """Whether the last change is long enough ago that another one would have another time."""
    ago = time.time_ns() - max(max(times) for _, _, _, *times in stamp)
    return not 0 <= ago < SETTLING * 1e9  # a time to come is another machine's clock, which says nothing


@dataclass
class Following:
    """A model by name, which is that of its folder."""

    name: str
    folder: Path
    patience: float = 0.0
    """Seconds for which a folder that cannot be read is tried again before the first model is there."""
    current: Served = field(init=False)
    """The model that answers; replaced whole."""
    trouble: str | None = None
    """Why the newest folder was not taken up."""
    reloads: int = 0
    _stamp: Stamp | None = field(init=False, default=None)
    _failed: Stamp | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        began = time.monotonic()
        while True:
            stamp, found, waited = stamp_of(self.folder), None, time.monotonic() - began
            try:
                found = self._load(stamp)
            except (UnskewError, OSError) as error:
                if waited >= self.patience:
                    raise
                from unskew.serving.telemetry import log_event  # with packages that a plan is checked without

                if str(error) != self.trouble:  # said once
                    self.trouble = str(error)
                    log_event("wait", model=self.name, error=self.trouble)
            if found is not None:
                self._stamp, self.current, self.trouble = stamp, found, None
                return
            if waited > max(self.patience, WRITTEN):
                raise RunError(f"{printable(self.folder)} is being written all the time; start when it is done")
            time.sleep(SETTLING)

    def _load(self, stamp: Stamp | None) -> Served | None:
        """The model in the folder, all of it of one moment; None while the folder is being written."""
        if stamp is not None and not is_settled(stamp):
            return None
        try:
            found = Served.load(self.folder)
        except (UnskewError, OSError):
            if stamp_of(self.folder) != stamp:
                return None
            raise
        return found if stamp_of(self.folder) == stamp else None

    def look(self) -> bool:
        """Take up the folder if it changed; True where a new model answers from now on."""
        stamp = stamp_of(self.folder)
        if stamp == self._stamp:
            self.trouble = None
            return False
        if stamp is None or stamp == self._failed:
            self.trouble = self.trouble or "the folder is gone"
            return False
        try:
            found = self._load(stamp)
        except (UnskewError, OSError) as error:
            self.trouble, self._failed = str(error), stamp
            return False
        if found is None:
            return False
        changed = found.version != self.current.version
        self._stamp, self._failed, self.trouble = stamp, None, None
        if changed:
            self.current, self.reloads = found, self.reloads + 1
        return changed


class Models(dict[str, Following]):
    """The models of a server by name; the first answers who asks for none."""

    @classmethod
    def open(cls, folders: Mapping[str, Path], *, patience: float = 0.0) -> Models:
        """Load run folders, by name; for so many seconds those that cannot be read are tried again."""
        return cls({name: Following(name, folder, patience) for name, folder in folders.items()})

    @cached_property
    def first(self) -> str:
        """The name of the model that answers who asks for none."""
        return next(iter(self))

    def look(self, tell: Callable[[Following, bool], None]) -> None:
        """Look at every folder, and tell of each that changed, or whose trouble did."""
        for model in self.values():
            before = model.trouble
            changed = model.look()
            if changed or (model.trouble is not None and model.trouble != before):
                tell(model, changed)
