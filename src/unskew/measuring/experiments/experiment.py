"""What an experiment with people found, as a whole: what `unskew.experiment` returns."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.measuring.experiments.effects import MISMATCH, Effect, ShownPolicy
from unskew.measuring.experiments.interleaving import SignTest
from unskew.results import Result


@dataclass(frozen=True)
class Experiment(Result):
    """What an experiment found."""

    kind: str
    """A/B or interleaving."""
    metric: str
    cluster: str
    """The column whose values count once."""
    level: float
    detect: float
    """The relative difference that sample sizes are told for."""
    arms: tuple[ShownPolicy, ...]
    effects: tuple[Effect, ...]
    shares_p: float | None
    """Of the test that policies were shown as often as they should be; for interleaving, picked first as often."""
    sign: SignTest | None
    """Interleaving: who preferred which."""
    verdict: str
    """better, worse, cannot tell; of the only policy beside the control, or of the best of several."""
    sentence: str
    notes: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """Whether policies were shown as often as they should be."""
        return self.shares_p is None or self.shares_p >= MISMATCH
