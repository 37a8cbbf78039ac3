"""Independence tests under three tiers, each made once; what the tiers decide is not tested.

A test may not condition on what comes after both of its variables: that cannot separate them, and costs time.
Relevance and click are never tested, as the edge between them is required, nor two variables again that one test
has parted. Tests of the click are made on impressions of which half are clicked, where there are as many: that
says more, and the click depends on the same variables there. A test that cannot be computed counts as
dependence, and is noted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unskew.diagnosis.causal.graph import CLICK, RELEVANCE, tier
from unskew.diagnosis.causal.variables import Variables
from unskew.errors import DataError, MissingExtra, Option


class TooSlow(DataError):
    """Causal discovery did not end in its time."""


class TieredTests:
    """Independence tests of one sample, each made once; what the tiers decide is not tested."""

    def __init__(
        self,
        samples: tuple[Variables, Variables],
        kind: str,
        *,
        alpha: float,
        seconds: float | None,
        end: float | None,
    ) -> None:
        """Over a sample of all impressions and one of which half are clicked; no test begins after `end`."""
        self.names, self.alpha, self.seconds, self.end = samples[0].names, alpha, seconds, end
        self.parted = set[frozenset[str]]()
        self.weakest: dict[frozenset[str], float] = {}
        self.notes: list[str] = []
        self._known = dict[tuple[int, ...], float]()
        counted = kind == "gsq"
        self._of_page, self._of_click = (
            library().test([(each.codes if counted else each.values)[name] for name in self.names], kind)
            for each in samples
        )

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
                    f"causes were not found in {self.seconds:g} seconds, after {len(self._known)} tests",
                    hint=("give a smaller ", Option("sample"), ", fewer columns, or more ", Option("seconds")),
                )
            self._known[key] = self._compute(x, y, given)
        self.weakest[pair] = max(self.weakest.get(pair, 0.0), self._known[key])
        if self._known[key] > self.alpha:
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
