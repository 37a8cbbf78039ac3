"""Requests answered: documents read, scored by the model asked for, ranked, explored, explained; no HTTP here.

All requests of a batch that ask for one model are scored in one call. Shadow models score the same documents; what
they would have shown goes to the log alone.

Pages are written once all of a body are scored, so one that is refused leaves nothing in the log. Where a page
cannot be written nothing is explored: chance that no log knows of would cost quality and teach nothing.
"""

import json
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

import numpy as np

from unskew.errors import UnskewError
from unskew.serving.explore.policy import Decision, Policy, as_ranked
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.features import Look, read_candidates
from unskew.serving.requests.parsing import AskedRanking
from unskew.serving.scoring.models import Models, Served
from unskew.serving.service.impressions import ImpressionLog, is_signed, signed
from unskew.serving.settings import Limits, ServeSettings
from unskew.serving.store.store import Store
from unskew.serving.telemetry import log_event
from unskew.settings import did_you_mean
from unskew.types import Array, Lists

PLAIN = 300
"""Bytes that a result takes in the log, besides the names of its page."""


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


@dataclass(frozen=True)
class Answering:
    """What answers: models, where features are looked up, how pages are made and where they are written."""

    models: Models
    settings: ServeSettings = field(default_factory=ServeSettings)
    store: Store | None = None
    policy: Policy | None = None
    impressions: ImpressionLog | None = None
    against: str | None = None
    """The model that the first one is interleaved with; None unless the policy takes two."""

    @cached_property
    def waits(self) -> bool:
        """Whether an answer may have to wait for a disk or a network."""
        return self.store is not None or self.impressions is not None

    def answer(self, asked: Sequence[AskedRanking], facts: Noted) -> list[dict[str, object]]:
        """An answer for each request, in their order, as `RankAnswer` has it."""
        groups: dict[str, list[int]] = {}
        for at, request in enumerate(asked):
            if self.impressions is not None:
                check_page(request, self.settings)
            groups.setdefault(self._named(request), []).append(at)
        scored, look = dict[int, Scored](), None if self.store is None else cache(self.store.view)
        for name, places in groups.items():
            scored |= zip(places, self._group(name, [asked[at] for at in places], look, facts), strict=True)
        facts.documents = sum(len(request.ids) for request in asked)
        found = [scored[at] for at in range(len(asked))]
        decisions = [self.decide(one) for one in found]  # all of them, before one is written
        seen = None
        if look is not None and look.cache_info().currsize:  # else nothing was looked up
            seen = look().version
        answers = []
        for one, decision in zip(found, decisions, strict=True):
            shown, logged = self.write(one, decision, facts)
            told = self.policy is not None and self.settings.tell_chances
            policy = shown.policy_id if told else None
            answers.append(answered(one, shown, {"policy": policy, "store": seen, "logged": logged}))
        return answers

    def decide(self, one: Scored) -> Decision:
        """What a request is shown."""
        best = best_first(one.scores)
        if self.policy is None or (self.against is not None and one.other is None):
            return as_ranked(best)
        other = None if one.other is None else best_first(one.other)
        secret, coins = self.settings.secret, self._coins(one)
        return self.policy.rank(best, one.scores, request_id=coins, secret=secret, other=other)

    def _coins(self, one: Scored) -> str:
        """What the coins of a page fall by."""
        if self.settings.coins == "request":
            return one.request_id
        head = one.request.head
        return json.dumps([head.user, head.query, datetime.now(UTC).date().isoformat()])

    def may_have_shown(self, page_id: str) -> bool:
        """Whether a page may be one of this server's, by its id; any may where ids are not signed."""
        return not self.settings.signed_pages or is_signed(page_id, self.settings.secret)

    def write(self, one: Scored, decision: Decision, facts: Noted) -> tuple[Decision, bool | None]:
        """What is shown in the end, and whether it was written down; None where it is not to be."""
        if self.impressions is None or facts.dropped:
            return decision, None
        head, ids = one.request.head, one.request.ids
        try:
            self.impressions.shown(
                one.request_id,
                head.query,
                ids,
                decision,
                results=head.results,
                scores=one.scores,
                user_id=head.user,
            )
        except (UnskewError, OSError) as error:
            log_event("unlogged", logging.ERROR, request_id=one.request_id, error=str(error))
            facts.unlogged += 1
            return as_ranked(best_first(one.scores)), False
        facts.logged += 1
        return decision, True

    def _named(self, request: AskedRanking) -> str:
        name = request.head.model
        if name is None:
            return self.models.first
        if name not in self.models:
            told = f"no model is called {name[:80]!r}. {did_you_mean(name, self.models)}"
            raise BadRequest(told, f"{request.prefix}model", 404)
        return name

    def _group(self, name: str, asked: Sequence[AskedRanking], look: Look | None, facts: Noted) -> list[Scored]:
        served = self.models[name].current
        facts.models[name] = served.version
        check_work(asked, served, self.settings.limits)
        lists, seen, scores = _scored(served, asked, look)
        how, parts = None, None
        if any(request.head.why for request in asked):
            try:
                how, parts = served.why(lists, seen=seen)
            except UnskewError as error:
                raise BadRequest(str(error), "why") from error
        found = []
        for request, start, stop in zip(asked, lists.offsets[:-1], lists.offsets[1:], strict=True):
            why = parts[start:stop] if request.head.why and parts is not None else None
            own_id = request.head.request_id or uuid.uuid4().hex
            own_id = signed(own_id, self.settings.secret) if self.settings.signed_pages else own_id
            found.append(Scored(name, served, request, own_id, scores[start:stop], why=why, how=how))
        against = self.against if name == self.models.first else None
        beside = dict.fromkeys((*self.settings.shadows, *([] if against is None else [against])))
        others = {each: self._beside(each, asked, look, found, facts) for each in beside if each != name}
        if against is None:
            return found
        return [replace(one, other=other) for one, other in zip(found, others[against], strict=True)]

    def _beside(
        self, name: str, asked: Sequence[AskedRanking], look: Look | None, found: Sequence[Scored], facts: Noted
    ) -> list[Array] | list[None]:
        """Scores by a second model, told to the log; its trouble is not the caller's."""
        served = self.models[name].current
        told = {"model": name, "version": served.version}
        try:
            lists, _, scores = _scored(served, asked, look)
        except UnskewError as error:
            facts.shadows.append(told | {"error": str(error)})
            return [None] * len(found)
        own = np.split(scores, lists.offsets[1:-1])
        for one, each in zip(found, own, strict=True):
            ids = [one.request.ids[at] for at in best_first(each)[:100].tolist()]
            facts.shadows.append(told | {"request_id": one.request_id, "order": ids})
        return own


def _scored(served: Served, asked: Sequence[AskedRanking], look: Look | None) -> tuple[Lists, Array | None, Array]:
    lists, seen = read_candidates(served, asked, look)
    try:
        scores = served.score(lists, seen=seen)
    except UnskewError as error:
        raise BadRequest(str(error), asked[0].documents) from error
    if not np.isfinite(scores).all():
        at = int(np.flatnonzero(~np.isfinite(scores))[0])
        told = f"the score of document {at} is not finite; its features are too large"
        raise BadRequest(told, asked[0].documents)
    return lists, seen, scores


def answered(one: Scored, decision: Decision, about: dict[str, object]) -> dict[str, object]:
    """The answer to a request; plain, since models of so many documents take longer to make than to score."""
    ids, scores, order = one.request.ids, one.scores.tolist(), decision.order.tolist()
    ranking = [
        {"id": ids[at], "rank": rank, "score": scores[at], "was": at + 1} for rank, at in enumerate(order, 1)
    ]
    if one.why is not None:
        names = one.served.names or [str(at) for at in range(one.served.features)]
        for each, parts in zip(ranking, one.why[order].tolist(), strict=True):
            each["why"] = dict(zip(names, parts, strict=True))
        about["reasons"] = one.how
    if about["policy"] is not None:
        for each, chance in zip(ranking, decision.propensity.tolist(), strict=True):
            each["propensity"] = chance
    found = {"request_id": one.request_id, "model": one.model, "version": one.served.version, "ranking": ranking}
    return found | {name: value for name, value in about.items() if value is not None}


def check_work(asked: Sequence[AskedRanking], served: Served, limits: Limits) -> None:
    """Refuse more numbers than are worked on at once."""
    width = served.features
    if (count := width * sum(len(request.ids) for request in asked)) > limits.numbers:
        told = f"{count:,} features of all documents, at most {limits.numbers:,} are scored at once"
        raise BadRequest(told, "documents", 413)
    if (count := width * sum(len(request.ids) for request in asked if request.head.why)) > limits.reasons:
        told = f"{count:,} features of all documents, at most {limits.reasons:,} are explained at once"
        raise BadRequest(f"{told}; ask why of fewer documents", "why", 413)


def check_page(request: AskedRanking, settings: ServeSettings) -> None:
    """Refuse a page that cannot be logged: one of no query, of no user where coins fall by it, or a large one."""
    head, count, limits = request.head, len(request.ids), settings.limits
    if not head.query:
        told = "this server logs its pages, and one without a query cannot be learned from; name the query"
        raise BadRequest(told, f"{request.prefix}query")
    if not head.user and settings.coins == "user":
        raise BadRequest("this server explores by user; name the user", f"{request.prefix}user")
    named = len(head.query) + len(head.user or "") + len(head.request_id or "")
    if (size := min(head.results or count, count) * (named + PLAIN)) > limits.page:
        told = f"some {size:,} bytes of the log for one page, at most {limits.page:,} are written"
        raise BadRequest(f"{told}; show fewer `results`, or name the query by less", request.documents, 413)


def best_first(scores: Array) -> Array:
    """Documents by descending score, ties as they came.

    >>> best_first(np.array([1.0, 2.0, 2.0])).tolist()
    [1, 2, 0]
    """
    order: Array = np.argsort(-scores, kind="stable")
    return order
