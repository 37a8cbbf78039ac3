"""The command that fits click models: click-models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.completing import names_of
from unskew.terminal.flags import Column, EngineOptions, Force, Impressions, Json, Seed, passed
from unskew.terminal.printing import show_result, tell, typed


def click_models(
    impressions: Impressions,
    connection: EngineOptions,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="rcm, rctr, dctr, pbm, cascade, dcm, sdbn, dbn, ubm, ccm; a+b is a mixture. Repeatable.",
            autocompletion=names_of("click_models"),
        ),
    ] = None,
    held_out: Annotated[str, typer.Option(help="Share of the pages to judge by, or another log.")] = "0.2",
    seed: Seed = 0,
    column: Column = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report, the best model and its judgments.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit click models to a log alone, say which explains held-out clicks best, and judge documents by it."""
    given = passed(locals(), "as_json", "model")
    from unskew.pages.documents.click_models import click_models_page
    from unskew.pages.origins import log_origin
    from unskew.pages.page import write_page
    from unskew.workflows.inspections.click_models import JUDGE, JUDGMENTS, compare_click_models

    found = compare_click_models(models=model, **given)
    page = click_models_page(found, log_origin(impressions), typed())
    if out is not None:
        write_page(page, out)
        tell(f"Open {out / 'report.html'}; judgments are in {out / JUDGMENTS}, the model in {out / JUDGE}.")
    show_result(found, as_json, lambda _: page)
