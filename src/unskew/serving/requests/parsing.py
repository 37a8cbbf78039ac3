"""Bodies of requests as what is answered: JSON or safetensors, counted, checked, and made columns of features.

A body of safetensors has the features of all documents as one matrix of 32-bit numbers, which need no reading:

    8 bytes      length n of the header
    n bytes      JSON: {"features": {"dtype": "F32", "shape": [documents, columns], "data_offsets": [0, end]},
                        "__metadata__": {"unskew": JSON of the request, with ids and names}}
    the rest     the numbers, row after row, little-endian; NaN is missing

`safetensors.numpy.save({"features": matrix}, metadata={"unskew": ...})` writes it. Here it is taken apart by hand:
a length that is wrong is an error, and there is nothing else in it that could be followed.
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeVar

import numpy as np
import orjson
from pydantic import BaseModel, ValidationError

from unskew.serving.requests.bodies import BadRequest, BatchRequest, RankHead, RankRequest, TensorRequest
from unskew.serving.settings import Limits
from unskew.types import Array

LARGEST = 3e38
"""Past this a number is none of 32 bits."""
TENSORS = "application/vnd.safetensors"
"""The content type."""
MATRIX, ABOUT, HEAD = "features", "__metadata__", "unskew"
"""The tensor, and where the request stands."""
Row = Mapping[str, object] | Sequence[object] | None
"""Features of a document, by name or by place; None where a store has them."""
Form = Literal["documents", "table", "tensors"]
PLACES: Mapping[Form, tuple[str, str, str, str]] = {
    "documents": ("documents", "documents.{}.id", "documents.{}.features", "documents"),
    "table": ("table", "table.ids.{}", "table.rows.{}", "table.names"),
    "tensors": ("ids", "ids.{}", "features.{}", "names"),
}
"""Where the documents of a body are, the id and the features of one of them, and the names of columns."""
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class AskedRanking:
    """A request that was read."""

    head: RankHead
    ids: Sequence[str]
    form: Form = "documents"
    prefix: str = ""
    """Where it is in the body: empty, or requests.3. in a batch."""
    texts: Sequence[str | None] = ()
    """What each document says; empty where none says anything."""
    rows: Sequence[Row] = ()
    """Of each document its own features, where they are no table."""
    names: Sequence[str] = ()
    """Of the columns of a table; none where they go by place."""
    values: Sequence[object] | Array = ()
    """n times D of a table, as JSON has them; or a matrix [n, D] of float32, NaN where missing."""
    width: int = 0
    """D; the most that a document has where each has its own."""

    @property
    def ranks(self) -> Array:
        """Rank that the engine gave each document, [n]; NaN where it gave none."""
        if self.head.position is not None:
            return np.array(self.head.position, np.float64)
        if self.head.engine_score is None:
            return np.arange(1.0, len(self.ids) + 1)
        scores = np.array(self.head.engine_score, np.float64)
        ranks = np.empty(len(scores))
        ranks[np.argsort(-scores, kind="stable")] = np.arange(1.0, len(scores) + 1)
        return np.where(np.isnan(scores), np.nan, ranks)

    @property
    def documents(self) -> str:
        """Where its documents are."""
        return self.prefix + PLACES[self.form][0]

    def id_place(self, at: int) -> str:
        """Where the id of a document is."""
        return self.prefix + PLACES[self.form][1].format(at)

    def place(self, at: int, name: object = None) -> str:
        """Where the features of a document are, or one of them."""
        return self.prefix + PLACES[self.form][2].format(at) + ("" if name is None else f".{name}")

    def names_place(self, at: int) -> str:
        """Where features are named: once for all documents, or in each of them."""
        return self.place(at) if self.form == "documents" else self.prefix + PLACES[self.form][3]


def parsed(raw: bytes, limits: Limits) -> object:
    """What a body of JSON says, if it does not say too much."""
    # millions of empty lists would have the collector look at them again and again
    paused = len(raw) > 2**20 and gc.isenabled()
    if paused:
        gc.disable()
    try:
        content = _json(raw, "not JSON")
    finally:
        if paused:
            gc.enable()
    refuse_many(content, limits)
    return content


def _json(raw: bytes, what: str) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"{what}: {error}", status=400) from error


def refuse_many(content: object, limits: Limits) -> None:
    """Refuse more documents, requests or clicks than are taken, before anything is made of them."""
    parts = content if isinstance(content, dict) else {}
    requests = parts.get("requests")
    total = sum(count for each in requests for _, count in _counts(each)) if isinstance(requests, list) else 0
    counts = [
        *((place, count, "documents", limits.documents) for place, count in _counts(parts)),
        *((name, _count(parts.get(name)), name, getattr(limits, name)) for name in ("requests", "clicks")),
        ("requests", total, "documents", limits.batch),
    ]
    if isinstance(requests, list):
        counts += [
            (f"requests.{at}.{place}", count, "documents", limits.documents)
            for at, each in enumerate(requests[: limits.requests])
            for place, count in _counts(each)
        ]
    for place, count, what, most in counts:
        if count > most:
            raise BadRequest(f"{count:,} {what}, at most {most:,} are taken at once", place, 413)


def _counts(content: object) -> Iterator[tuple[str, int]]:
    """How many documents a request has, by the look of it, and where."""
    parts = content if isinstance(content, dict) else {}
    table = parts.get("table")
    yield "documents", _count(parts.get("documents"))
    yield "table", _count(table.get("ids")) if isinstance(table, dict) else 0
    yield "ids", _count(parts.get("ids"))


def _count(found: object) -> int:
    return len(found) if isinstance(found, list) else 0


def checked(kind: type[Model], content: object) -> Model:
    """What a body says, or an error with the place of what is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first, count = error.errors(include_input=False, include_url=False)[0], error.error_count()
        more = f" (and {count - 1} more)" if count > 1 else ""
        told = "not a JSON object" if first["type"] in ("model_type", "dict_type") else first["msg"].lower()
        raise BadRequest(f"{told}{more}", ".".join(map(str, first["loc"])) or None) from error


def read_request(content: object, limits: Limits | None = None) -> AskedRanking:
    """The request in a body of JSON."""
    return _asked(checked(RankRequest, content), limits or Limits())


def read_batch(content: object, limits: Limits | None = None) -> list[AskedRanking]:
    """The requests in a body of JSON."""
    whole = checked(BatchRequest, content).requests
    return [_asked(each, limits or Limits(), f"requests.{at}.") for at, each in enumerate(whole)]


def read_tensors(raw: bytes, limits: Limits | None = None) -> AskedRanking:
    """The request in a body of safetensors.

    >>> from safetensors.numpy import save
    >>> told = {"unskew": '{"query": "q", "ids": ["a"], "names": ["price"]}'}
    >>> asked = read_tensors(save({"features": np.float32([[1.5]])}, metadata=told))
    >>> asked.ids, asked.head.query, asked.names, asked.values.tolist()
    (['a'], 'q', ['price'], [[1.5]])
    """
    limits, (header, data) = limits or Limits(), _parts(raw)
    about = header.pop(ABOUT, None)
    matrix = _matrix(header, data)
    told = about.get(HEAD) if isinstance(about, dict) else None
    if not isinstance(told, str):
        raise BadRequest(f"the metadata have no text {HEAD!r}, the request as JSON", ABOUT)
    content = _json(told.encode(), f"the metadata {HEAD!r} is not JSON")
    refuse_many(content, limits)
    head = checked(TensorRequest, content)
    documents, columns = matrix.shape
    if len(head.ids) != documents:
        raise BadRequest(f"{len(head.ids):,} ids, and {documents:,} rows", "ids")
    if head.names and len(head.names) != columns:
        raise BadRequest(f"{len(head.names):,} names, and {columns:,} columns", "names")
    asked = AskedRanking(head, head.ids, "tensors", names=head.names, values=matrix, width=columns)
    return _fitting(asked, limits)


def _asked(request: RankRequest, limits: Limits, prefix: str = "") -> AskedRanking:
    if request.documents:
        own = request.documents
        texts = [each.get("text") for each in own]
        rows: list[Row] = [each.get("features") for each in own]
        said = texts if any(text is not None for text in texts) else ()
        width = max(map(len, filter(None, rows)), default=0)
        ids = [each["id"] for each in own]
        return _fitting(AskedRanking(request, ids, "documents", prefix, said, rows, width=width), limits)
    ids, names, cells = request.table.ids, request.table.names, request.table.rows
    if not cells and not names:
        return _fitting(AskedRanking(request, ids, "table", prefix, rows=[None] * len(ids)), limits)
    if len(cells) != len(ids):
        raise BadRequest(f"{len(ids):,} ids, and {len(cells):,} rows", f"{prefix}table.rows")
    width = len(names) or len(cells[0])
    if {*map(len, cells)} != {width}:
        wrong = next(at for at, row in enumerate(cells) if len(row) != width)
        told = f"{len(cells[wrong]):,} values, and {width:,} columns"
        raise BadRequest(told, f"{prefix}table.rows.{wrong}")
    values = list(chain.from_iterable(cells))
    return _fitting(AskedRanking(request, ids, "table", prefix, names=names, values=values, width=width), limits)


def _fitting(asked: AskedRanking, limits: Limits) -> AskedRanking:
    """The same, if no id or column is there twice, and documents bring no more than is read."""
    if (at := repeated(asked.ids)) is not None:
        raise BadRequest(f"two documents have the id {asked.ids[at][:80]!r}", asked.id_place(at))
    if (at := repeated(asked.names)) is not None:
        told = f"two columns are called {asked.names[at][:80]!r}"
        raise BadRequest(told, f"{asked.names_place(0)}.{at}")
    given = {
        name: ranks for name in ("position", "engine_score") if (ranks := getattr(asked.head, name)) is not None
    }
    if len(given) > 1:
        raise BadRequest("give position or engine_score, not both", f"{asked.prefix}engine_score")
    for name, ranks in given.items():
        if len(ranks) != len(asked.ids):
            raise BadRequest(
                f"{len(asked.ids):,} documents, and {len(ranks):,} of {name}", f"{asked.prefix}{name}"
            )
    if asked.width > limits.features:
        told = f"{asked.width:,} features, at most {limits.features:,} are read"
        raise BadRequest(told, asked.documents, 413)
    return asked


def repeated(values: Sequence[str]) -> int | None:
    """Where a value stands that was there before; None where each is there once.

    >>> repeated(["a", "b", "a"])
    2
    """
    if len({*values}) == len(values):
        return None
    first = {each: at for at, each in reversed([*enumerate(values)])}
    return next(at for at, each in enumerate(values) if first[each] != at)


# ---- safetensors


def _parts(raw: bytes) -> tuple[dict[str, Any], memoryview]:
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise BadRequest("not safetensors: the header is longer than the body", status=400)
    header = _json(raw[8 : 8 + length], "not safetensors: the header is not JSON")
    if not isinstance(header, dict):
        raise BadRequest("not safetensors: the header is no JSON object", status=400)
    return header, memoryview(raw)[8 + length :]


def _matrix(header: dict[str, Any], data: memoryview) -> Array:
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
