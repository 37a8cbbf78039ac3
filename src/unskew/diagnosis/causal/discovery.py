"""Find the causal graph of a page in a sample of its impressions: the PC algorithm under three tiers.

P. Spirtes, C. Glymour and R. Scheines, "Causation, Prediction, and Search", 2000 (PC); K. Zhang et al.,
"Kernel-based conditional independence test and application in causal discovery", UAI 2011 (KCI); as in "Whole
Page Unbiased Learning to Ranking". The algorithm and the tests are those of causal-learn.

    tests    both     gsq; where it would part two and has cut numbers for it, kci of some impressions too
             kci      kernels, for any kind of variable; from thin factors (`kernels`)
             rcit     the same with random features, for more impressions than kci takes
             fastkci  kernels in blocks
             gsq      counts, numbers cut into four parts; for discrete data

The sample is bounded and seeded, and drawn on the engine by a hash of page, rank and seed; the log is never in
memory. As tests of the click want as many clicked impressions as others, clicked ones are taken beyond the sample.

What the tiers decide is not tested. A test may not condition on what comes after both of its variables: that
cannot separate them, and costs time. Relevance and click are never tested, as the edge between them is required,
nor two variables again that one test has parted. Tests of the click are made on impressions of which half are
clicked, where there are as many: that says more, and the click depends on the same variables there. A test that
cannot be computed counts as dependence, and is noted; so does what is left when no further test is allowed. PC
begins with all edges and takes some away, so that a search cut short leaves causes too many, never too few, and
the same ones on any machine.

Differences from the paper: edges across tiers get the direction of the tiers whatever the tests say of it.
Repetitions take other impressions, not the same ones again, which a kernel takes for dependence.
"""

from __future__ import annotations

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
COUNTED, KERNEL = 10_000, 1_000
"""Impressions that are counted, and those that kernels are made of, unless told."""


class Discovery(Config):
    """How a causal graph is looked for."""

    test: Literal["both", "kci", "rcit", "fastkci", "gsq"] = "both"
    """The test of independence."""
    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """An edge goes where a test of independence has a larger p-value."""
    sample: Annotated[int, Field(ge=50)] | None = None
    """Impressions to test on; none: 10,000 for tests that count, 1,000 for kernels."""
    repeats: Annotated[int, Field(ge=0)] = 0
    """Repetitions on other impressions, which say how often each edge is found."""
    tests: Annotated[int, Field(ge=0)] | None = 2000
    """Tests of a graph at most; past them the edges that are left stay. None for no limit."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the sample, and of tests that draw."""

    @property
    def size(self) -> int:
        """Impressions to test on."""
        return self.sample or (COUNTED if self.test in ("both", "gsq") else KERNEL)

    @property
    def pool(self) -> int:
        """Impressions to draw samples from: those of one, or where there are repetitions of several."""
        return self.size * (1 + min(self.repeats, 9))


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
    if asked.test == "kci" and asked.size > LARGEST_KERNEL:
        what = (f"kci takes {LARGEST_KERNEL} impressions at most; use ", Option("test", "both"))
        raise ConfigError(what, argument="sample", value=asked.size)
    rng = np.random.default_rng([asked.seed, 5])
    first = one_graph(*pool.samples(asked.size, rng), asked)
    there = int((~pool.extra).sum())
    size = min(asked.size, max(there // 2, FEWEST))  # half of all where there are no others
    graphs = [one_graph(*pool.samples(size, rng), asked) for _ in range(asked.repeats)]
    facts = {"test": asked.test, "alpha": asked.alpha, "impressions": min(asked.size, there)}
    facts |= {"tests": first.facts["tests"], "repeats": len(graphs), "seed": asked.seed}
    return replace(first, edges=with_frequencies(first.edges, graphs), facts=facts)


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


def one_graph(plain: Variables, half: Variables, asked: Discovery) -> CausalGraph:
    """The graph of two samples: of all impressions, and of impressions of which half are clicked."""
    names, causal = plain.names, library()
    tests = TieredTests((plain, half), asked)
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
    notes = (*plain.notes, *dict.fromkeys(tests.notes))
    return CausalGraph(names, edges, notes, {"tests": tests.made})


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


class TieredTests:
    """Independence tests of one sample, each made once; what the tiers decide is not tested."""

    def __init__(self, samples: tuple[Variables, Variables], asked: Discovery) -> None:
        """Over a sample of all impressions and one of which half are clicked."""
        self.names, self.asked, self.made = samples[0].names, asked, 0
        self.parted = set[frozenset[str]]()
        self.weakest: dict[frozenset[str], float] = {}
        self.notes: list[str] = []
        self._known = dict[tuple[int, ...], float]()
        count = asked.test in ("both", "gsq")
        kind = "gsq" if count else asked.test
        data = [each.codes if count else each.values for each in samples]
        self._of_page, self._of_click = (library().test(list(each.values()), kind) for each in data)
        self._kernels, self._cut = list[Any](), set[int]()  # the latter: variables that codes say less of
        if asked.test == "both":
            few = [
                each.take(np.linspace(0, len(each) - 1, min(KERNEL, len(each))).astype(int)) for each in samples
            ]
            self._kernels = [library().test(list(each.values.values()), "kci") for each in few]
            whole = zip(samples[0].values.values(), samples[0].codes.values(), strict=True)
            self._cut = {at for at, (v, c) in enumerate(whole) if len(np.unique(v, axis=0)) > len(np.unique(c))}

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
            if self.made == self.asked.tests:
                self.notes.append(f"no more than {self.made} tests were made: edges that were left stay")
                return 0.0
            self.made += 1
            self._known[key] = self._compute(x, y, given)
        self.weakest[pair] = max(self.weakest.get(pair, 0.0), self._known[key])
        if self._known[key] > self.asked.alpha:
            self.parted.add(pair)
        return self._known[key]

    def _compute(self, x: int, y: int, given: tuple[int, ...]) -> float:
        of_click = CLICK in (self.names[x], self.names[y])
        p = float((self._of_click if of_click else self._of_page)(x, y, given))
        if self._kernels and not p <= self.asked.alpha and self._cut & {x, y, *given}:
            p = float(np.fmin(p, self._kernels[of_click](x, y, given)))
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
