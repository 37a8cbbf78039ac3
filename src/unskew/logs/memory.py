"""Logs and lists from tables in memory: a data frame of pandas or polars, an Arrow table, a dict of columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from unskew.errors import ConfigError
from unskew.logs.ingest.ingest import ingest_table
from unskew.logs.log import TABLE, featured, log_of, outside
from unskew.names import NOT_FEATURES, Names
from unskew.settings import did_you_mean
from unskew.tables.features.features import read_features
from unskew.tables.features.tables import is_table
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.lists.letor import read_letor
from unskew.types import Lists, Log

MissingFeatures = Literal["error", "drop"]


def log_from_table(
    source: object,
    features: object,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    feedback: str | None = None,
    missing_features: MissingFeatures = "error",
    **options: Any,
) -> Log:
    """A log from a table of impressions and the features of its documents, by the checks and rules of `ingest`.

    `features` are `Lists`, or tables of features (frames or files, one or several: see `read_features`). `columns`
    says theirs for ours in all of these tables. `keep` names further columns of the log, `feedback` the one to
    learn from in the place of click; `missing_features="drop"` leaves out impressions without features.
    `options` are those of `ingest`, such as off=, positions_from= and page_gap=. What was found is the log's
    `summary`; what rules removed is warned of.
    """
    table = arrow_table(source)
    frames = [] if isinstance(features, Lists) else [each for each in several(features) if is_frame(each)]
    check_names(columns, [table, *map(arrow_table, frames)])
    shown, summary = shown_in(table, columns=columns, keep=keep, feedback=feedback, **options)
    lists = lists_for(features, columns, [pairs_of(shown)])
    return joined(shown, lists, columns=columns, feedback=feedback, missing=missing_features, summary=summary)


def shown_in(
    table: Any,
    *,
    columns: Mapping[str, str] | None,
    keep: Sequence[str] = (),
    feedback: str | None = None,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """The impressions of a table after the rules, and their summary; what was left out is warned of."""
    kept = dict.fromkeys([*keep, *([] if feedback is None else [feedback])])
    shown, summary = ingest_table(table, columns=named_in(columns, table), keep=[*kept], **options)
    warn_of_rules(summary)
    return shown, summary


def joined(
    shown: Any,
    lists: Lists,
    *,
    columns: Mapping[str, str] | None,
    feedback: str | None,
    missing: MissingFeatures,
    summary: Mapping[str, Any] | None = None,
) -> Log:
    """Impressions with the features of their documents."""
    with Names.of(columns).told():
        if missing == "drop":
            shown = featured(shown, lists)
        return replace(log_of(shown, lists, feedback, TABLE), summary=summary)


def pairs_of(shown: Any) -> Any:
    """The documents of queries that impressions show."""
    return shown.select(["query_id", "doc_id"])


def lists_from_table(source: object, *, columns: Mapping[str, str] | None = None, name: str = "table") -> Lists:
    """Lists from one or several tables of features by query_id and doc_id: see `read_features`."""
    tables = [arrow_table(each) if is_frame(each) else each for each in several(source)]
    check_names(columns, [table for table in tables if isinstance(table, pa.Table)])
    return read_features(tables, columns=columns, name=name)


def lists_for(features: object, columns: Mapping[str, str] | None, candidates: Sequence[Any] = ()) -> Lists:
    """The documents of a log: lists, LETOR files, or tables of features for the pairs that it shows."""
    if isinstance(features, Lists):
        return features
    sources: list[Any] = several(features)
    if all(isinstance(each, str | Path) and not is_table(each) for each in sources):
        return read_letor(sources)
    of_features = {ours: theirs for ours, theirs in (columns or {}).items() if ours in NOT_FEATURES}
    return read_features(sources, columns=of_features, candidates=list(candidates) or None)


def several(given: object) -> list[object]:
    """One or several sources as a list."""
    return list(given) if isinstance(given, list | tuple) else [given]


def named_in(columns: Mapping[str, str] | None, table: Any) -> dict[str, str]:
    """Of `columns` what this table has."""
    return {ours: theirs for ours, theirs in (columns or {}).items() if theirs in table.column_names}


def check_names(columns: Mapping[str, str] | None, tables: Sequence[Any]) -> None:
    """Every column that is named is there, in one of the tables."""
    present = list(dict.fromkeys(name for table in tables for name in table.column_names))
    for ours, theirs in (columns or {}).items():
        if theirs not in present:
            raise ConfigError(
                f"there is no column {theirs!r} for {ours}. {did_you_mean(theirs, present[:50])}",
                argument="columns",
            )


def warn_of_rules(summary: Mapping[str, Any]) -> None:
    """Say what of a table is not in the log, and what else is odd about it."""
    rules = {name: rule["rows"] for name, rule in summary["rules"].items() if rule["on"] and rule.get("rows")}
    found = [f"{count:,} {name.replace('_', ' ')}" for name, count in rules.items()]
    found += [f"{broken:,} broken"] if (broken := summary["rejected"]["rows"]) else []
    if found:
        lost = f"{summary['rows_read'] - summary['impressions']:,} of {summary['rows_read']:,} rows were left out"
        warnings.warn(f"{lost} (found {', '.join(found)}); the log's summary has all of it", stacklevel=outside())
    for text in summary.get("warnings", ()):
        warnings.warn(str(text), stacklevel=outside())
