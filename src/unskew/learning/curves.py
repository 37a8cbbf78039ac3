"""What a method learned of bias, by rank or by the values of another factor, under the name of what it is.

*Examination* is P(seen at k) / P(seen at 1) and nothing else. Where a model has odds, trust or ratios of losses
in its place, they come under their own names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EXAMINATION = "examination"
ODDS = "odds of a click"
RATE = "click rate of the bias tower alone"
ALPHA, BETA = "trust alpha (what relevance adds to clicks)", "trust beta (clicks without relevance)"
POSITION = "position"
"""The factor that every log has: the rank shown."""


@dataclass(frozen=True)
class Curve:
    """A number for every value of a bias factor.

    >>> Curve("examination", (1.0, 0.5)).label
    'examination relative to rank 1'
    >>> Curve("trust alpha", (0.5, 0.25), relative=False).label
    'trust alpha by rank'
    >>> Curve("examination", (1.0, 0.7), "device", ("desktop", "phone")).label
    'examination by device relative to desktop'
    """

    what: str
    values: tuple[float, ...]
    factor: str = POSITION
    names: tuple[str, ...] = ()
    """What each value is of; ranks from 1 where there are none."""
    relative: bool = True
    """Whether the first value is 1 and the others are relative to it."""

    @classmethod
    def of(
        cls,
        what: str,
        values: Iterable[float],
        factor: str = POSITION,
        names: Iterable[str] = (),
        *,
        relative: bool = True,
    ) -> Curve:
        """A curve of numbers rounded to six digits behind the point."""
        return cls(what, tuple(round(float(v), 6) for v in values), factor, tuple(names), relative)

    @property
    def label(self) -> str:
        """What the numbers are, in words."""
        if self.factor == POSITION:
            return f"{self.what} relative to rank 1" if self.relative else f"{self.what} by rank"
        return f"{self.what} by {self.factor}" + (f" relative to {self.names[0]}" if self.relative else "")

    def line(self, most: int = 12) -> str:
        """The first values in one line, with their names unless they are ranks; how many there are, if more.

        >>> Curve("examination", (1.0, 0.7), "device", ("desktop", "phone")).line()
        'desktop 1.000, phone 0.700'
        >>> Curve("examination", (1.0, 0.7, 0.5)).line(most=2)
        '1.000 0.700 (the first 2 of 3)'
        """
        numbers = [f"{value:.3f}" for value in self.values[:most]]
        more = f" (the first {most} of {len(self.values)})" if len(self.values) > most else ""
        if not self.names:
            return " ".join(numbers) + more
        named = (f"{name} {number}" for name, number in zip(self.names, numbers, strict=False))
        return ", ".join(named) + more


def trust_curves(alpha: Iterable[float], beta: Iterable[float]) -> tuple[Curve, Curve]:
    """Curves of a trust-bias model: click = alpha_k relevance + beta_k."""
    return Curve.of(ALPHA, alpha, relative=False), Curve.of(BETA, beta, relative=False)
