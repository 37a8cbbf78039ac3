"""A log of several policies on the engine: which pages or results each made, and what people did, by cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from unskew.errors import ConfigError, DataError, Option
from unskew.measuring.experiments.effects import Sums
from unskew.settings import did_you_mean, require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.joins import encode
from unskew.types import Array

METRICS: Mapping[str, str] = {
    "clicks": "clicks per page",
    "ctr": "clicks per result shown",
    "clicked": "share of pages with a click",
    "first-click": "1 / rank of the first click, 0 without one",
}
"""What an A/B log is judged by; or a column of numbers, added up page by page."""
MOST = 20
"""Policies that may be beside each other."""
BOTH = 0.9
"""Share of pages with both policies from which a log is taken to be interleaved."""
Kind = Literal["ab", "interleaved"]


@dataclass(frozen=True)
class PolicyPages:
    """A log with its policies, before anything is counted."""

    engine: Engine
    shown: Table
    by: str
    cluster: str
    metric: str
    place: str

    def __post_init__(self) -> None:
        hint = ("name the column of policies with ", Option("by"), ", or write one when pages are shown")
        require_columns([self.by], self.shown.columns, path=self.place, hint=hint)
        found = self.policies
        if not found:
            raise DataError(f"no row has a {self.by}", path=self.place, hint=hint)
        if len(found) == 1:
            what = f"all pages have the {self.by} {next(iter(found))}"
            raise DataError(what, path=self.place, hint="an experiment needs two policies; check filters")
        if len(found) > MOST:
            what = f"{self.by} has {len(found):,} values, and {MOST} policies are the most"
            raise DataError(what, path=self.place, hint=("name the column of policies with ", Option("by")))

    @cached_property
    def policies(self) -> dict[str, int]:
        """Rows of each policy, the most first; ties by name."""
        told = self.told
        rows = self.engine.rows(told.group_by("policy").agg(n=told.count()).limit(10_000))
        return {row["policy"]: row["n"] for row in sorted(rows, key=lambda row: (-row["n"], row["policy"]))}

    @cached_property
    def told(self) -> Table:
        """The rows that tell their policy, with it as text."""
        return self.shown.filter(self.shown[self.by].notnull()).mutate(policy=self.shown[self.by].cast("string"))

    @cached_property
    def pages(self) -> Table:
        """One row per page: first and last policy by name, cluster, results, y and n; counted once and kept."""
        shown = self.told
        y, n = self.value(shown)
        policy, cluster = shown.policy, shown[self.cluster].min()
        both = {"policy": policy.min(), "last": policy.max(), "results": shown.count()}
        return self.engine.keep(shown.group_by("page_id").agg(cluster=cluster, **both, y=y, n=n))

    def kind(self, asked: Kind | None = None) -> Kind:
        """Whether policies stand beside each other or are interleaved; what is neither is refused."""
        page: Any = self.pages
        some, changes = page.results > 1, page.policy != page.last
        found = self.engine.rows(page.agg(pages=some.sum(), mixed=changes.sum(), all=page.count()))[0]
        mixed, several = int(found["mixed"] or 0), int(found["pages"] or 0)
        if asked == "interleaved" or (not asked and mixed and len(self.policies) == 2 and mixed >= BOTH * several):
            return "interleaved"
        if not mixed:
            return "ab"
        raise DataError(
            f"{self.by} changes within {mixed:,} of {found['all']:,} pages: neither an A/B log, whose pages have "
            "one policy each, nor an interleaved one, whose pages have both of two",
            path=self.place,
            hint=(
                "repair or leave out those pages, or pass ",
                Option("kind", "interleaved"),
                " if results say whose they are",
            ),
        )

    def value(self, shown: Table) -> tuple[Any, Any]:
        """The sums of a metric and of what it is divided by, for each page, as aggregates."""
        clicked = shown.click > 0
        one = ibis.literal(1.0)
        if self.metric in METRICS:
            clicks = clicked.cast("float64").sum()
            return {
                "clicks": (clicks, one),
                "ctr": (clicks, shown.count().cast("float64")),
                "clicked": (clicked.any().cast("float64"), one),
                "first-click": ((1.0 / shown.position.min(where=clicked).cast("float64")).fill_null(0.0), one),
            }[self.metric]
        if self.metric not in shown.columns or not shown[self.metric].type().is_numeric():
            meant = did_you_mean(self.metric, [*METRICS, *shown.columns])
            what = f"neither a metric nor a column of numbers. {meant}"
            raise ConfigError(what, argument="metric", value=self.metric)
        return shown[self.metric].cast("float64").sum().fill_null(0.0), one

    def by_cluster(self) -> tuple[dict[str, Sums], int]:
        """What clusters did under each policy, and pages that tell no policy."""
        kept = self.pages
        filled = kept.mutate(cluster=_named(kept.cluster, kept.page_id))
        sums = filled.group_by(["cluster", "policy"]).agg(
            y=filled.y.sum(), n=filled.n.sum(), pages=filled.count().cast("float64")
        )
        rows, made = self.engine.to_arrow(sums), {}
        code, names = encode(rows["cluster"])
        policy = np.asarray(rows["policy"].to_pylist())
        for name in sorted(set(policy.tolist())):  # one entry for each cluster under every policy
            own = policy == name
            laid = {key: np.zeros(len(names)) for key in ("y", "n", "pages")}
            for key, column in laid.items():
                column[code[own]] = rows[key].to_numpy()[own]
            made[name] = Sums(**laid)
        lost = self.shown.filter(self.shown[self.by].isnull())
        return made, self.engine.count(lost.select("page_id").distinct())


def _named(cluster: Any, page: Any) -> Any:
    """Clusters as text; a page that tells none is one by itself."""
    return cluster.cast("string").fill_null(page.cast("string").concat("\x1f"))


def won_pages(pages: PolicyPages, other: str) -> tuple[dict[str, Array], float, tuple[Array, Array]]:
    """Wins and pages of each cluster, the other policy's share of the clicks, and how often it picked first."""
    shown = pages.told
    mine, clicked = shown.policy == other, shown.click > 0
    page = shown.group_by("page_id").agg(
        cluster=shown[pages.cluster].min(),
        own=(mine & clicked).cast("int64").sum(),
        all=clicked.cast("int64").sum(),
        first=shown.position.min(where=mine).fill_null(1 << 30) == shown.position.min(),
    )
    kept = pages.engine.keep(page)
    ahead = 2 * kept.own - kept.all
    won = ibis.cases((ahead > 0, 1.0), (ahead < 0, 0.0), else_=0.5)
    kept = kept.mutate(cluster=_named(kept.cluster, kept.page_id), won=won, first=kept["first"].cast("float64"))
    sums = kept.group_by("cluster").agg(
        y=kept.won.sum(), pages=kept.count().cast("float64"), first=kept["first"].sum(), own=kept.own.sum(),
        all=kept["all"].sum(),
    )  # fmt: skip
    rows = pages.engine.to_arrow(sums)
    laid = {name: np.asarray(rows[name].to_numpy(), np.float64) for name in ("y", "pages", "first", "own", "all")}
    if not laid["all"].any():
        raise DataError("no page has a click, so none was won", path=pages.place, hint="give pages with clicks")
    return laid, float(laid["own"].sum() / laid["all"].sum()), (laid["first"], laid["pages"])
