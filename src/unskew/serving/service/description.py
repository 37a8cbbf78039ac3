"""What the service says of itself: its models, each with a request that it answers, and `/openapi.json`.

Bodies are read by hand, so the framework knows nothing of them: here they get their schema, with the limits of
this server, an example and the token. Who has no token may read this, so where one is asked for the example is not
that of a model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from unskew.learning.scoring.scorer import Scorer
from unskew.serving.requests.bodies import ModelAnswer
from unskew.serving.requests.parsing import TENSORS
from unskew.serving.scoring.models import Models
from unskew.serving.settings import Limits
from unskew.tables.features.encoding import NumberField

DOCUMENTS = {
    "a": "about something else",
    "b": "an answer to the question",
    "c": "what everybody clicks",
    "d": "a short one",
}
"""Of an example, with what they say."""
BOUNDS = {name: name for name in ("documents", "requests", "clicks")} | dict.fromkeys(("ids", "rows"), "documents")
"""Lists of bodies, and the limits that hold for them."""
OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no token; all but these do."""


def example_request(scorer: Scorer) -> dict[str, Any]:
    """A body for `POST /v1/rank`: a few documents with the features that the model takes."""
    documents: list[dict[str, object]] = []
    for at, (name, text) in enumerate(DOCUMENTS.items()):
        said = {"id": name, "text": text} if scorer.reads else {"id": name}
        documents.append(said | ({"features": _features(scorer, at)} if scorer.features else {}))
    return {"query": "a question", "documents": documents}


def _features(scorer: Scorer, document: int) -> dict[str, object] | list[float]:
    fields = () if scorer.card.encoding is None else scorer.card.encoding.fields
    steps = (0.2, 0.7, 0.4, 0.9)  # of each feature another for each document
    if not fields:
        return [steps[(document + at) % len(steps)] for at in range(scorer.features)]
    found: dict[str, object] = {}
    for at, field in enumerate(fields):
        if isinstance(field, NumberField):
            step = steps[(document + at) % len(steps)]
            found[field.name] = float(f"{field.mean + (2 * step - 1) * field.spread:.3g}")
        else:  # the frequent values in turn
            found[field.name] = field.values[(document + at) % len(field.values)] if field.values else None
    return found


def listed(models: Models, shadows: Sequence[str]) -> list[ModelAnswer]:
    """The models that are served."""
    return [
        ModelAnswer(
            name=name,
            version=(served := model.current).version,
            engine=served.engine,
            method=str(served.card.method["name"]),
            ranker=None if served.card.ranker is None else str(served.card.ranker["name"]),
            features=served.features,
            names=None if served.names is None else list(served.names),
            example=example_request(served) | {"model": name},
            shadow=name in shadows,
            trouble=None if model.trouble is None else "the newest folder cannot be served; see the log",
        )
        for name, model in models.items()
    ]


def describe(
    app: FastAPI,
    bodies: Mapping[str, type[BaseModel]],
    limits: Limits,
    *,
    locked: bool,
    example: Mapping[str, Any],
) -> None:
    """Have an application describe itself so; `bodies` are those of its paths, `example` one of /v1/rank."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            whole = plain()
            for path, kind in bodies.items():
                schema = _bounded(kind.model_json_schema(), limits)
                if not locked and path.startswith("/v1/rank"):
                    schema["examples"] = [example] if path == "/v1/rank" else [{"requests": [example]}]
                content: dict[str, Any] = {"application/json": {"schema": schema}}
                if path == "/v1/rank":
                    content[TENSORS] = {"schema": {"type": "string", "format": "binary"}}
                whole["paths"][path]["post"]["requestBody"] = {"required": True, "content": content}
            if locked:
                whole["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                for path, methods in whole["paths"].items():
                    for each in methods.values():
                        each["security"] = [] if path in OPEN else [{"token": []}]
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _bounded(schema: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """A schema with its parts in their places, and the lengths of its lists as the server has them."""
    parts = schema.pop("$defs", {})

    def put(node: Any, name: str = "") -> Any:
        if isinstance(node, list):
            return [put(value) for value in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return put(parts[node["$ref"].rpartition("/")[2]], name)
        found = {key: value if key == "examples" else put(value, key) for key, value in node.items()}
        if name in BOUNDS and "maxItems" in found:
            found["maxItems"] = getattr(limits, BOUNDS[name])
        return found

    return dict(put(schema))
