"""Requests answered: documents read, scored by the model asked for, ranked, explored and explained; no HTTP here.

All requests of a batch that ask for one model are scored in one call. Shadow models score the same documents; what
they would have shown goes to the log alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np

from unskew.errors import UnskewError
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.requests.bodies import BadRequest, ModelAnswer
from unskew.serving.requests.features import Look, read_candidates
from unskew.serving.requests.parsing import AskedRanking
from unskew.serving.scoring.models import Models
from unskew.serving.scoring.served import Served
from unskew.serving.service.display import Noted, Scored, Showing, ShownPage, best_first
from unskew.serving.settings import Limits, ServeSettings
from unskew.serving.store.store import Store
from unskew.tables.features.fields import CategoryField, NumberField
from unskew.types import Array, Lists

PLAIN = 300
"""Bytes that a result takes in the log, besides the names of its page."""
DOCUMENTS = ("a", "b", "c", "d")


def example_request(scorer: Scorer) -> dict[str, Any]:
    """A body for `POST /v1/rank`: a few documents with the features that the model takes."""
    if scorer.reads:
        texts = ("about something else", "an answer to the question", "what everybody clicks", "a short one")
        said = [{"id": each, "text": text} for each, text in zip(DOCUMENTS, texts, strict=True)]
        own = [{"features": _features(scorer, at)} if scorer.features else {} for at in range(len(said))]
        return {"query": "a question", "documents": [one | more for one, more in zip(said, own, strict=True)]}
    return {
        "query": "a query",
        "documents": [{"id": each, "features": _features(scorer, at)} for at, each in enumerate(DOCUMENTS)],
    }


def _features(scorer: Scorer, document: int) -> dict[str, object] | list[float]:
    """Of one document: by name where training had names."""
    fields = () if scorer.card.encoding is None else scorer.card.encoding.fields
    if not fields:
        return [_wave(document, at) for at in range(scorer.features)]
    return {field.name: _value(field, document, at) for at, field in enumerate(fields)}


def _value(field: NumberField | CategoryField, document: int, at: int) -> object:
    """A value that training may have had; of a category the frequent ones in turn."""
    if isinstance(field, CategoryField):
        return field.values[(document + at) % len(field.values)] if field.values else None
    return float(f"{field.mean + (2 * _wave(document, at) - 1) * field.spread:.3g}")


def _wave(document: int, at: int) -> float:
    """From 0 to 1, another for each document.

    >>> [_wave(document, 1) for document in range(4)]
    [0.6, 0.7, 0.8, 0.9]
    """
    return 7 * (2 * document + 1) * (at + 3) % 11 / 10


@dataclass(frozen=True)
class AskedTogether:
    """Requests for one model."""

    requests: Sequence[AskedRanking]
    look: Look | None


@dataclass(frozen=True)
class Answering:
    """What answers."""

    models: Models
    settings: ServeSettings
    store: Store | None = None
    showing: Showing = field(default_factory=Showing)

    @property
    def waits(self) -> bool:
        """Whether an answer may have to wait for a disk or a network."""
        return self.store is not None or self.showing.impressions is not None

    def answer(self, asked: Sequence[AskedRanking], facts: Noted) -> list[dict[str, object]]:
        """An answer for each request, in their order, as `RankAnswer` has it."""
        if self.showing.impressions is not None:
            for request in asked:
                check_page(request, self.settings.limits)
        groups: dict[str, list[int]] = {}
        for at, request in enumerate(asked):
            groups.setdefault(self._named(request), []).append(at)
        scored, look = dict[int, Scored](), None if self.store is None else cache(self.store.view)
        for name, places in groups.items():
            own = AskedTogether([asked[at] for at in places], look)
            scored |= zip(places, self._group(name, own, facts), strict=True)
        facts.documents = sum(len(request.ids) for request in asked)
        found = [scored[at] for at in range(len(asked))]
        explored, seen = self.showing.policy is not None, _seen(look)
        return [
            answered(one, page, explored=explored, store=seen)
            for one, page in zip(found, self.showing.decide(found, facts), strict=True)
        ]

    def _named(self, request: AskedRanking) -> str:
        """The model that is asked for."""
        name = self.models.first if request.head.model is None else request.head.model
        if name not in self.models:
            close = get_close_matches(name, self.models, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            told = f"no model is called {name[:80]!r}; {meant}known: {', '.join(self.models)}"
            raise BadRequest(told, f"{request.prefix}model", 404)
        return name

    def _group(self, name: str, asked: AskedTogether, facts: Noted) -> list[Scored]:
        """Requests for one model."""
        served = self.models[name].current
        facts.models[name] = served.version
        check_work(asked.requests, served, self.settings.limits)
        lists, seen, scores = self._scored(served, asked)
        how, parts = (
            self._reasons(served, lists, seen)
            if any(request.head.why for request in asked.requests)
            else (None, None)
        )
        found = []
        for request, start, stop in zip(asked.requests, lists.offsets[:-1], lists.offsets[1:], strict=True):
            why = parts[start:stop] if request.head.why and parts is not None else None
            own_id = request.head.request_id or uuid.uuid4().hex
            found.append(Scored(name, served, request, own_id, scores[start:stop], why=why, how=how))
        against = self.showing.against if name == self.models.first else None
        beside = dict.fromkeys((*self.settings.shadows, *([] if against is None else [against])))
        others = {each: self._beside(each, asked, found, facts) for each in beside if each != name}
        if against is None:
            return found
        return [replace(one, other=other) for one, other in zip(found, others[against], strict=True)]

    def _scored(self, served: Served, asked: AskedTogether) -> tuple[Lists, Array | None, Array]:
        lists, seen = read_candidates(served.scorer, asked.requests, asked.look)
        try:
            scores = served.score(lists, seen=seen)
        except BadRequest:
            raise
        except UnskewError as error:
            raise BadRequest(str(error), asked.requests[0].documents) from error
        if not np.isfinite(scores).all():
            at = int(np.flatnonzero(~np.isfinite(scores))[0])
            told = f"the score of document {at} is not finite; its features are too large"
            raise BadRequest(told, asked.requests[0].documents)
        return lists, seen, scores

    def _reasons(self, served: Served, lists: Lists, seen: Array | None) -> tuple[str, Array]:
        try:
            return served.why(lists, seen=seen)
        except UnskewError as error:
            raise BadRequest(str(error), "why") from error

    def _beside(
        self, name: str, asked: AskedTogether, found: Sequence[Scored], facts: Noted
    ) -> list[Array] | list[None]:
        """Scores by a second model, told to the log; its trouble is not the caller's."""
        served = self.models[name].current
        told = {"model": name, "version": served.version}
        try:
            lists, _, scores = self._scored(served, asked)
        except UnskewError as error:
            facts.shadows.append(told | {"error": str(error)})
            return [None] * len(found)
        own = np.split(scores, lists.offsets[1:-1])
        for one, each in zip(found, own, strict=True):
            ids = [one.request.ids[at] for at in best_first(each)[:100].tolist()]
            facts.shadows.append(told | {"request_id": one.request_id, "order": ids})
        return own

    def listed(self) -> list[ModelAnswer]:
        """The models that are served."""
        return [self._listed(name) for name in self.models]

    def _listed(self, name: str) -> ModelAnswer:
        model = self.models[name]
        served, card = model.current, model.current.scorer.card
        return ModelAnswer(
            name=name,
            version=served.version,
            engine=served.engine,
            method=str(card.method["name"]),
            ranker=None if card.ranker is None else str(card.ranker["name"]),
            features=served.scorer.features,
            names=None if served.names is None else list(served.names),
            example=example_request(served.scorer) | {"model": name},
            shadow=name in self.settings.shadows,
            trouble=None if model.trouble is None else "the newest folder cannot be served; see the log",
        )


def _seen(look: Look | None) -> dict[str, str] | None:
    """The generation of each part of the store; None where nothing was looked up."""
    if look is None or not look.cache_info().currsize:  # type: ignore[attr-defined]
        return None
    return {name: each for name, each in look().version._asdict().items() if each is not None}


def answered(one: Scored, page: ShownPage, *, explored: bool, store: dict[str, str] | None) -> dict[str, object]:
    """The answer to a request; plain, since models of so many documents take longer to make than to score."""
    decision, ids, scores = page.decision, one.request.ids, one.scores.tolist()
    order = decision.order.tolist()
    ranking = [
        {"id": ids[at], "rank": rank, "score": scores[at], "was": at + 1} for rank, at in enumerate(order, 1)
    ]
    found: dict[str, object] = {
        "request_id": one.request_id,
        "model": one.model,
        "version": one.served.version,
        "ranking": ranking,
    }
    if one.why is not None:
        names = one.served.names or [str(at) for at in range(one.served.scorer.features)]
        for each, parts in zip(ranking, one.why[order].tolist(), strict=True):
            each["why"] = dict(zip(names, parts, strict=True))
        found["reasons"] = one.how
    if explored:
        for each, chance in zip(ranking, decision.propensity.tolist(), strict=True):
            each["propensity"] = chance
        found["policy"] = decision.policy_id
    more = {"store": store, "logged": page.logged}
    return found | {name: value for name, value in more.items() if value is not None}


def check_work(asked: Sequence[AskedRanking], served: Served, limits: Limits) -> None:
    """Refuse more numbers than are worked on at once."""
    width = served.scorer.features
    if (count := width * sum(len(request.ids) for request in asked)) > limits.numbers:
        told = f"{count:,} features of all documents, at most {limits.numbers:,} are scored at once"
        raise BadRequest(told, "documents", 413)
    if (count := width * sum(len(request.ids) for request in asked if request.head.why)) > limits.reasons:
        told = f"{count:,} features of all documents, at most {limits.reasons:,} are explained at once"
        raise BadRequest(f"{told}; ask why of fewer documents", "why", 413)


def check_page(request: AskedRanking, limits: Limits) -> None:
    """Refuse a page that cannot be logged: one of no query, or one that takes too much of the log."""
    head, count = request.head, len(request.ids)
    if not head.query:
        told = "this server logs its pages, and one without a query cannot be learned from; name the query"
        raise BadRequest(told, f"{request.prefix}query")
    named = len(head.query) + len(head.user or "") + len(head.request_id or "")
    if (size := min(head.results or count, count) * (named + PLAIN)) > limits.page:
        told = f"some {size:,} bytes of the log for one page, at most {limits.page:,} are written"
        raise BadRequest(f"{told}; show fewer `results`, or name the query by less", request.documents, 413)
