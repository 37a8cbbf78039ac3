"""Where a run stands against what was shown, by the clicks of held-out pages, or that they cannot tell.

The judge of `measuring/counterfactual` says it, as `unskew measure --log` does: shuffled pages decide where there
are any; without them two estimates must agree that assume different things. Where the same clicks chose the
weights, they flatter the run a little.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import Unproven
from unskew.measuring.counterfactual import ClickEvidence
from unskew.measuring.counterfactual.evidence import Answer
from unskew.types import Log
from unskew.workflows.inputs.lists import ScoresLists
from unskew.workflows.inputs.rankings import ModelRanking
from unskew.workflows.proofs.proof import prove
from unskew.workflows.runs.data import own_lists

CANNOT = "Against what was shown: cannot tell"


@dataclass(frozen=True)
class Standing:
    """A learned order beside the one shown."""

    verdict: Answer
    sentence: str
    """The verdict with its numbers, in words."""
    evidence: ClickEvidence | None = None
    """Every estimate that the verdict rests on; None where there was nothing to judge by."""
    tested: bool = False
    """Whether the clicks are those of a test log, which played no part in choosing weights."""
    queries: int = 0
    never_shown: float | None = None
    """Share of the documents of the held-out lists that no held-out page shows."""

    def to_dict(self) -> dict[str, Any]:
        """For metrics.json."""
        told = {name: value for name, value in vars(self).items() if name != "evidence"}
        return told | {"evidence": None if self.evidence is None else self.evidence.to_dict()}


def standing(scorer: ScoresLists, log: Log | None, *, tested: bool = False) -> Standing:
    """How the clicks of held-out pages judge a model; `tested` where they are those of a test log."""
    if log is None or not log.click.any():
        return Standing("cannot tell", f"{CANNOT}, no click was held out.", tested=tested)
    pages = log.take(log.sizes > 0)
    if int(pages.sizes.max()) < 2:
        return Standing("cannot tell", f"{CANNOT}, the held-out pages have one result each.", tested=tested)
    pages = own_lists(pages)
    found = prove(ModelRanking(scorer, "the run"), log=pages)
    missing = float(1 - len(np.unique(pages.row)) / len(pages.lists.features))
    queries = len(pages.lists)
    said = sentence(found, queries, missing, tested=tested)
    return Standing(found.verdict, said, found, tested=tested, queries=queries, never_shown=missing)


def sentence(found: ClickEvidence, queries: int, missing: float, *, tested: bool) -> str:
    """The verdict with its numbers, what it rests on, and what nobody can know."""
    kind = "test" if tested else "held-out"
    where = f"{kind} pages of {queries:,} quer{'y' if queries == 1 else 'ies'}"
    said = f"Against what was shown: {found.verdict}, by {where}. {found.sentence}"
    if missing >= 0.01:
        said += f" {missing:.0%} of the documents were never shown: clicks say nothing of them."
    return said


def warn_of_standing(found: Standing) -> None:
    """Say it where nobody reads metrics.json: that the run is worse, or that its pages cannot tell."""
    if found.evidence is not None and found.verdict != "better":
        warnings.warn(found.sentence, Unproven, stacklevel=4)  # the line that called `learn`
