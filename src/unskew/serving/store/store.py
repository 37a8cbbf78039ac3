"""A store: features looked up by id, and replaced whole while others look.

A store has two parts, `items` and `clicks`. Each is written under a new name, its generation; then one step makes
it the one that holds. Who reads takes a `View` for a request: all that it looks up in it is of one generation.
LMDB and Redis differ in a `Backend`, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np

from unskew.errors import StoreError
from unskew.serving.store.layout import (
    Id,
    StoredItems,
    StoredPairs,
    StoreHead,
    item_key,
    matrix_of,
    pair_keys,
)
from unskew.types import Columns

PARTS = {"items": ("features of items", "--items"), "clicks": ("click features", "--tracked")}
"""What a store may hold, and what puts it there."""
Rows = Iterator[tuple[list[bytes], list[bytes]]]
"""Keys and their rows, block after block."""


class StoredPart(Protocol):
    """One generation of one part, to look up in."""

    @property
    def generation(self) -> str:
        """Its name, new whenever the part is replaced."""

    @property
    def head(self) -> StoreHead:
        """What its rows are."""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of keys; None for those that are not there."""


class Backend(Protocol):
    """Where parts lie."""

    place: str
    """Its name for messages, without passwords."""

    def current(self) -> Mapping[str, StoredPart]:
        """The parts that hold now; all of them were replaced at once, or not at all."""

    def replace(self, parts: Mapping[str, tuple[StoreHead, Rows]]) -> None:
        """Write parts, and make all of them hold in one step."""

    def close(self) -> None:
        """Let go of files and connections."""


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
        part = self._part("clicks")
        values, known = matrix_of(part.get(pair_keys(query, ids)), part.head, self.place, 0.0)
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

    def version(self) -> Version:
        """What holds now."""
        return self.view().version

    def get_items(self, ids: Sequence[Id]) -> StoredItems:
        """Features of items, as they are now."""
        return self.view().get_items(ids)

    def get_clicks(self, query: Id, ids: Sequence[Id]) -> StoredPairs:
        """Tracked click features of a query's documents, as they are now."""
        return self.view().get_clicks(query, ids)

    def put_items(self, *tables: Any, columns: Mapping[str, str] | None = None) -> None:
        """Replace the features of items by those of tables: see `put`."""
        self.put(items=tables, columns=columns)

    def put_clicks(self, tracked: Any) -> None:
        """Replace the click features by those of a store of `unskew track`."""
        self.put(tracked=tracked)

    def put(
        self, *, items: Sequence[Any] = (), tracked: Any = None, columns: Mapping[str, str] | None = None
    ) -> Version:
        """Replace both or one of the parts in one step; who reads sees the old ones or the new ones.

        `items` are tables with doc_id, frames or files, as `predict` takes them; `tracked` is a store of
        `unskew track`; `columns` are our names to theirs.
        """
        from unskew.serving.store.contents import (  # they read tables, which looking up does not
            clicks_of,
            items_of,
        )

        made = datetime.now(UTC).isoformat(timespec="seconds")
        with items_of(items, columns, made) as of_items, clicks_of(tracked, made) as of_clicks:
            parts = {name: part for name, part in (("items", of_items), ("clicks", of_clicks)) if part is not None}
            if not parts:
                raise StoreError(f"{self.place}: nothing to put there; give tables of items, or tracked clicks")
            self._backend.replace(parts)
        return self.version()

    def close(self) -> None:
        """Let go of files and connections."""
        self._backend.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
