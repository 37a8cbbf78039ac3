"""Bodies of requests as what is answered: the usual shape is taken by hand, all else checked by `requests.py`.

Checking 100 documents one by one takes about as long as scoring them. So a body whose documents all have an id and
features, and nothing else, is taken as it is; what is not so is checked whole, and refused with the place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from unskew.serving.requests.bodies import BadRequest, BatchRequest, RankHead, RankRequest
from unskew.types import Array

LONGEST, MOST = 512, 100_000
"""Characters of an id, and documents, as `requests.py` has them."""
LARGEST = 3e38
"""Past this a number is none of 32 bits."""
ROWS = (dict, list)
Row = Mapping[str, object] | Sequence[object]
"""Features of a document, by name or by place."""
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Written:
    """Features of documents as rows of one table."""

    names: Sequence[str]
    """Of the columns; none where they go by place."""
    rows: Sequence[Sequence[object]]

    def by_document(self) -> list[Row]:
        """The same as features of each document."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows] if self.names else [*self.rows]


class Grid(ABC):
    """Features of documents as columns that have a type, so that numbers need no reading."""

    names: Sequence[str]

    @abstractmethod
    def numbers(self, names: Sequence[str]) -> Array:
        """Some columns, [n, D], or all where they have no names; NaN where missing."""

    @abstractmethod
    def column(self, name: str) -> Sequence[object]:
        """One column, as JSON would have it."""

    @abstractmethod
    def by_document(self) -> list[Row]:
        """The same as features of each document."""


@dataclass(frozen=True)
class AskedRanking:
    """A request that was read."""

    head: RankHead
    ids: Sequence[str]
    features: Sequence[Row | None] | Written | Grid
    """Of each document; None where a store has them."""
    prefix: str = ""
    """Where it is in the body: empty, or requests.3. in a batch."""
    texts: Sequence[str | None] = ()
    """What each document says; empty where none says anything."""

    @property
    def documents(self) -> str:
        """Where its documents are."""
        if isinstance(self.features, Grid):
            return "id"
        return f"{self.prefix}{'table' if isinstance(self.features, Written) else 'documents'}"

    def id_place(self, at: int) -> str:
        """Where the id of a document is."""
        if isinstance(self.features, Grid):
            return f"id.{at}"
        return f"{self.documents}.ids.{at}" if isinstance(self.features, Written) else f"{self.documents}.{at}.id"

    def place(self, at: int, name: object = None) -> str:
        """Where the features of a document are, or one of them."""
        if isinstance(self.features, Grid):
            return f"id.{at}" if name is None else f"{name}.{at}"
        part = f"rows.{at}" if isinstance(self.features, Written) else f"{at}.features"
        return f"{self.documents}.{part}" + ("" if name is None else f".{name}")

    def rows(self) -> Sequence[Row | None]:
        """Features of each document."""
        return self.features.by_document() if isinstance(self.features, Written | Grid) else self.features

    @property
    def width(self) -> int:
        """Features that a document brings at most."""
        if isinstance(self.features, Grid):
            return len(self.features.names)
        rows = self.features.rows if isinstance(self.features, Written) else self.features
        return max(map(len, filter(None, rows)), default=0)


def read_request(content: object) -> AskedRanking:
    """The request in a body."""
    return _plain(content) or _asked(checked(RankRequest, content))


def read_batch(content: object) -> list[AskedRanking]:
    """The requests in a body."""
    if isinstance(content, dict) and [*content] == ["requests"] and isinstance(content["requests"], list):
        found = [_plain(each, f"requests.{at}.") for at, each in enumerate(content["requests"])]
        plain = [each for each in found if each is not None]
        if plain and len(plain) == len(found):
            return plain
    whole = checked(BatchRequest, content).requests
    return [_asked(each, f"requests.{at}.") for at, each in enumerate(whole)]


def repeated(values: Sequence[str]) -> int | None:
    """Where a value stands that was there before; None where each is there once.

    >>> repeated(["a", "b", "a"])
    2
    """
    if len({*values}) == len(values):
        return None
    first = {each: at for at, each in reversed([*enumerate(values)])}
    return next(at for at, each in enumerate(values) if first[each] != at)


def checked(kind: type[Model], content: object) -> Model:
    """What a body says, or an error with the place of what is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first, count = error.errors(include_input=False, include_url=False)[0], error.error_count()
        more = f" (and {count - 1} more)" if count > 1 else ""
        told = "not a JSON object" if first["type"] in ("model_type", "dict_type") else first["msg"].lower()
        raise BadRequest(f"{told}{more}", ".".join(map(str, first["loc"])) or None) from error


def _plain(content: object, prefix: str = "") -> AskedRanking | None:
    """A request of a usual shape; None where it is another, or wrong."""
    if type(content) is not dict or ("documents" in content) == ("table" in content):
        return None
    rest = content.copy()
    table = "table" in rest
    found = _plain_table(rest.pop("table"), prefix) if table else _plain_documents(rest.pop("documents"))
    if found is None:
        return None
    try:
        return AskedRanking(RankHead.model_validate(rest), *found, prefix)
    except ValidationError:
        return None


def _plain_documents(documents: object) -> tuple[list[str], list[Row | None]] | None:
    """Ids and features of documents that have both, and nothing else."""
    if type(documents) is not list or not 0 < len(documents) <= MOST:
        return None
    ids, rows = [], []
    for each in documents:
        if type(each) is not dict or len(each) != 2 or "id" not in each or "features" not in each:
            return None
        own, row = each["id"], each["features"]
        if type(own) is not str or not 0 < len(own) <= LONGEST or type(row) not in ROWS:
            return None
        ids.append(own)
        rows.append(row)
    return ids, rows


def _plain_table(table: object, prefix: str) -> tuple[list[str], list[Row | None] | Written] | None:
    """Ids and features of a table."""
    if type(table) is not dict or not table.keys() <= {"ids", "names", "rows"}:
        return None
    ids, names, rows = table.get("ids"), table.get("names", []), table.get("rows", [])
    if not ids or not _texts(ids) or not _texts(names) or type(rows) is not list or len(rows) > MOST:
        return None
    return (ids, _written(ids, names, rows, prefix)) if set(map(type, rows)) <= {list} else None


def _texts(values: object) -> bool:
    return (
        type(values) is list
        and len(values) <= MOST
        and {*map(type, values)} <= {str}
        and {*map(bool, values)} <= {True}
        and max(map(len, values), default=0) <= LONGEST
    )


def _asked(request: RankRequest, prefix: str = "") -> AskedRanking:
    """A request that was checked."""
    if request.documents:
        ids = [document.id for document in request.documents]
        texts = [document.text for document in request.documents]
        features = [document.features for document in request.documents]
        return AskedRanking(request, ids, features, prefix, texts if any(map(_is_said, texts)) else ())
    table = request.table
    return AskedRanking(request, table.ids, _written(table.ids, table.names, table.rows, prefix), prefix)


def _is_said(text: str | None) -> bool:
    return text is not None


def _written(
    ids: Sequence[str], names: Sequence[str], rows: Sequence[Sequence[object]], prefix: str
) -> list[Row | None] | Written:
    """The features of a table, whose rows are as many and as long as they must be; none where it has no rows."""
    if not rows and not names:
        return [None] * len(ids)
    if (at := repeated(names)) is not None:
        raise BadRequest(f"two columns are called {names[at][:80]!r}", f"{prefix}table.names.{at}")
    if len(rows) != len(ids):
        raise BadRequest(f"{len(ids):,} ids, and {len(rows):,} rows", f"{prefix}table.rows")
    width = len(names) or len(rows[0])
    if {*map(len, rows)} != {width}:
        wrong = next(at for at, row in enumerate(rows) if len(row) != width)
        told = f"{len(rows[wrong]):,} values, and {width:,} columns"
        raise BadRequest(told, f"{prefix}table.rows.{wrong}")
    return Written(names, rows)
