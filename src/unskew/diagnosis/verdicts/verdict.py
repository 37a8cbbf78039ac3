"""What a log's numbers mean: which biases it has, and by what evidence.

The rules, with p the chance of such numbers without the bias and intervals of 95 %:

    position     present: ranks are not looked at alike, p < 0.01, some rank by a tenth or more
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

from dataclasses import dataclass, replace
from math import log, sqrt
from typing import ClassVar, Literal

from unskew.diagnosis.curves.co_clicks import CoClicks
from unskew.diagnosis.curves.factors import FactorEffect, FactorEffects
from unskew.diagnosis.curves.matrix import RateMatrix
from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.curves.trust import TrustFit
from unskew.diagnosis.evidence.evidence import Evidence
from unskew.diagnosis.evidence.tables import ONE_RANK
from unskew.diagnosis.verdicts.advice import (
    CORRECTING,
    FACTORED,
    LOOKS,
    Fitness,
    NextStep,
    Place,
    about,
    fitness,
    learning,
    likely,
    names_that,
    shuffle_more,
    shuffle_some,
    swaps_of,
)
from unskew.results import Result
from unskew.settings import listed

State = Literal["present", "absent", "cannot tell"]
BIASES = {
    "position": ("position", "higher ranks are seen more"),
    "documents": ("bias by document", "documents differ in how their clicks fall with the rank"),
    "trust": ("trust in the top", "a click at the top means less"),
    "page": ("other factors of the page", "something else than the rank changes clicks"),
    "people": ("several kinds of people", "clicks of one page hang together"),
}
"""The biases that are judged, by key: a name and what it means."""
UNTOLD = "the log tells nothing of it"
CURE = NextStep("")
"""Chosen once all biases are known."""
SURE = 0.01
"""p below which a difference is believed."""


@dataclass(frozen=True)
class Verdict(Result):
    """One bias, and what speaks for the verdict."""

    key: str
    """One of `BIASES`."""
    state: State
    evidence: str
    """A sentence with its numbers."""
    advice: NextStep
    """What to do about it."""
    columns: tuple[str, ...] = ()
    """Columns that make it."""
    told: ClassVar = ("name", "meaning")

    @property
    def name(self) -> str:
        """The name of the bias, as a page shows it."""
        return BIASES[self.key][0]

    @property
    def meaning(self) -> str:
        """What it means, in a sentence."""
        return BIASES[self.key][1]


def verdicts(
    evidence: Evidence,
    matrix: RateMatrix,
    trust: TrustFit,
    factors: FactorEffects,
    together: CoClicks,
    ordering: RankByFeatures | None = None,
    place: Place | None = None,
) -> tuple[Verdict, ...]:
    """A verdict on each bias, in the order of `BIASES`."""
    place = place or Place()
    documents = _documents(trust, place)
    found = (
        _position(evidence, place),
        documents,
        _trust(trust, matrix, documents, place),
        _page(factors, place),
        _people(together, place),
    )
    methods = fitness({one.key: one.state for one in found}, evidence, found[3].columns, ordering)
    return tuple(_with_method(one, methods, evidence, place) for one in found)


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _judged(key: str, said: str, found: tuple[bool, bool], harmless: str, more: NextStep) -> Verdict:
    """A verdict by whether a bias is present or absent; what to do if absent, and `more` if that is not told."""
    present, absent = found
    if present:
        return Verdict(key, "present", said, CURE)
    if absent:
        return Verdict(key, "absent", said, NextStep(harmless))
    return Verdict(key, "cannot tell", said, more)


def _position(found: Evidence, place: Place) -> Verdict:
    curve, swaps = found.examination, swaps_of(found.graph, place)
    told = [(rank, value) for rank, value in enumerate(curve.theta, start=1) if value is not None and rank > 1]
    if found.chosen is None or found.flat is None or not told:
        return Verdict("position", "cannot tell", found.reason or UNTOLD, swaps)
    rank, value = max(told, key=lambda pair: abs(log(pair[1])))
    low, high = curve.interval[rank - 1] or (0.0, 0.0)
    said = (
        f"by {curve.found_by}, rank {rank} is looked at {value:.2f} times as often as rank 1 "
        f"({low:.2f} to {high:.2f}); {_chance(found.flat)} of no difference"
    )
    present = found.flat < SURE and abs(log(value)) >= log(1.1)
    absent = found.linked and all(low > 0.8 and high < 1.25 for low, high in filter(None, curve.interval))
    return _judged("position", said, (present, absent), "do not debias by rank: clicks are what they seem", swaps)


CURES: dict[str, tuple[set[str], str]] = {
    "position": (CORRECTING, "use a method that corrects for the rank"),
    "documents": ({"lbd", "vectorization"}, "use a method with a bias by document"),
    "trust": ({"affine", "tal", "vectorization", "lbd"}, "use a method with more than one curve, not ipw alone"),
    "page": (FACTORED, "name {columns} among the factors of a method"),
}
"""Which methods are made for a bias, and what to do about it."""


def _with_method(one: Verdict, methods: tuple[Fitness, ...], evidence: Evidence, place: Place) -> Verdict:
    """The verdict on a bias that is there, advising methods by whether what they assume holds here."""
    if one.state != "present" or one.key not in CURES:
        return one
    made, text = CURES[one.key]
    right, perhaps = ([name for name in names_that(methods, holds) if name in made] for holds in (True, None))
    perhaps.sort(key=likely(methods).__contains__, reverse=True)
    if right:
        rest = f"{listed(right)}, whose assumptions hold here"
    elif perhaps:
        rest = f"such as {perhaps[0]}; whether its assumptions hold is not told, so measure it"
    else:
        rest = "but of none the assumptions hold here: try several, and measure them"
    best = [*right, *perhaps, "auto"][0]
    said = f"{text.format(columns=listed(one.columns))}{':' if right else ','} {rest}"
    return replace(one, advice=NextStep(said, learning(best, methods, evidence, place)))


def _documents(found: TrustFit, place: Place) -> Verdict:
    if found.documents is None or found.documents_error is None:
        return Verdict("documents", "cannot tell", found.documents_reason or UNTOLD, shuffle_some(found, place))
    value, error = found.documents, found.documents_error
    low, middle, high = (sqrt(max(value + side * 1.96 * error, 0.0)) for side in (-1, 0, 1))
    said = (
        f"from document to document the slope of clicks in log rank varies by {middle:.2f} "
        f"({low:.2f} to {high:.2f}), as a standard deviation, beyond what trust explains"
    )
    more = shuffle_more(found.shuffled_pages, error, 0.0125, "how far documents differ in their curves", place)
    judged = value > 3.5 * error and value > 0.03, value + 1.96 * error < 0.05
    return _judged("documents", said, judged, "one curve for all documents will do", more)


def _trust(found: TrustFit, matrix: RateMatrix, documents: Verdict, place: Place) -> Verdict:
    """By random slots, or where nothing was shuffled by levels of relevance from swaps."""
    if documents.state == "present":
        said, first = "documents differ in their curves, which looks like trust in the top", place.learn("lbd")
        return Verdict("trust", "cannot tell", said, NextStep("settle the bias by document first", first))
    if found.slope is not None and found.slope_error is not None:
        slope, error = found.slope, found.slope_error
        said = (
            f"in random slots a click at rank {found.ranks} tells {found.informative[-1]:.2f} times as much of "
            f"the document as one at rank 1; this grows with log rank by {slope:.2f} ± {1.96 * error:.2f}"
        )
        present, absent = slope > 3 * error and slope > 0.05, slope + 1.96 * error < 0.15
        more = shuffle_more(found.shuffled_pages, error, 0.04, "what a click at the top is worth", place)
    elif matrix.p is not None and matrix.flatter is not None and matrix.flatter_interval is not None:
        low, high = matrix.flatter_interval
        said = (
            f"clicks on documents that are clicked more fall slower with log rank by {matrix.flatter:.2f} "
            f"({low:.2f} to {high:.2f}); {_chance(matrix.p)} of one curve for all levels"
        )
        present = matrix.p < SURE and low > 0 and matrix.flatter > 0.05
        absent = low > -0.15 and high < 0.15 and matrix.p >= SURE
        more = shuffle_some(found, place)
    else:
        reasons = (found.reason or "no random slots", matrix.reason or "too few queries")
        why = ONE_RANK if found.reason == ONE_RANK else "; ".join(reasons)
        return Verdict("trust", "cannot tell", why, shuffle_some(found, place))
    if present and documents.state != "absent":
        unsure = "documents that differ in their curves would look like this, and whether they do is not told"
        return Verdict("trust", "cannot tell", f"{said}; {unsure}", documents.advice)
    return _judged("trust", said, (present, absent), "examination times relevance will do", more)


def _page(found: FactorEffects, place: Place) -> Verdict:
    if not found.factors:
        looks = NextStep(LOOKS, place.command("diagnose", "--segment", "device"))
        return Verdict("page", "cannot tell", found.reason or UNTOLD, looks)
    strong = [one for one in found.factors if _matters(one)]
    untold = [one for one in found.factors if not _harmless(one)]
    if untold and not strong:
        said = "; ".join(f"{one.name}: {one.reason or 'too few clicks'}" for one in untold)
        again = place.command("diagnose", *(word for one in untold for word in ("--segment", one.name)))
        more = NextStep("collect more pages on which these columns vary", again)
        return Verdict("page", "cannot tell", said, more)
    said = "; ".join(_effect(one) for one in strong or found.factors)
    if strong:
        return Verdict("page", "present", said, CURE, tuple(one.name for one in strong))
    return Verdict("page", "absent", said, NextStep("these columns need no correction"))


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


def _people(found: CoClicks, place: Place) -> Verdict:
    told = [
        ("in the lower half of a page", found.lower, found.lower_error),
        ("on a page", found.all, found.all_error),
    ]
    known = [(where, value, error) for where, value, error in told if value is not None and error is not None]
    if len(known) < len(told):
        reason = found.reason or "too few clicks in the lower half of pages"
        return Verdict("people", "cannot tell", reason, place.shuffle("collect pages of repeated queries"))
    where, value, error = max(known, key=lambda one: one[1] / max(one[2], 1e-12))
    said = f"{where} clicks correlate by {value:.3f} ± {1.96 * error:.3f}, given what was shown"
    if value > 3.5 * error:
        advice = "several kinds of people, or reading on from click to click: compare click models; mixem"
        return Verdict("people", "present", said, NextStep(advice, place.command("compare-click-models")))
    times = (1.96 * max(error for *_, error in known) / 0.02) ** 2
    aim = f"for an interval of ± 0.02, which takes about {about(max(times, 1.0) * found.pages)} pages"
    absent = all(value + 1.96 * error < 0.02 for _, value, error in known)
    more = place.shuffle(f"collect more pages of repeated queries, {aim}")
    return _judged("people", said, (False, absent), "results can be taken one by one", more)
