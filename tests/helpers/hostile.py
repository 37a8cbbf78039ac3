"""A server within the test process on a port of loopback, and clients that send bytes as they please."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import torch
import uvicorn

from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import Linear
from unskew.learning.scoring.model import build
from unskew.serving.scoring.models import Models
from unskew.serving.service.answers import Answering
from unskew.serving.service.app import make_app
from unskew.serving.service.guard import Guard
from unskew.serving.service.impressions import ImpressionLog
from unskew.serving.service.server import listen, uvicorn_options
from unskew.serving.settings import Limits, ServeSettings
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Columns, Lists

torch.set_num_threads(1)
Header = tuple[bytes, bytes]
GOOD = {
    "query": "shoes",
    "documents": [
        {"id": "a", "features": {"price": 1.5, "brand": "bolt"}},
        {"id": "b", "features": {"price": None, "brand": "new"}},
        {"id": "c", "features": {"price": 7, "brand": None}},
    ],
    "request_id": "good",
}
"""A request that is answered with 200, always the same way."""


def make_run(folder: Path) -> Path:
    """A run of a linear model over a number and a category."""
    values = np.array([[1.0, 2.0, 3.0, 9.0], [0, 1, 0, 1]], np.float32).T
    columns = Columns(("price", "brand"), {"brand": ("acme", "bolt")})
    raw = Lists(values, np.array([0, 4]), np.zeros(4, np.int16), np.array([1]), columns=columns)
    encoding = fit_encoding(raw)
    lists = encoding.apply(raw)
    torch.manual_seed(1)
    model = build(METHODS["naive"](), Linear(), fit_scaler("standard", lists), lists.dim, Context(positions=5))
    for weights in model.ranker.parameters():
        weights.data = torch.randn_like(weights)
    model.card = replace(model.card, encoding=encoding)
    model.save(folder, force=True)
    return folder


def app_of(folder: Path, impressions: ImpressionLog | None = None, **more: Any) -> Any:
    """The application over a run, with settings, and a log of pages if any."""
    models = Models.open({"main": folder})
    return make_app(Answering(models, ServeSettings(**more), impressions=impressions))


@dataclass
class Answer:
    """What came back."""

    status: int
    head: bytes
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A socket, and what was received on it."""

    def __init__(self, port: int, **options: int) -> None:
        self.socket = socket.socket()
        if "buffer" in options:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["buffer"])
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def send(self, content: bytes) -> Client:
        self.socket.sendall(content)
        return self

    def answer(self) -> Answer:
        """The next answer on the connection."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.file.readline()
            if not line:
                raise ConnectionError(f"ended after {head!r}")
            head += line
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        return Answer(int(head.split(b" ", 2)[1]), lower, self.file.read(length))

    def ended(self) -> bool:
        """Whether the server closes the connection; waits for it."""
        try:
            while self.file.read(65536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def post(content: bytes, *lines: bytes, path: bytes = b"/v1/rank") -> bytes:
    """A request as bytes."""
    head = [b"POST " + path + b" HTTP/1.1", b"host: localhost", b"content-type: application/json"]
    head += [*lines, b"content-length: %d" % len(content)]
    return b"\r\n".join(head) + b"\r\n\r\n" + content


@dataclass
class Server:
    """A server that runs."""

    port: int
    app: Any
    state: Any

    def connect(self, **options: int) -> Client:
        return Client(self.port, **options)

    def ask(self, content: bytes) -> Answer:
        """One request on a connection of its own."""
        with self.connect() as client:
            return client.send(content).answer()

    def good(self) -> Any:
        """The answer to the good request."""
        answer = self.ask(post(json.dumps(GOOD).encode()))
        assert answer.status == 200, answer
        return answer.json

    @property
    def guard(self) -> Any:
        """The layer around the application."""
        layer = self.app.middleware_stack
        while not isinstance(layer, Guard):
            layer = layer.app
        return layer

    def waits(self, done: Callable[[], bool]) -> bool:
        """Whether something happens within 20 seconds."""
        until = time.monotonic() + 20
        while not done() and time.monotonic() < until:
            time.sleep(0.01)
        return done()


@contextmanager
def running(folder: Path, **more: Any) -> Iterator[Server]:
    """A server over a run, with settings, in a thread."""
    app = app_of(folder, **more)
    options = uvicorn_options(app.state.limits) | {"timeout_graceful_shutdown": 1}
    with listen("127.0.0.1", 0) as heard:
        server = uvicorn.Server(uvicorn.Config(app, **options))
        port = heard.getsockname()[1]
        thread = threading.Thread(target=lambda: server.run(sockets=[heard]))
        thread.start()
        try:
            yield Server(port, app, server.server_state)
        finally:
            server.should_exit = True
            thread.join(20)


def small(**more: Any) -> Limits:
    """Limits that a test reaches soon."""
    return Limits(**{"seconds": 0.3, "connections": 20} | more)


class InProcess:
    """An application asked without a socket, as fast as it goes."""

    def __init__(self, app: Any) -> None:
        self.app, self.runner = app, asyncio.Runner()

    def __enter__(self) -> InProcess:
        self.life = self.app.router.lifespan_context(self.app)
        self.runner.run(self.life.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.run(self.life.__aexit__(None, None, None))
        self.runner.close()

    def ask(
        self,
        body: bytes,
        path: str = "/v1/rank",
        method: str = "POST",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """One request; JSON unless headers say otherwise."""
        own = [(b"host", b"localhost"), *(headers or [(b"content-type", b"application/json")])]
        return self.runner.run(self._asked(path, method, own, body))

    def good(self) -> Any:
        """The answer to the good request."""
        answer = self.ask(json.dumps(GOOD).encode())
        assert answer.status == 200, answer
        return answer.json

    async def _asked(self, path: str, method: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Answer:
        sent: list[dict[str, Any]] = []
        coming = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
            "state": {},
        }

        async def receive() -> dict[str, Any]:
            return coming.pop(0)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        head = b"".join(name + b": " + value + b"\r\n" for name, value in sent[0]["headers"])
        return Answer(sent[0]["status"], head.lower(), b"".join(each.get("body", b"") for each in sent[1:]))
