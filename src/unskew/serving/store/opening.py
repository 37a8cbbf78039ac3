"""A store by its name: a folder, `lmdb:FOLDER`, or an address of Redis."""

from __future__ import annotations

from pathlib import Path

from unskew.errors import StoreError, printable
from unskew.serving.store.lmdb_files import LmdbFiles
from unskew.serving.store.redis_keys import RedisKeys
from unskew.serving.store.store import Store

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
