"""The commands that answer a pipeline: drift."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.errors import CANNOT_TELL, NO
from unskew.terminal.flags import Column, EngineOptions, Force, Json, passed
from unskew.terminal.printing import show_result, tell, typed

HtmlFile = Annotated[Path | None, typer.Option("--out", help="Page to write, .html.")]


def drift(
    old: Annotated[Path, typer.Argument(help="Log of before: Parquet file, or a folder of them.")],
    new: Annotated[Path, typer.Argument(help="Log of now.")],
    connection: EngineOptions,
    segment: Annotated[
        list[str] | None, typer.Option(help="Column whose mix is compared, as the device; repeatable.")
    ] = None,
    column: Column = None,
    out: HtmlFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare two logs: what changed, and whether propensities of the old one still hold. Exits 0, 4 or 5."""
    given = passed(locals(), "as_json", "segment", "old", "new")
    from unskew.reporting.drift import drift_page
    from unskew.running.drift import drift

    found = drift(old, new, segments=segment or (), command=typed(), **given)
    if out is not None:
        tell(f"Open {out}.")
    show_result(found.to_dict(), as_json, drift_page)
    if found.changed:
        raise typer.Exit(NO)
    if found.propensities == "cannot tell":
        raise typer.Exit(CANNOT_TELL)
