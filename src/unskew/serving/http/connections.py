"""What a client may do with a connection: heads are small and in time, answers are taken, idle ones give way.

uvicorn ends a connection that is idle after an answer. Here also end

    a head that is too large, or not whole in time                         431, 408
    a body that goes on long after its request was answered                closed
    an answer that nobody takes                                            closed
    the connection that waits longest, where there are too many            closed; 503 where none waits

so that clients that are slow on purpose cannot keep the others out. Bodies are timed where they are read.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.events import TimerHandle
from collections.abc import Callable
from typing import Any, cast

import orjson
from fastapi import FastAPI
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from unskew.serving.http.bodies import WHOLE
from unskew.serving.settings import Limits


class Deadline:
    """What is done unless it is stopped in time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: TimerHandle | None = None

    def start(self, seconds: float, late: Callable[[], object]) -> None:
        """From now; one that runs goes on."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, late)

    def stop(self) -> None:
        """No longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection(HttpToolsProtocol):
    """A client's connection, within the limits of the application."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits: Limits = cast(FastAPI, config.loaded_app).state.limits
        self.since = self.loop.time()
        """When it last began or ended a request."""
        self._size, self._unread = 0, 0
        self._receiving, self._headed, self._refused = False, False, False
        self._open: list[RequestResponseCycle] = []
        self._incoming, self._outgoing = Deadline(self.loop), Deadline(self.loop)

    # what arrives

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there; its head is expected."""
        super().connection_made(transport)
        self._expect()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Bytes, of which the parser may make something."""
        if self._refused:  # read, so that the client comes to its answer
            return
        if not self._answering():
            self._expect()
        self._unread += len(data)
        super().data_received(data)
        if self._unread > self.limits.head and not self._refused:
            self._refuse(431, self._large())

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._receiving, self._headed, self._size = True, False, 0

    def on_url(self, url: bytes) -> None:
        """A part of its address."""
        self._grow(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer."""
        self._grow(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._headed, self.since = True, self.loop.time()
        self._settle()
        super().on_headers_complete()
        self._open = [*(each for each in self._open if not each.response_complete), self.cycle]

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._receiving = False
        self.scope["state"][WHOLE] = time.monotonic()
        self._settle()
        super().on_message_complete()

    # what leaves

    def on_response_complete(self) -> None:
        """It is answered; the rest of its body, or of the next head, may take its time but not for ever."""
        super().on_response_complete()
        self.since = self.loop.time()
        if self._receiving and not self._answering():
            self._expect()
        if self.transport.is_closing():
            self._leave()

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as it is written."""
        super().pause_writing()
        self._leave()

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._outgoing.stop()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing more was asked."""
        super().timeout_keep_alive_handler()
        self._leave()

    def send_400_response(self, msg: str) -> None:
        """What arrived is not HTTP, or too large."""
        if self._size > self.limits.head:
            self._refuse(431, self._large())
        else:
            self._refuse(400, msg.lower())

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is not offered; the request is answered as it is."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._incoming.stop()
        self._outgoing.stop()
        for each in self._open:  # uvicorn tells the last alone
            each.disconnected = not each.response_complete
        super().connection_lost(exc)

    # how long it may take

    def _answering(self) -> bool:
        """Whether a request is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect(self) -> None:
        """Something must be whole in time."""
        self._incoming.start(self.limits.seconds, self._late)

    def _settle(self) -> None:
        """It is."""
        self._unread = 0
        self._incoming.stop()

    def _late(self) -> None:
        """It is not."""
        self._incoming.stop()
        if self._receiving and self._headed:
            self.transport.abort()
        elif self._receiving or self._unread:
            self._refuse(408, f"the head of the request did not arrive within {self.limits.seconds:g} s")
        elif not self.transport.is_closing():
            self.transport.close()

    def _leave(self) -> None:
        """What is written must be taken in time."""
        self._outgoing.start(self.limits.taken, self.transport.abort)

    def _grow(self, size: int) -> None:
        """Count the head; an error here ends the request."""
        self._size += size
        if self._size > self.limits.head:
            raise ValueError(self._large())

    def _large(self) -> str:
        return f"the head of the request has more than {self.limits.head:,} bytes"

    def _make_room(self) -> None:
        """End the connection that waits longest for its client; where none waits, this one."""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        waiting = [each for each in others if not each._answering() or each._receiving]
        if waiting:
            longest = min(waiting, key=lambda each: (each._answering(), each.since))
            self.connections.discard(longest)
            longest.transport.abort()
        else:
            self._refuse(503, "too many connections; ask again")

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and close."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self._incoming.stop()
        self._unset_keepalive_if_required()
        body = orjson.dumps({"error": message, "where": None})
        head = (
            b"content-type: application/json\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        self.transport.write(STATUS_LINE[status] + head + body)
        if self._answering():
            self.transport.close()
        else:  # closed at once, what is still on its way would tear the answer from the client
            self.transport.write_eof()
        self._leave()


OPTIONS: dict[str, Any] = {
    "http": Connection,
    "ws": "none",
    "proxy_headers": False,  # who asks is not looked at
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "timeout_keep_alive": 30,
    "timeout_graceful_shutdown": 10,
    "timeout_worker_healthcheck": 10,  # a busy machine takes its time to start one
}
"""How uvicorn is run."""
