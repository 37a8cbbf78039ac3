"""What `unskew ingest` does: options from flags and a mapping file, the run, and the summary as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.checking import checked, read_toml
from unskew.clicks.ingest.options import RULES, IngestOptions
from unskew.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

BAR = 30
"""Width of the widest bar of a click rate."""
MOST = 20
"""Positions that are shown."""


def ingest(
    source: str | Path | Sequence[str | Path],
    out: Path | str,
    *,
    format: str | None = None,
    mapping: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    clicks: Sequence[str | Path] = (),
    page_columns: Sequence[str] = (),
    time_zone: str | None = None,
    positions_from: int | None = None,
    off: Sequence[str] = (),
    max_rejected: float | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Any,
) -> dict[str, Any]:
    """Read a click log into impressions in the folder `out`, whole or not at all; its summary.

    `columns` says theirs for ours, {"position": "rank"}. `connection` goes to `connect`: spark_master, memory,
    threads, scratch.
    """
    from unskew.clicks.engine.engine import connect
    from unskew.clicks.ingest.ingest import ingest as read_in

    options = ingest_options(
        None if mapping is None else Path(mapping),
        columns=columns or {},
        keep=keep,
        page=page_columns,
        time_zone=time_zone,
        base=positions_from,
        off=off,
        max_rejected=max_rejected,
    )
    with connect(engine, **connection) as opened:
        return read_in(source, out, opened, options, kind=format, clicks=clicks, force=force)


def ingest_options(
    mapping: Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    page: Sequence[str] = (),
    time_zone: str | None = None,
    base: int | None = None,
    off: Sequence[str] = (),
    max_rejected: float | None = None,
) -> IngestOptions:
    """The options of a mapping file, with flags over them."""
    content = {} if mapping is None else read_toml(mapping)
    flags: dict[str, Any] = {
        "columns": dict(columns or {}),
        "keep": tuple(keep),
        "page": tuple(page),
        "time": {} if time_zone is None else {"zone": time_zone},
        "positions": {} if base is None else {"base": base},
        "rules": {"off": tuple(off)} if off else {},
    }
    for key, value in flags.items():
        there = content.get(key)
        content |= {key: {**there, **value} if isinstance(there, dict) else value} if value else {}
    if max_rejected is not None:
        content["max_rejected"] = max_rejected
    try:
        options: IngestOptions = checked(IngestOptions, content, "")
    except ConfigError as error:
        raise ConfigError(f"{mapping}: {error}" if mapping is not None else str(error)) from None
    return options


def pair(text: str) -> tuple[str, str]:
    """OURS=THEIRS, taken apart."""
    ours, sign, theirs = text.partition("=")
    if not sign or not ours or not theirs:
        raise ConfigError(f"--column {text}: write it like position=rank")
    return ours.strip(), theirs.strip()


def print_summary(console: Console, out: Path, made: Mapping[str, Any]) -> None:
    """The summary of an ingested log, for people."""

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line(f"{made['impressions']:,} impressions from {made['rows_read']:,} rows read, in {out}")
    line(f"{made['pages']:,} pages, {made['queries']:,} queries, {made['documents']:,} documents")
    without = made["pages_without_clicks"]
    line(f"{made['clicks']:,} clicks ({made['click_rate']:.2%}), {without:.1%} of pages without one")
    how = "found" if made["positions_detected"] else "given"
    if made["positions_from"] is not None:
        line(f"positions count from {made['positions_from']} in the source ({how}), from 1 here")
    if made["time"] is not None:
        line(f"from {made['time']['first']} to {made['time']['last']}")
    for note in made["notes"]:
        line(note)
    for name, count in made["sides"].items():
        line(f"{count:,} rows of {name} beside the log, in {out / name}")
    for kind, count in made["ignored"].items():
        line(f"{count:,} {kind.replace('_', ' ')} passed over")
    _print_positions(line, made["by_position"])
    console.print(_rules_table(made["rules"]))
    lost = made["rejected"]
    line(f"{lost['rows']:,} broken rows ({lost['share']:.2%}), see rejected.parquet")
    for reason, count in sorted(lost["reasons"].items(), key=lambda item: -item[1]):
        line(f"  {count:,} {reason.replace('_', ' ')}")


def _print_positions(line: Any, positions: Sequence[Mapping[str, Any]]) -> None:
    highest = max((row["click_rate"] for row in positions), default=0) or 1
    for row in positions[:MOST]:
        bar = "█" * round(row["click_rate"] / highest * BAR)
        of = f"{row['clicks']:,}/{row['impressions']:,}"
        line(f"rank {row['position']:>3} {bar:<{BAR}} {row['click_rate']:.4f}  {of}")
    if len(positions) > MOST:
        line(f"and {len(positions) - MOST} positions more")


def _rules_table(rules: Mapping[str, Mapping[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="rules", title_justify="left")
    for name, side in (("rule", "left"), ("rows", "right"), ("share", "right"), ("", "left")):
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for name in RULES:
        rule = rules[name]
        if not rule["asked"]:
            table.add_row(name, "–", "–", "nothing to ask")
        else:
            done = "" if not rule["rows"] else "removed" if rule["on"] else "kept (off)"
            table.add_row(name, f"{rule['rows']:,}", f"{rule['share']:.2%}", done)
    return table
