"""Find the causal graph of a page in a sample of its impressions: the PC algorithm under three tiers.

P. Spirtes, C. Glymour and R. Scheines, "Causation, Prediction, and Search", 2000 (PC); K. Zhang et al.,
"Kernel-based conditional independence test and application in causal discovery", UAI 2011 (KCI); as in "Whole
Page Unbiased Learning to Ranking". The algorithm and the tests are those of causal-learn.

    tests    kci      kernels, for any kind of variable; from thin factors (`kernels`)
             rcit     the same with random features, for more impressions than kci takes
             fastkci  kernels in blocks
             gsq      counts, numbers cut into four parts; for discrete data

The sample is bounded and seeded, and drawn on the engine by a hash of page, rank and seed; the log is never in
memory. As tests of the click want as many clicked impressions as others, clicked ones are taken beyond the sample.

What the tiers decide is not tested. A test may not condition on what comes after both of its variables: that
cannot separate them, and costs time. Relevance and click are never tested, as the edge between them is required,
nor two variables again that one test has parted. Tests of the click are made on impressions of which half are
clicked, where there are as many: that says more, and the click depends on the same variables there. A test that
cannot be computed counts as dependence, and is noted.

Differences from the paper: edges across tiers get the direction of the tiers whatever the tests say of it.
Repetitions take other impressions, not the same ones again, which a kernel takes for dependence.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from unskew.diagnosis.causal.graph import CLICK, RELEVANCE, CausalGraph, Edge, closes_circle, tier
from unskew.diagnosis.causal.variables import FEWEST, Variables, variables_of
from unskew.errors import ConfigError, DataError, MissingExtra, Option
from unskew.logs.presentation import as_arrow
from unskew.names import REQUIRED
from unskew.settings import Config, require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table
from unskew.tables.schema import check_values, to_array, whole_numbers
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
    extra: Array  # [N] bool: impressions that are there for their click, and not in samples of all impressions

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
        what = (f"kci takes {LARGEST_KERNEL} impressions at most; use ", Option("test", "rcit"))
        raise ConfigError(what, argument="sample", value=asked.sample)
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
    found = []
    for edge in edges if graphs else ():
        having = [
            graph.has(edge.cause, edge.effect) if edge.directed else edge.pair in {e.pair for e in graph.edges}
            for graph in graphs
        ]
        found.append(replace(edge, frequency=sum(having) / len(graphs)))
    return tuple(found) or edges


def one_graph(plain: Variables, half: Variables, asked: Discovery, end: float | None) -> CausalGraph:
    """The graph of two samples: of all impressions, and of impressions of which half are clicked."""
    names, causal = plain.names, library()
    tests = TieredTests((plain, half), asked, end)
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
        edges = [replace(edge, directed=tier(edge.cause) != tier(edge.effect)) for edge in edges]
    return tuple(edges)


# ---- tests ----


class TooSlow(DataError):
    """Causal discovery did not end in its time."""


class TieredTests:
    """Independence tests of one sample, each made once; what the tiers decide is not tested."""

    def __init__(self, samples: tuple[Variables, Variables], asked: Discovery, end: float | None) -> None:
        """Over a sample of all impressions and one of which half are clicked; no test begins after `end`."""
        self.names, self.asked, self.end = samples[0].names, asked, end
        self.parted = set[frozenset[str]]()
        self.weakest: dict[frozenset[str], float] = {}
        self.notes: list[str] = []
        self._known = dict[tuple[int, ...], float]()
        data = [each.codes if asked.test == "gsq" else each.values for each in samples]
        self._of_page, self._of_click = (library().test(list(each.values()), asked.test) for each in data)

    def tiers(self) -> Any:
        """Prior knowledge as causal-learn takes it."""
        knowledge = library().knowledge()
        for number, name in enumerate(self.names):
            knowledge.add_node_to_tier(library().node(f"X{number}"), tier(name))
        return knowledge

    def p_value(self, x: int, y: int, given: tuple[int, ...]) -> float:
        """P-value of the independence of two variables given others; 0 where there is nothing to ask."""
        one, other = self.names[x], self.names[y]
        latest, pair = max(tier(one), tier(other)), frozenset((one, other))
        if (
            pair in self.parted
            or {one, other} == {RELEVANCE, CLICK}
            or any(tier(self.names[z]) > latest for z in given)
        ):
            return 0.0
        key = (*sorted((int(x), int(y))), -1, *sorted(int(z) for z in given))
        if key not in self._known:
            if self.end is not None and time.monotonic() > self.end:
                raise TooSlow(
                    f"causes were not found in {self.asked.seconds:g} seconds, after {len(self._known)} tests",
                    hint=("give a smaller ", Option("sample"), ", fewer columns, or more ", Option("seconds")),
                )
            self._known[key] = self._compute(x, y, given)
        self.weakest[pair] = max(self.weakest.get(pair, 0.0), self._known[key])
        if self._known[key] > self.asked.alpha:
            self.parted.add(pair)
        return self._known[key]

    def _compute(self, x: int, y: int, given: tuple[int, ...]) -> float:
        test = self._of_click if CLICK in (self.names[x], self.names[y]) else self._of_page
        p = float(test(x, y, given))
        if np.isnan(p):
            rest = f" given {', '.join(self.names[z] for z in given)}" if given else ""
            self.notes.append(f"{self.names[x]} and {self.names[y]}{rest} could not be tested: taken as dependent")
            return 0.0
        return p


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Tests that draw from NumPy's global state draw the same each time, in this process, and leave no trace."""
    import joblib  # type: ignore[import-untyped]

    before = np.random.get_state()
    np.random.seed(seed)
    try:
        with joblib.parallel_config(backend="sequential"):
            yield
    finally:
        np.random.set_state(before)


def library() -> Any:
    """What is needed of causal-learn, or the line that installs it."""
    try:
        from unskew.diagnosis.causal import library as found
    except ModuleNotFoundError as error:
        raise MissingExtra("causal", "causal-learn") from error
    return found


# ---- samples ----


KEY = "unskew_key"
PREFIX = "serp_"


def sample_table(
    engine: Engine, log: Table, columns: Sequence[str], size: int, *, seed: int, place: Path | str
) -> tuple[Any, Array]:
    """So many impressions as an Arrow table of the required and these columns, and half as many clicked ones.

    The flags [N] are true for impressions that are there for their click alone.
    """
    require_columns([*REQUIRED, *columns], log.columns, path=place)
    wanted = log.select(*dict.fromkeys((*REQUIRED, *columns)))
    text = wanted["page_id"].cast("string") + "|" + wanted["position"].cast("string") + f"|{seed}"
    keyed = wanted.mutate(**{KEY: text.hash()}).order_by(KEY)
    clicked = keyed.filter(keyed["click"].cast("int64") == 1)
    plain, more = engine.to_arrow(keyed.limit(size)), engine.to_arrow(clicked.limit(size // 2))
    if not len(plain):
        raise DataError("the log has no impressions", path=place)
    import pyarrow as pa

    new = ~np.isin(to_array(more[KEY]), to_array(plain[KEY]))
    joined = pa.concat_tables([plain, more.filter(pa.array(new))]).drop_columns([KEY])
    check_values(whole_numbers(joined, "position", place), whole_numbers(joined, "click", place), place)
    return joined, np.arange(len(joined)) >= len(plain)


def shown_columns(present: Sequence[str], asked: Sequence[str] | None) -> list[str]:
    """The columns to look for causes in: those asked for, or all that say how a result looks."""
    found = [name for name in present if name.startswith(PREFIX)]
    return found if asked is None else [name for name in dict.fromkeys(asked) if name != "position"]


def to_columns(table: Any, names: Sequence[str]) -> dict[str, Array]:
    """Columns of an Arrow table as arrays, missing values as None."""
    found = {name: to_array(table[name].combine_chunks()) for name in names}
    for name, column in found.items():
        as_arrow(name, column)  # text, booleans or numbers, or an error that says so
    return found
