"""Where an answer is found: at once in the thread that reads and writes for all, or in a queue for a few others.

Handing a request to another thread and its answer back takes a tenth of a millisecond, and more where threads wait
for each other: much beside an answer of one millisecond, nothing beside one of twenty. How long a model takes for
a document is learned from its answers; until then they are found elsewhere.

More threads would not score more: reading a request holds the interpreter, scoring holds a processor. A request
that is given up while it waits is never scored; one that is being scored keeps its thread until it is done. Who
comes when too many wait, or when the server is behind, is told so at once.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.parsing import AskedRanking
from unskew.serving.settings import Limits
from unskew.serving.telemetry import Metrics

SHORT = 0.005
"""Seconds that all others may be kept waiting."""
FASTER, SLOWER = 0.5, 0.02
"""How much of the newest answer is believed: others on the machine make one slow, nothing makes one fast."""
Answer = TypeVar("Answer")
Kind = tuple[str | None, bool]
"""The model that is asked, and whether reasons are."""


class Pace:
    """How long answers take.

    >>> from unskew.serving.requests.parsing import read_request
    >>> asked = [read_request({"documents": [{"id": "a", "features": []}]})]
    >>> pace = Pace()
    >>> pace.is_short(asked), pace.run(asked, lambda: "answer"), pace.is_short(asked)
    (False, 'answer', True)
    """

    def __init__(self) -> None:
        self._seconds: dict[Kind, float] = {}

    def is_short(self, asked: Sequence[AskedRanking]) -> bool:
        """Whether an answer to these can be given at once."""
        return sum(self._seconds.get(_kind(each), math.inf) * len(each.ids) for each in asked) < SHORT

    def run(self, asked: Sequence[AskedRanking], work: Callable[[], Answer]) -> Answer:
        """What the work of an answer gives, which is timed where it is for one kind."""
        began = time.perf_counter()
        answer = work()
        kinds = {_kind(each) for each in asked}
        if len(kinds) == 1:
            (kind,) = kinds
            found = (time.perf_counter() - began) / sum(len(each.ids) for each in asked)
            known = self._seconds.get(kind, found)
            self._seconds[kind] = known + (FASTER if found < known else SLOWER) * (found - known)
        return answer


def _kind(asked: AskedRanking) -> Kind:
    return asked.head.model, asked.head.why


class ScoringQueue:
    """Work in the order in which it comes."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self._metrics = limits, metrics
        self.behind = 0.0
        """Seconds that what arrives now waits before it is looked at; `Upkeep` measures it."""
        self._threads = ThreadPoolExecutor(limits.at_once, "scoring")
        self._lock, self._pending = Lock(), 0

    def refuse_if_full(self) -> None:
        """An error that says when to ask again, where as many wait as may, or the server has to catch up."""
        if self.behind > self.limits.behind:
            raise BadRequest(f"too busy: {self.behind:.1f} s behind; ask again in a second", status=503)
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
        given.add_done_callback(lambda _: self._count(-1))
        return await asyncio.wrap_future(given)

    def close(self) -> None:
        """Wait for what is being scored; what waits is given up."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _count(self, more: int) -> None:
        with self._lock:
            self._pending += more
            self._metrics.waiting.set(max(0, self._pending - self.limits.at_once))
