"""What is put aside: written with file, row, reason and detail, counted, and refused where it is too much.

Broken rows may be `max_rejected` of what was read. What rules remove has limits too, each and all together: a
rule that fires on a fifth of a log has found a wrong column rather than bad pages. Robots and events that were
delivered twice are the exception, since half of a sound log can be these; they have a limit of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import LimitError, Option, Part, Words, parts_of
from unskew.logs.ingest.columns import DETAIL, FILE, FLOATS, RAW, REASON, ROW
from unskew.logs.ingest.formats.stage import REJECTED
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.reading.options import OFTEN, RULES, IngestOptions

ASIDE = pa.schema(REJECTED)
SHOWN = 3
"""Examples of each reason in a message."""
FEWEST = 100
"""Rows of a log from which on shares of it mean something."""
OF_CLICKS = ("clicks_without_impression", "clicks_before_query")
"""Rules that remove click events; their shares are of these."""
TOLD_BY_ANYBODY = ("clicks_without_impression", "duplicate_events")
"""Rules by which events go that whoever reaches a server may have it log."""
_GAP = Option("page_gap", "30m")
CAUSES: Mapping[str, Words] = {
    "duplicate_events": (
        "page_id names a visit or a query, not one page of results, so that pages run together: let pages be "
        "found with ",
        _GAP,
    ),
    "clicks_without_impression": (
        "clicks name pages or documents in another way than results do, or results of some pages are missing: "
        "compare the ids"
    ),
    "clicks_before_query": (
        "the clocks of clicks and results differ, or one of them is in another time zone: ",
        Option("time_zone"),
    ),
    "two_queries_on_one_page": (
        "page_id names a visit, a person or a day, not one page of results: let pages be found with ",
        _GAP,
        ", or name another column with ",
        Option("columns", {"page_id": "THEIRS"}),
    ),
    "two_documents_at_one_position": (
        "positions begin again on every page of results, whose number is a column: ",
        Option("page_number", "THEIRS"),
        "; or page_id names a visit or a query: let pages be found with ",
        _GAP,
    ),
    "gaps_in_positions": (
        "page_id or ",
        Option("page_columns"),
        " tears pages apart, as the time of each row does: let pages be found with ",
        _GAP,
        ". Or ads hold places, or only what came into view is logged: turn the rule off",
    ),
    "robots": (
        "user_id or visit_id is shared by many people, as behind a proxy: name another column. [rules.robots] has "
        "the limits of robots"
    ),
    "everything_clicked": "only what was clicked is in the log: add the results that were shown and not clicked",
    "not_utf8": "the file is in another encoding: iconv -f LATIN1 -t UTF-8 FILE > NEW",
    "unreadable_timestamp": (
        "times are ISO 8601 or numbers since 1970; [time] format in ",
        Option("mapping"),
        " reads others",
    ),
    "position_not_a_whole_number": "positions are whole numbers, without separators: 1234, not 1,234",
    "click_not_0_or_1": "one row is one result shown, clicked or not, not a count of clicks",
    "position_below_1": ("positions count from 0: ", Option("positions_from", 0)),
    "wrong_number_of_fields": (
        "a delimiter inside a field, or another than the header's: [files] in ",
        Option("mapping"),
    ),
    "unclosed_quote": ('quotes that do not enclose fields: [files] quote = "" in ', Option("mapping")),
    **{
        f"comma_in_{name}": "write numbers with a point and without separators: 1234.5, not 1.234,5 or 1,234.5"
        for name in FLOATS
    },
}
"""What usually is behind a rule that fires often, or a reason why rows are broken, and what to do."""


class TooMuchAside(LimitError):
    """More rows are broken, or removed by rules, than `max_rejected` or `max_removed` allows."""


@dataclass(frozen=True)
class Reasons:
    """What was put aside, by reason."""

    counts: Counter[str]
    examples: Mapping[str, Sequence[str]]

    @property
    def broken(self) -> Counter[str]:
        """Counts by reason, of rows that could not be read; those that rules remove are not among them."""
        return Counter({name: count for name, count in self.counts.items() if name not in RULES})


def put_aside(tables: Sequence[Table], folders: Sequence[Path], engine: Engine, working: Path | None) -> Reasons:
    """Count rows of tables with a reason, and of folders of rows that could not be parsed.

    They are written to WORKING/rejected.parquet, where there is such a folder.
    """
    if not tables and not folders:
        if working is not None:
            pq.write_table(pa.Table.from_batches([], ASIDE), working / "rejected.parquet")
        return reasons_of(())
    kinds = {"file": "string", "row": "int64", "reason": "string", "detail": "string"}
    ours = dict(zip(kinds, (FILE, ROW, REASON, DETAIL), strict=True))
    parts = [table.select(**{name: table[own] for name, own in ours.items()}).cast(kinds) for table in tables]
    rows = ibis.union(*parts, *(engine.read_parquet(folder).select(*kinds) for folder in folders))
    if working is None:
        return reasons_of(engine.to_arrow(rows).to_batches())
    folder, place = working / ".scratch" / "rejected", working / "rejected.parquet"
    engine.write_parquet(rows, folder, partitions=1)
    next(folder.rglob("*.parquet")).replace(place)
    with pq.ParquetFile(place) as file:
        return reasons_of(file.iter_batches(columns=list(ASIDE.names)))


def reasons_of(batches: Iterable[pa.RecordBatch]) -> Reasons:
    """How often each reason is given, and the first examples of it."""
    counted: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for batch in batches:
        for row in batch.column("reason").value_counts().to_pylist():
            counted[row["values"]] += row["counts"]
        if any(len(examples.get(name, [])) < SHOWN for name in counted) and len(batch):
            for row in batch.slice(0, 1000).to_pylist():
                shown = examples.setdefault(row["reason"], [])
                place = row["file"] and f"{row['file']}:{row['row']}: "
                place = place or ("" if row["row"] is None else f"row {row['row']}: ")
                if len(shown) < SHOWN:
                    shown.append(f"{place}{(row['detail'] or '')[:200]}")
    return Reasons(counted, examples)


def refuse_broken(found: Reasons, read: int, most: float, aside: Path | None) -> None:
    """Stop where more rows are broken than may be."""
    lost = found.broken.total()
    if not read or lost / read <= most:
        return
    told: list[Part] = [f"{lost:,} of {read:,} rows are broken ({lost / read:.2%}), more than {most:.2%}:"]
    for name, count in found.broken.most_common():
        told += _told(f"{count:,} {name}", found.examples.get(name, []), CAUSES.get(name))
    kept = "Repair them" if aside is None else f"They are kept in {aside}; repair them"
    raise TooMuchAside((*told, f"\n{kept}, or raise ", Option("max_rejected")))


def _told(what: str, examples: Sequence[str], cause: Words | None) -> list[Part]:
    """What is wrong, examples of it, and its usual cause, as lines of a message."""
    lines = [f"\n      {' '.join(text.split())[:RAW]}" for text in examples]
    return [f"\n  {what}", *lines, *(["\n    Usual cause: ", *parts_of(cause), "."] if cause else [])]


def over_limits(
    removed: Counter[str], shown: int, clicked: int, options: IngestOptions, served: bool = False
) -> list[str]:
    """The rules that remove more than they may, of so many rows of results and click events.

    Of a served log clicks on what was not shown, or told again, may be any number: anybody could tell of them.
    """
    if shown + clicked < FEWEST:
        return []
    most = options.max_removed
    limits = {name: max(most, OFTEN.get(name, 0.0)) for name in RULES}
    limits |= dict.fromkeys(TOLD_BY_ANYBODY, math.inf) if served else {}
    limits |= options.rules.limits
    shares = {name: removed[name] / max(1, clicked if name in OF_CLICKS else shown) for name in RULES}
    on = [name for name in RULES if name not in options.rules.off]
    over = [name for name in on if shares[name] > limits[name]]
    usual = [name for name in on if name not in (*OFTEN, *OF_CLICKS, *options.rules.limits)]
    if not over and sum(shares[name] for name in usual) > most:
        over = [name for name in usual if removed[name]]
    return over


def refuse_removed(
    over: Sequence[str],
    found: Reasons,
    pages: Mapping[str, Sequence[str]],
    read: int,
    aside: Path | None,
    suspected: Words | None = None,
) -> None:
    """Stop because of these rules; `pages` are examples of what they remove, `suspected` may be behind it."""
    total = sum(found.counts[name] for name in over)
    told: list[Part] = [
        f"rules would remove {total:,} of {read:,} rows ({total / read:.1%}), more than ",
        Option("max_removed"),
        " allows:",
    ]
    told += [] if suspected is None else ["\n  What is behind it, most likely: ", *parts_of(suspected), "."]
    for name in over:
        examples = [*pages.get(name, ()), *found.examples.get(name, ())]
        told += _told(
            f"{found.counts[name]:,} {name}: {RULES[name]}", examples, None if suspected else CAUSES[name]
        )
    kept = "Nothing was written" if aside is None else f"They are kept in {aside}; nothing was written"
    off = Option("off", list(over))
    raise TooMuchAside(
        (*told, f"\n{kept}. ", Option("max_removed", 1.0), " lets them go; ", off, " turns the rules off.")
    )


def page_examples(judged: Any, name: str, options: IngestOptions, engine: Engine) -> list[str]:
    """The first pages that a rule finds, in the user's words; none where it finds rows or events."""
    if name not in judged.columns:
        return []
    wanted = ("page_id", "results", "first", "last", "clicks", "query", "last_query")
    page, query, rank = (options.source(name) for name in ("page_id", "query_id", "position"))
    told = []
    for row in engine.rows(judged.filter(judged[name]).select(*wanted).order_by("page_id").limit(SHOWN)):
        asked = " and ".join(dict.fromkeys((str(row["query"]), str(row["last_query"]))))
        told.append(
            f"{page} {row['page_id']}: {row['results']} rows at {rank} {row['first']} to {row['last']}, "
            f"{row['clicks']} clicked, {query} {asked}"
        )
    return told
