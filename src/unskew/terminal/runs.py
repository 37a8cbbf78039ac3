"""The commands about one run: learn and measure."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.completing import names_of, one_of
from unskew.terminal.flags import (
    Column,
    DocIds,
    EngineOptions,
    Force,
    Json,
    OutFolder,
    Quiet,
    Seed,
    Tracked,
    passed,
    renames,
)
from unskew.terminal.printing import messages, show_result, tell, typed


def learn(
    source: Annotated[Path, typer.Argument(help="Log to learn from, or a TOML run file.", metavar="LOG|RUN.toml")],
    features: Annotated[
        list[str] | None,
        typer.Option(help="Features of documents: a table (Parquet, CSV) or LETOR file; repeatable, and joined."),
    ] = None,
    out: OutFolder = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Method with its defaults; `unskew methods` lists them. dla unless given; auto chooses one.",
            autocompletion=names_of("methods", "auto"),
        ),
    ] = None,
    ranker: Annotated[
        str | None,
        typer.Option(help="What scores documents: mlp unless given.", autocompletion=names_of("rankers")),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all that is drawn at random; 0.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Training steps, rounds of trees; enough of them unless given.")
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(help="How features are scaled: standard unless given.", autocompletion=names_of("scalings")),
    ] = None,
    feedback: Annotated[
        str | None, typer.Option(help="Column to learn from in the place of click, such as purchases.")
    ] = None,
    factor: Annotated[
        list[str] | None, typer.Option(help="Column that bias depends on besides the rank; repeatable.")
    ] = None,
    validation: Annotated[
        list[str] | None, typer.Option(help="Labelled lists, or a log, to choose weights by; repeatable.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(help="Labelled lists, or a log, to measure the result on; repeatable.")
    ] = None,
    column: Column = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="KEY=VALUE of a run file, as training.batch=256; repeatable.", metavar="KEY=VALUE"
        ),
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn a ranker from a log, or as a run file says; an interrupted run goes on where it stopped."""
    from unskew.pages.console import training_bar
    from unskew.workflows.runs.learn import learn_request
    from unskew.workflows.runs.request import ask, parse_setting
    from unskew.workflows.runs.run import Run

    asking = ask(
        source,
        features=features,
        method=method,
        ranker=ranker,
        scaling=scaling,
        validation=validation,
        test=test,
        columns=renames(column),
        feedback=feedback,
        factors=factor or (),
        options=passed({"seed": seed, "steps": steps}),
        settings=dict(map(parse_setting, settings or ())),
    )
    asked, place = asking.settings, asking.folder(out)
    leads = os.environ.get("RANK", "0") == "0"  # of torchrun's processes the first one speaks
    logs = asking.logs
    if leads and (logs.validation or logs.test):
        tell(f"{str(logs)[0].upper()}{str(logs)[1:]}.")
    name = "auto" if asked.auto else asked.method.name
    with training_bar(name, asked.steps, messages(quiet=quiet or not leads)) as report:
        done = learn_request(asking, place, force=force, report=report)
    if not leads:
        return
    if done.metrics.auto is not None:
        tell(done.metrics.auto.because)
    status = done.fit.status
    show_result(replace(done, folder=place), as_json, Run.page)
    if status == "interrupted":
        tell(f"Run the same command again {'without --force to go on' if force else 'to go on'}.")
        raise typer.Exit(130)
    if not quiet:
        tell(f"To do it again: unskew learn {place / 'run.toml'} --out FOLDER")


def measure(
    run: Annotated[
        Path, typer.Argument(help="Run folder, table of scores, or LightGBM file.", metavar="RUN|SCORES|MODEL.txt")
    ],
    connection: EngineOptions,
    lists: Annotated[
        list[str] | None, typer.Option(help="Labelled lists, LETOR or a table; repeatable. None are needed.")
    ] = None,
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="On the lists, such as ndcg@10; may be repeated.")
    ] = None,
    empty: Annotated[
        str, typer.Option(help="What a query without a relevant document counts: skip, zero, one.")
    ] = "skip",
    against: Annotated[
        Path | None, typer.Option(help="What to hold it against: shown, another run, scores, a LightGBM file.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Log whose clicks judge, best one that it did not learn from.")
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(help="Features of the log's documents, where the run does not know them; repeatable."),
    ] = None,
    propensities: Annotated[
        Path | None, typer.Option(help="Examination by rank: a file, or a run; found in the log unless given.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(help="What clicks judge: dcg, or expected clicks.", autocompletion=one_of("dcg", "clicks")),
    ] = "dcg",
    at: Annotated[int, typer.Option(min=1, help="Results of a page that count for dcg.")] = 10,
    level: Annotated[float, typer.Option(help="Of intervals.")] = 0.95,
    outcomes: Annotated[
        list[str] | None,
        typer.Option("--outcome", help="Column of the log to measure pages by, such as install; repeatable."),
    ] = None,
    by_frequency: Annotated[
        Path | None, typer.Option(help="Log that says how often queries are asked: head, middle and tail apart.")
    ] = None,
    buckets: Annotated[
        int | None, typer.Option(min=1, help="How many buckets of queries by frequency, in the place of three.")
    ] = None,
    column: Column = None,
    doc_ids: DocIds = False,
    tracked: Tracked = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Page to write (.html), or a folder for it and JSON.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say whether a ranking is better than what was shown, or than another: by clicks, by labels, or by both."""
    given = passed(locals(), "as_json")
    from unskew.pages.documents.summaries import measure_page
    from unskew.workflows.proofs.measure import measure

    found = measure(command=typed(), **given)
    if out is not None:
        tell(f"Open {out if out.suffix == '.html' else out / 'report.html'}.")
    show_result(found, as_json, measure_page)
