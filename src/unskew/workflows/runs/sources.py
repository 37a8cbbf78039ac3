"""What a run learns from, is chosen by and measured on, opened: files that it names, or tables in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError, Key, Option, UnskewError, parts_of, warn
from unskew.logs.ingest.summary import IngestedLog
from unskew.logs.reader import StoredLog
from unskew.names import KEYS, NOT_FEATURES, Names
from unskew.tables.features.features import lists_for, pairs_of, several
from unskew.tables.features.tables import is_table, table_columns
from unskew.tables.features.texts import read_texts
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.joins import SAME_LISTS
from unskew.tracking.features import tracked_until, with_tracked
from unskew.types import Lists, Log
from unskew.workflows.inputs.frames import MissingFeatures, joined, shown_in
from unskew.workflows.inputs.lists import read_lists, texts_for
from unskew.workflows.inputs.parts import is_log, log_parts
from unskew.workflows.runs.data import TrainingData, split
from unskew.workflows.runs.request import Request, RunLogs
from unskew.workflows.runs.settings import DataFiles, Paths
from unskew.workflows.runs.shards import open_shard_data


def open_data(request: Request) -> tuple[TrainingData, Lists | Log | None]:
    """What a run on files learns from and is chosen by, and what it is measured on: lists, or a log."""
    files, logs, asked = request.file.data, request.logs, request.settings
    reads = asked.ranker is not None and asked.ranker.reads
    opening = RunFiles(request.base, files, logs, reads=reads)
    validation: Lists | Log | None = None
    if asked.training.validate_on != "nothing" and logs.validation is not None:
        validation = opening.log(logs.validation)
    elif asked.training.validate_on == "labels":
        validation = opening.lists(files.validation)
    test = opening.lists(files.test) if logs.test is None else opening.log(logs.test)
    if opening.in_shards:
        return open_shard_data(request, opening.within(files.features), validation), test
    log = opening.log(logs.train)
    assert log is not None, "a run file has a log or counts"
    if files.tracked is not None:
        warn_of_overlap(log, request.base / files.tracked)
    return split(log, validation, asked), test


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, opened when they are asked for."""

    base: Path
    """What paths are relative to."""
    files: DataFiles
    logs: RunLogs
    reads: bool = False
    """Whether the ranker reads texts."""

    @cached_property
    def stored(self) -> dict[Path, StoredLog]:
        """The logs by their places, each opened and checked once."""
        each = [log for log in (self.logs.train, self.logs.validation, self.logs.test) if log is not None]
        names, feedback = Names(self.files.columns), self.files.feedback
        return {log: StoredLog.open(log, names, feedback, shared=True) for log in each}

    @cached_property
    def documents(self) -> Lists:
        """What the logs show."""
        shown = [log.path for log in self.stored.values()]
        if self.files.features is None:
            return self.tracked(read_texts(texts_for(self.within(self.files.texts), shown)))
        lists = self.lists(self.files.features, *shown)
        assert lists is not None
        return lists

    def log(self, path: Path | None) -> Log | None:
        """One of the logs, joined to its documents."""
        if path is None:
            return None
        documents, drop = self.documents, self.files.missing_features == "drop"
        hint = (f"{SAME_LISTS}, or give ", Option(Key("data.missing_features"), "drop"))
        return self.stored[path].log(documents, drop=drop, hint=hint)

    def lists(self, paths: Paths | None, *log: Path) -> Lists | None:
        """Lists from these files, with texts where the ranker reads."""
        place = self.within(paths)
        texts = texts_for(self.within(self.files.texts), place, log) if place and self.reads else None
        columns, candidates = self.files.columns, [path for path in log if path.exists()]
        if not place:
            return None
        trained = None if log or paths is None or self.in_shards else self.documents.columns
        taken = None if trained is None else {name: name in trained.categories for name in trained.names}
        place = place if taken is None else self.with_features(place)
        read = read_lists(place, self.files.doc_ids, texts, columns=columns, candidates=candidates, taken=taken)
        return self.tracked(read)

    def with_features(self, place: tuple[Path, ...]) -> tuple[Path, ...]:
        """Tables of grades alone, with the features of items and queries that the log's documents have too."""
        names, features = Names(self.files.columns), self.within(self.files.features)
        if not all(is_table(path) for path in (*place, *features)):
            return place
        if any(table_columns(path, names) - {*NOT_FEATURES} for path in place):
            return place
        return (*place, *(path for path in features if not {*KEYS} <= table_columns(path, names)))

    @property
    def in_shards(self) -> bool:
        """Whether the log is not opened in memory."""
        return any(each is not None for each in (self.files.counts, self.files.shards, self.files.memory))

    def tracked(self, lists: Lists) -> Lists:
        """With tracked clicks, where they are features."""
        return lists if self.files.tracked is None else with_tracked(lists, self.base / self.files.tracked)

    def within(self, paths: Paths | None) -> tuple[Path, ...]:
        """Paths from the working folder."""
        return tuple(self.base / path for path in ((paths,) if isinstance(paths, str) else paths or ()))


def warn_of_overlap(log: Log, store: Path) -> None:
    """Say so where tracked clicks may be those that are learned from."""
    times, until = log.columns.get("timestamp"), np.datetime64(tracked_until(store), "h")
    if times is not None and len(times) and times.min() < until:
        warn(
            f"{store}: has counted clicks until {until}:00, and the log begins {np.datetime64(times.min(), 'm')}; "
            "a feature that has counted a click predicts it, so track what is earlier"
        )


# ---- in memory

LOGGED = ("doc_id", "position")
"""Columns that a log has, and lists have not, together."""
OF_INGEST = (
    "page_columns",
    "page_gap",
    "by",
    "off",
    "max_removed",
    "max_rejected",
    "positions_from",
    "time_zone",
)
"""Arguments of `ingest` that `learn` does not take."""


@dataclass(frozen=True)
class GivenData:
    """What a run learns from, is chosen by and is measured on, in memory."""

    log: Log
    validation: Lists | Log | None
    test: Lists | Log | None


@dataclass(frozen=True)
class TableReader:
    """Reads tables of logs and of features, all with the same names of columns."""

    names: Names
    feedback: str | None
    keep: tuple[str, ...]
    missing: MissingFeatures

    def given(self, source: object, features: object, validation: object, test: object) -> GivenData:
        """Logs and lists of all that was given; what is in memory already stays as it is."""
        if isinstance(source, str | Path):
            if Path(source).suffix == ".toml":
                raise ConfigError(
                    (
                        f"{source}: a run file takes files: name them in ",
                        Option("features"),
                        ", ",
                        Option("validation"),
                        " and ",
                        Option("test"),
                    )
                )
            parts = log_parts(Path(source))
            source = parts.get("train", source)
            validation = parts.get("validation") if validation is None else validation
            test = parts.get("test") if test is None else test
        self._check(source, features, validation, test)
        logs = {name: self._shown(each) for name, each in (("", source), ("v", validation), ("t", test))}
        if logs[""] is None and not isinstance(source, Log):
            if isinstance(source, str | Path):
                StoredLog.open(source, self.names, self.feedback, shared=True)  # says what is wrong
            raise ConfigError(
                ("this is no log: it has no doc_id and position; name them with ", Option("columns"))
            )
        if isinstance(source, Log):
            for name, said in (("features", features), ("feedback", self.feedback)):
                if said is not None:
                    raise ConfigError("the log has it already; give it where the log is read", argument=name)
            lists = source.lists
        elif features is None:
            raise ConfigError(
                "missing; give the table of features of the documents that the log shows", argument="features"
            )
        else:
            lists = lists_for(features, self.names, [pairs_of(found[0]) for found in logs.values() if found])
        log = source if isinstance(source, Log) else self._log(logs[""], lists)
        others = [
            self._log(logs[key], lists) if logs[key] else self._lists(each)
            for key, each in (("v", validation), ("t", test))
        ]
        return GivenData(log, *others)

    def _check(self, *given: object) -> None:
        """Every name of `columns` is there, where all tables are frames."""
        each = [
            one for some in given for one in several(some) if not (one is None or isinstance(one, Lists | Log))
        ]
        if each and all(is_frame(one) for one in each):
            self.names.check_some(arrow_table(one) for one in each)

    def _shown(self, source: object) -> tuple[Any, IngestedLog | None] | None:
        """Impressions and their summary, where the source is a table of them."""
        if isinstance(source, str | Path) and is_log(Path(source), self.names):
            return StoredLog.open(source, self.names, self.feedback, shared=True).table(), None
        if not is_frame(source):
            return None
        table = arrow_table(source)
        ours = {*map(self.names.theirs, LOGGED)}
        if not (ours <= set(table.column_names) or set(LOGGED) <= set(table.column_names)):
            return None
        keep = [name for name in self.keep if name in table.column_names]
        try:
            return shown_in(table, self.names, keep=keep, feedback=self.feedback)
        except UnskewError as error:
            if error.speaks_of(*OF_INGEST):
                more = "what is said of reading goes to unskew.log_from_table, which learn takes"
                error.hint = (*parts_of(error.hint), "; " * bool(error.hint), more)
            raise

    def _log(self, found: tuple[Any, IngestedLog | None] | None, lists: Lists) -> Log:
        assert found is not None
        shown, summary = found
        return joined(shown, lists, self.names, feedback=self.feedback, missing=self.missing, summary=summary)

    def _lists(self, given: object) -> Lists | Log | None:
        if given is None or isinstance(given, Lists | Log):
            return given
        return lists_for(given, self.names)


def on_disk(*given: object) -> bool:
    """Whether all that was given is the name of a file or folder, so that the run can be run again from them."""
    each = [one for some in given for one in several(some) if one is not None]
    return all(isinstance(one, str | Path) for one in each)


def kept_columns(factors: Sequence[str], method: object) -> tuple[str, ...]:
    """Columns of a log that a method reads besides those that every log keeps."""
    return (*factors, *getattr(method, "serp", ()), *getattr(method, "averages", ()))
