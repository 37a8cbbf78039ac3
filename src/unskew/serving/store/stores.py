"""A store by its name: a folder, `lmdb:FOLDER`, or an address of Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option, StoreError, printable
from unskew.serving.store.lmdb_files import LmdbFiles
from unskew.serving.store.redis_keys import RedisKeys
from unskew.serving.store.store import Store


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


SCHEMES = ("redis", "rediss", "unix")
"""Of addresses of Redis."""


def open_store(place: Path | str) -> Store:
    """A store to look up in, and to put features into; nothing is read or connected to yet.

    >>> open_store("lmdb:features").place
    'features'
    """
    text = str(place)
    scheme, sign, _ = text.partition("://")
    if sign:
        if scheme not in SCHEMES:
            known = "redis://host:port/db, rediss://, unix://"
            raise StoreError(f"{scheme}:// is no store; give a folder for LMDB, or {known}")
        return Store(RedisKeys(text))
    folder = text.removeprefix("lmdb:")
    if not folder.strip():
        raise StoreError(f"{printable(text)!r} names no folder; write it like lmdb:features")
    return Store(LmdbFiles(Path(folder)))
