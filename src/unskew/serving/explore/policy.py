"""The contract of a policy: a ranking in, what is shown out, with the chance of every result at its slot.

Legend: K candidates, D results that take part, the first `depth` of them; rank r of the ranking and slot k of
the page count from 0 in arrays.

    propensity of slot k = P(slot k shows this result) = (1 - s) [r = k] + s P(r at k | the page takes part)

s is the share of the traffic that takes part. The chance is over all that the policy draws, for this request;
it is what `item-position` estimates take from the column `propensity`.

A slot is `randomized` where its result was drawn with equal chances, and where every slot of the page that is
marked has the same mix of results: clicks in marked slots are compared as they are. Other policies mark
nothing, and a log of theirs is read through documents that one query saw at several ranks, or through the
propensities.
"""

import hmac
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from unskew.errors import DataError
from unskew.settings import Config
from unskew.types import Array


@dataclass(frozen=True)
class Decision:
    """What one request is shown."""

    order: Array
    """[K] int, candidates from the first slot on."""
    propensity: Array
    """[K] float64, the chance that this slot shows this candidate."""
    randomized: Array
    """[K] bool, whether the slot was filled with equal chances."""
    policy_id: str
    team: tuple[str | None, ...] | None = None
    """[K], which ranking picked each result, where two were interleaved."""


@dataclass(frozen=True)
class RankedRequest:
    """The ranking of one request, as policies see it."""

    order: Array
    """[K] int, candidates best first."""
    logits: Array
    """[K] float64, scores in this order."""
    depth: int
    """D, results that take part."""
    other: Array | None
    """[K] int, ranks of `order` in the order of a second ranking."""


class DrawnPage(NamedTuple):
    """The order that was drawn for a page that takes part in the exploration."""

    ranks: Array
    """[K] int, the rank of what each slot shows."""
    randomized: int = 0
    """First slots that were filled with equal chances."""
    team: tuple[str | None, ...] | None = None


class Policy(Config, ABC):
    """How pages are changed on purpose; a frozen configuration, the same for the same request."""

    name: ClassVar[str]
    """What the policy is called in settings."""
    interleaves: ClassVar[bool] = False
    """Whether it takes a second ranking."""
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the traffic that takes part, 0 to 1."""
    depth: Annotated[int, Field(ge=1, le=100)] = 10
    """First results of the ranking that take part."""
    cap: Annotated[int, Field(ge=0)] | None = None
    """Ranks that a result moves at most, up or down; none is no limit."""

    @property
    def policy_id(self) -> str:
        """What the log calls this policy: its name and what differs from the usual.

        >>> from unskew.serving.explore import TopOne
        >>> TopOne(share=0.1, cap=3).policy_id
        'top_one(share=0.1,cap=3)'
        """
        said = self.model_dump(mode="json", exclude_defaults=True)
        inside = ",".join(f"{key}={said[key]}" for key in type(self).model_fields if key in said)
        return f"{self.name}({inside})" if inside else self.name

    def rank(
        self,
        order: Array | Sequence[int],
        scores: Array | Sequence[float],
        *,
        request_id: str,
        secret: bytes = b"",
        other: Array | Sequence[int] | None = None,
    ) -> Decision:
        """What a request is shown: `order` are candidates best first, `scores` those of candidates 0 to K - 1.

        The same request id and secret give the same page. Who lacks the secret cannot choose an id by its page;
        without one, ids must be none that callers choose. `other` is a second ranking of the same candidates, for
        policies that interleave.
        """
        ranked = self.ranked(order, scores, other)
        rng = request_rng(secret, self.policy_id, request_id)
        slots = np.arange(len(ranked.order))
        drawn = DrawnPage(slots)
        if rng.random() < self.share and len(slots) > 1:
            drawn = self.draw(ranked, rng)
        chance, order = self.chances(ranked, drawn.ranks), ranked.order[drawn.ranks]
        return Decision(order, chance, slots < drawn.randomized, self.policy_id, drawn.team)

    @property
    def taking_part(self) -> float:
        """Share of pages that may be changed."""
        return self.share

    def chances(self, ranked: RankedRequest, ranks: Array) -> Array:
        """P(rank ranks[k] at slot k) over all pages, those that take no part included, [K]."""
        if self.share == 0 or len(ranks) < 2:
            return unmoved(ranks)
        chance = (1 - self.share) * unmoved(ranks) + self.share * self.chance(ranked, ranks)
        return np.clip(chance, 0.0, 1.0)

    @abstractmethod
    def draw(self, ranked: RankedRequest, rng: np.random.Generator) -> DrawnPage:
        """Draw the order of a page that takes part in the exploration."""

    @abstractmethod
    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """P(rank ranks[k] at slot k | the page takes part), [K]."""

    def ranked(
        self, order: Array | Sequence[int], scores: Array | Sequence[float], other: Array | Sequence[int] | None
    ) -> RankedRequest:
        """The request of these candidates; an order or scores that cannot be are an error."""
        order, scores = np.asarray(order, np.int64), np.asarray(scores, np.float64)
        _check_order(order, len(scores), "order")
        if not np.isfinite(scores).all():
            raise DataError("a score is not a finite number", hint="score every candidate")
        second = None
        if other is not None:
            second = np.asarray(other, np.int64)
            _check_order(second, len(scores), "other")
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            second = place[second]
        return RankedRequest(order, scores[order], min(self.depth, len(order)), second)


def as_ranked(order: Array | Sequence[int]) -> Decision:
    """A page that is shown as the model ranked it, where nothing explores.

    >>> page = as_ranked([1, 0])
    >>> page.policy_id, page.propensity.tolist()
    ('none', [1.0, 1.0])
    """
    order = np.asarray(order, np.int64)
    return Decision(order, np.ones(len(order)), np.zeros(len(order), bool), "none")


def _check_order(order: Array, candidates: int, name: str) -> None:
    """A ranking names every candidate once."""
    if order.shape != (candidates,) or not np.array_equal(np.sort(order), np.arange(candidates)):
        raise DataError(f"{name} is no ranking of {candidates} candidates: each from 0 on stands in it once")


def request_rng(secret: bytes, purpose: str, request_id: str) -> np.random.Generator:
    """Coins of one request, the same whenever and wherever it is asked by who has the secret."""
    text = f"{purpose}\x00{request_id}".encode()
    return np.random.default_rng(int.from_bytes(hmac.digest(secret, text, "sha256")))


def with_tail(ranks: Array, candidates: int) -> Array:
    """Ranks of the first slots, and below them every other as it was, [K].

    >>> with_tail(np.array([2, 0]), 5).tolist()
    [2, 0, 1, 3, 4]
    """
    left = np.ones(candidates, bool)
    left[ranks] = False
    return np.concatenate([ranks, np.flatnonzero(left)])


def unmoved(ranks: Array) -> Array:
    """1 where a slot shows its own rank, else 0, [K] float64: the chances of a page that is left as it is."""
    flags: Array = (ranks == np.arange(len(ranks))).astype(np.float64)
    return flags


# ---- cost ----


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
    """What a policy does to pages, before anybody is shown it; `examination` by rank, [K], is 1 / k unless given.

    With P(r at k) the chance of rank r at slot k and e_k how often slot k is looked at, a result of rank r keeps
    this share of its clicks, and a page loses at most the largest loss of a result that a page begins with:

        kept_r = sum over k of P(r at k) e_k / e_r
        loss   = max over m of  1 - sum over r <= m of e_r kept_r / sum over r <= m of e_r

    The maximum is over pages whose first m results are as good as each other and the rest good for nothing; where
    clicks are examination times relevance and the model ranks by relevance, no page loses more. Where it does not,
    a policy may gain. Plackett-Luce and team draft depend on what is ranked, and are taken at their most random:
    equal scores, and a second ranking that is the first one turned round. Pages have the results that take part,
    and as many more for team draft, which takes some from further down.
    """
    ranks = policy.depth * (2 if policy.interleaves else 1)
    seen = 1 / np.arange(1.0, ranks + 1) if examination is None else np.asarray(examination, np.float64)
    slots = np.arange(len(seen))
    chances = chance_matrix(policy, np.zeros(len(seen)), slots[::-1])
    loss = 1 - np.cumsum(chances @ seen) / np.cumsum(seen)
    moves = np.abs(np.subtract.outer(slots, slots))[chances > 1e-12]
    furthest = None if policy.interleaves and policy.cap is None else int(moves.max(initial=0))
    return PolicyCost(policy.policy_id, policy.taking_part, furthest, float(loss.max(initial=0.0)))
