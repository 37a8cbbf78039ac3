"""What a policy costs, before anybody is shown it.

With P(r at k) the chance of rank r at slot k and e_k how often slot k is looked at, a result of rank r keeps this
share of its clicks, and a page loses at most the largest loss of a result that a page begins with:

    kept_r = sum over k of P(r at k) e_k / e_r
    loss   = max over m of  1 - sum over r <= m of e_r kept_r / sum over r <= m of e_r

The maximum is over pages whose first m results are as good as each other and the rest good for nothing; where
clicks are examination times relevance and the model ranks by relevance, no page loses more. Where it does not, a
policy may gain. Examination is 1 / k unless given.

Plackett-Luce and team draft depend on what is ranked. They are taken at their most random: equal scores, and a
second ranking that is the first one turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unskew.serving.explore.policy import Policy
from unskew.serving.explore.team_draft import TeamDraft
from unskew.types import Array


@dataclass(frozen=True)
class PolicyCost:
    """The harm that a policy can do."""

    policy_id: str
    share: float
    """Of pages, those that take part."""
    furthest: int | None
    """Ranks that a result moves at most; None where a second model decides."""
    loss: float
    """Share of the clicks of a page that is lost at most, on average over all pages."""

    @property
    def sentence(self) -> str:
        """For people.

        >>> from unskew.serving.explore import BoundedShuffle
        >>> policy_cost(BoundedShuffle(share=0.05, cap=1)).sentence
        '5 % of pages take part, no result moves further than 1 rank, and at most 0.63 % of clicks are lost'
        """
        far = f"no result moves further than {self.furthest} rank{'' if self.furthest == 1 else 's'}"
        if self.furthest is None:
            far = "results move as far as the second model asks"
        part, loss = f"{100 * self.share:.3g} % of pages take part", f"{100 * self.loss:.2g} % of clicks are lost"
        return f"{part}, {far}, and at most {loss}"


def chance_matrix(
    policy: Policy, scores: Array | Sequence[float], other: Array | Sequence[int] | None = None
) -> Array:
    """P(rank r at slot k) over all pages, [K, K]; scores are those of ranks, best first.

    >>> from unskew.serving.explore import TopOne
    >>> chance_matrix(TopOne(share=0.5), [2.0, 1.0]).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    count = len(scores)
    chances, slots = np.zeros((count, count)), np.arange(count)
    ranked = policy.ranked(slots, scores, other)
    for shift in range(count):
        ranks = (slots + shift) % count
        chances[ranks, slots] = policy.chances(ranked, ranks)
    return chances


def policy_cost(policy: Policy, examination: Array | Sequence[float] | None = None) -> PolicyCost:
    """What a policy does to pages; `examination` by rank, [K], is 1 / k unless given.

    Pages have the results that take part, and as many more for team draft, which takes some from further down.
    """
    drafts = isinstance(policy, TeamDraft)
    ranks = policy.depth * (2 if drafts else 1)
    seen = 1 / np.arange(1.0, ranks + 1) if examination is None else np.asarray(examination, np.float64)
    slots = np.arange(len(seen))
    chances = chance_matrix(policy, np.zeros(len(seen)), slots[::-1])
    loss = 1 - np.cumsum(chances @ seen) / np.cumsum(seen)
    moves = np.abs(np.subtract.outer(slots, slots))[chances > 1e-12]
    furthest = None if drafts and policy.cap is None else int(moves.max(initial=0))
    return PolicyCost(policy.policy_id, policy.taking_part, furthest, float(loss.max(initial=0.0)))
