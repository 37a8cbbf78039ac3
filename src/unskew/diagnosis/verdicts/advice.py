"""What to do next: in words, as a command to paste, and by methods whose assumptions hold on a log."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.curves.trust import LEAST_CLICKS, TrustFit
from unskew.diagnosis.evidence.evidence import Evidence
from unskew.diagnosis.evidence.links import RankGraph
from unskew.diagnosis.evidence.tables import ONE_RANK
from unskew.names import NO_NAMES, Names
from unskew.settings import listed


@dataclass(frozen=True)
class NextStep:
    """Something to do."""

    text: str
    command: str = ""
    """To paste; nothing where there is nothing to do."""


@dataclass(frozen=True)
class Place:
    """How commands name the log that was diagnosed, and the features of its documents."""

    log: str = "log.parquet"
    features: tuple[str, ...] = ("features.parquet",)
    names: Names = field(default_factory=Names)

    @classmethod
    def of(cls, log: object, features: object = None, names: Names = NO_NAMES) -> Place:
        """Paths as they were given; usual names where something was in memory."""
        given = features if isinstance(features, list | tuple) else [features]
        paths = tuple(str(each) for each in given if isinstance(each, str | Path))
        named = str(log) if isinstance(log, str | Path) else cls.log
        return cls(named, paths or cls.features, names)

    def command(self, verb: str, *words: str) -> str:
        """A command on the log."""
        named = [word for ours, theirs in self.names.items() for word in ("--column", f"{ours}={theirs}")]
        return shlex.join(["unskew", verb, self.log, *words, *named])

    def learn(self, method: str, *words: str, factors: Sequence[str] = ()) -> str:
        """A command that learns a ranker from the log."""
        given = [word for path in self.features for word in ("--features", path)]
        named = [word for name in factors for word in ("--factor", name)]
        return self.command("learn", *given, "--method", method, *named, *words)

    def shuffle(self, text: str) -> NextStep:
        """More pages, some of them shuffled: `plan` says how many, of what share, and what they would tell."""
        return NextStep(text, self.command("plan", "--shares", "0,0.01,0.05"))


WHOLE_PAGES = NextStep(
    "log every result of a page with its rank: one rank alone has nothing to compare",
    "unskew ingest raw.csv --out whole_pages",
)
"""What a log of one rank lacks."""
LOOKS = "log what pages look like in columns named serp_..., or name columns that tell: a device, a kind of query"


def swaps_of(graph: RankGraph, place: Place) -> NextStep:
    """Which swaps, or how many pages would tell, and how well."""
    if graph.ranks < 2:
        return WHOLE_PAGES
    if graph.plan is None or not graph.plan.swaps:
        return place.shuffle("collect more pages of repeated queries, some of them shuffled")
    shuffled = graph.plan.shuffled_pages
    several = f", or shuffle {shuffled:,} pages" if shuffled else ""
    aim = f"examination of neighbouring ranks is then known within {graph.plan.precision:.0%}, one standard error"
    text = f"swap neighbouring results on {graph.plan.pages:,} pages as the plan says{several}: {aim}"
    return NextStep(text, "unskew serve runs/ranker --explore swaps --swap-plan diagnosis.json --log served")


def shuffle_some(found: TrustFit, place: Place) -> NextStep:
    """How many shuffled pages are the least that would tell of trust and documents."""
    if found.reason == found.documents_reason == ONE_RANK:
        return WHOLE_PAGES
    if not found.least_pages:
        return place.shuffle("collect clicks on repeated queries, some of them on shuffled pages")
    few = f"random slots need {LEAST_CLICKS} clicks"
    return place.shuffle(f"shuffle {about(found.least_pages)} pages or more: {few}")


def shuffle_more(shuffled: int, error: float, wanted: float, what: str, place: Place) -> NextStep:
    """How many pages would bring an error down; it falls with the root of their number."""
    times = (error / wanted) ** 2
    if times <= 1:
        return place.shuffle("collect more pages, some of them shuffled: this is near the line")
    aim = f"to tell {what} with a standard error of {wanted:g} (now {error:.2g})"
    if not shuffled:
        many = f"{times:.{0 if times >= 10 else 1}f}"
        return place.shuffle(f"collect {many} times as many pages, or shuffle some, {aim}")
    return place.shuffle(f"shuffle about {about((times - 1) * shuffled)} more pages {aim}")


def about(number: float) -> str:
    """A number of pages, rounded up to two digits that count.

    >>> about(12_345.6), about(6.2)
    ('13,000', '7')
    """
    unit = 10 ** max(len(str(ceil(number))) - 2, 0)
    return f"{ceil(number / unit) * unit:,}"


# ---- methods ----


HOLDS: Mapping[bool | None, str] = {True: "", False: "do not", None: "are not told"}
"""What is said of methods whose assumptions hold, do not, or are not told."""
SIMPLE = ("trust", "documents")
GROUPS = (
    (("naive",), ("position", *SIMPLE), "nothing but relevance decides over clicks"),
    (("ipw",), SIMPLE, "clicks are examination times relevance, and the curve of examination is known"),
    (
        ("dla", "regression_em", "additive", "pal"),
        SIMPLE,
        "clicks are examination by rank times relevance, and features do not tell the rank",
    ),
    (("affine", "tal"), ("documents",), "a slope and an offset by rank, for all documents"),
    (("vectorization", "lbd"), (), "several curves, or a curve by document"),
)
"""Methods, the biases that must be absent for them, and what they assume; other factors of the page besides."""
PEOPLE = "mixem"
TOWERS = "dla"
"""One of the methods that explain clicks by features and by rank."""
FACTORED = {"dla", "regression_em", "additive", "pal", "tal", "vectorization", "lbd"}
"""Methods that take further columns of the page as factors of bias."""
CORRECTING = {PEOPLE, *(name for names, _, _ in GROUPS[1:] for name in names)}
"""Methods that correct for the rank."""


@dataclass(frozen=True)
class Fitness:
    """A group of methods, and whether what they assume holds here."""

    methods: tuple[str, ...]
    holds: bool | None
    """None where the log cannot tell."""
    why: str
    """What they assume."""
    but_page: bool = False
    """Whether it holds but for other factors of the page, which are not told."""
    factors: tuple[str, ...] = ()
    """Columns that they must be given as factors."""

    @property
    def corrects(self) -> bool:
        """Whether methods with these assumptions correct for the rank."""
        return set(self.methods) <= CORRECTING


def fitness(
    state: Mapping[str, str],
    found: Evidence,
    columns: tuple[str, ...] = (),
    ordering: RankByFeatures | None = None,
) -> tuple[Fitness, ...]:
    """Whose assumptions hold, by the states of verdicts; `columns` of the page change clicks."""
    made = []
    for methods, absent, why in GROUPS:
        parts: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(methods, ())]
        if state["page"] == "present":
            factored = tuple(name for name in methods if name in FACTORED)
            parts = [(factored, columns), (tuple(name for name in methods if name not in FACTORED), ())]
        made += [_fitness(names, absent, why, state, factors) for names, factors in parts if names]
    people = None if state["people"] == "cannot tell" else state["people"] == "present"
    made.append(Fitness((PEOPLE,), people, "people of several kinds"))
    return tuple(_by_features(_by_links(each, found), ordering) for each in made)


def _fitness(
    methods: tuple[str, ...], absent: tuple[str, ...], why: str, state: Mapping[str, str], factors: tuple[str, ...]
) -> Fitness:
    """Methods for logs in which these biases are absent, and other factors of the page, unless they are named."""
    names = absent if factors else (*absent, "page")
    unknown = {name for name in names if state[name] == "cannot tell"}
    holds = False if "present" in {state[name] for name in names} else None if unknown else True
    nearly = holds is None and unknown == {"page"} and state["position"] != "cannot tell"
    said = f"{why}; with {listed(factors)} among their factors" if factors else why
    return Fitness(methods, holds, said, nearly, factors)


def _by_links(each: Fitness, found: Evidence) -> Fitness:
    """Where ranks are not linked, no log of its own says that a correction is right, and ipw has no curve."""
    if not each.corrects or found.linked:
        return each
    holds = False if "ipw" in each.methods else None if each.holds else each.holds
    return replace(each, holds=holds, but_page=False)


def _by_features(each: Fitness, ordering: RankByFeatures | None) -> Fitness:
    """Where features tell the rank, two towers would put relevance into the rank."""
    if TOWERS not in each.methods or ordering is None or not ordering.tells_rank:
        return each
    holds = None if len(ordering.linked) == 1 else False
    why = f"{each.why}; here {ordering.tells_rank}"
    return replace(each, holds=each.holds and holds, but_page=False, why=why)


def names_that(methods: Sequence[Fitness], holds: bool | None) -> list[str]:
    """Names of methods whose assumptions hold, do not, or are not told."""
    return [name for each in methods if each.holds is holds for name in each.methods]


def likely(methods: Sequence[Fitness]) -> list[str]:
    """Names of methods whose assumptions hold but for other factors of the page, which are not told."""
    return [name for each in methods if each.but_page for name in each.methods]


def learning(method: str, methods: Sequence[Fitness], found: Evidence, place: Place) -> str:
    """A command that learns by one of these methods, with the factors and the propensities that it takes here."""
    factors = next((each.factors for each in methods if method in each.methods), ())
    swaps = method == "ipw" and found.chosen == "swaps"
    return place.learn(method, *(("--set", "method.propensity=swaps") if swaps else ()), factors=factors)


def methods_said(methods: Sequence[Fitness]) -> str:
    """Whose assumptions hold here, in words; nothing where that is told of none.

    >>> methods_said((Fitness(("ipw",), True, ""), Fitness(("dla", "pal"), None, "")))
    'methods whose assumptions hold here: ipw; those of dla and pal are not told'
    """
    nearly = likely(methods)
    names = {holds: names_that(methods, holds) for holds in HOLDS}
    names[None] = [name for name in names[None] if name not in nearly]
    here = "methods whose assumptions hold here"
    said = [f"{here}: {listed(names[True])}"] if names[True] else []
    said += [f"{here} but for other factors of the page, which are not told: {listed(nearly)}"] if nearly else []
    rest = [f"those of {listed(names[holds])} {how}" for holds, how in HOLDS.items() if how and names[holds]]
    if not said:
        return f"no method's assumptions are known to hold here; {rest[0]}" if names[False] else ""
    return "; ".join([*said, *([", ".join(rest)] if rest else [])])
