"""Connections of a server, bounded by the files that its process may open: who is idle makes room for the next.

Without it clients that connect and say nothing take all of a small limit, and nobody else is let in.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from functools import lru_cache

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

OWN_FILES = 24
"""Files that a server opens beside those of its start and its connections: models, logs, a store."""


@lru_cache(1)
def most_connections() -> int:
    """Half of the files that are left: as many more may be accepted before the first are looked at."""
    opened = OWN_FILES
    with suppress(OSError):
        opened += len(os.listdir("/proc/self/fd"))
    return max((file_limit() - opened) // 2, 4)


def file_limit() -> int:
    """Files that this process may open, raised as far as the system lets it."""
    try:
        import resource
    except ImportError:  # a system without such a limit
        return 2**17
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if 0 <= hard < 2**17 else 2**17
    if 0 <= soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if 0 <= soft < 2**17 else 2**17


class Connection(HttpToolsProtocol):
    """A connection to a client."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it up, and end the one that is idle for longest where there are too many."""
        super().connection_made(transport)
        self.since = time.monotonic()
        if len(self.connections) > most_connections():
            idle = [each for each in self.connections if isinstance(each, Connection) and each.idle]
            min(idle, key=lambda each: each.since).transport.abort()

    @property
    def idle(self) -> bool:
        """Whether nothing is asked on it that is still to be answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Note when it was heard of last."""
        self.since = time.monotonic()
        super().data_received(data)
