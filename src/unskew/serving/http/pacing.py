"""Which answers are short enough to be given at once, in the thread that reads and writes for all.

Handing a request to another thread and its answer back takes a tenth of a millisecond, and more where threads wait
for each other: much beside an answer of one millisecond, nothing beside one of twenty. How long a model takes for
a document is learned from its answers; until then they are given elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from unskew.serving.asking.taking import AskedRanking

SHORT = 0.005
"""Seconds that all others may be kept waiting."""
FASTER, SLOWER = 0.5, 0.02
"""How much of the newest answer is believed: others on the machine make one slow, nothing makes one fast."""
Answer = TypeVar("Answer")
Kind = tuple[str | None, bool]
"""The model that is asked, and whether reasons are."""


class Pace:
    """How long answers take.

    >>> from unskew.serving.asking.taking import read_request
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
