"""What `/openapi.json` says: bodies with the limits of this server, an example that it answers, and its token.

Bodies are read by hand, so the framework knows nothing of them. Who has no token may read this, so where one is
asked for the example is not that of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from unskew.serving.requests.parsing import TENSORS
from unskew.serving.settings import Limits

BOUNDS = {
    "documents": "documents",
    "requests": "requests",
    "clicks": "clicks",
    "ids": "documents",
    "rows": "documents",
}
"""Lists of bodies, and the limits that hold for them."""
OPEN = ("/", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no token; all but these do."""


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
                _lock(whole)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _lock(whole: dict[str, Any]) -> None:
    """Say that a token is needed, and where."""
    whole["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in whole["paths"].items():
        for each in methods.values():
            each["security"] = [] if path in OPEN else [{"token": []}]


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
