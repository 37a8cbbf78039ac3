"""`python -m unskew_reproductions NAME`: a table or figure of a paper tried again; without a name, the recipes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from unskew.options.base import FORCE, Place, Typed, VerbOptions, argument, option
from unskew.pages.console import Tell
from unskew.terminal.flags import Json, Quiet, flat
from unskew.terminal.main import Command, main
from unskew.terminal.output import show_json
from unskew.terminal.runs import Done, study
from unskew_reproductions.recipe import Recipe
from unskew_reproductions.reproduce import recipes, reproduce


class ReproduceArguments(VerbOptions):
    """Try a table or figure of a paper again, and show its numbers beside what comes out."""

    name: str | None = argument("Recipe; without one they are listed.", default=None)
    data: Annotated[tuple[Path | str, ...] | None, Typed(list[Path])] = option(
        None, "Folder with data sets; may be repeated. Without it UNSKEW_DATA names one."
    )
    on: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None,
        "Data set: yahoo, istella, mq2008, mslr, generated; may be repeated.",
        known=("yahoo", "istella", "mq2008", "mslr", "generated"),
    )
    out: Place = option(None, "Folder to write, instead of the usual one.")
    seeds: int | None = option(None, "How many, instead of the recipe's.", ge=1)
    pages: int | None = option(None, "Pages of each log, instead of the recipe's.", ge=1)
    steps: int | None = option(None, "Training steps, instead of the recipe's.", ge=1)
    quick: bool = option(False, "Tiny: see that it runs, not what comes out.")
    queries: int | None = option(None, "Queries of generated lists.", ge=2)
    features: int | None = option(None, "Features of generated lists.", ge=4)
    jobs: int | None = option(None, "Processes; two where processors and memory allow, unless given.", ge=1)
    force: bool = FORCE


def again(
    asked: ReproduceArguments,
    list_all: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show the cells as they end, then the paper's numbers beside ours."""
    if asked.name is None or list_all:
        _list_recipes(recipes(), as_json)
        return
    size = {name: each for name in ("queries", "features") if (each := getattr(asked, name)) is not None}

    def run(tell: Tell | None) -> Done:
        result = reproduce(**asked.given("queries", "features"), size=size, tell=tell)
        return result.page, result.out, "numbers.parquet", result

    study(run, force=asked.force, quiet=quiet, as_json=as_json)


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


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command(cls=Command)(flat(again, progress=True))

if __name__ == "__main__":
    main(app, "python -m unskew_reproductions")
