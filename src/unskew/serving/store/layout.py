"""Bytes of a store: keys of ids, rows of numbers, and the head that says what the numbers are.

    row      D floats of 32 bits, little end first; NaN is a gap, a category is the place of its value
    head     a byte, the version of all of this, then JSON: rows, names, categories, when it was made, until when
    item     `t` and the id as text, or `h` and a digest where that is long
    pair     a digest of the query id, then the document as an item

An id is what it is as text: 12 and "12" are one. Nothing here can run code when it is read.
Legend: n ids asked for, D features.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Protocol

import numpy as np

from unskew.errors import StoreError
from unskew.types import Array, Columns

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
class StoreHead:
    """What the rows of a part are."""

    rows: int
    """How many there are."""
    names: tuple[str, ...]
    """Of the D features."""
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each feature that is a category."""
    made: str = ""
    """When it was written, in UTC."""
    until: Mapping[str, str] = field(default_factory=dict)
    """Of clicks: the hour that each window ends with."""

    def packed(self) -> bytes:
        """As bytes."""
        return bytes([FORMAT]) + json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, content: bytes, place: str) -> StoreHead:
        """What `packed` gave; another version, or something else, is an error that names the place."""
        if content[:1] != bytes([FORMAT]):
            raise StoreError(f"{place}: made by another version of unskew; put the features there anew")
        try:
            found = json.loads(content[1:])
            categories = {str(name): tuple(map(str, each)) for name, each in found["categories"].items()}
            names, until = tuple(map(str, found["names"])), dict(found["until"])
            return cls(int(found["rows"]), names, categories, str(found["made"]), until)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{place}: damaged ({error!r}); put the features there anew") from error


@dataclass(frozen=True)
class StoredItems:
    """Features of the items that were asked for, in that order."""

    columns: Columns
    """What they are called, and the values of categories."""
    values: Array
    """[n, D] float32; NaN where there is a gap, and in all of the row of an unknown item."""
    known: Array
    """[n] bool."""

    def named(self) -> list[dict[str, float | str | None] | None]:
        """Features by name of each item, categories as text, None for a gap; None for an unknown item."""
        texts = [self.columns.categories.get(name) for name in self.columns.names]
        found: list[dict[str, float | str | None] | None] = []
        for row, there in zip(self.values.tolist(), self.known, strict=True):
            cells = [
                None if value != value else value if text is None else text[int(value)]
                for value, text in zip(row, texts, strict=True)
            ]
            found.append(dict(zip(self.columns.names, cells, strict=True)) if there else None)
        return found


@dataclass(frozen=True)
class StoredPairs:
    """Tracked click features of a query and the documents that were asked for, in that order."""

    names: tuple[str, ...]
    """Of the features, as `unskew.tracking.features.FEATURES`."""
    values: Array
    """[n, D] float32; zeros for a document that the windows do not have."""
    known: Array
    """[n] bool: whether a window has it."""


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


def matrix_of(rows: Sequence[bytes | None], head: StoreHead, place: str, gap: float) -> tuple[Array, Array]:
    """Rows as a matrix [n, D] and which were there [n]; those that were not are filled with `gap`."""
    width = len(head.names)
    absent = np.full(width, gap, _FLOAT).tobytes()
    whole = b"".join([absent if row is None else row for row in rows])
    if len(whole) != len(rows) * len(absent):
        raise StoreError(f"{place}: damaged, a row is not of {width} features; put the features there anew")
    known = np.array([row is not None for row in rows], bool)
    return np.frombuffer(whole, _FLOAT).reshape(len(rows), width), known


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
