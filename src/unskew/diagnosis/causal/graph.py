"""A causal graph of relevance, presentation and click: checked, drawn as DOT, kept as JSON.

Three tiers of prior knowledge, of "Whole Page Unbiased Learning to Ranking": `relevance` comes first, then what
the page shows, then the `click`. No edge runs back, and relevance always causes the click. A graph that breaks
this cannot be made.

Between two things that the page shows, tests may leave the direction open, or contradict each other. Such edges
are undirected here. Where parents are needed, `resolved` gives them a direction: from the variable that is named
first to the other, or the other way round where that would close a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar

from unskew.errors import ConfigError, DataError
from unskew.results import Result

RELEVANCE, CLICK, POSITION = "relevance", "click", "position"


@dataclass(frozen=True)
class Edge(Result):
    """A cause and its effect, or two variables of which either may be the cause."""

    cause: str
    effect: str
    directed: bool = True
    p: float | None = None
    """Largest p-value of the independence tests that the edge survived; None where none was made."""
    frequency: float | None = None
    """Share of the repetitions that found this edge; None without repetitions."""
    absent: ClassVar = ("p", "frequency")

    @property
    def pair(self) -> frozenset[str]:
        """The two variables that the edge joins, whichever causes the other."""
        return frozenset((self.cause, self.effect))

    def __str__(self) -> str:
        return f"{self.cause} {'->' if self.directed else '--'} {self.effect}"


def tier(name: str) -> int:
    """0 for relevance, 1 for what the page shows, 2 for the click."""
    return {RELEVANCE: 0, CLICK: 2}.get(name, 1)


@dataclass(frozen=True)
class CausalGraph(Result):
    """Variables and the edges between them."""

    variables: tuple[str, ...]
    """In the order of their tiers."""
    edges: tuple[Edge, ...]
    notes: tuple[str, ...] = ()
    """What was left out, merged, or could not be decided."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it was found: test, alpha, impressions, repetitions."""

    def __post_init__(self) -> None:
        for edge in self.edges:
            for end in edge.pair - set(self.variables):
                raise ConfigError(f"graph: {edge} names {end}, which is not among {', '.join(self.variables)}")
            if len(edge.pair) < 2 or tier(edge.cause) > tier(edge.effect):
                raise ConfigError(f"graph: {edge} is forbidden: relevance comes before the page, then the click")
            if not edge.directed and tier(edge.cause) != tier(edge.effect):
                raise ConfigError(f"graph: {edge} needs a direction")
        if len({edge.pair for edge in self.edges}) < len(self.edges):
            raise ConfigError("graph: two edges join the same variables")
        if {RELEVANCE, CLICK} <= set(self.variables) and not self.has(RELEVANCE, CLICK):
            raise ConfigError("graph: relevance -> click is required")
        circle = closes_circle([(edge.cause, edge.effect) for edge in self.edges if edge.directed])
        if circle:
            raise ConfigError(f"graph: {circle} causes itself")

    @property
    def shown(self) -> tuple[str, ...]:
        """The variables that the page shows, such as rank and media type: neither relevance nor the click."""
        return tuple(name for name in self.variables if tier(name) == 1)

    def has(self, cause: str, effect: str) -> bool:
        """Whether this directed edge is there."""
        return any(e.directed and (e.cause, e.effect) == (cause, effect) for e in self.edges)

    def parents(self, name: str) -> tuple[str, ...]:
        """Direct causes of a variable in the resolved graph, in the order of the variables."""
        causes = {edge.cause for edge in self.resolved().edges if edge.effect == name}
        return tuple(other for other in self.variables if other in causes)

    def confounded(self) -> tuple[str, ...]:
        """What the page shows that relevance causes and that causes clicks."""
        return tuple(x for x in self.shown if self.has(RELEVANCE, x) and self.has(x, CLICK))

    def resolved(self) -> CausalGraph:
        """The same with a direction for every edge, as the head of this file says."""
        known = [(edge.cause, edge.effect) for edge in self.edges if edge.directed]
        edges = []
        for edge in self.edges:
            way = edge.cause, edge.effect
            if not edge.directed:
                first, second = sorted(edge.pair, key=self.variables.index)
                way = (first, second) if not closes_circle([*known, (first, second)]) else (second, first)
                known.append(way)
            edges.append(replace(edge, cause=way[0], effect=way[1], directed=True))
        return replace(self, edges=tuple(edges))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CausalGraph:
        """The graph that `to_dict` was called on."""
        try:
            edges = tuple(Edge(**edge) for edge in content["edges"])
            return cls(tuple(content["variables"]), edges, tuple(content["notes"]), dict(content["facts"]))
        except (KeyError, TypeError) as error:
            hint = "write one with unskew causes LOG --out"
            raise DataError(f"not a causal graph: {error}", hint=hint) from None

    def dot(self) -> str:
        """The graph in the language of Graphviz, with frequencies where there are any."""
        quoted = {name: '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in self.variables}
        lines = [f"  {name};" for name in quoted.values()]
        for edge in self.edges:
            looks = [] if edge.directed else ["dir=none"]
            looks += [] if edge.frequency is None else [f'label="{edge.frequency:.2f}"']
            ends = f"{quoted[edge.cause]} -> {quoted[edge.effect]}"
            lines.append(f"  {ends} [{', '.join(looks)}];" if looks else f"  {ends};")
        return "\n".join(["digraph causes {", "  rankdir=LR;", *lines, "}", ""])


def graph_of(variables: Sequence[str], edges: Iterable[tuple[str, str]]) -> CausalGraph:
    """A graph by hand: its directed edges, to which relevance -> click is added.

    >>> str(graph_of(["relevance", "position", "click"], [("position", "click")]).edges[0])
    'position -> click'
    """
    given = dict.fromkeys(edges)
    if {RELEVANCE, CLICK} <= set(variables):
        given[RELEVANCE, CLICK] = None
    return CausalGraph(in_tiers(variables), tuple(Edge(*edge) for edge in given))


def full_graph(variables: Sequence[str]) -> CausalGraph:
    """relevance -> x -> click for every x of the page."""
    page = [name for name in variables if tier(name) == 1]
    return graph_of(variables, [edge for x in page for edge in ((RELEVANCE, x), (x, CLICK))])


def in_tiers(variables: Iterable[str]) -> tuple[str, ...]:
    """The variables by tier, each tier as given."""
    return tuple(sorted(dict.fromkeys(variables), key=tier))


def closes_circle(edges: Sequence[tuple[str, str]]) -> str | None:
    """A variable on a circle of directed edges; None where there is none."""
    order = TopologicalSorter[str]()
    for cause, effect in edges:
        order.add(effect, cause)
    try:
        order.prepare()
    except CycleError as error:
        return str(min(error.args[1]))
    return None
