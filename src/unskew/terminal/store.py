"""The command that fills and describes the store of features for serving: store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.terminal.flags import Column, Json, passed
from unskew.terminal.printing import show_facts


def store(
    place: Annotated[str, typer.Argument(help="Folder of LMDB files, or redis://host:port/db.")],
    items: Annotated[
        list[Path] | None, typer.Option(help="Table of features by doc_id, CSV or Parquet; may be repeated.")
    ] = None,
    tracked: Annotated[
        Path | None, typer.Option(help="Store of `unskew track` whose click features to put there.")
    ] = None,
    column: Column = None,
    as_json: Json = False,
) -> None:
    """Put features of items and clicks where a service looks them up, in one step; or say what is there."""
    given = passed(locals(), "as_json")
    from unskew.serving.store.putting import store

    show_facts(store(**given), as_json)
