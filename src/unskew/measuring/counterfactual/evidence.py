"""What estimates of a ranking's gain say: each by itself, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unskew.results import Result

Answer = Literal["better", "worse", "cannot tell"]
Metric = Literal["dcg", "clicks"]
Grounds = Literal["random", "shown", "examination", "display"]
"""What an estimate rests on: random slots, raw clicks, examination by rank, documents shown at several ranks."""


@dataclass(frozen=True)
class GainEstimate:
    """One estimate of what a ranking is worth, and of what it is held against, on the same clicks."""

    name: str
    assumes: str
    """What must be true for it to be right, in a sentence."""
    grounds: Grounds
    unit: str
    """What a value counts."""
    new: float | None = None
    other: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    """Of the difference."""
    effective: float | None = None
    """Effective sample size, (sum w)^2 / sum w^2 over what it weighs."""
    overlap: float | None = None
    """Share of the value that the log can speak of."""
    clusters: int = 0
    """Visits, queries or pages that have something to say."""
    pages: int = 0
    """Pages that it looks at."""
    reason: str = ""
    """Why there is no number, or no interval."""

    @property
    def relative(self) -> float | None:
        """The difference as a share of what it is held against."""
        if self.difference is None or not self.other:
            return None
        return self.difference / abs(self.other)

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies above or below 0, else 0."""
        if self.interval is None:
            return 0
        return int(self.interval[0] > 0) - int(self.interval[1] < 0)


@dataclass(frozen=True)
class ClickEvidence(Result):
    """What all estimates together say of a ranking against another."""

    estimates: tuple[GainEstimate, ...]
    verdict: Answer
    sentence: str
    agreement: str
    """Whether estimates that assume different things say the same, in a sentence."""
    decided_by: tuple[str, ...]
    """The estimates that the verdict rests on."""
    pages_needed: int | None
    """Shuffled pages that would decide a difference of this size; None where nothing says how large it is."""
    missing_overlap: float | None
    """Share of the ranking's first results that the pages did not show; None where nobody counted."""
    pages: int = 0
    level: float = 0.95

    def __getitem__(self, name: str) -> GainEstimate:
        """The estimate of this name."""
        return {one.name: one for one in self.estimates}[name]
