"""Simulated people who are served one page after another, so that a loop of serving and learning can be tried.

The clicks are those of the behaviours of `unskew.simulate`; the pages are whatever somebody shows.
"""

from __future__ import annotations

import numpy as np

from unskew.errors import DataError
from unskew.simulation.behaviours.behaviour import Behaviour, Shown
from unskew.types import Array, Lists


class Visitors:
    """People with queries of labelled lists, each drawn with equal chances."""

    def __init__(self, lists: Lists, behaviour: Behaviour, *, seed: int = 0) -> None:
        self.lists, self.behaviour = lists, behaviour.prepare(lists)
        self._terms = self.behaviour.document_terms(lists)
        self._queries = np.flatnonzero(lists.sizes > 0)
        if not len(self._queries):
            raise DataError("no query has a document", path=lists.name, hint="give lists with documents")
        asking, clicking = np.random.SeedSequence(seed).spawn(2)
        self._asking, self._clicking = np.random.default_rng(asking), np.random.default_rng(clicking)

    def ask(self) -> int:
        """The next query, as an index."""
        return int(self._queries[self._asking.integers(len(self._queries))])

    def candidates(self, query: int) -> Array:
        """The rows of a query's documents."""
        return np.arange(self.lists.offsets[query], self.lists.offsets[query + 1])

    def click(self, rows: Array) -> Array:
        """What is clicked of a page that shows these rows, [K] bool."""
        labels = np.asarray(self.lists.labels)[rows]
        shown = Shown(self.lists, rows[None], labels[None], np.ones((1, len(rows)), bool), self._terms)
        clicks: Array = self.behaviour.draw(shown, self._clicking).clicks[0]
        return clicks
