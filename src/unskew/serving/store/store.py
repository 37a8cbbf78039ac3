"""A store: features looked up by id, and replaced whole while others look.

A store has two parts, `items` and `clicks`. Each is written under a new name, its generation; then one step makes
it the one that holds. Who reads takes a `View` for a request: all that it looks up in it is of one generation.
LMDB and Redis differ in where parts lie, and in nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError, Option, StoreError, printable
from unskew.names import NO_NAMES, Names
from unskew.serving.store.layout import Id, Rows, StoredPart, StoredRows, StoreHead, item_key, query_key

PARTS = {"items": ("features of items", "--items"), "clicks": ("click features", "--tracked")}
"""What a store may hold, and what puts it there."""
SCHEMES = ("redis", "rediss", "unix")
"""Of addresses of Redis."""


@dataclass(frozen=True)
class View:
    """A store as it is at one moment; a request takes one, and looks up all that it needs in it."""

    place: str
    parts: Mapping[str, StoredPart]

    @property
    def version(self) -> dict[str, str]:
        """The generation of each part that it sees."""
        return {name: part.generation for name, part in self.parts.items()}

    def get_items(self, ids: Sequence[Id]) -> StoredRows:
        """Features of items; unknown ones are marked so."""
        return self._part("items").rows([item_key(each) for each in ids], self.place, np.nan)

    def get_clicks(self, query: Id, ids: Sequence[Id]) -> StoredRows:
        """Tracked click features of a query's documents; zeros for those never shown."""
        before = query_key(query)
        return self._part("clicks").rows([before + item_key(each) for each in ids], self.place, 0.0)

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


class Store(ABC):
    """Features by id; open one with `open_store`. It may be shared by threads."""

    place: str
    """Where it is, without passwords."""

    @abstractmethod
    def current(self) -> Mapping[str, StoredPart]:
        """The parts that hold now; all of them were replaced at once, or not at all."""

    @abstractmethod
    def replace(self, parts: Mapping[str, tuple[StoreHead, Rows]]) -> None:
        """Write parts, and make all of them hold in one step."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def view(self) -> View:
        """The store as it is now."""
        return View(self.place, self.current())

    def put(self, *, items: Sequence[Any] = (), tracked: Any = None, names: Names = NO_NAMES) -> dict[str, str]:
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
            self.replace(parts)
        return self.view().version

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_store(place: Path | str) -> Store:
    """A store to look up in, and to put features into; nothing is read or connected to yet.

    >>> open_store("lmdb:features").place
    'features'
    """
    from unskew.serving.store.lmdb_files import LmdbFiles
    from unskew.serving.store.redis_keys import RedisKeys

    text = str(place)
    scheme, sign, _ = text.partition("://")
    if sign:
        if scheme not in SCHEMES:
            known = "redis://host:port/db, rediss://, unix://"
            raise StoreError(f"{scheme}:// is no store; give a folder for LMDB, or {known}")
        return RedisKeys(text)
    folder = text.removeprefix("lmdb:")
    if not folder.strip():
        raise StoreError(f"{printable(text)!r} names no folder; write it like lmdb:features")
    return LmdbFiles(Path(folder))


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
