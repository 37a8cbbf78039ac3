"""Draw a click log: queries at random, pages from the logging ranker, clicks from a behaviour.

Legend: Q queries, S pages, K results of a page, N impressions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, TypedDict

import numpy as np
from pydantic import ConfigDict, SerializeAsAny, model_validator

from unskew.errors import ConfigError, DataError, Option
from unskew.options.logs import SimulationOptions
from unskew.simulation.behaviours.behaviour import Behaviour, Outcome, Shown
from unskew.simulation.logger import Logger, SvmLogger, logging_scores
from unskew.types import Array, Lists, Log

DRAWN_CELLS = 1_000_000
"""Impressions drawn at a time, padding included."""
PATIENCE = 200_000
"""Pages after which a simulation gives up that waits for clicks and finds next to none."""
SCARCE = 1e-4
"""Kept pages, or clicks, per drawn page that count as next to none."""


class SimulationKeywords(TypedDict, total=False):
    """The fields of `Simulation` but who clicks and who ranks, as keywords."""

    pages: int | None
    clicks: int | None
    randomized: float
    cutoff: int | None
    drop_clickless: bool
    truth: bool
    seed: int


class Simulation(SimulationOptions):
    """All that a simulated log depends on besides its lists."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    behaviour: SerializeAsAny[Behaviour]
    """How people click."""
    logger: SerializeAsAny[Logger] = SvmLogger()
    """What ranked the pages."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.pages is None) == (self.clicks is None):
            raise ValueError(("give ", Option("pages"), " or ", Option("clicks"), ", one of the two"))
        return self

    def draw(self, lists: Lists) -> Log:
        """Show the lists and log the clicks."""
        usual = None if self.behaviour.whole_list else 10
        cutoff = usual if self.cutoff is None else self.cutoff or None
        behaviour = self.behaviour.prepare(lists)
        table = lay_out(lists, logging_scores(lists, self.logger, self.seed), cutoff)
        table = replace(table, terms=behaviour.document_terms(lists))
        source = PageStream(table, behaviour, self.seed, self.randomized)
        parts = [flat(chunk, self.truth) for chunk in collect(source, self)]
        return assemble(lists, parts, with_randomized=self.randomized > 0)


def lay_out(lists: Lists, scores: Array, cutoff: int | None) -> Shown:
    """A page for each query: its list by descending score, ties in the order of the file, cut off.

    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 2, 3]), np.array([0, 4, 1]), np.array([7, 8]))
    >>> lay_out(lists, np.array([0.1, 0.9, 0.5]), 10).rows.tolist()
    [[1, 0], [2, -1]]
    """
    sizes = lists.sizes
    longest = int(sizes.max(initial=0))
    width = longest if cutoff is None else min(cutoff, longest)
    if width > np.iinfo(np.int16).max:
        raise ConfigError(
            f"a page of {width} results is longer than a log can hold; give a cutoff of at most 32767"
        )
    query = np.repeat(np.arange(len(lists)), sizes)
    order = np.lexsort((-scores, query))
    rank = np.arange(len(order)) - np.repeat(lists.offsets[:-1], sizes)
    kept = rank < width
    kind = np.int32 if len(order) < 2**31 else np.int64
    rows = np.full((len(lists), width), -1, kind)
    labels = np.zeros((len(lists), width), np.asarray(lists.labels).dtype)
    rows[query[kept], rank[kept]] = order[kept]
    labels[query[kept], rank[kept]] = lists.labels[order[kept]]
    return Shown(lists, rows, labels, rows >= 0)


@dataclass(frozen=True)
class Chunk:
    """Pages as drawn, padded."""

    query: Array  # [S] int64
    shuffled: Array  # [S] bool
    shown: Shown
    outcome: Outcome

    def take(self, pages: Array) -> Chunk:
        """Some of the pages."""
        shown, outcome = self.shown.take(pages), self.outcome.take(pages)
        return Chunk(self.query[pages], self.shuffled[pages], shown, outcome)


class PageStream:
    """An endless stream of pages that is the same however it is cut into chunks."""

    def __init__(self, table: Shown, behaviour: Behaviour, seed: int, randomized: float) -> None:
        self.table, self.behaviour, self.randomized = table, behaviour, randomized
        self.queries = np.flatnonzero(table.where.any(1))
        if not len(self.queries):
            raise DataError("no query has a document", path=table.lists.name, hint="give lists with documents")
        streams = np.random.SeedSequence(seed).spawn(4)
        self.query_rng, self.flag_rng, self.order_rng, self.click_rng = map(np.random.default_rng, streams)
        self.most = max(1, DRAWN_CELLS // int(table.rows.shape[1]))
        """Pages to draw at a time."""

    def draw(self, pages: int) -> Chunk:
        """The next pages, shown and clicked."""
        query = self.queries[self.query_rng.integers(len(self.queries), size=pages)]
        shuffled = np.zeros(pages, bool)
        if self.randomized > 0:
            shuffled = self.flag_rng.random(pages) < self.randomized
        shown = self.table.take(query)
        some = np.flatnonzero(shuffled)
        if len(some):
            keys = self.order_rng.random((len(some), shown.where.shape[1]))
            order = np.argsort(np.where(shown.where[some], keys, 2.0), axis=1)  # padding stays at the end
            for table in (shown.rows, shown.labels):
                table[some] = np.take_along_axis(table[some], order, axis=1)
        return Chunk(query, shuffled, shown, self.behaviour.draw(shown, self.click_rng))


def collect(source: PageStream, asked: Simulation) -> Iterator[Chunk]:
    """Pages until there are as many of them, or of clicks, as asked for; one empty chunk where that is none."""
    by_clicks, target = asked.pages is None, (asked.clicks if asked.pages is None else asked.pages) or 0
    reached = drawn = 0
    if not target:
        yield source.draw(0)
    while reached < target:
        missing = target - reached
        if not (by_clicks or asked.drop_clickless):
            chunk = source.draw(min(missing, source.most))
            reached += len(chunk.query)
            yield chunk
            continue
        # as many pages as are probably missing, with a little to spare
        rate = max(reached / drawn, 1e-3) if drawn else 1.0
        chunk = source.draw(min(int(1.05 * missing / rate) + 64, source.most))
        drawn += len(chunk.query)
        clicks = np.count_nonzero(chunk.outcome.clicks, axis=1)
        kept = np.flatnonzero(clicks > 0) if asked.drop_clickless else np.arange(len(clicks))
        counted = reached + np.cumsum(clicks[kept] if by_clicks else np.ones(len(kept), int))
        kept = kept[: int(np.searchsorted(counted, target)) + 1]
        reached = int(counted[len(kept) - 1]) if len(kept) else reached
        yield chunk.take(kept)
        if drawn >= PATIENCE and reached < min(target, drawn * SCARCE):  # it would draw for ever
            what = "clicks" if by_clicks else "pages with a click"
            raise DataError(
                f"{drawn} simulated pages gave {reached} {what} of the {target} asked for",
                path=source.table.lists.name,
                hint="use a behaviour that clicks more often, or ask for pages and keep those without clicks",
            )


def flat(chunk: Chunk, truth: bool) -> dict[str, Array]:
    """Pages without padding: [S] and [N] arrays of a log, and the truth where somebody asked for it.

    Where looks say of each slot whether it is `randomized`, that holds, and not what is said of the page.
    """
    where = chunk.shown.where
    full = bool(where.all())
    tables: dict[str, tuple[Array, Any]] = {
        "row": (chunk.shown.rows, np.int64),
        "position": (np.broadcast_to(np.arange(1, where.shape[1] + 1, dtype=np.int16), where.shape), np.int16),
        "click": (chunk.outcome.clicks, np.uint8),
    }
    tables |= {name: (column, column.dtype) for name, column in chunk.outcome.looks.items()}
    if truth:
        tables["true_examination"] = chunk.outcome.examination, np.float32
        tables["true_relevance"] = chunk.outcome.relevance, np.float32
    cells: dict[str, Array] = {
        name: (table.reshape(-1) if full else table[where]).astype(kind, copy=False)
        for name, (table, kind) in tables.items()
    }
    sizes = np.count_nonzero(where, axis=1)
    return {"query": chunk.query, "sizes": sizes, "randomized": np.repeat(chunk.shuffled, sizes)} | cells


def assemble(lists: Lists, parts: list[dict[str, Array]], *, with_randomized: bool) -> Log:
    """One log of all parts."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    randomized = joined.pop("randomized")
    return Log(
        lists=lists,
        offsets=np.concatenate([[0], np.cumsum(joined.pop("sizes"))]).astype(np.int64),
        query=joined.pop("query").astype(np.int64, copy=False),
        row=joined.pop("row"),
        position=joined.pop("position"),
        click=joined.pop("click"),
        randomized=randomized if with_randomized else None,
        columns=joined,
    )
