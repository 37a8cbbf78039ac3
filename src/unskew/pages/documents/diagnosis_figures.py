"""The charts of a diagnosis, part by part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unskew.diagnosis.curves.co_clicks import CoClicks
from unskew.diagnosis.curves.matrix import RateMatrix
from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.curves.rates import Curves, RankRates
from unskew.diagnosis.curves.trust import TrustFit
from unskew.diagnosis.evidence.evidence import Evidence
from unskew.diagnosis.evidence.links import RankGraph
from unskew.diagnosis.evidence.segments import in_order
from unskew.examination import Examination
from unskew.pages.curves import curves_figure, links_figure, matrix_figure, points_of
from unskew.pages.documents.diagnosis_words import EXAMINATION
from unskew.pages.page import Figure


def _examined(curves: Mapping[str, Examination], title: str) -> list[Figure]:
    told = {name: points_of(curve.theta, curve.interval) for name, curve in curves.items() if curve.known > 1}
    return [curves_figure(title, told, EXAMINATION)] if told else []


def _evidence(part: Evidence) -> list[Figure]:
    figures = _examined(part.curves, "By estimator")
    for each in part.contexts:
        figures += _examined({name: each.curves[name] for name in in_order(each.curves)}, f"By {each.segment}")
    return figures


def _rates(rates: Mapping[str, RankRates | None], title: str) -> list[Figure]:
    known = {name: told for name in in_order(rates) if (told := rates[name]) is not None}
    drawn = {name: points_of(told.rate, told.interval) for name, told in known.items()}
    return [curves_figure(title, drawn, "click rate")] if any(drawn.values()) else []


def _curves(part: Curves) -> list[Figure]:
    """Click rates of the log, and of each segment by its values."""
    figures = _rates({"all": part.rates}, "Click rate by rank")
    for each in part.segments:
        figures += _rates(each.rates, f"Click rate by {each.segment}")
    return figures


def _matrix(part: RateMatrix) -> list[Figure]:
    return [matrix_figure("Click rates", part.levels, part.ranks, part.rates)] if part.rates else []


def _trust(part: TrustFit) -> list[Figure]:
    points = points_of(part.informative, part.informative_interval)
    return [curves_figure("How much a click tells", {"a click": points}, "relative to rank 1")] if points else []


def _graph(part: RankGraph) -> list[Figure]:
    return [links_figure(part)] if part.links else []


def _co_clicks(part: CoClicks) -> list[Figure]:
    ranks = [f"rank {rank + 1}" for rank in range(len(part.matrix))]
    values = [[None if a == b else value for b, value in enumerate(row)] for a, row in enumerate(part.matrix)]
    title, places = "How clicks hang together", range(1, len(ranks) + 1)
    return [matrix_figure(title, ranks, places, values, least=0.1)] if ranks else []


def _ordering(part: RankByFeatures) -> list[Figure]:
    points, title = points_of(part.predicted, part.spread), "Place by features, for what was shown"
    return [curves_figure(title, {"by features": points}, "mean place by features")] if points else []


FIGURES: Mapping[str, Callable[[Any], list[Figure]]] = {
    "curves": _curves,
    "evidence": _evidence,
    "matrix": _matrix,
    "judged": _matrix,
    "trust": _trust,
    "graph": _graph,
    "co_clicks": _co_clicks,
    "ordering": _ordering,
}
"""The charts of the sections."""
