"""`unskew store`: put features into a store, and say what it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option
from unskew.serving.store.opening import open_store


def store(
    place: Path | str,
    *,
    items: Sequence[Any] = (),
    tracked: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Put what is given, both parts in one step, and say what the store then holds; without any, say it alone."""
    if columns and not items:
        raise ConfigError(
            ("there are no tables whose columns it could name; give ", Option("items")), argument="columns"
        )
    with open_store(place) as opened:
        if items or tracked is not None:
            opened.put(items=items, tracked=tracked, columns=columns)
        return {"store": opened.place, **opened.view().about()}
