"""The commands that take a click log from raw events to counts: ingest, split, counts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from unskew.terminal.flags import EngineName, Force, Json, Memory, Scratch, SparkMaster, Threads


def split(
    impressions: Annotated[Path, typer.Argument(help="Parquet file, or a folder of them.")],
    out: Annotated[Path, typer.Option(help="Folder to write: train, validation, test.")],
    gap: Annotated[str, typer.Option(help="Pause that ends a visit, such as 30m or 1h.")] = "30m",
    by: Annotated[
        list[str] | None, typer.Option(help="Column that names a person; may be repeated. user_id if there.")
    ] = None,
    validation: Annotated[float, typer.Option(min=0, max=1, help="Share of visits, before the test's.")] = 0.1,
    test: Annotated[float, typer.Option(min=0, max=1, help="Share of visits, the latest.")] = 0.1,
    engine: EngineName = "duckdb",
    spark_master: SparkMaster = None,
    memory: Memory = None,
    threads: Threads = None,
    scratch: Scratch = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find visits in a log and split it by time, no visit in two parts."""
    from unskew.clicks.split import split as run

    summary = run(
        impressions,
        out,
        gap=gap,
        by=by or (),
        validation=validation,
        test=test,
        force=force,
        engine=engine,
        spark_master=spark_master,
        memory=memory,
        threads=threads,
        scratch=scratch,
    )
    _print_summary(summary, as_json)


def counts(
    impressions: Annotated[Path, typer.Argument(help="Parquet file, or a folder of them.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    serp: Annotated[
        list[str] | None, typer.Option(help="Presentation column to keep apart; may be repeated.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Count pages with two clicks too.")] = False,
    engine: EngineName = "duckdb",
    spark_master: SparkMaster = None,
    memory: Memory = None,
    threads: Threads = None,
    scratch: Scratch = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Reduce a log, exactly, to how often each slot of each ranking was shown and clicked."""
    from unskew.clicks.counts.counting import counts as run

    summary = run(
        impressions,
        out,
        serp=serp or (),
        pairs=pairs,
        force=force,
        engine=engine,
        spark_master=spark_master,
        memory=memory,
        threads=threads,
        scratch=scratch,
    )
    _print_summary(summary, as_json)


def ingest(
    source: Annotated[list[str], typer.Argument(help="File, folder or pattern; may be several.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    kind: Annotated[
        str | None,
        typer.Option("--format", help="parquet, csv, tsv, jsonl, ubi, baidu, tiangong, yandex, ranklens."),
    ] = None,
    mapping: Annotated[Path | None, typer.Option(help="TOML: columns, time, positions, rules, reader.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="OURS=THEIRS, as position=rank; repeatable.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="Further column to keep; repeatable.")] = None,
    clicks: Annotated[list[str] | None, typer.Option(help="Click events in files of their own.")] = None,
    page_columns: Annotated[
        str | None, typer.Option(help="Columns that make one page, as user_id,query_id,timestamp.")
    ] = None,
    time_zone: Annotated[str | None, typer.Option(help="Zone of times that name none, as Europe/Berlin.")] = None,
    positions_from: Annotated[
        int | None, typer.Option(min=0, max=1, help="0 or 1; found from the pages unless given.")
    ] = None,
    off: Annotated[list[str] | None, typer.Option(help="Rule that shall not remove; repeatable.")] = None,
    max_rejected: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of broken rows past which nothing is written; 0.01.")
    ] = None,
    engine: EngineName = "duckdb",
    spark_master: SparkMaster = None,
    memory: Memory = None,
    threads: Threads = None,
    scratch: Scratch = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read a click log into impressions: checked, cleaned, and written whole or not at all."""
    from rich.console import Console

    from unskew.clicks.ingest import command as commands_ingest
    from unskew.clicks.ingest.ingest import TooManyRejected

    try:
        made = commands_ingest.ingest(
            source,
            out,
            format=kind,
            mapping=mapping,
            columns=dict(commands_ingest.pair(text) for text in column or ()),
            keep=keep or (),
            clicks=clicks or (),
            page_columns=[name.strip() for name in (page_columns or "").split(",") if name.strip()],
            time_zone=time_zone,
            positions_from=positions_from,
            off=off or (),
            max_rejected=max_rejected,
            force=force,
            engine=engine,
            spark_master=spark_master,
            memory=memory,
            threads=threads,
            scratch=scratch,
        )
    except TooManyRejected as error:
        print(f"unskew: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    if as_json:
        print(json.dumps(made, indent=2))
    else:
        commands_ingest.print_summary(Console(soft_wrap=False), out, made)


def _print_summary(summary: dict[str, Any], as_json: bool) -> None:
    """What a command did: one line for each number, or JSON."""
    if as_json:
        print(json.dumps(summary, indent=2))
        return
    for key, value in summary.items():
        each = value.items() if isinstance(value, dict) else [("", value)]
        for name, number in each:
            print(f"{f'{key} {name}'.strip():<22}{number:,}" if isinstance(number, int) else f"{key:<22}{number}")
