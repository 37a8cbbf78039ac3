"""What a run learns from, is chosen by and measured on: files that it names, tables in memory, logs or lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError, Key, Option, warn
from unskew.logs.reader import StoredLog, TableLog, opened, place_of
from unskew.names import KEYS, NOT_FEATURES, Names
from unskew.options.runs import DataFiles
from unskew.tables.features.features import several
from unskew.tables.features.tables import is_table, table_columns
from unskew.tables.features.texts import read_texts
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.joins import SAME_LISTS
from unskew.tracking.features import tracked_until, with_tracked
from unskew.types import Lists, Log
from unskew.workflows.inputs.lists import read_lists, texts_for
from unskew.workflows.inputs.logs import PARTS, is_log, log_parts


def in_files(*given: object) -> bool:
    """Whether all that was given is the name of a file or folder, so that a run can be run again from them."""
    return all(one is None or isinstance(one, str | Path) for some in given for one in several(some))


@dataclass(frozen=True)
class RunSources:
    """What a run is given; each part is opened and checked once, when it is asked for."""

    train: Any = None
    """The log that is learned from; None where counts are."""
    validation: Any = None
    """What weights are chosen by: a log, whose clicks choose, or labelled lists."""
    test: Any = None
    """What the result is measured on: a log, whose clicks say where it stands, or labelled lists."""
    features: Any = None
    """Of the documents that the logs show."""
    files: DataFiles = field(default_factory=DataFiles)
    """Names of columns, feedback and other keys of [data] that say how parts are read."""
    base: Path = Path()
    """What paths of the other files are relative to."""
    reads: bool = False
    """Whether the ranker reads texts."""
    keep: tuple[str, ...] = ()
    """Columns of a table that are kept besides those that every log has."""

    @classmethod
    def of(
        cls,
        given: Mapping[str, Any],
        files: DataFiles,
        base: Path = Path(),
        *,
        reads: bool = False,
        keep: tuple[str, ...] = (),
    ) -> RunSources:
        """What was given under the keys log, features, validation and test; a log that was cut, in its parts."""
        log = given.get("log")
        parts = log_parts(Path(log)) if isinstance(log, str | Path) else {}
        found = {"log": None, **parts, **{name: each for name, each in given.items() if each is not None}}
        train, features = parts.get("train", found["log"]), found.get("features")
        return cls(train, found.get("validation"), found.get("test"), features, files, base, reads, keep)

    @classmethod
    def of_files(cls, files: DataFiles, base: Path, *, reads: bool = False) -> RunSources:
        """The sources that a run file names."""
        named = {name: within(base, getattr(files, name)) or None for name in ("features", *PARTS[1:])}
        log = None if files.log is None else base / files.log
        return cls.of(named | {"log": log}, files, base, reads=reads)

    def __str__(self) -> str:
        train, validation, test = (os.path.normpath(str(getattr(self, name))) for name in PARTS)
        said = [f"Learning from {train}"]
        said += [f"clicks of {validation} choose the weights"] if self.is_log("validation") else []
        said += [f"clicks of {test} say where it stands"] if self.is_log("test") else []
        return ", ".join(said) + "."

    @property
    def names(self) -> Names:
        """What columns are called in all of the tables."""
        return Names.of(self.files.columns)

    @property
    def in_shards(self) -> bool:
        """Whether the log is not opened in memory."""
        return any(each is not None for each in (self.files.counts, self.files.shards, self.files.memory))

    def is_log(self, name: str) -> bool:
        """Whether validation or test is a log; else it is labelled lists, or not given."""
        given = several(getattr(self, name))
        logs = [each for each in given if is_log(each, self.names)]
        if logs and len(given) > 1:
            what = f"{place_of(logs[0])} is a log, and one log is all that it takes"
            raise ConfigError(what, argument=Key(f"data.{name}"))
        return bool(logs)

    @cached_property
    def logs(self) -> dict[str, StoredLog | TableLog | Log]:
        """The parts that are logs, opened."""
        return {
            name: self._opened(several(getattr(self, name))[0])
            for name in PARTS
            if getattr(self, name) is not None and (name == "train" or self.is_log(name))
        }

    def _opened(self, source: Any) -> StoredLog | TableLog | Log:
        if isinstance(source, Log | str | Path):
            return opened(source, self.names, self.files.feedback, shared=True)
        if not is_log(source, self.names):
            raise ConfigError(
                ("this is no log: it has no doc_id and position; name them with ", Option("columns"))
            )
        keep = [name for name in self.keep if name in arrow_table(source).column_names]
        return opened(source, self.names, self.files.feedback, keep=keep)

    @cached_property
    def documents(self) -> Lists:
        """The lists of all documents that the logs show."""
        if isinstance(self.train, Log):
            return self.train.lists
        shown = [log.candidates for log in self.logs.values() if not isinstance(log, Log)]
        if self.features is not None:
            return self.lists(self.features, shown)
        if not self.reads:
            what = "missing; give the table of features of the documents that the log shows"
            raise ConfigError(what, argument="features")
        return self._tracked(read_texts(texts_for(within(self.base, self.files.texts), shown)))

    def log(self, name: str) -> Log | None:
        """A part that is a log, joined to its documents."""
        found = self.logs.get(name)
        if found is None or isinstance(found, Log):
            return found
        hint = (f"{SAME_LISTS}, or give ", Option("missing_features", "drop"))
        return found.log(self.documents, drop=self.files.missing_features == "drop", hint=hint)

    def part(self, name: str) -> Lists | Log | None:
        """Validation or test: a log, labelled lists, or None where it was not given."""
        given = getattr(self, name)
        if given is None or name in self.logs:
            return self.log(name)
        return self.lists(given)

    def lists(self, given: Any, shown: list[Any] | None = None) -> Lists:
        """The documents that logs show, or labelled ones with the features that these have."""
        if isinstance(given, Lists):
            return given
        sources, texts = several(given), None
        if self.reads and in_files(sources):
            texts = texts_for(within(self.base, self.files.texts), sources, shown or ())
        trained = None if shown is not None or self.in_shards else self.documents.columns
        taken = None if trained is None else {name: name in trained.categories for name in trained.names}
        if taken is not None and in_files(sources, self.features):
            sources = self._with_features(sources)
        candidates = [each for each in shown or () if is_frame(each) or each.exists()]
        how: dict[str, Any] = {"texts": texts, "names": self.names, "candidates": candidates, "taken": taken}
        return self._tracked(read_lists(sources, self.files.doc_ids, **how))

    def _with_features(self, sources: list[Any]) -> list[Any]:
        """Tables of grades alone, with the features of items and queries that the log's documents have too."""
        names, features = self.names, [each for each in several(self.features) if each is not None]
        if not all(is_table(path) for path in (*sources, *features)):
            return sources
        if any(table_columns(path, names) - {*NOT_FEATURES} for path in sources):
            return sources
        return [*sources, *(path for path in features if not {*KEYS} <= table_columns(path, names))]

    def _tracked(self, lists: Lists) -> Lists:
        return lists if self.files.tracked is None else with_tracked(lists, self.base / self.files.tracked)

    def warn_of_overlap(self, log: Log) -> None:
        """Say so where tracked clicks may be those that are learned from."""
        if self.files.tracked is None or "timestamp" not in log.columns or not len(log.columns["timestamp"]):
            return
        store, first = self.base / self.files.tracked, log.columns["timestamp"].min()
        until = np.datetime64(tracked_until(store), "h")
        if first < until:
            warn(
                f"{store}: has counted clicks until {until}:00, and the log begins {np.datetime64(first, 'm')}; "
                "a feature that has counted a click predicts it, so track what is earlier"
            )


def within(base: Path, paths: str | tuple[str, ...] | None) -> list[Path]:
    """The paths, taken from the folder of the run file."""
    return [base / path for path in ((paths,) if isinstance(paths, str) else paths or ())]
