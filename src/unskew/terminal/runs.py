"""The commands about one run: learn and measure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.flags import Column, DocIds, Force, Json, OutFolder, Quiet, Tracked, passed
from unskew.terminal.printing import messages, show, show_result, tell


def learn(
    run_file: Annotated[Path, typer.Argument(help="TOML run file.", metavar="RUN.toml")],
    out: OutFolder = None,
    method: Annotated[str | None, typer.Option(help="Method with its defaults, instead of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, instead of the file's.")] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Learn a ranker as a run file says; an interrupted run goes on where it stopped."""
    from unskew.reporting.console import training_bar
    from unskew.reporting.summaries import run_page
    from unskew.running.run import learn_file
    from unskew.running.settings import read_run_file, run_folder

    file, asked = read_run_file(run_file, method=method, seed=seed)
    place = run_folder(run_file, file, out)
    leads = os.environ.get("RANK", "0") == "0"  # of torchrun's processes the first one speaks
    with training_bar(asked.method.name, asked.steps, messages(quiet=quiet or not leads)) as report:
        done = learn_file(run_file.parent, file, asked, place, force=force, report=report)
    if not leads:
        return
    show(run_page(place, done.fit.status, done.metrics))
    if done.fit.status == "interrupted":
        tell(f"Run the same command again {'without --force to go on' if force else 'to go on'}.")
        raise typer.Exit(130)


def measure(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    lists: Annotated[list[str], typer.Option(help="LETOR file; give it several times for several files.")],
    metrics: Annotated[
        list[str] | None, typer.Option("--metric", help="Such as ndcg@10; may be repeated.")
    ] = None,
    empty: Annotated[
        str, typer.Option(help="What a query without a relevant document counts: skip, zero, one.")
    ] = "skip",
    against: Annotated[Path | None, typer.Option(help="Another run, for a paired comparison.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Impressions of these lists, to measure click prediction.")
    ] = None,
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
    as_json: Json = False,
) -> None:
    """Measure a run on labelled lists, alone or against another run."""
    given = passed(locals(), "as_json")
    from unskew.reporting.summaries import measure_page
    from unskew.running.measure import measure

    show_result(measure(**given), as_json, measure_page)
