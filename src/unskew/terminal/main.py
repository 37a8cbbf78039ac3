"""The command line, one function per command. A command imports what it needs."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew import __version__
from unskew.errors import UnskewError
from unskew.terminal.flags import DocIds, Force, Json, ListFiles, Quiet
from unskew.terminal.logs import counts, ingest, split

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Unbiased learning to rank: turn biased click logs into rankings you can trust.",
)


def main() -> None:
    """Run the command line; errors of ours are one line on standard error and exit status 1."""
    # threads that spin while they wait make a busy machine many times slower; torch reads this when it is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.environ.get("WORLD_SIZE", "1") != "1":  # torchrun: torch advises on speed, once in every process
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        app()
    except (UnskewError, OSError) as error:
        print(f"unskew: {error}", file=sys.stderr)
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        print(f"unskew {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Unbiased learning to rank: turn biased click logs into rankings you can trust."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo-run"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    queries: Annotated[int, typer.Option(min=20, help="Training queries.")] = 2000,
    pages: Annotated[int, typer.Option(min=1000, help="Result pages shown.")] = 1_000_000,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each method.")] = 800,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Make a world where clicks mislead, learn with and without debiasing, and show the difference."""
    from unskew.studies.demo import demo as run_demo

    run_demo(
        out,
        seed=seed,
        queries=queries,
        pages=pages,
        steps=steps,
        force=force,
        console=_console(),
        quiet=quiet,
    )


@app.command()
def simulate(
    lists: Annotated[list[str], typer.Option(help="LETOR file (may be repeated), or synthetic.")],
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    behaviour: Annotated[
        str, typer.Option("--behaviour", "--behavior", help="How people click; see `unskew behaviours`.")
    ] = "position",
    pages: Annotated[int | None, typer.Option(min=1, help="Result pages to show.")] = None,
    clicks: Annotated[int | None, typer.Option(min=1, help="Stop at this many clicks instead.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    logger: Annotated[str, typer.Option(help="What ranked the pages: svm, random, oracle, feature.")] = "svm",
    config: Annotated[Path | None, typer.Option(help="TOML with [behaviour] and [logger] settings.")] = None,
    cutoff: Annotated[int | None, typer.Option(min=0, help="Results per page; 0 shows the whole list.")] = None,
    randomized: Annotated[float, typer.Option(min=0, max=1, help="Share of pages with a shuffled list.")] = 0.0,
    drop_clickless: Annotated[
        bool, typer.Option("--drop-clickless", help="Leave out pages without a click.")
    ] = False,
    truth: Annotated[
        bool, typer.Option("--truth", help="Add columns true_examination and true_relevance.")
    ] = False,
    queries: Annotated[int, typer.Option(min=1, help="Synthetic lists: queries.")] = 2000,
    features: Annotated[int, typer.Option(min=4, help="Synthetic lists: features.")] = 40,
    documents: Annotated[int, typer.Option(min=2, help="Synthetic lists: documents a query.")] = 24,
    doc_ids: DocIds = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show labelled lists to simulated people and log what they click."""
    from unskew.running.commands import Pages, simulate_to

    asked = Pages(
        lists=tuple(lists),
        behaviour=behaviour,
        logger=logger,
        config=config,
        pages=pages,
        clicks=clicks,
        seed=seed,
        cutoff=cutoff,
        randomized=randomized,
        drop_clickless=drop_clickless,
        truth=truth,
        synthetic=(queries, features, documents),
        doc_ids=doc_ids,
    )
    summary = simulate_to(asked, out, force=force)
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        for key, value in summary.items():
            print(f"{key:<18}{value:,}" if isinstance(value, int) else f"{key:<18}{value}")


for command in (ingest, split, counts):
    app.command()(command)


@app.command()
def learn(
    run_file: Annotated[Path, typer.Argument(help="TOML run file.", metavar="RUN.toml")],
    out: Annotated[Path | None, typer.Option(help="Folder to write, instead of the file's.")] = None,
    method: Annotated[str | None, typer.Option(help="Method with its defaults, instead of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, instead of the file's.")] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Learn a ranker as a run file says; an interrupted run goes on where it stopped."""
    from unskew.reporting.console import print_metrics, training_bar
    from unskew.running.folder import refuse_to_overwrite, status
    from unskew.running.run import learn_file
    from unskew.running.settings import read_run_file

    file, asked = read_run_file(run_file, method=method, seed=seed)
    place = out or Path(os.path.normpath(run_file.parent / file.out))
    refuse_to_overwrite(place, force)
    console, leads = _console(), os.environ.get("RANK", "0") == "0"  # of torchrun's processes the first one speaks
    with training_bar(asked.method.name, asked.steps, console, quiet=quiet or not leads) as report:
        learn_file(run_file.parent, file, asked, place, force=force, report=report)
    if not leads:
        return
    ended = status(place)
    console.print(f"{ended}: {place}", markup=False, highlight=False, soft_wrap=True)
    print_metrics(console, json.loads((place / "metrics.json").read_text()))
    if ended == "interrupted":
        again = "without --force to go on" if force else "to go on"
        console.print(f"Run the same command again {again}.")
        raise typer.Exit(130)


@app.command()
def measure(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    lists: ListFiles,
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
    doc_ids: DocIds = False,
    as_json: Json = False,
) -> None:
    """Measure a run on labelled lists, alone or against another run."""
    from unskew.reporting.console import print_measures
    from unskew.running.commands import measure_run

    result = measure_run(run, lists, metrics=metrics, empty=empty, against=against, log=log, doc_ids=doc_ids)
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        print_measures(_console(), result)


@app.command()
def compare(
    compare_file: Annotated[Path, typer.Argument(help="TOML compare file.", metavar="COMPARE.toml")],
    out: Annotated[Path | None, typer.Option(help="Folder to write, instead of the file's.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; two where processors and memory allow, unless given.")
    ] = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over behaviours, settings and seeds, and say whether debiasing is worth it."""
    from unskew.reporting.compared import grid_bar
    from unskew.studies.compare.compare import compare as run_comparison
    from unskew.studies.compare.report import print_comparison

    console = _console()
    try:
        with grid_bar(console, quiet=quiet) as tell:
            result = run_comparison(compare_file, out, force=force, jobs=jobs, tell=tell)
    except KeyboardInterrupt:
        again = "without --force to go on" if force else "again to go on"
        console.print(f"Interrupted. What is done is kept: run the same command {again}.", soft_wrap=True)
        raise typer.Exit(130) from None
    print_comparison(console, result)
    if result.failed:
        raise typer.Exit(1)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Recipe; without one they are listed.")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with data sets; may be repeated. Without it UNSKEW_DATA names one."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(help="Data set: yahoo, istella, mq2008, mslr, generated; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; reproduced/NAME unless given.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many, instead of the recipe's.")] = None,
    pages: Annotated[
        int | None, typer.Option("--pages", min=1, help="Pages of each log, instead of the recipe's.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny: see that it runs, not what comes out.")] = False,
    queries: Annotated[int | None, typer.Option(min=2, help="Queries of generated lists.")] = None,
    features: Annotated[int | None, typer.Option(min=4, help="Features of generated lists.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; two where processors and memory allow, unless given.")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Try a table or figure of a paper again, and show its numbers beside what comes out."""
    from unskew.reporting.compared import grid_bar
    from unskew.studies.reproduce.page import print_page
    from unskew.studies.reproduce.recipe import recipe_named
    from unskew.studies.reproduce.reproduce import recipes
    from unskew.studies.reproduce.reproduce import reproduce as run_recipe

    console = _console()
    if name is not None:
        recipe_named(name)  # a misspelt name is told before there is a progress bar
    if name is None or list_all:
        for each, recipe in recipes().items():
            console.print(f"{each:<24}{recipe.title}", markup=False, highlight=False, soft_wrap=True)
        return
    size = {key: value for key, value in (("queries", queries), ("features", features)) if value is not None}
    try:
        with grid_bar(console, quiet=quiet) as tell:
            result = run_recipe(
                name,
                out,
                data=data or (),
                on=on or (),
                seeds=seeds,
                pages=pages,
                quick=quick,
                size=size,
                jobs=jobs,
                force=force,
                tell=tell,
            )
    except KeyboardInterrupt:
        again = "without --force to go on" if force else "again to go on"
        console.print(f"Interrupted. What is done is kept: run the same command {again}.", soft_wrap=True)
        raise typer.Exit(130) from None
    print_page(console, result.page)
    if result.page.failed:
        raise typer.Exit(1)


@app.command()
def methods() -> None:
    """List the methods, with the paper of each."""
    from unskew.learning.methods import LEARNERS

    console = _console()
    for name, config in LEARNERS.items():
        _entry(console, name, config)
        about = inspect.getdoc(inspect.getmodule(config)) or ""
        paper = re.search(r"^Reference: (.+?)\n\n", about, re.MULTILINE | re.DOTALL)
        if paper:
            console.print(" " * 18 + " ".join(paper[1].split()), markup=False, highlight=False, soft_wrap=True)


@app.command()
def behaviours() -> None:
    """List the behaviours that `simulate` knows."""
    from unskew.clicks.simulate import BEHAVIOURS

    console = _console()
    for name, behaviour in BEHAVIOURS.items():
        _entry(console, name, behaviour)


def _entry(console: Console, name: str, what: type) -> None:
    """A name and the first line of its documentation."""
    console.print(f"[bold]{name:<18}[/bold]", end="")
    console.print((what.__doc__ or "").splitlines()[0], markup=False, highlight=False, soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=False)
