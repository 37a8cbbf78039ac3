"""The commands that learn many times over: demo, compare, reproduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.errors import RunError
from unskew.terminal.completing import names_of, one_of
from unskew.terminal.flags import Force, Jobs, Json, OutFolder, Quiet, Seed, passed
from unskew.terminal.printing import messages, show, show_json, tell

if TYPE_CHECKING:
    from unskew.pages.console import Tell
    from unskew.pages.page import Page
    from unskew_reproductions.recipe import Recipe


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo-run"),
    seed: Seed = 0,
    queries: Annotated[int, typer.Option(min=20, help="Training queries.")] = 2000,
    pages: Annotated[int, typer.Option(min=1000, help="Result pages shown.")] = 1_000_000,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each method.")] = 800,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a world where clicks mislead, learn with and without debiasing, and show the difference."""
    given = passed(locals(), "quiet", "as_json")
    from unskew.studies.demo import demo, serving_lines

    try:
        done = demo(**given, console=messages(quiet=quiet))
    except KeyboardInterrupt:
        tell("Interrupted; nothing was written.")
        raise typer.Exit(130) from None
    _show(done.page, done.numbers if as_json else None)
    _tell_where(out, "results.json", quiet)
    for line in () if quiet else serving_lines(out):
        tell(line)


def compare(
    config: Annotated[Path, typer.Argument(help="TOML compare file.", metavar="COMPARE.toml")],
    out: OutFolder = None,
    jobs: Jobs = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare methods on simulated clicks or on a real log, and say whether debiasing is worth it."""
    given = passed(locals(), "quiet", "as_json")
    from unskew.studies.compare.compare import compare
    from unskew.studies.compare.log_table import LogComparison
    from unskew.studies.compare.report import comparison_page, log_page

    def run(tell: Tell | None) -> Done:
        result = compare(**given, tell=tell)
        verdicts, cells = result.verdicts(), result.records()
        found = {"out": result.out, "verdicts": verdicts, "notes": result.notes, "cells": cells}
        page = log_page(result) if isinstance(result, LogComparison) else comparison_page(result)
        return page, result.out, "results.parquet", found

    _study(run, force=force, quiet=quiet, as_json=as_json)


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help="Recipe; without one they are listed.", autocompletion=names_of("recipes")),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folder with data sets; may be repeated. Without it UNSKEW_DATA names one."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="Data set: yahoo, istella, mq2008, mslr, generated; may be repeated.",
            autocompletion=one_of("yahoo", "istella", "mq2008", "mslr", "generated"),
        ),
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
    as_json: Json = False,
) -> None:
    """Try a table or figure of a paper again, and show its numbers beside what comes out."""
    given = passed(locals(), "quiet", "list_all", "queries", "features", "as_json")
    try:
        from unskew_reproductions import recipes, reproduce
    except ModuleNotFoundError as error:
        raise RunError(
            "recipes come with a clone of the project, not with the wheel; there run: pip install ./reproductions"
        ) from error

    if name is None or list_all:
        _list_recipes(recipes(), as_json)
        return
    given["size"] = passed({"queries": queries, "features": features})

    def run(tell: Tell | None) -> Done:
        result = reproduce(**given, tell=tell)
        claims = [{"claim": each.text, **asdict(each)} for each in result.judged]
        found = {"out": result.out, "lead": result.page.lead, "numbers": result.records, "claims": claims}
        return result.page, result.out, "numbers.parquet", found

    _study(run, force=force, quiet=quiet, as_json=as_json)


def _list_recipes(recipes: Mapping[str, Recipe], as_json: bool) -> None:
    told = {
        name: {"title": recipe.title, "reference": recipe.reference, "says": recipe.says}
        for name, recipe in recipes.items()
    }
    if as_json:
        show_json(told)
        return
    for name, recipe in told.items():
        print(f"{name:<24}{recipe['title']}")


Done = tuple["Page", Path, str, Mapping[str, object]]
"""What a study came to: its page, its folder, the file of all numbers, and the same for JSON."""


def _study(run: Callable[[Tell | None], Done], *, force: bool, quiet: bool, as_json: bool) -> None:
    """Run a study with a bar over its cells, and show its page; it fails where a cell did."""
    from unskew.pages.console import grid_bar

    try:
        with grid_bar(messages(quiet=quiet)) as told:
            page, out, numbers, found = run(told)
    except KeyboardInterrupt:
        again = "without --force to go on" if force else "again to go on"
        tell(f"Interrupted. What is done is kept: run the same command {again}.")
        raise typer.Exit(130) from None
    _show(page, {**found, "failed": page.failed} if as_json else None)
    _tell_where(out, numbers, quiet)
    if page.failed:
        raise typer.Exit(1)


def _show(page: Page, found: Mapping[str, object] | None) -> None:
    """A study as JSON where there is some, else as its page."""
    if found is None:
        show(page)
    else:
        show_json(found)


def _tell_where(out: Path, numbers: str, quiet: bool) -> None:
    if not quiet:
        tell(f"Open {out / 'report.html'}; all numbers are in {out / numbers}.")
