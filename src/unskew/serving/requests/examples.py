"""A request that a model answers, made of what training saw: for `/v1/models`, and the page that shows it."""

from __future__ import annotations

from typing import Any

from unskew.learning.scoring.scorer import Scorer
from unskew.tables.features.fields import CategoryField, NumberField

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
