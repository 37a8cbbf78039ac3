"""A store: features looked up by id, and replaced whole while others look.

A store has two parts, `items` and `clicks`. Each is written under a new name, its generation; then one step makes
it the one that holds. Who reads takes a `View` for a request: all that it looks up in it is of one generation.
LMDB and Redis differ in where parts lie, and in nothing else.

Its bytes:

    row      D floats of 32 bits, little end first; NaN is a gap, a category is the place of its value
    head     a byte, the version of all of this, then JSON: rows, names, categories, when it was made, until when
    item     `t` and the id as text, or `h` and a digest where that is long
    pair     a digest of the query id, then the document as an item

An id is what it is as text: 12 and "12" are one. Nothing here can run code when it is read.
Legend: n ids asked for, D features.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from unskew.errors import ConfigError, Option, StoreError, printable
from unskew.names import NO_NAMES, Names
from unskew.results import Result
from unskew.types import Array

PARTS = {"items": ("features of items", "--items"), "clicks": ("click features", "--tracked")}
"""What a store may hold, and what puts it there."""
SCHEMES = ("redis", "rediss", "unix")
"""Of addresses of Redis."""
FORMAT = 1
"""Of keys, rows and heads; the first byte of a head."""
HEAD = b"\x00"
"""The key of the head; no id has it."""
LONGEST = 200
"""Bytes of an id past which its digest is the key; LMDB takes 511 in all."""
Id = str | int
Rows = Iterator[tuple[list[bytes], list[bytes]]]
"""Keys and their rows, block after block."""
_FLOAT = np.dtype("<f4")


@dataclass(frozen=True)
class StoreHead(Result):
    """What the rows of a part are."""

    rows: int
    """Number of rows."""
    names: tuple[str, ...]
    """Names of the D features."""
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each feature that is a category."""
    made: str = ""
    """When it was written, in UTC."""
    until: Mapping[str, str] = field(default_factory=dict)
    """Of clicks: the hour that each window ends with."""
    told, untold = ("features",), ("names", "categories")

    @property
    def features(self) -> int:
        """Number of features, D."""
        return len(self.names)

    def packed(self) -> bytes:
        """The head as the bytes that are stored."""
        return bytes([FORMAT]) + json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, content: bytes | None, place: str) -> StoreHead:
        """What `packed` gave; none, another version, or something else is an error that names the place."""
        if content is not None and content[:1] != bytes([FORMAT]):
            raise StoreError(f"{place}: made by another version of unskew; put the features there anew")
        try:
            return TypeAdapter(cls).validate_json((content or b"")[1:])
        except ValueError as error:
            raise StoreError(f"{place}: damaged, its head cannot be read; put the features there anew") from error


@dataclass(frozen=True)
class StoredRows:
    """Features of what was asked for, items or the documents of a query, in that order."""

    head: StoreHead
    """What the features are."""
    values: Array
    """[n, D] float32; NaN where there is a gap and all over an unknown item, zeros for a pair never shown."""
    known: Array
    """[n] bool: whether the store has a row for what was asked."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the D features."""
        return self.head.names

    def named(self) -> list[dict[str, float | str | None] | None]:
        """Features by name of each item, categories as text, None for a gap; None for an unknown item."""
        texts = [self.head.categories.get(name) for name in self.names]
        found: list[dict[str, float | str | None] | None] = []
        for row, there in zip(self.values.tolist(), self.known, strict=True):
            cells = [
                None if value != value else value if text is None else text[int(value)]
                for value, text in zip(row, texts, strict=True)
            ]
            found.append(dict(zip(self.names, cells, strict=True)) if there else None)
        return found


def item_key(item: Id) -> bytes:
    """The key of an item.

    >>> item_key(12), item_key("12"), len(item_key("x" * 999))
    (b't12', b't12', 33)
    """
    text = str(item).encode("utf-8", "surrogatepass")
    return b"t" + text if len(text) <= LONGEST else b"h" + blake2b(text, digest_size=32).digest()


def query_key(query: Id) -> bytes:
    """How the keys of a query's documents begin."""
    return blake2b(str(query).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def rows_of(values: Array) -> list[bytes]:
    """A matrix [n, D] as rows of bytes."""
    plain = np.ascontiguousarray(values, _FLOAT)
    whole, width = plain.tobytes(), plain.shape[1] * _FLOAT.itemsize
    return [whole[at : at + width] for at in range(0, len(whole), width)]


class StoredPart(ABC):
    """One generation of one part, to look up in."""

    generation: str
    """Its name, new whenever the part is replaced."""
    head: StoreHead

    @abstractmethod
    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows of keys; None for those that are not there."""

    def rows(self, keys: Sequence[bytes], place: str, gap: float) -> StoredRows:
        """The rows of keys as a matrix; those that are not there are filled with `gap`."""
        found, width = self.get(keys), len(self.head.names)
        absent = np.full(width, gap, _FLOAT).tobytes()
        whole = b"".join([absent if row is None else row for row in found])
        if len(whole) != len(found) * len(absent):
            raise StoreError(f"{place}: damaged, a row is not of {width} features; put the features there anew")
        known = np.array([row is not None for row in found], bool)
        return StoredRows(self.head, np.frombuffer(whole, _FLOAT).reshape(len(found), width), known)


@dataclass(frozen=True)
class StoreContents(Result):
    """What a store holds; a part that was never put there is None."""

    store: str
    items: StoreHead | None = None
    clicks: StoreHead | None = None
    absent = ("items", "clicks")


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

    def contents(self) -> StoreContents:
        """What each part holds."""
        return StoreContents(self.place, **{name: part.head for name, part in self.parts.items()})

    def _part(self, name: str) -> StoredPart:
        if name not in self.parts:
            what, flag = PARTS[name]
            raise StoreError(f"{self.place} has no {what}; put them there with `unskew store PLACE {flag} ...`")
        return self.parts[name]


class Store(AbstractContextManager["Store"], ABC):
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
        if not items and tracked is None:
            raise StoreError(f"{self.place}: nothing to put there; give tables of items, or tracked clicks")
        parts: dict[str, tuple[StoreHead, Rows]] = {}
        with ExitStack() as read:
            if items:
                parts["items"] = read.enter_context(items_of(items, names, made))
            if tracked is not None:
                parts["clicks"] = read.enter_context(clicks_of(tracked, made))
            self.replace(parts)
        return self.view().version

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
) -> StoreContents:
    """Put what is given, both parts in one step, and say what the store then holds; without any, say it alone."""
    if columns and not items:
        raise ConfigError(
            ("there are no tables whose columns it could name; give ", Option("items")), argument="columns"
        )
    with open_store(place) as opened:
        if items or tracked is not None:
            opened.put(items=items, tracked=tracked, names=Names.of(columns))
        return opened.view().contents()
