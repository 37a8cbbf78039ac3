"""The commands that learn many times over: demo, compare, reproduce."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.terminal.flags import Force, Jobs, OutFolder, Quiet, Seed, passed
from unskew.terminal.printing import messages, results, show, tell

if TYPE_CHECKING:
    from unskew.reporting.console import Tell
    from unskew.reporting.page import Page


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo-run"),
    seed: Seed = 0,
    queries: Annotated[int, typer.Option(min=20, help="Training queries.")] = 2000,
    pages: Annotated[int, typer.Option(min=1000, help="Result pages shown.")] = 1_000_000,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each method.")] = 800,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Make a world where clicks mislead, learn with and without debiasing, and show the difference."""
    given = passed(locals(), "quiet")
    from unskew.studies.demo import demo

    try:
        show(demo(**given, console=messages(quiet=quiet)).page, out, "results.json")
    except KeyboardInterrupt:
        tell("Interrupted; nothing was written.")
        raise typer.Exit(130) from None


def compare(
    config: Annotated[Path, typer.Argument(help="TOML compare file.", metavar="COMPARE.toml")],
    out: OutFolder = None,
    jobs: Jobs = None,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over behaviours, settings and seeds, and say whether debiasing is worth it."""
    given = passed(locals(), "quiet")
    from unskew.studies.compare.compare import compare
    from unskew.studies.compare.report import comparison_page

    def run(tell: Tell | None) -> tuple[Page, Path, str]:
        result = compare(**given, tell=tell)
        return comparison_page(result), result.out, "results.parquet"

    _study(run, force=force, quiet=quiet)


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
    out: OutFolder = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many, instead of the recipe's.")] = None,
    pages: Annotated[int | None, typer.Option(min=1, help="Pages of each log, instead of the recipe's.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps, instead of the recipe's.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny: see that it runs, not what comes out.")] = False,
    queries: Annotated[int | None, typer.Option(min=2, help="Queries of generated lists.")] = None,
    features: Annotated[int | None, typer.Option(min=4, help="Features of generated lists.")] = None,
    jobs: Jobs = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Try a table or figure of a paper again, and show its numbers beside what comes out."""
    given = passed(locals(), "quiet", "list_all", "queries", "features")
    from unskew.reporting.console import say
    from unskew.studies.reproduce.reproduce import recipes, reproduce

    if name is None or list_all:
        for each, recipe in recipes().items():
            say(results(), f"{each:<24}{recipe.title}")
        return
    given["size"] = passed({"queries": queries, "features": features})

    def run(tell: Tell | None) -> tuple[Page, Path, str]:
        result = reproduce(**given, tell=tell)
        return result.page, result.out, "numbers.parquet"

    _study(run, force=force, quiet=quiet)


def _study(run: Callable[[Tell | None], tuple[Page, Path, str]], *, force: bool, quiet: bool) -> None:
    """Run a study with a bar over its cells, and show its page; it fails where a cell did."""
    from unskew.reporting.console import grid_bar

    try:
        with grid_bar(messages(quiet=quiet)) as told:
            page, out, numbers = run(told)
    except KeyboardInterrupt:
        again = "without --force to go on" if force else "again to go on"
        tell(f"Interrupted. What is done is kept: run the same command {again}.")
        raise typer.Exit(130) from None
    show(page, out, numbers)
    if page.failed:
        raise typer.Exit(1)
