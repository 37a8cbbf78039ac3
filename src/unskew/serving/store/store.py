"""A store: features looked up by id, and replaced whole while others look.

A store has two parts, `items` and `clicks`. Each is written under a new name, its generation; then one step makes
it the one that holds. Who reads takes a `View` for a request: all that it looks up in it is of one generation.
LMDB and Redis differ in a `Backend`, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unskew.errors import ConfigError, Option, StoreError, printable
from unskew.names import NO_NAMES, Names
from unskew.serving.store.layout import (
    Backend,
    Id,
    StoredItems,
    StoredPairs,
    StoredPart,
    item_key,
    matrix_of,
    query_key,
)
from unskew.serving.store.lmdb_files import LmdbFiles
from unskew.serving.store.redis_keys import RedisKeys
from unskew.types import Columns

PARTS = {"items": ("features of items", "--items"), "clicks": ("click features", "--tracked")}
"""What a store may hold, and what puts it there."""
SCHEMES = ("redis", "rediss", "unix")
"""Of addresses of Redis."""


class Version(NamedTuple):
    """The generation of each part; None for one that was never put."""

    items: str | None
    clicks: str | None


@dataclass(frozen=True)
class View:
    """A store as it is at one moment; a request takes one, and looks up all that it needs in it."""

    place: str
    parts: Mapping[str, StoredPart]

    @property
    def version(self) -> Version:
        """What it sees."""
        return Version(*(self.parts[name].generation if name in self.parts else None for name in PARTS))

    def get_items(self, ids: Sequence[Id]) -> StoredItems:
        """Features of items; unknown ones are marked so."""
        part = self._part("items")
        values, known = matrix_of(part.get([item_key(each) for each in ids]), part.head, self.place, np.nan)
        return StoredItems(Columns(part.head.names, part.head.categories), values, known)

    def get_clicks(self, query: Id, ids: Sequence[Id]) -> StoredPairs:
        """Tracked click features of a query's documents; zeros for those never shown."""
        part, before = self._part("clicks"), query_key(query)
        keys = [before + item_key(each) for each in ids]
        values, known = matrix_of(part.get(keys), part.head, self.place, 0.0)
        return StoredPairs(part.head.names, values, known)

    def about(self) -> dict[str, dict[str, Any]]:
        """What each part holds."""
        found: dict[str, dict[str, Any]] = {}
        for name, part in self.parts.items():
            head = part.head
            found[name] = {"rows": head.rows, "features": len(head.names), "made": head.made}
            found[name] |= {"categories": len(head.categories)} if head.categories else {}
            found[name] |= {f"{window} until": hour for window, hour in head.until.items()}
        return found

    def _part(self, name: str) -> StoredPart:
        if name not in self.parts:
            what, flag = PARTS[name]
            raise StoreError(f"{self.place} has no {what}; put them there with `unskew store PLACE {flag} ...`")
        return self.parts[name]


class Store:
    """Features by id; open one with `open_store`. It may be shared by threads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def place(self) -> str:
        """Where it is, without passwords."""
        return self._backend.place

    def view(self) -> View:
        """The store as it is now."""
        return View(self.place, self._backend.current())

    def put(self, *, items: Sequence[Any] = (), tracked: Any = None, names: Names = NO_NAMES) -> Version:
        """Replace both or one of the parts in one step; who reads sees the old ones or the new ones.

        `items` are tables with doc_id, frames or files, as `predict` takes them; `tracked` is a store of
        `unskew track`; `names` are those of the columns of tables.
        """
        from unskew.serving.store.contents import clicks_of, items_of  # they read tables, which a service does not

        made = datetime.now(UTC).isoformat(timespec="seconds")
        with items_of(items, names, made) as of_items, clicks_of(tracked, made) as of_clicks:
            parts = {name: part for name, part in (("items", of_items), ("clicks", of_clicks)) if part is not None}
            if not parts:
                raise StoreError(f"{self.place}: nothing to put there; give tables of items, or tracked clicks")
            self._backend.replace(parts)
        return self.view().version

    def close(self) -> None:
        """Let go of files and connections."""
        self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
            opened.put(items=items, tracked=tracked, names=Names.of(columns))
        return {"store": opened.place, **opened.view().about()}
