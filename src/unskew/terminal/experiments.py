"""The command that judges experiments with people: experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.completing import one_of
from unskew.terminal.flags import Column, EngineOptions, Force, Impressions, Json, passed
from unskew.terminal.printing import show_result, tell, typed

SHARE = "NAME=SHARE, how often a policy should be shown, as new=0.1; repeatable. Equal unless given."


def experiment(
    log: Impressions,
    connection: EngineOptions,
    metric: Annotated[
        str,
        typer.Option(
            help="clicks, ctr, clicked, first-click, or a column of numbers, added up page by page.",
            autocompletion=one_of("clicks", "ctr", "clicked", "first-click"),
        ),
    ] = "clicks",
    by: Annotated[
        str | None, typer.Option(help="Column of policies; team where there is one, else policy_id.")
    ] = None,
    control: Annotated[str | None, typer.Option(help="Policy to hold others against; the one shown most.")] = None,
    share: Annotated[list[str] | None, typer.Option(help=SHARE)] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Column of people or visits; user_id, visit_id or page_id, what there is.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="ab or interleaved; found unless given.", autocompletion=one_of("ab", "interleaved")),
    ] = None,
    planned: Annotated[
        int, typer.Option(min=100, help="People or visits planned for; chosen before looking.")
    ] = 10_000,
    detect: Annotated[float, typer.Option(help="Relative difference that sample sizes are told for.")] = 0.01,
    level: Annotated[float, typer.Option(help="Of intervals.")] = 0.95,
    out: Annotated[Path | None, typer.Option(help="Page to write (.html).")] = None,
    column: Column = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Judge an A/B test or an interleaved log: difference, intervals one may look at every day, sample sizes."""
    given = passed(locals(), "as_json", "share", "out", "force")
    from unskew.files import refuse_existing, write_text
    from unskew.pages.documents.experiment import experiment_page
    from unskew.pages.origins import log_origin
    from unskew.pages.web import html
    from unskew.workflows.proofs.experiment import experiment

    if out is not None:
        refuse_existing(out, force=force)
    found = experiment(shares=shares_of(share), **given)
    page = experiment_page(found, log_origin(log), typed())
    if out is not None:
        write_text(out, html(page))
        tell(f"Open {out}.")
    show_result(found, as_json, lambda _: page)


def shares_of(given: list[str] | None) -> dict[str, float] | None:
    """NAME=SHARE, taken apart."""
    made = {}
    for text in given or ():
        name, sign, number = text.rpartition("=")
        try:
            made[name] = float(number) if sign and name else float("nan")
        except ValueError:
            made[name] = float("nan")
        if not made[name] > 0:
            raise typer.BadParameter(f"{text}: write it like new=0.1", param_hint="--share")
    return made or None
