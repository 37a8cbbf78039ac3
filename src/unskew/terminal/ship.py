"""The commands that answer a pipeline: ship, drift."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.errors import CANNOT_TELL, NO
from unskew.terminal.completing import one_of
from unskew.terminal.flags import Column, DocIds, EngineOptions, Force, Json, Seed, Tracked, passed
from unskew.terminal.printing import show_result, tell, typed

HtmlFile = Annotated[Path | None, typer.Option("--out", help="Page to write, .html.")]


def ship(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run folder, scores (query_id, doc_id, score) or LightGBM file.", metavar="RUN|SCORES"
        ),
    ],
    log: Annotated[Path, typer.Option(help="Log to judge by, which the run did not learn from.")],
    connection: EngineOptions,
    against: Annotated[str, typer.Option(help="shown, or another run or table of scores.")] = "shown",
    features: Annotated[
        list[str] | None,
        typer.Option(help="Features of the log's documents; those of the run unless given. Repeatable."),
    ] = None,
    risk: Annotated[float, typer.Option(help="Chance of shipping what gains nothing.")] = 0.05,
    at_least: Annotated[
        float, typer.Option(help="Smallest gain that is worth it, as a share: 0.01 is 1 %.")
    ] = 0.0,
    bound: Annotated[
        str,
        typer.Option(
            help="bernstein, bootstrap, or auto: the first where it says enough.",
            autocompletion=one_of("auto", "bernstein", "bootstrap"),
        ),
    ] = "auto",
    group: Annotated[
        str | None, typer.Option(help="Column of the log or its features to tell exposure by, as the brand.")
    ] = None,
    propensities: Annotated[
        Path | None, typer.Option(help="Examination by rank: .json or .csv of `unskew diagnose`, or a run.")
    ] = None,
    seed: Seed = 0,
    column: Column = None,
    doc_ids: DocIds = False,
    tracked: Tracked = None,
    out: HtmlFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Say whether a ranking may replace what was shown, and who is seen more and less. Exits 0, 4 or 5."""
    given = passed(locals(), "as_json", "run", "log", "propensities")
    from unskew.pages.documents.proof import ship_page
    from unskew.workflows.proofs.ship import ship

    found = ship(run, log, examination=propensities, command=typed(), **given)
    if out is not None:
        tell(f"Open {out}.")
    show_result(found, as_json, ship_page)
    if found.status:
        raise typer.Exit(found.status)


def drift(
    old: Annotated[Path, typer.Argument(help="Log of before: Parquet file, or a folder of them.")],
    new: Annotated[Path, typer.Argument(help="Log of now.")],
    connection: EngineOptions,
    segment: Annotated[
        list[str] | None,
        typer.Option(help="Column to compare the mix of; serp_* unless given. Repeatable."),
    ] = None,
    column: Column = None,
    out: HtmlFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare two logs: what changed, and whether propensities of the old one still hold. Exits 0, 4 or 5."""
    given = passed(locals(), "as_json", "segment", "old", "new")
    from unskew.pages.documents.drift import drift_page
    from unskew.workflows.inspections.drift import drift

    found = drift(old, new, segments=segment, command=typed(), **given)
    if out is not None:
        tell(f"Open {out}.")
    show_result(found, as_json, drift_page)
    if found.changed:
        raise typer.Exit(NO)
    if found.propensities == "cannot tell":
        raise typer.Exit(CANNOT_TELL)
