"""The commands that look for bias in a log, and join what was found into a page: diagnose, causes, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.completing import one_of
from unskew.terminal.flags import (
    Column,
    DocIds,
    EngineOptions,
    Force,
    Impressions,
    Json,
    JsonFile,
    Seed,
    passed,
)
from unskew.terminal.printing import show_result, tell, typed


def diagnose(
    impressions: Impressions,
    connection: EngineOptions,
    out: Annotated[
        Path | None, typer.Option(help="Page to write (.html), or a folder for it, JSON and propensities.")
    ] = None,
    as_json: JsonFile = None,
    propensities: Annotated[
        Path | None, typer.Option(help="Examination by rank for ipw and other learners, .json or .csv.")
    ] = None,
    segment: Annotated[
        list[str] | None,
        typer.Option(help="Further column to tell results by, as the device, beside serp_*; repeatable."),
    ] = None,
    no_serp: Annotated[bool, typer.Option("--no-serp", help="Do not tell results by serp_* columns.")] = False,
    features: Annotated[
        list[str] | None,
        typer.Option(help="Features of documents, as for learn: how far do they tell the rank? Repeatable."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="query_id, doc_id, label (Parquet, CSV) or LETOR file; those in the log are found."),
    ] = None,
    models: Annotated[bool, typer.Option("--models", help="Fit and compare click models too.")] = False,
    seed: Seed = 0,
    column: Column = None,
    force: Force = False,
) -> None:
    """Say which biases a log has, whether they can be removed and what to do next; the log alone is enough."""
    given = passed(locals(), "as_json", "segment", "impressions", "no_serp")
    from unskew.workflows.inspections.diagnosis import brief, diagnose

    file = None if as_json == "-" else as_json
    found = diagnose(impressions, segments=segment or (), serp=not no_serp, json=file, command=typed(), **given)
    if out is not None:
        tell(f"Open {out if out.suffix == '.html' else out / 'report.html'}.")
    show_result(found.to_dict(), as_json == "-", lambda _: brief(found))


def causes(
    impressions: Impressions,
    connection: EngineOptions,
    factor: Annotated[
        list[str] | None, typer.Option(help="Column that says how a result looks; repeatable. All serp_* if none.")
    ] = None,
    relevance: Annotated[
        str | None, typer.Option(help="Column that stands for relevance; logging_score if there.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder whose scores stand for relevance.")] = None,
    lists: Annotated[
        list[str] | None, typer.Option(help="Features of the log's documents, for --run; repeatable.")
    ] = None,
    test: Annotated[
        str,
        typer.Option(
            help="kci, rcit, fastkci, or gsq for discrete columns.",
            autocompletion=one_of("kci", "rcit", "fastkci", "gsq"),
        ),
    ] = "kci",
    alpha: Annotated[float, typer.Option(help="Level of the tests.")] = 0.05,
    sample: Annotated[int, typer.Option(min=50, help="Impressions to test on.")] = 1000,
    repeats: Annotated[int, typer.Option(min=0, help="Other samples, to see how often an edge is found.")] = 0,
    seconds: Annotated[float, typer.Option(help="Time limit.")] = 300.0,
    seed: Seed = 0,
    column: Column = None,
    out: Annotated[Path | None, typer.Option(help="Folder for graph.json, graph.dot and the report.")] = None,
    doc_ids: DocIds = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find what on a result page causes clicks besides relevance: rank, media, height, whatever the log says."""
    given = passed(locals(), "as_json", "factor")
    from unskew.pages.documents.causes import causes_page
    from unskew.pages.origins import log_origin
    from unskew.pages.page import write_page
    from unskew.workflows.inspections.causes import causes

    graph = causes(factors=factor, **given)
    page = causes_page(graph, log_origin(impressions), typed())
    if out is not None:
        write_page(page, out)
        tell(f"Open {out / 'report.html'}; graph.json and graph.dot are beside it.")
    show_result(graph.to_dict(), as_json, lambda _: page)


def report(
    places: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, comparisons, diagnoses, causes, …", metavar="RUN|COMPARE|DIAGNOSIS…"
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page.")] = "Report",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Join runs, comparisons and diagnoses into one page that opens offline."""
    from unskew.pages.page_files import page_dict
    from unskew.workflows.inspections.report import report

    page = report(places, out=out, title=title, command=typed(), force=force)
    tell(f"Open {out}.")
    show_result(page_dict(page), as_json, lambda _: page)
