"""What is asked and answered, as JSON: bodies of requests with their examples, and of answers.

Sizes that a server sets (`Limits`) are checked in `parsing.py`; those here hold always.
"""

from __future__ import annotations

from typing import Annotated, Any, Required

from pydantic import BaseModel, ConfigDict, Field, GetPydanticSchema, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError, core_schema
from typing_extensions import TypedDict

from unskew.errors import DataError

VALUE: dict[str, Any] = {"anyOf": [{"type": kind} for kind in ("number", "string", "boolean", "null")]}
VALUES: dict[str, Any] = {
    "anyOf": [
        {"type": "object", "additionalProperties": VALUE},
        {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        {"type": "null"},
    ]
}
"""Schema of features: by name, by place, or none where a store has them."""


def _only(*kinds: type, told: str) -> GetPydanticSchema:
    """Checks the type of a value and takes it as it is: a copy of all features would take longer than the rest."""
    schema = core_schema.is_instance_schema(kinds, cls_repr=told)
    return GetPydanticSchema(lambda *_: schema)


Features = Annotated[Any, _only(dict, list, type(None), told="an object or a list"), WithJsonSchema(VALUES)]
Values = Annotated[list[object], _only(list, told="a list"), WithJsonSchema({"type": "array", "items": VALUE})]
Name = Annotated[str, Field(min_length=1, max_length=512)]
EXAMPLE: dict[str, Any] = {
    "query": "red shoes",
    "documents": [
        {"id": "a", "features": {"price": 19.9, "brand": "acme"}},
        {"id": "b", "features": {"price": 25.0, "brand": None}},
    ],
    "why": True,
}
TABLE: dict[str, Any] = {
    "query": "red shoes",
    "table": {"ids": ["a", "b"], "names": ["price", "brand"], "rows": [[19.9, "acme"], [25.0, None]]},
}
CLICKED: dict[str, Any] = {"request_id": "7f3a", "id": "b", "dwell_time": 12.5}


class BadRequest(DataError):
    """A request that cannot be answered, with the place in it."""

    def __init__(self, message: str, where: str | None = None, status: int = 422) -> None:
        super().__init__(message)
        self.where, self.code = where, status


class Body(BaseModel):
    """Base of what is asked: strict, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class Document(TypedDict, total=False):
    """A candidate; as plain as it came, since there are many."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)  # type: ignore[misc]
    id: Required[Name]
    """Its id, which no other document of the request has."""
    features: Features
    """By name, or in the order of training where it had no names; null is missing. Left out: the store's."""
    text: Annotated[str | None, Field(max_length=1_000_000)]
    """What it says, title and abstract, for a model that reads."""


class NamedColumns(Body):
    """What rows and columns of features are called."""

    ids: list[Name] = Field(min_length=1)
    """Of the documents, in the order of rows and of today, which breaks ties."""
    names: list[Name] = Field(default_factory=list)
    """Of the columns; left out where the model's features have no names."""


class DocumentTable(NamedColumns):
    """Candidates as a table, which is shorter: what features are called is said once."""

    rows: list[Values] = Field(default_factory=list)
    """Of each document its features; null is missing. Left out: the store's."""


class RankHead(Body):
    """A request but for its documents."""

    query: str = Field("", max_length=10_000)
    """Its id, by which a store knows clicks; what it says, for a model that reads."""
    model: Name | None = None
    """Which of the server's models; the first unless given."""
    why: bool = False
    """Say what each feature adds to each score."""
    request_id: Name | None = None
    """Comes back, signed where the server signs, and names the page for clicks; drawn unless given."""
    results: int | None = Field(None, ge=1)
    """How many of the ranking are shown, so how many are logged; all unless given."""
    user: Name | None = None
    """Who asks, for the log; needed where what is explored goes by users."""
    position: list[Annotated[float, Field(ge=1, le=1e9, allow_inf_nan=False)] | None] | None = None
    """Rank that the engine gave each document, from 1, null where it gave none; left out: their order here."""
    engine_score: list[Annotated[float, Field(allow_inf_nan=False)] | None] | None = None
    """The engine's score of each document in the place of `position`: it ranks them, the highest first."""


class RankRequest(RankHead):
    """Documents to be ranked for a query: `documents`, or a `table` of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [EXAMPLE, TABLE],
            "oneOf": [{"required": ["documents"]}, {"required": ["table"]}],
        }
    )
    documents: list[Document] = Field(default_factory=list, min_length=1)
    """In the order of today, which breaks ties."""
    table: DocumentTable = Field(default_factory=lambda: DocumentTable.model_construct(ids=[], names=[], rows=[]))
    """The same as a table."""

    @model_validator(mode="after")
    def _one_of_both(self) -> RankRequest:
        if len({"documents", "table"} & self.model_fields_set) != 1:
            raise PydanticCustomError("one_of", "Give documents, or a table of them")
        return self


class TensorRequest(RankHead, NamedColumns):
    """A request whose features come as a matrix beside it: see `parsing.py`."""


class BatchRequest(Body):
    """Several requests, answered together or not at all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"requests": [EXAMPLE]}]})
    requests: list[RankRequest] = Field(min_length=1, max_length=10_000)


class Click(Body):
    """A click on a document that was shown."""

    request_id: Annotated[str, Field(min_length=1, max_length=600)]
    """Of the answer that showed it, where it may be signed."""
    id: Name
    """Of the document."""
    dwell_time: float | None = Field(None, ge=0, le=1e9, allow_inf_nan=False)
    """Seconds until the user came back, where known."""


class ClicksRequest(Body):
    """Clicks on what was shown."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"clicks": [CLICKED]}]})
    clicks: list[Click] = Field(min_length=1, max_length=10_000)


class ClicksAnswer(BaseModel):
    """Clicks that were written."""

    written: int
    refused: int | None = None
    """Those on pages that this server did not show, by its signature."""


class RankedDocument(BaseModel):
    """A document in its place."""

    id: str
    rank: int
    """From 1."""
    score: float
    was: int
    """Its place in the request, from 1."""
    why: dict[str, float] | None = None
    """What each feature adds to the score."""
    propensity: float | None = None
    """Chance of this document at this rank, where the order was explored and the server tells chances."""


class RankAnswer(BaseModel):
    """The order to show."""

    request_id: str
    model: str
    version: str
    """A hash of the model that answered."""
    ranking: list[RankedDocument]
    """Best first."""
    reasons: str | None = None
    """How `why` was found: shapley and weight x input alone add up to the score but for a constant."""
    policy: str | None = None
    """What explored the order, where something did and the server tells."""
    store: dict[str, str] | None = None
    """The generation of each part of the store, where it was looked into; all is of one moment."""
    logged: bool | None = None
    """Whether the page is in the log, where the server keeps one."""


class BatchAnswer(BaseModel):
    """An answer for each request, in their order."""

    answers: list[RankAnswer]


class ModelAnswer(BaseModel):
    """A model that is served."""

    name: str
    version: str
    engine: str
    method: str
    ranker: str | None
    features: int
    names: list[str] | None
    """Features that it takes, by name; null where they go by place."""
    example: dict[str, Any]
    """A request that it answers, of features as training saw them."""
    shadow: bool
    trouble: str | None = None
    """Why the newest folder was not taken up, where it was not."""


class ReadyAnswer(BaseModel):
    """Whether requests are answered."""

    status: str
    models: int
    """How many are loaded."""
    held_back: int
    """How many of them are not those of their folders, which could not be taken up; see `/v1/models`."""
    store: str | None
    """ok, or away: requests that need it are answered with 503. Null where there is none."""


class ErrorAnswer(BaseModel):
    """What is wrong, and where."""

    error: str
    where: str | None = None
