"""Requests as safetensors: the features of all documents as one matrix of 32-bit numbers, which need no reading.

    8 bytes      length n of the header
    n bytes      JSON: {"features": {"dtype": "F32", "shape": [documents, columns], "data_offsets": [0, end]},
                        "__metadata__": {"unskew": JSON of the request, with ids and names}}
    the rest     the numbers, row after row, little-endian; NaN is missing

`safetensors.numpy.save({"features": matrix}, metadata={"unskew": ...})` writes it. Here it is taken apart by hand:
a length that is wrong is an error, and there is nothing else in it that could be followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from unskew.serving.requests.bodies import BadRequest, TensorRequest
from unskew.serving.requests.parsing import LARGEST, AskedRanking, Grid, Row, checked, repeated
from unskew.serving.settings import Limits
from unskew.types import Array

TENSORS = "application/vnd.safetensors"
"""The content type."""
MATRIX, ABOUT, HEAD = "features", "__metadata__", "unskew"
"""The tensor, and where the request stands."""


@dataclass(frozen=True)
class TensorGrid(Grid):
    """The features of a matrix."""

    names: Sequence[str]
    matrix: Array
    """[n, D] float32; NaN where missing."""

    def numbers(self, names: Sequence[str]) -> Array:
        """Some columns, [n, D], or all where they have no names; NaN where missing."""
        if [*names] == [*self.names]:
            return self.matrix
        there = {name: at for at, name in enumerate(self.names)}
        return self.matrix[:, [there[name] for name in names]]

    def column(self, name: str) -> Sequence[object]:
        """One column, as JSON would have it."""
        values = self.matrix[:, [*self.names].index(name)].tolist()
        return [None if value != value else value for value in values]

    def by_document(self) -> list[Row]:
        """The same as features of each document."""
        rows = [[None if value != value else value for value in row] for row in self.matrix.tolist()]
        return [dict(zip(self.names, row, strict=True)) for row in rows] if self.names else [*rows]


def read_tensors(raw: bytes, limits: Limits) -> AskedRanking:
    """The request in a body.

    >>> from safetensors.numpy import save
    >>> told = {"unskew": '{"query": "q", "ids": ["a"], "names": ["price"]}'}
    >>> asked = read_tensors(save({"features": np.float32([[1.5]])}, metadata=told), Limits())
    >>> asked.ids, asked.head.query, asked.features.column("price")
    (['a'], 'q', [1.5])
    """
    header, data = _parts(raw)
    about = header.pop(ABOUT, None)
    matrix = _matrix(header, data)
    told = about.get(HEAD) if isinstance(about, dict) else None
    if not isinstance(told, str):
        raise BadRequest(f"the metadata have no text {HEAD!r}, the request as JSON", ABOUT)
    asked = checked(TensorRequest, _json(told.encode(), f"the metadata {HEAD!r}"))
    _check(asked, matrix, limits)
    return AskedRanking(asked, asked.ids, TensorGrid(asked.names, matrix))


def _parts(raw: bytes) -> tuple[dict[str, Any], memoryview]:
    """The header, and the bytes after it."""
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise BadRequest("not safetensors: the header is longer than the body", status=400)
    header = _json(raw[8 : 8 + length], "not safetensors: the header")
    if not isinstance(header, dict):
        raise BadRequest("not safetensors: the header is no JSON object", status=400)
    return header, memoryview(raw)[8 + length :]


def _json(raw: bytes, what: str) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"{what} is not JSON: {error}", status=400) from error


def _matrix(header: dict[str, Any], data: memoryview) -> Array:
    """The one tensor, of finite numbers."""
    if [*header] != [MATRIX] or not isinstance(header[MATRIX], dict):
        raise BadRequest(f"send one tensor, called {MATRIX}", MATRIX)
    about = header[MATRIX]
    shape, kind = about.get("shape"), about.get("dtype")
    if kind != "F32":
        told = kind[:20] if isinstance(kind, str) else "that"
        raise BadRequest(f"the type is F32, 32-bit numbers, not {told}", f"{MATRIX}.dtype")
    if not isinstance(shape, list) or len(shape) != 2 or any(type(each) is not int or each < 1 for each in shape):
        raise BadRequest("the shape is [documents, columns]", f"{MATRIX}.shape")
    size = 4 * shape[0] * shape[1]
    if about.get("data_offsets") != [0, size] or len(data) != size:
        raise BadRequest(f"{shape[0]:,} x {shape[1]:,} numbers are not {len(data):,} bytes", f"{MATRIX}.shape")
    matrix: Array = np.frombuffer(data, "<f4").reshape(shape)
    if matrix.min() >= -LARGEST and matrix.max() <= LARGEST:  # with a gap neither is a number
        return matrix
    large = np.abs(matrix) > LARGEST
    if large.any():
        row, column = (int(each[0]) for each in np.nonzero(large))
        raise BadRequest("not a finite number", f"{MATRIX}.{row}.{column}")
    return matrix


def _check(asked: TensorRequest, matrix: Array, limits: Limits) -> None:
    """Refuse ids and names that are not those of the matrix."""
    documents, columns = matrix.shape
    if len(asked.ids) > limits.documents:
        told = f"{len(asked.ids):,} documents, at most {limits.documents:,} are taken at once"
        raise BadRequest(told, "ids", 413)
    if len(asked.ids) != documents:
        raise BadRequest(f"{len(asked.ids):,} ids, and {documents:,} rows", "ids")
    if asked.names and len(asked.names) != columns:
        raise BadRequest(f"{len(asked.names):,} names, and {columns:,} columns", "names")
    if (at := repeated(asked.names)) is not None:
        raise BadRequest(f"two columns are called {asked.names[at][:80]!r}", f"names.{at}")
