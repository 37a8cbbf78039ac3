"""What a log's numbers mean: which biases it has, and by what evidence.

The rules, with p the chance of such numbers without the bias and intervals of 95 %:

    position     present: ranks differ within one query and document, p < 0.01, some rank by a tenth or more
                 absent: every rank is within a quarter of rank 1, by its interval
    documents    present: slopes of clicks in log rank vary over documents (v), beyond what trust explains, by more
                 than 3.5 standard errors and 0.03; absent: the interval of v ends below 0.05
    trust        present: documents are absent, and a click at lower ranks tells more (slope), by more than 3
                 standard errors and 0.05; absent: its interval ends below 0.15
                 without random slots: by the matrix of levels from swaps, p < 0.01 and flatter by 0.05 or more;
                 absent where the interval of flatter lies within 0.15 of 0
                 not told where documents differ in their curves, as these look like trust
    page         present: a column changes clicks by a tenth, or how fast they fall by 0.1, p < 0.01 corrected
                 absent: every column's intervals lie within a quarter, and a slope's within 0.2
    people       present: clicks of one page hang together, in its lower half or on all of it, by more than 3.5
                 standard errors; absent: both intervals of τ end below 0.02

Everything else is "cannot tell". The numbers were chosen on some simulated worlds and tried on others:
docs/records/verdicts.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import Any, Literal

from unskew.diagnosis.curves.co_clicks import CoClicks
from unskew.diagnosis.curves.factors import FactorEffect, FactorEffects
from unskew.diagnosis.curves.matrix import RateMatrix
from unskew.diagnosis.curves.trust import ONE_ONLY, TrustFit
from unskew.diagnosis.evidence.links import Identifiability
from unskew.diagnosis.verdicts.advice import LOOKS, about, shuffle_more, shuffle_some, swaps_of

State = Literal["present", "absent", "cannot tell"]
BIASES = {
    "position": ("position", "higher ranks are seen more"),
    "documents": ("bias by document", "documents differ in how their clicks fall with the rank"),
    "trust": ("trust in the top", "a click at the top means less"),
    "page": ("other factors of the page", "something else than the rank changes clicks"),
    "people": ("several kinds of people", "clicks of one page hang together"),
}
"""The biases that are judged, by key: a name and what it means."""
SURE = 0.01
"""p below which a difference is believed."""


@dataclass(frozen=True)
class Verdict:
    """One bias, and what speaks for the verdict."""

    key: str
    """One of `BIASES`."""
    name: str
    meaning: str
    state: State
    evidence: str
    """A sentence with its numbers."""
    advice: str
    """What to do about it."""

    def to_dict(self) -> dict[str, Any]:
        """Every field, for JSON."""
        return asdict(self)


def verdicts(
    identifiability: Identifiability,
    matrix: RateMatrix,
    trust: TrustFit,
    factors: FactorEffects,
    together: CoClicks,
) -> tuple[Verdict, ...]:
    """A verdict on each bias, in the order of `BIASES`."""
    documents = _documents(trust)
    return (
        _position(identifiability),
        documents,
        _trust(trust, matrix, documents),
        _page(factors),
        _people(together),
    )


def _verdict(key: str, state: State, evidence: str, advice: str) -> Verdict:
    return Verdict(key, *BIASES[key], state, evidence, advice)


def _chance(p: float) -> str:
    """A p in words."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _position(found: Identifiability) -> Verdict:
    told = [(rank + 1, value) for rank, value in enumerate(found.examination) if value is not None and rank > 0]
    if found.flat is None or not told:
        return _verdict("position", "cannot tell", _sentence(found.reason), swaps_of(found))
    rank, value = max(told, key=lambda pair: abs(log(pair[1])))
    low, high = found.interval[rank - 1] or (0.0, 0.0)
    said = (
        f"within one query and document, rank {rank} gets {value:.2f} times the clicks of rank 1 "
        f"({low:.2f} to {high:.2f}); {_chance(found.flat)} of no difference"
    )
    inside = all(span is not None and span[0] > 0.8 and span[1] < 1.25 for span in found.interval)
    if found.flat < SURE and abs(log(value)) >= log(1.1):
        return _verdict("position", "present", said, "use a method that corrects for the rank")
    if inside and found.connected:
        return _verdict("position", "absent", said, "do not debias by rank: clicks are what they seem")
    return _verdict("position", "cannot tell", said, swaps_of(found))


def _documents(found: TrustFit) -> Verdict:
    if found.documents is None or found.documents_error is None:
        return _verdict("documents", "cannot tell", _sentence(found.documents_reason), shuffle_some(found))
    value, error = found.documents, found.documents_error
    low, middle, high = (sqrt(max(value + side * 1.96 * error, 0.0)) for side in (-1, 0, 1))
    said = (
        f"from document to document the slope of clicks in log rank varies by {middle:.2f} "
        f"({low:.2f} to {high:.2f}), as a standard deviation, beyond what trust explains"
    )
    if value > 3.5 * error and value > 0.03:
        return _verdict("documents", "present", said, "use a method with a bias by document, such as lbd")
    if value + 1.96 * error < 0.05:
        return _verdict("documents", "absent", said, "one curve for all documents will do")
    return _verdict(
        "documents", "cannot tell", said, shuffle_more(found.shuffled_pages, error, 0.0125, "that variance")
    )


def _trust(found: TrustFit, matrix: RateMatrix, documents: Verdict) -> Verdict:
    if documents.state == "present":
        said = "documents differ in their curves, which looks like trust in the top"
        return _verdict("trust", "cannot tell", said, "settle the bias by document first")
    if found.slope is None or found.slope_error is None:
        return _trust_by_levels(matrix, found, documents)
    slope, error = found.slope, found.slope_error
    said = (
        f"in random slots a click at rank {found.ranks} tells {found.informative[-1]:.2f} times as much of the "
        f"document as one at rank 1; this grows with log rank by {slope:.2f} ± {1.96 * error:.2f}"
    )
    if slope > 3 * error and slope > 0.05:
        return _trusted(said, documents)
    if slope + 1.96 * error < 0.15:
        return _verdict("trust", "absent", said, "examination times relevance will do")
    return _verdict("trust", "cannot tell", said, shuffle_more(found.shuffled_pages, error, 0.04, "that growth"))


def _trusted(said: str, documents: Verdict) -> Verdict:
    """Trust, unless documents may differ in their curves, which would look the same."""
    if documents.state == "absent":
        return _verdict("trust", "present", said, "use affine, or vectorization; not ipw alone")
    said = f"{said}; documents that differ in their curves would look like this, and whether they do is not told"
    return _verdict("trust", "cannot tell", said, documents.advice)


def _trust_by_levels(matrix: RateMatrix, found: TrustFit, documents: Verdict) -> Verdict:
    """By levels of relevance from swaps, where nothing was shuffled."""
    if matrix.p is None or matrix.flatter is None or matrix.flatter_interval is None:
        reasons = (found.reason or "no random slots", matrix.reason or "too few queries")
        why = ONE_ONLY if found.reason == ONE_ONLY else "; ".join(reasons)
        return _verdict("trust", "cannot tell", why, shuffle_some(found))
    low, high = matrix.flatter_interval
    said = (
        f"clicks on documents that are clicked more fall slower with log rank by {matrix.flatter:.2f} "
        f"({low:.2f} to {high:.2f}); {_chance(matrix.p)} of one curve for all levels"
    )
    if matrix.p < SURE and low > 0 and matrix.flatter > 0.05:
        return _trusted(said, documents)
    if low > -0.15 and high < 0.15 and matrix.p >= SURE:
        return _verdict("trust", "absent", said, "examination times relevance will do")
    return _verdict("trust", "cannot tell", said, shuffle_some(found))


def _page(found: FactorEffects) -> Verdict:
    if not found.factors:
        return _verdict("page", "cannot tell", _sentence(found.reason), LOOKS)
    strong = [one for one in found.factors if _matters(one)]
    if strong:
        said = "; ".join(_effect(one) for one in strong)
        names = ", ".join(one.name for one in strong)
        return _verdict("page", "present", said, f"name {names} among the factors of a method")
    untold = [one for one in found.factors if not _harmless(one)]
    if untold:
        said = "; ".join(f"{one.name}: {one.reason or 'too few clicks'}" for one in untold)
        return _verdict("page", "cannot tell", said, "collect more pages on which these columns vary")
    said = "; ".join(_effect(one) for one in found.factors)
    return _verdict("page", "absent", said, "these columns need no correction")


def _matters(one: FactorEffect) -> bool:
    """Whether a column changes clicks, or their curve, surely and by much."""
    level = max((abs(log(value)) for value in one.effect if value), default=0.0)
    decay = max((abs(value) for value in one.decay if value is not None), default=0.0)
    by_level = one.p is not None and one.p < SURE and level >= log(1.1)
    return by_level or (one.decay_p is not None and one.decay_p < SURE and decay >= 0.1)


def _harmless(one: FactorEffect) -> bool:
    """Whether all that a column may do is small, and known."""
    if len(one.values) < 2 or (one.p is None and one.decay_p is None):
        return False
    levels = all(span is not None and span[0] > 0.8 and span[1] < 1.25 for span in one.interval)
    return levels and all(span is not None and span[0] > -0.2 and span[1] < 0.2 for span in one.decay_interval)


def _effect(one: FactorEffect) -> str:
    """The largest effect of a column in words."""
    pairs = [(value, effect) for value, effect in zip(one.values, one.effect, strict=True) if effect]
    by_decay = one.decay_p is not None and one.p is not None and one.decay_p < SURE <= one.p
    if one.p is None or not pairs or by_decay:
        falls = max((abs(value) for value in one.decay if value is not None), default=0.0)
        tested = "" if one.decay_p is None else f" ({_chance(one.decay_p)})"
        return f"{one.name} changes how fast clicks fall with log rank by {falls:.2f}{tested}"
    value, effect = max(pairs, key=lambda pair: abs(log(pair[1])))
    return f"{one.name} {value} gets {effect:.2f} times the clicks of {one.values[0]} ({_chance(one.p)})"


def _people(found: CoClicks) -> Verdict:
    told = [
        ("in the lower half of a page", found.lower, found.lower_error),
        ("on a page", found.all, found.all_error),
    ]
    known = [(where, value, error) for where, value, error in told if value is not None and error is not None]
    if len(known) < len(told):
        reason = found.reason or "too few clicks in the lower half of pages"
        return _verdict("people", "cannot tell", _sentence(reason), "collect pages of repeated queries")
    where, value, error = max(known, key=lambda one: one[1] / max(one[2], 1e-12))
    said = f"{where} clicks correlate by {value:.3f} ± {1.96 * error:.3f}, given what was shown"
    if value > 3.5 * error:
        advice = "several kinds of people, or reading on from click to click: compare click models; mixem"
        return _verdict("people", "present", said, advice)
    if all(value + 1.96 * error < 0.02 for _, value, error in known):
        return _verdict("people", "absent", said, "results can be taken one by one")
    times = (1.96 * max(error for *_, error in known) / 0.02) ** 2
    aim = f"for an interval of ± 0.02, which takes about {about(max(times, 1.0) * found.pages)} pages"
    return _verdict("people", "cannot tell", said, f"collect more pages of repeated queries, {aim}")


def _sentence(reason: str | None) -> str:
    return reason or "the log tells nothing of it"
