"""What `learn` was given in memory, as logs and lists: data frames, Arrow tables, files beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, UnskewError
from unskew.logs.memory import (
    MissingFeatures,
    check_names,
    joined,
    lists_for,
    pairs_of,
    several,
    shown_in,
)
from unskew.logs.opening import check_log, open_table
from unskew.tables.frames import arrow_table, is_frame
from unskew.types import Lists, Log
from unskew.workflows.inputs.parts import is_log, log_parts

LOGGED = ("doc_id", "position")
"""Columns that a log has, and lists have not, together."""
OF_INGEST = r"\b(page_columns|page_gap|by|off|max_removed|max_rejected|positions_from|time_zone)="
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

    columns: Mapping[str, str] | None
    feedback: str | None
    keep: tuple[str, ...]
    missing: MissingFeatures

    def given(self, source: object, features: object, validation: object, test: object) -> GivenData:
        """Logs and lists of all that was given; what is in memory already stays as it is."""
        if isinstance(source, str | Path):
            if Path(source).suffix == ".toml":
                raise ConfigError(
                    f"{source}: a run file takes files: name them in features=, validation= and test="
                )
            parts = log_parts(Path(source))
            source = parts.get("train", source)
            validation = parts.get("validation") if validation is None else validation
            test = parts.get("test") if test is None else test
        self._check(source, features, validation, test)
        logs = {name: self._shown(each) for name, each in (("", source), ("v", validation), ("t", test))}
        if logs[""] is None and not isinstance(source, Log):
            if isinstance(source, str | Path):
                check_log(Path(source), self.columns, self.feedback)  # it says what is wrong
            raise ConfigError("this is no log: it has no doc_id and position; name them with columns=")
        if isinstance(source, Log):
            for name, said in (("features", features), ("feedback", self.feedback)):
                if said is not None:
                    raise ConfigError(f"{name}=: the log has it already; give it where the log is read")
            lists = source.lists
        elif features is None:
            raise ConfigError("features=: missing; give the table of features of the documents that the log shows")
        else:
            lists = lists_for(features, self.columns, [pairs_of(found[0]) for found in logs.values() if found])
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
            check_names(self.columns, [arrow_table(one) for one in each])

    def _shown(self, source: object) -> tuple[Any, Mapping[str, Any] | None] | None:
        """Impressions and their summary, where the source is a table of them."""
        if isinstance(source, str | Path) and is_log(Path(source), self.columns):
            named = check_log(Path(source), self.columns, self.feedback)
            return open_table(Path(source), None, self.feedback, columns=named), None
        if not is_frame(source):
            return None
        table = arrow_table(source)
        ours = {(self.columns or {}).get(name, name) for name in LOGGED}
        if not (ours <= set(table.column_names) or set(LOGGED) <= set(table.column_names)):
            return None
        keep = [name for name in self.keep if name in table.column_names]
        try:
            return shown_in(table, columns=self.columns, keep=keep, feedback=self.feedback)
        except UnskewError as error:
            if re.search(OF_INGEST, str(error)):
                error.args = (
                    f"{error}; what is said of reading goes to unskew.Log.from_table, which learn takes",
                )
            raise

    def _log(self, found: tuple[Any, Mapping[str, Any] | None] | None, lists: Lists) -> Log:
        assert found is not None
        shown, summary = found
        return joined(
            shown, lists, columns=self.columns, feedback=self.feedback, missing=self.missing, summary=summary
        )

    def _lists(self, given: object) -> Lists | Log | None:
        if given is None or isinstance(given, Lists | Log):
            return given
        return lists_for(given, self.columns)


def on_disk(*given: object) -> bool:
    """Whether all that was given is the name of a file or folder, so that the run can be run again from them."""
    each = [one for some in given for one in several(some) if one is not None]
    return all(isinstance(one, str | Path) for one in each)


def kept_columns(factors: Sequence[str], method: object) -> tuple[str, ...]:
    """Columns of a log that a method reads besides those that every log keeps."""
    return (*factors, *getattr(method, "serp", ()), *getattr(method, "averages", ()))
