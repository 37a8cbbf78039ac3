"""A log from tables in memory (data frames, Arrow, dicts of columns), by the checks and rules of `ingest`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack

from unskew.logs.ingest.ingest import TableReading, ingest_table
from unskew.logs.ingest.summary import IngestedLog
from unskew.logs.log import TABLE, featured, log_of, outside
from unskew.names import Names
from unskew.tables.features.features import lists_for, pairs_of, several
from unskew.tables.frames import arrow_table, is_frame
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
    **reading: Unpack[TableReading],
) -> Log:
    """A log from a table of impressions and the features of its documents, by the checks and rules of `ingest`.

    `features` are `Lists`, or tables of features (frames or files, one or several: see `read_features`). `columns`
    says theirs for ours in all of these tables. `keep` names further columns of the log, `feedback` the one to
    learn from in the place of click; `missing_features="drop"` leaves out impressions without features.
    `reading` are arguments of `ingest`, such as off=, positions_from= and page_gap=. What was found is the log's
    `summary`; what rules removed is warned of.
    """
    table = arrow_table(source)
    frames = [] if isinstance(features, Lists) else [each for each in several(features) if is_frame(each)]
    names = Names.of(columns)
    names.check_some([table, *map(arrow_table, frames)])
    shown, summary = shown_in(table, names, keep=keep, feedback=feedback, **reading)
    lists = lists_for(features, names, [pairs_of(shown)])
    return joined(shown, lists, names, feedback=feedback, missing=missing_features, summary=summary)


def shown_in(
    table: Any,
    names: Names,
    *,
    keep: Sequence[str] = (),
    feedback: str | None = None,
    **reading: Unpack[TableReading],
) -> tuple[Any, IngestedLog]:
    """The impressions of a table after the rules, and their summary; what was left out is warned of."""
    kept = dict.fromkeys([*keep, *([] if feedback is None else [feedback])])
    shown, summary = ingest_table(table, columns=names.within(table.column_names), keep=[*kept], **reading)
    warn_of_rules(summary)
    return shown, summary


def joined(
    shown: Any,
    lists: Lists,
    names: Names,
    *,
    feedback: str | None,
    missing: MissingFeatures,
    summary: IngestedLog | None = None,
) -> Log:
    """Impressions with the features of their documents."""
    with names.told():
        if missing == "drop":
            shown = featured(shown, lists)
        return replace(log_of(shown, lists, feedback, TABLE), summary=summary)


def warn_of_rules(summary: IngestedLog) -> None:
    """Say what of a table is not in the log, and what else is odd about it."""
    rules = {name: rule.rows for name, rule in summary.rules.items() if rule.on and rule.rows}
    found = [f"{count:,} {name.replace('_', ' ')}" for name, count in rules.items()]
    found += [f"{broken:,} broken"] if (broken := summary.rejected.rows) else []
    if found:
        lost = f"{summary.rows_read - summary.impressions:,} of {summary.rows_read:,} rows were left out"
        warnings.warn(f"{lost} (found {', '.join(found)}); the log's summary has all of it", stacklevel=outside())
    for text in summary.warnings:
        warnings.warn(str(text), stacklevel=outside())
