"""The commands that make and reduce click logs: simulate, ingest, split, counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from unskew.terminal.completing import names_of
from unskew.terminal.flags import (
    Column,
    DocIds,
    Documents,
    EngineOptions,
    Features,
    Force,
    Impressions,
    Json,
    LogFile,
    Logger,
    Queries,
    Seed,
    passed,
)
from unskew.terminal.printing import show_facts, show_result, typed, warn
from unskew.terminal.translating import in_flags


def simulate(
    out: LogFile,
    lists: Annotated[
        list[str] | None,
        typer.Option(
            "--lists", help="LETOR file (may be repeated), or synthetic; with --like features of its documents."
        ),
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="Log to fit a twin to, and simulate from.", metavar="LOG")
    ] = None,
    behaviour: Annotated[
        str,
        typer.Option(
            "--behaviour",
            "--behavior",
            help="How people click; see `unskew behaviours`.",
            autocompletion=names_of("behaviours"),
        ),
    ] = "position",
    pages: Annotated[int | None, typer.Option(min=1, help="Result pages to show.")] = None,
    clicks: Annotated[int | None, typer.Option(min=1, help="Stop at this many clicks instead.")] = None,
    seed: Seed = 0,
    logger: Logger = "svm",
    config: Annotated[Path | None, typer.Option(help="TOML with [behaviour] and [logger] settings.")] = None,
    cutoff: Annotated[int | None, typer.Option(min=0, help="Results per page; 0 shows the whole list.")] = None,
    randomized: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of pages with a shuffled list; 0, or as --like has.")
    ] = None,
    drop_clickless: Annotated[
        bool, typer.Option("--drop-clickless", help="Leave out pages without a click.")
    ] = False,
    truth: Annotated[
        bool, typer.Option("--truth", help="Add columns true_examination and true_relevance.")
    ] = False,
    queries: Queries = 2000,
    features: Features = 40,
    documents: Documents = 24,
    doc_ids: DocIds = False,
    column: Column = None,
    report: Annotated[
        Path | None, typer.Option(help="With --like: page (.html) with the twin beside its log.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show labelled lists to simulated people and log what they click; or simulate a twin of a log."""
    given = passed(locals(), "as_json")
    from unskew.workflows.twins.simulate import simulate_to, twin_to

    if like is not None:
        show_facts(twin_to(command=typed(), **of_a_twin(given)), as_json)
        return
    if lists is None:
        raise typer.BadParameter("give lists, synthetic, or --like LOG", param_hint="--lists")
    if report is not None or column:
        raise typer.BadParameter("goes with --like", param_hint="--report" if report else "--column")
    show_facts(simulate_to(**given), as_json)


def of_a_twin(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a twin takes of the arguments; what it does not take is refused."""
    usual = {"behaviour": "position", "logger": "svm", "queries": 2000, "features": 40, "documents": 24}
    usual |= {"drop_clickless": False, "truth": False}
    taken = {"out", "like", "lists", "pages", "randomized", "seed", "doc_ids", "columns", "report", "force"}
    for name, value in given.items():
        if name not in taken and value != usual.get(name):
            flag = f"--{name.replace('_', '-')}"
            raise typer.BadParameter("does not go with --like: the log says it", param_hint=flag)
    return {name: value for name, value in given.items() if name in taken}


def split(
    impressions: Impressions,
    out: Annotated[Path, typer.Option(help="Folder to write: train, validation, test.")],
    connection: EngineOptions,
    gap: Annotated[str, typer.Option(help="Pause that ends a visit, such as 30m or 1h.")] = "30m",
    by: Annotated[
        list[str] | None, typer.Option(help="Column that names a person; may be repeated. user_id if there.")
    ] = None,
    validation: Annotated[float, typer.Option(min=0, max=1, help="Share of visits, before the test's.")] = 0.1,
    test: Annotated[float, typer.Option(min=0, max=1, help="Share of visits, the latest.")] = 0.1,
    column: Column = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find visits in a log and split it by time, no visit in two parts."""
    given = passed(locals(), "as_json")
    from unskew.logs.split import split

    found = split(**given)
    show_facts(found, as_json)
    if not found.parts["train"]:
        unit = found.split_by.replace("_id", "s")
        warn(f"train has no {unit}: too few, or too many began in one second; `learn` takes a whole log too")


def counts(
    impressions: Impressions,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    connection: EngineOptions,
    serp: Annotated[
        list[str] | None, typer.Option(help="Presentation column to keep apart; may be repeated.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Count pages with two clicks too.")] = False,
    feedback: Annotated[
        str | None, typer.Option(help="Column of weights to add up in the place of clicks, as purchases.")
    ] = None,
    column: Column = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Reduce a log, exactly, to how often each slot of each ranking was shown and clicked."""
    given = passed(locals(), "as_json")
    from unskew.logs.counts.counting import counts

    show_facts(counts(**given), as_json)


def ingest(
    source: Annotated[list[str], typer.Argument(help="File, folder or pattern; may be several.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    connection: EngineOptions,
    format: Annotated[
        str | None,
        typer.Option(
            help="parquet, csv, tsv, jsonl, ubi, baidu, tiangong, yandex, metarank.",
            autocompletion=names_of("formats", "parquet", "csv", "tsv", "jsonl"),
        ),
    ] = None,
    mapping: Annotated[Path | None, typer.Option(help="TOML: columns, time, positions, rules, reader.")] = None,
    column: Column = None,
    keep: Annotated[list[str] | None, typer.Option(help="Further column to keep; repeatable.")] = None,
    clicks: Annotated[list[str] | None, typer.Option(help="Click events in files of their own.")] = None,
    page_columns: Annotated[
        str, typer.Option(help="Columns that make one page, as user_id,query_id,timestamp.")
    ] = "",
    time_zone: Annotated[str | None, typer.Option(help="Zone of times that name none, as Europe/Berlin.")] = None,
    positions_from: Annotated[
        int | None, typer.Option(min=0, max=1, help="0 or 1; found from the pages unless given.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(help="Column that names a person, to find pages; repeatable.")
    ] = None,
    page_gap: Annotated[
        str | None, typer.Option(help="Find pages by person, query and this pause; 30m where there is no page_id.")
    ] = None,
    page_number: Annotated[
        str | None, typer.Option(help="Column of the results page, where positions begin again on each.")
    ] = None,
    page_size: Annotated[
        int | None, typer.Option(min=1, help="Results on a results page; found unless given.")
    ] = None,
    off: Annotated[list[str] | None, typer.Option(help="Rule that shall not remove; repeatable.")] = None,
    max_rejected: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of broken rows past which nothing is written; 0.01.")
    ] = None,
    max_removed: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share that rules may remove; 0.2, of robots and duplicates 0.5."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read a click log into impressions: checked, cleaned, and written whole or not at all."""
    given = passed(locals(), "as_json", "page_columns")
    from unskew.logs.ingest.ingest import ingest
    from unskew.pages.documents.summaries import ingest_page

    given["page_columns"] = [name.strip() for name in page_columns.split(",") if name.strip()]
    made = ingest(**given)
    for warning in made["warnings"]:
        warn(in_flags(warning))
    show_result(made, as_json, lambda made: ingest_page(out, made))
