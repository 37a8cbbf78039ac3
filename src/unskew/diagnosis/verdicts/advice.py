"""What to do next: in words, and as a command to paste."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from unskew.diagnosis.curves.trust import LEAST_CLICKS, TrustFit
from unskew.diagnosis.evidence.links import RankGraph
from unskew.diagnosis.evidence.tables import ONE_RANK


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
    columns: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, log: object, features: object = None, columns: Mapping[str, str] | None = None) -> Place:
        """Paths as they were given; usual names where something was in memory."""
        given = features if isinstance(features, list | tuple) else [features]
        paths = tuple(str(each) for each in given if isinstance(each, str | Path))
        named = str(log) if isinstance(log, str | Path) else cls.log
        return cls(named, paths or cls.features, dict(columns or {}))

    def command(self, verb: str, *words: str) -> str:
        """A command on the log."""
        named = [word for ours, theirs in self.columns.items() for word in ("--column", f"{ours}={theirs}")]
        return shlex.join(["unskew", verb, self.log, *words, *named])

    def learn(self, method: str, *words: str, factors: Sequence[str] = ()) -> str:
        """A command that learns a ranker from the log."""
        given = [word for path in self.features for word in ("--features", path)]
        named = [word for name in factors for word in ("--factor", name)]
        return self.command("learn", *given, "--method", method, *named, *words)

    def shuffle(self, text: str) -> NextStep:
        """More pages, some of them shuffled: `plan` says how many, of what share, and what they would tell."""
        return NextStep(text, self.command("plan", "--shares", "0,0.01,0.05"))

    def looks(self, text: str) -> NextStep:
        """A diagnosis that tells results by another column."""
        return NextStep(text, self.command("diagnose", "--segment", "device"))

    def whole_pages(self) -> NextStep:
        """What a log of one rank lacks."""
        text = "log every result of a page with its rank: one rank alone has nothing to compare"
        return NextStep(text, "unskew ingest raw.csv --out whole_pages")


LOOKS = "log what pages look like in columns named serp_..., or name columns that tell: a device, a kind of query"


def swaps_of(graph: RankGraph, place: Place) -> NextStep:
    """Which swaps, or how many pages would tell, and how well."""
    if graph.ranks < 2:
        return place.whole_pages()
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
        return place.whole_pages()
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
