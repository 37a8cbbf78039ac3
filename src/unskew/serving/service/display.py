"""What is shown of scored documents: their order, or one that a policy explored; and written down for learning.

Pages are written once all of a body are scored, so one that is refused leaves nothing in the log. Where a page
cannot be written nothing is explored: chance that no log knows of would cost quality and teach nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from unskew.errors import UnskewError
from unskew.serving.explore.policy import Decision, Policy, as_ranked
from unskew.serving.requests.bodies import Click
from unskew.serving.requests.parsing import AskedRanking
from unskew.serving.scoring.served import Served
from unskew.serving.service.impressions import ImpressionLog
from unskew.serving.telemetry import log_event
from unskew.types import Array


@dataclass
class Noted:
    """What the log of the server says of a request."""

    models: dict[str, str] = field(default_factory=dict)
    """Versions of the models that answered, by name."""
    documents: int = 0
    shadows: list[dict[str, Any]] = field(default_factory=list)
    """What models that are not shown would have shown, or their trouble."""
    logged: int = 0
    """Pages or clicks that were written where the next model learns from."""
    unlogged: int = 0
    """Those that could not be."""
    dropped: bool = False
    """Nobody waits for the answer any more, so it is not a page that was shown."""


@dataclass(frozen=True)
class Scored:
    """A request with the scores of its documents."""

    model: str
    served: Served
    request: AskedRanking
    request_id: str
    scores: Array
    """[n]"""
    other: Array | None = None
    """[n] by the model that it is interleaved with."""
    why: Array | None = None
    """[n, D]"""
    how: str | None = None


class ShownPage(NamedTuple):
    """A page."""

    decision: Decision
    logged: bool | None
    """Whether it was written down; None where there is no log."""


@dataclass(frozen=True)
class Showing:
    """How pages are made and where they are written."""

    policy: Policy | None = None
    impressions: ImpressionLog | None = None
    seed: int = 0
    against: str | None = None
    """The model that the first one is interleaved with; None unless the policy takes two."""

    def decide(self, scored: Sequence[Scored], facts: Noted) -> list[ShownPage]:
        """What each request is shown, written down."""
        made = [ShownPage(self._decision(each), None) for each in scored]
        if self.impressions is None or facts.dropped:
            return made
        return [self._written(each, one.decision, facts) for each, one in zip(scored, made, strict=True)]

    def _written(self, one: Scored, decision: Decision, facts: Noted) -> ShownPage:
        try:
            self._write(one, decision)
        except (UnskewError, OSError) as error:
            log_event("unlogged", logging.ERROR, request_id=one.request_id, error=str(error))
            facts.unlogged += 1
            return ShownPage(as_ranked(best_first(one.scores)), False)
        facts.logged += 1
        return ShownPage(decision, True)

    def write_clicks(self, clicks: Sequence[Click], facts: Noted) -> None:
        """Write clicks on pages that were shown, here or by another process."""
        assert self.impressions is not None
        for each in clicks:
            self.impressions.clicked(each.request_id, each.id, dwell_time=each.dwell_time)
            facts.logged += 1

    def _decision(self, one: Scored) -> Decision:
        if self.policy is None or (self.against is not None and one.other is None):
            return as_ranked(best_first(one.scores))
        other = None if one.other is None else best_first(one.other)
        return self.policy.rank(
            best_first(one.scores), one.scores, request_id=one.request_id, seed=self.seed, other=other
        )

    def _write(self, one: Scored, decision: Decision) -> None:
        assert self.impressions is not None
        asked = one.request.head
        self.impressions.shown(
            one.request_id,
            asked.query,
            one.request.ids,
            decision,
            results=asked.results,
            scores=one.scores,
            user_id=asked.user,
        )


def best_first(scores: Array) -> Array:
    """Documents by descending score, ties as they came.

    >>> best_first(np.array([1.0, 2.0, 2.0])).tolist()
    [1, 2, 0]
    """
    order: Array = np.argsort(-scores, kind="stable")
    return order
