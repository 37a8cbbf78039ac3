"""The commands about what a run learned: importance and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.flags import Force, Json, passed
from unskew.terminal.printing import show_facts


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    to: Annotated[str, typer.Option(help="lightgbm: trees that take features as they are.")] = "lightgbm",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a model in a form that others run: trees as LightGBM's text, on features as they are."""
    given = passed(locals(), "as_json")
    from unskew.running.exporting import export

    show_facts(export(**given), as_json)
