"""Find the causal graph of a page in a sample of its impressions: the PC algorithm under three tiers.

P. Spirtes, C. Glymour and R. Scheines, "Causation, Prediction, and Search", 2000 (PC); K. Zhang et al.,
"Kernel-based conditional independence test and application in causal discovery", UAI 2011 (KCI); as in "Whole
Page Unbiased Learning to Ranking". The algorithm and the tests are those of causal-learn.

    tests    kci      kernels, for any kind of variable; from thin factors (`kernels`)
             rcit     the same with random features, for more impressions than kci takes
             fastkci  kernels in blocks
             gsq      counts, numbers cut into four parts; for discrete data

Differences from the paper: what is tested, and on which impressions, is in `independence`; edges across tiers
get the direction of the tiers whatever the tests say of it. Repetitions take other impressions, not the same
ones again, which a kernel takes for dependence.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from unskew.diagnosis.causal.graph import CLICK, CausalGraph, Edge, closes_circle, tier
from unskew.diagnosis.causal.independence import TieredTests, TooSlow, drawing_from, library
from unskew.diagnosis.causal.variables import FEWEST, Variables, variables_of
from unskew.errors import ConfigError, Option
from unskew.settings import Config
from unskew.types import Array

Edges = Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)]
"""Causes with their effects, as settings give them."""
LARGEST_KERNEL = 5_000
"""Impressions past which a kernel no longer fits."""


class Discovery(Config):
    """How a causal graph is looked for."""

    test: Literal["kci", "rcit", "fastkci", "gsq"] = "kci"
    """The test of independence."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """An edge goes where a test of independence has a larger p-value."""
    sample: Annotated[int, Field(ge=50)] = 1000
    """Impressions to test on."""
    repeats: Annotated[int, Field(ge=0)] = 0
    """Repetitions on other impressions, which say how often each edge is found."""
    seconds: Annotated[float, Field(gt=0)] | None = 300.0
    """Time limit; none for no limit."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the sample, and of tests that draw."""

    @property
    def pool(self) -> int:
        """Impressions to draw samples from: those of one, or where there are repetitions of several."""
        return self.sample * (1 + min(self.repeats, 9))


@dataclass(frozen=True)
class Pool:
    """Impressions to draw samples from."""

    variables: Variables
    extra: Array
    """[N] bool: impressions that are there for their click, and not in samples of all impressions."""

    @classmethod
    def of(cls, columns: Mapping[str, Array], extra: Array) -> Pool:
        """Of the columns of impressions [N]."""
        variables = variables_of(columns)
        return cls(variables, extra[variables.rows])

    def samples(self, size: int, rng: np.random.Generator) -> tuple[Variables, Variables]:
        """So many impressions, and so many of which half are clicked, or as many as there are."""
        order = rng.permutation(len(self.variables))
        plain, clicked = ~self.extra[order], self.variables.codes[CLICK][order] == 1
        some, others = order[clicked][: size // 2], order[plain & ~clicked][: size - size // 2]
        half = np.concatenate([some, others])
        return self.variables.take(order[plain][:size]), self.variables.take(half)


def discover(pool: Pool, asked: Discovery | None = None) -> CausalGraph:
    """The graph of a sample of the impressions, and how often others have each of its edges."""
    asked = asked or Discovery()
    if asked.test == "kci" and asked.sample > LARGEST_KERNEL:
        raise ConfigError(
            (f"kci takes {LARGEST_KERNEL} impressions at most; use ", Option("test", "rcit")),
            argument="sample",
            value=asked.sample,
        )
    rng = np.random.default_rng([asked.seed, 5])
    end = None if asked.seconds is None else time.monotonic() + asked.seconds
    first = one_graph(*pool.samples(asked.sample, rng), asked, end)
    notes, graphs = list(first.notes), list[CausalGraph]()
    there = int((~pool.extra).sum())
    size = min(asked.sample, max(there // 2, FEWEST))  # half of all where there are no others
    try:
        for _ in range(asked.repeats):
            graphs.append(one_graph(*pool.samples(size, rng), asked, end))
    except TooSlow:
        notes.append(f"{len(graphs)} of {asked.repeats} repetitions ended within {asked.seconds:g} seconds")
    facts = {"test": asked.test, "alpha": asked.alpha, "impressions": min(asked.sample, there)}
    facts |= {"repeats": len(graphs), "seed": asked.seed}
    edges = with_frequencies(first.edges, graphs)
    return replace(first, edges=edges, notes=tuple(notes), facts=facts)


def with_frequencies(edges: tuple[Edge, ...], graphs: list[CausalGraph]) -> tuple[Edge, ...]:
    """The edges, each with the share of the graphs that have it, in whatever direction where it has none."""
    if not graphs:
        return edges
    return tuple(
        replace(
            edge,
            frequency=sum(
                graph.has(edge.cause, edge.effect) if edge.directed else edge.pair in {e.pair for e in graph.edges}
                for graph in graphs
            )
            / len(graphs),
        )
        for edge in edges
    )


def one_graph(plain: Variables, half: Variables, asked: Discovery, end: float | None) -> CausalGraph:
    """The graph of two samples: of all impressions, and of impressions of which half are clicked."""
    names, causal = plain.names, library()
    tests = TieredTests((plain, half), asked.test, alpha=asked.alpha, seconds=asked.seconds, end=end)
    with drawing_from(asked.seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tests at the edge of their numbers; NaN is dealt with
        found = causal.pc(
            np.zeros((len(names), len(names))),  # the tests have the data
            alpha=asked.alpha,
            indep_test=causal.tiered,
            tests=tests,
            background_knowledge=tests.tiers(),
            show_progress=False,
            node_names=[f"X{number}" for number in range(len(names))],
        )
    edges = read_edges(found.G.graph, names, tests.weakest)
    return CausalGraph(names, edges, (*plain.notes, *dict.fromkeys(tests.notes)))


def read_edges(marks: Array, names: tuple[str, ...], weakest: dict[frozenset[str], float]) -> tuple[Edge, ...]:
    """Edges of a matrix of marks, [V, V]: marks[j, i] = 1 and marks[i, j] = -1 is i -> j.

    Tiers decide across tiers. Within one, what points both ways or lies on a circle has no direction.
    """
    edges = []
    for i, one in enumerate(names):
        for j in range(i + 1, len(names)):
            if not marks[i, j] and not marks[j, i]:
                continue
            p, other = weakest.get(frozenset((one, names[j]))), names[j]
            forward, back = marks[j, i] == 1 != marks[i, j], marks[i, j] == 1 != marks[j, i]
            if tier(one) < tier(other):
                forward, back = True, False
            ends = (other, one) if back else (one, other)
            edges.append(Edge(*ends, directed=bool(forward or back), p=p))
    if closes_circle([(edge.cause, edge.effect) for edge in edges if edge.directed]):
        edges = [
            edge if tier(edge.cause) != tier(edge.effect) else replace(edge, directed=False) for edge in edges
        ]
    return tuple(edges)
