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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b

import numpy as np
from pydantic import TypeAdapter

from unskew.errors import StoreError
from unskew.types import Array

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
            return TypeAdapter(cls).validate_json(content[1:])
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
    """[n] bool: whether the store has it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the D features."""
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
