"""Bodies of requests, read by hand: no more than the limit, in no more than the time."""

from __future__ import annotations

import asyncio
import gc

import orjson
from fastapi import Request

from unskew.serving.requests.bodies import BadRequest
from unskew.serving.settings import Limits


async def read_body(request: Request, limits: Limits) -> object:
    """What the body of a request says, which is JSON."""
    if content_type(request) != "application/json":
        raise BadRequest("send JSON, with content-type: application/json", status=415)
    content = _parsed(await read_bytes(request, limits))
    refuse_many(content, limits)
    return content


def _parsed(raw: bytes) -> object:
    """What JSON says; millions of empty lists would have the collector look at them again and again."""
    paused = len(raw) > 2**20 and gc.isenabled()
    if paused:
        gc.disable()
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"not JSON: {error}", status=400) from error
    finally:
        if paused:
            gc.enable()


def content_type(request: Request) -> str:
    """What a request says of its body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_bytes(request: Request, limits: Limits) -> bytes:
    """The body of a request."""
    try:
        async with asyncio.timeout(limits.seconds):
            return await _bytes(request, limits.body)
    except TimeoutError as error:
        raise BadRequest(f"the body did not arrive within {limits.seconds:g} s", status=408) from error


def refuse_many(content: object, limits: Limits) -> None:
    """Refuse what is too much, before anything is made of it."""
    parts = content if isinstance(content, dict) else {}
    for name in ("documents", "requests", "clicks"):
        found, most = parts.get(name), getattr(limits, name)
        if isinstance(found, list) and len(found) > most:
            raise BadRequest(f"{len(found):,} {name}, at most {most:,} are taken at once", name, 413)
    if (found := _documents(parts)) > limits.documents:
        raise BadRequest(f"{found:,} documents, at most {limits.documents:,} are taken at once", "table", 413)
    requests = parts.get("requests")
    requests = requests if isinstance(requests, list) else []
    total = sum(_documents(each) for each in requests)
    if total > limits.batch:
        raise BadRequest(f"{total:,} documents, at most {limits.batch:,} are taken at once", "requests", 413)


def _documents(content: object) -> int:
    """How many documents a request has, by the look of it."""
    parts = content if isinstance(content, dict) else {}
    table = parts.get("table")
    ids = table.get("ids") if isinstance(table, dict) else None
    return sum(len(found) for found in (ids, parts.get("documents")) if isinstance(found, list))


async def _bytes(request: Request, most: int) -> bytes:
    """The body, as long as it is not too long."""
    told = BadRequest(f"the body has more than {most:,} bytes", status=413)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise told
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise told
        parts.append(part)
    return b"".join(parts)
