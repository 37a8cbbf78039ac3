"""The commands that track clicks: track."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.flags import EngineOptions, Impressions, Json, passed
from unskew.terminal.printing import show_facts


def track(
    impressions: Impressions,
    out: Annotated[Path, typer.Option(help="Store to make, or to add to.")],
    connection: EngineOptions,
    until: Annotated[
        str | None, typer.Option(help="End of the last full hour, as 2024-03-01T14:00:00Z; later pages wait.")
    ] = None,
    refresh: Annotated[str, typer.Option(help="Windows to write anew: due, all or none.")] = "due",
    max_rejected: Annotated[
        float, typer.Option(min=0, max=1, help="Share of broken pages past which nothing is counted.")
    ] = 0.01,
    as_json: Json = False,
) -> None:
    """Count clicks per query and document over the last day, week and month; every page once."""
    given = passed(locals(), "as_json")
    from unskew.clicks.tracking.track import track

    show_facts(track(**given), as_json)
