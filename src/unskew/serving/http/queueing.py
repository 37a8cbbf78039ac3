"""A few threads that score, and a bound on what waits for them: who comes too late is told so at once.

More threads would not score more: reading a request holds the interpreter, scoring holds a processor. A request
that is given up while it waits is never scored; one that is being scored keeps its thread until it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from unskew.serving.asking.requests import BadRequest
from unskew.serving.http.watching import Metrics
from unskew.serving.settings import Limits

Answer = TypeVar("Answer")


class ScoringQueue:
    """Work in the order in which it comes."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self._metrics = limits, metrics
        self._threads = ThreadPoolExecutor(limits.at_once, "scoring")
        self._lock, self._pending = Lock(), 0

    def refuse_if_full(self) -> None:
        """An error that says when to ask again, where as many wait as may."""
        if self._pending >= self.limits.at_once + self.limits.waiting:
            raise BadRequest(f"too busy: {self.limits.waiting:,} requests wait; ask again in a second", status=503)

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """What the work gives, once a thread has done it."""
        self.refuse_if_full()
        self._count(1)
        try:
            given = self._threads.submit(work)
        except RuntimeError as error:  # after the end
            self._count(-1)
            raise BadRequest("the server is ending", status=503) from error
        given.add_done_callback(self._done)
        return await asyncio.wrap_future(given)

    def close(self) -> None:
        """Wait for what is being scored; what waits is given up."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _done(self, _: Future[Answer]) -> None:
        self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._pending += more
            self._metrics.waiting.set(max(0, self._pending - self.limits.at_once))
