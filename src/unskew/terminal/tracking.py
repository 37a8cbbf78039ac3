"""The commands that track clicks and judge by them: traffic, display_times, track, impute, judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.completing import one_of
from unskew.terminal.flags import (
    AnyLists,
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
    Tracked,
    passed,
)
from unskew.terminal.printing import show_facts, show_result, typed


def traffic(
    lists: AnyLists,
    out: LogFile,
    pages: Annotated[int, typer.Option(min=1, help="Result pages to show.")],
    days: Annotated[float | None, typer.Option(min=0, help="Days that they are spread over; 60.")] = None,
    start: Annotated[str | None, typer.Option(help="First day, as 2024-01-01.")] = None,
    skew: Annotated[float | None, typer.Option(min=0, help="Power of a query's popularity; 1.")] = None,
    shuffled: Annotated[float | None, typer.Option(min=0, max=1, help="Share of shuffled pages; 0.02.")] = None,
    random_top: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of pages with a random first result; 0.02.")
    ] = None,
    logger: Logger = "svm",
    truth: Annotated[bool, typer.Option("--truth", help="Add columns of what is true.")] = False,
    seed: Seed = 0,
    queries: Queries = 2000,
    features: Features = 40,
    documents: Documents = 24,
    doc_ids: DocIds = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Simulate a search engine: months of pages, frequent and rare queries, display and dwell times."""
    given = passed(locals(), "as_json")
    from unskew.workflows.twins.simulate import traffic_to

    show_facts(traffic_to(**given), as_json)


def impute(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    lists: Annotated[list[str], typer.Option(help="LETOR file, features or texts in Parquet; may be repeated.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    first: Annotated[
        tuple[float, float], typer.Option(help="Alpha and beta of rank 1; 1 0 is its click rate.")
    ] = (1.0, 0.0),
    tracked: Tracked = None,
    column: Column = None,
    doc_ids: DocIds = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write what a run says of documents as relevance: the imputation of `unskew judge`."""
    given = passed(locals(), "as_json")
    from unskew.workflows.inspections.impute import impute

    show_facts(impute(**given), as_json)


def display_times(
    impressions: Impressions,
    out: Annotated[Path, typer.Option(help="Folder to write: the model, and a report.")],
    connection: EngineOptions,
    seen: Annotated[float, typer.Option(help="Seconds of display beyond which a result was examined.")] = 5.0,
    unseen: Annotated[float, typer.Option(help="Seconds of display below which it was not.")] = 1.0,
    own_click: Annotated[
        bool, typer.Option("--own-click", help="Judge by a result's own click too, as published.")
    ] = False,
    trees: Annotated[int, typer.Option(min=1, help="Trees to grow.")] = 100,
    seed: Seed = 0,
    column: Column = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn from display times whether a result was looked at."""
    given = passed(locals(), "as_json")
    from unskew.pages.documents.examination import examination_page
    from unskew.pages.origins import log_origin
    from unskew.pages.page import write_page
    from unskew.tracking.log_examination import display_times

    found = display_times(**given)
    page = examination_page(found, log_origin(impressions), typed())
    write_page(page, out)
    show_result(found, as_json, lambda _: page)


def track(
    impressions: Impressions,
    out: Annotated[Path, typer.Option(help="Store to make, or to add to.")],
    connection: EngineOptions,
    examination: Annotated[
        Path | None, typer.Option(help="Examination model that judges every result; else the log's own column.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="End of the last full hour, as 2024-03-01T14:00:00Z; later pages wait.")
    ] = None,
    refresh: Annotated[
        str,
        typer.Option(help="Windows to write anew: due, all or none.", autocompletion=one_of("due", "all", "none")),
    ] = "due",
    max_rejected: Annotated[
        float, typer.Option(min=0, max=1, help="Share of broken pages past which nothing is counted.")
    ] = 0.01,
    column: Column = None,
    as_json: Json = False,
) -> None:
    """Count clicks per query and document over the last day, week and month; every page once."""
    given = passed(locals(), "as_json")
    from unskew.tracking.track import track

    show_facts(track(**given), as_json)


def judge(
    store: Annotated[Path, typer.Argument(help="Store that `unskew track` made.")],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .parquet.")],
    connection: EngineOptions,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="ipw, affine, or doubly_robust, the usual one with an imputation.",
            autocompletion=one_of("ipw", "affine", "doubly_robust"),
        ),
    ] = None,
    window: Annotated[
        str, typer.Option(help="day, week or month.", autocompletion=one_of("day", "week", "month"))
    ] = "month",
    curves: Annotated[
        str, typer.Option(help="shuffled (from random slots), em, or a JSON file with alpha, beta, theta.")
    ] = "shuffled",
    first: Annotated[
        tuple[float, float], typer.Option(help="Alpha and beta of rank 1, for shuffled; 1 0 is its click rate.")
    ] = (1.0, 0.0),
    imputation: Annotated[
        Path | None, typer.Option(help="Parquet or CSV of query_id, doc_id and relevance, by a model.")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Trust the imputation more where little was seen.")
    ] = True,
    column: Column = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Estimate relevance per query and document from tracked clicks, as judgments with standard errors."""
    given = passed(locals(), "as_json")
    from unskew.tracking.judgments import judge

    show_facts(judge(**given), as_json)
