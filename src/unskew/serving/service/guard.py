"""Around every request: an id, who may ask, how much is held at once, and afterwards a line of the log and counts.

A plain ASGI layer. Errors that nobody foresaw become a 500 that says nothing of the inside; the log has the rest.

A page of another site may have its name point at this machine, and then ask in the browser's name. So where no
token is asked for, a request over loopback must name the server as localhost or by a number.
"""

import hashlib
import hmac
import ipaddress
import logging
import re
import time
import uuid
from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unskew.serving.requests.bodies import BadRequest
from unskew.serving.service.description import OPEN
from unskew.serving.service.server import is_loopback
from unskew.serving.settings import Limits
from unskew.serving.telemetry import LOGGER, Metrics, log_event

PROBES = ("/healthz", "/readyz")
"""Paths that tell nothing, to whoever asks."""
GONE = 499
"""In the log, the status of who went away before the answer."""
ID = re.compile(rb"[\x21-\x7e]{1,128}")
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Of every answer."""


def secret(token: bytes) -> bytes:
    """What is compared in the place of a token: of one length, whatever the token's."""
    return hashlib.sha256(token).digest()


def heads(scope: Scope, name: bytes) -> list[bytes]:
    """The values of all headers of this name."""
    return [value for key, value in scope["headers"] if key == name]


@lru_cache(1024)
def is_own(host: bytes) -> bool:
    """Whether a Host header is a name that nobody else can have point here.

    >>> is_own(b"localhost:8000"), is_own(b"127.0.0.1"), is_own(b"[::1]:80"), is_own(b"evil.example:8000")
    (True, True, True, False)
    """
    name = host.decode("latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


class Guard:
    """The layer around the application that every request passes first and every answer last."""

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, paths: frozenset[str], token: str | None, limits: Limits
    ) -> None:
        self.app, self.metrics, self.paths, self.limits = app, metrics, paths, limits
        self.secret = None if token is None else secret(token.encode())
        self.held = 0
        """Bytes of bodies that are being answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, given = time.perf_counter(), b"".join(heads(scope, b"x-request-id"))
        trace = given.decode() if ID.fullmatch(given) else uuid.uuid4().hex
        facts: dict[str, Any] = {}
        scope.setdefault("state", {})["facts"] = facts
        status = held = 0

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", trace.encode()), *HEADERS]
            await send(message)

        async def heard() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            held, self.held = held + size, self.held + size
            if self.held > self.limits.held:
                raise BadRequest("too many large requests are being answered; ask again", status=503)
            return message

        with self.metrics.open.track_inprogress():
            try:
                if refused := self.refusal(scope):
                    await plain(told, *refused)
                else:
                    await self.app(scope, heard, told)
            except ClientDisconnect:
                status = status or GONE
            except Exception:
                LOGGER.exception("failed", extra={"facts": {"trace_id": trace}})
                if not status:
                    await plain(told, 500, f"failed; the log has it under {trace}")
            finally:
                self.held -= held
        self.count(scope, status, time.perf_counter() - began, trace, facts)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is not even looked at, where it is not."""
        if self.secret is None:
            if scope["path"] in PROBES or not is_loopback((scope.get("server") or ("",))[0]):
                return None
            hosts = heads(scope, b"host")
            told = "ask this server as localhost or by its number; one with a token (--token-file) takes any name"
            return None if len(hosts) == 1 and is_own(hosts[0]) else (421, told)
        if scope["path"] in OPEN:
            return None
        given = heads(scope, b"authorization")
        kind, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        right = hmac.compare_digest(secret(token.strip()), self.secret)
        return (
            None if right and kind.lower() == b"bearer" else (401, "bring the token: Authorization: Bearer TOKEN")
        )

    def count(self, scope: Scope, status: int, seconds: float, trace: str, facts: Mapping[str, Any]) -> None:
        """Count a request, and log it."""
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        self.metrics.documents.inc(facts.get("documents", 0))
        quiet = path in ("/healthz", "/readyz", "/metrics") and status < 400
        log_event(
            "request",
            logging.DEBUG if quiet else logging.INFO,
            trace_id=trace,
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            ms=round(1000 * seconds, 3),
            **facts,
        )


async def plain(send: Send, status: int, error: str) -> None:
    """An answer without the framework."""
    body = orjson.dumps({"error": error, "where": None})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(b"www-authenticate", b"Bearer")] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def page_policy(page: str) -> str:
    """What a page may do: run its own script, in its own style, and ask this server; no other site may frame it.

    >>> page_policy("<script>1</script>").split("; ")[1]
    "script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='"
    """
    kinds = {}
    for kind in ("script", "style"):
        parts = re.findall(f"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        hashes = [b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts]
        kinds[kind] = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    own = f"default-src 'none'; script-src {kinds['script']}; style-src {kinds['style']}; img-src data:"
    return f"{own}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
