"""Whether the ordinals of a UBI log count from 0 or from 1: found out from the log, never assumed.

A click that names its document says where that document stood; its ordinal should say the same. Queries and
events come in any order and in different files, so pages and clicks are kept for a sample of query ids, chosen by
a hash: the same ids are kept on both sides, and the sample is thinned when it has grown too large.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from unskew.errors import DataError, Option

SAMPLE = 20_000
"""Pages, and clicks, that are kept at most."""
WIDEST = 200
"""Results of a page that are kept."""
ENOUGH = 100
"""Ordinals without a 0 that let a log count as counting from 1."""


class OrdinalBase:
    """Collects evidence, then decides."""

    def __init__(self) -> None:
        self._mask = 0
        self._pages: dict[str, Sequence[str]] = {}
        self._clicks: dict[str, set[tuple[str | None, int]]] = {}
        self._kept = 0
        self._lowest = 1 << 30
        self._ordinals = self._nameless = 0

    def page(self, page: str, hits: Sequence[str]) -> None:
        """The results of a query, in order."""
        if self._sampled(page) and len(hits) <= WIDEST:
            self._pages[page] = hits
            self._thin()

    def click(self, page: str, doc: str | None, ordinal: int | None) -> None:
        """A click, with what it says about its place."""
        if ordinal is None:
            return
        self._ordinals += 1
        self._nameless += doc is None
        self._lowest = min(self._lowest, ordinal)
        if self._sampled(page):
            clicks = self._clicks.setdefault(page, set())
            self._kept += (doc, ordinal) not in clicks
            clicks.add((doc, ordinal))
            self._thin()

    def decide(self) -> tuple[int | None, str]:
        """0 or 1 and why; None where nothing tells and nothing depends on it."""
        if not self._ordinals:
            return None, "clicks have no ordinals"
        zero, one = self._votes()
        if zero != one:
            base = int(one > zero)
            return base, f"ordinals count from {base}: so say {max(zero, one)} of {zero + one} clicks checked"
        if self._lowest == 0:
            return 0, "ordinals count from 0: there is an ordinal 0"
        if self._lowest == 1 and self._ordinals >= ENOUGH:
            return 1, f"ordinals count from 1: {self._ordinals} clicks, and none on ordinal 0"
        if self._nameless:
            raise DataError(
                f"{self._nameless} clicks have an ordinal and no object_id, and nothing in the log says whether "
                "ordinals count from 0 or from 1",
                hint=("say which, ", Option("positions_from")),
            )
        return None, "ordinals are not used: nothing says whether they count from 0 or from 1"

    def _votes(self) -> tuple[int, int]:
        """Clicks that fit counting from 0, and from 1, but not the other."""
        zero = one = 0
        for page, clicks in self._clicks.items():
            hits = self._pages.get(page)
            for doc, ordinal in clicks if hits is not None else ():
                if hits is None or (doc is not None and doc not in hits):
                    continue
                if doc is None:  # the first or the last place of a page exists in one way of counting only
                    zero += ordinal == 0
                    one += ordinal == len(hits)
                elif hits.count(doc) == 1:
                    zero += hits.index(doc) == ordinal
                    one += hits.index(doc) + 1 == ordinal
        return zero, one

    def _sampled(self, page: str) -> bool:
        return not zlib.crc32(page.encode()) & self._mask

    def _thin(self) -> None:
        while len(self._pages) > SAMPLE or self._kept > SAMPLE:
            self._mask = self._mask * 2 + 1
            self._pages = {key: hits for key, hits in self._pages.items() if self._sampled(key)}
            self._clicks = {key: clicks for key, clicks in self._clicks.items() if self._sampled(key)}
            self._kept = sum(len(clicks) for clicks in self._clicks.values())
            if self._mask > 1 << 30:  # one query id with endless clicks
                self._clicks, self._kept = {}, 0
