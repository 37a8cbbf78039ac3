"""Verdicts and what follows from them: every rule on either side of its line, and logs that tell nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.curves.co_clicks import CoClicks, co_clicks
from unskew.diagnosis.curves.factors import FactorEffect, FactorEffects, factors
from unskew.diagnosis.curves.matrix import RateMatrix, click_matrix, read_labels
from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.curves.trust import TrustFit, trust
from unskew.diagnosis.diagnosis import Conclusion, conclude
from unskew.diagnosis.evidence.evidence import Evidence, evidence
from unskew.diagnosis.evidence.links import RankGraph, Swap, SwapPlan
from unskew.diagnosis.evidence.sums import Coverage
from unskew.diagnosis.verdicts.verdict import Verdict, verdicts
from unskew.examination import Examination
from unskew.simulation import PositionBias, TrustBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew_reproductions.behaviours import Mixture

PLAN = SwapPlan(0.1, (Swap((1, 2), 900, 1800, 0.5, 0.1),), 900, 0.5, 700)
GRAPH = RankGraph(3, 90, 900, 1.0, ((1, 2, 3),), (), (), PLAN)
CURVE = Examination((1.0, 0.7, 0.4), "swaps", (1.0, 0.6, 0.3), (1.0, 0.8, 0.5), (None,) * 3)
SHOWN = Coverage(((30,) * 3,) * 3, ((300,) * 3,) * 3)
FOUND = Evidence({"swaps": CURVE}, "swaps", 1e-9, None, (), SHOWN, GRAPH)
UNSEEN = replace(FOUND, curves={"swaps": Examination((1.0, None, None), "swaps")}, chosen=None, flat=None)
UNSEEN = replace(UNSEEN, reason="no swaps", coverage=Coverage(((30, 0), (0, 30)), ((0, 0), (0, 0))))
MATRIX = RateMatrix((), (), (), (), (), (), 0.5, 0.1, 0.0, (-0.1, 0.1), 1, "swaps")
CURVES = TrustFit(
    3, 9000, (1.0,) * 3, ((0.9, 1.1),) * 3, (0.0,) * 3, ((-0.1, 0.1),) * 3, (1.0,) * 3, ((0.9, 1.1),) * 3,
    0.0, 0.02, documents=0.0, documents_error=0.01, shuffled_pages=4000, least_pages=800,
)  # fmt: skip
COIN = FactorEffect(
    "coin", ("heads", "tails"), (1.0, 1.01), ((1.0, 1.0), (0.95, 1.07)), 0.8,
    (0.0, 0.01), ((0.0, 0.0), (-0.1, 0.1)), 0.9, 90,
)  # fmt: skip
ALONE = CoClicks(1000, (), 0.0, 0.005, 0.0, 0.005)


def judged(**changes: Any) -> dict[str, Verdict]:
    """Verdicts by bias, of a plain log with some parts changed."""
    parts = {
        "evidence": FOUND,
        "matrix": MATRIX,
        "trust": CURVES,
        "factors": FactorEffects((COIN,)),
        "together": ALONE,
    }
    return {one.key: one for one in verdicts(**{**parts, **changes})}


def concluded(evidence: Evidence = FOUND, **changes: Any) -> Conclusion:
    return conclude(tuple(judged(evidence=evidence, **changes).values()), evidence)


def states(**changes: Any) -> list[str]:
    return [one.state for one in judged(**changes).values()]


def test_a_plain_log_has_position_bias_and_nothing_else() -> None:
    assert states() == ["present", "absent", "absent", "absent", "absent"]


@pytest.mark.parametrize(
    ("value", "error", "state"),
    [
        (0.20, 0.05, "present"),
        (0.20, 0.07, "cannot tell"),  # less than 3.5 errors
        (0.025, 0.001, "absent"),  # sure, and too small to matter
        (0.02, 0.02, "cannot tell"),  # its interval reaches beyond 0.05
        (-0.01, 0.02, "absent"),
    ],
)
def test_documents_are_judged_by_the_variance_of_slopes_and_its_error(
    value: float, error: float, state: str
) -> None:
    said = judged(trust=replace(CURVES, documents=value, documents_error=error))["documents"]
    assert said.state == state
    assert f"{max(value, 0) ** 0.5:.2f}" in said.evidence


def test_trust_is_present_only_where_documents_are_absent() -> None:
    steep = replace(CURVES, slope=0.3, slope_error=0.05)
    assert judged(trust=steep)["trust"].state == "present"
    untold = replace(steep, documents=0.04, documents_error=0.03)
    said = judged(trust=untold)
    assert said["trust"].state == "cannot tell"
    assert "whether they do is not told" in said["trust"].evidence
    assert said["trust"].advice == said["documents"].advice
    differ = replace(steep, documents=0.2, documents_error=0.02)
    assert judged(trust=differ)["trust"].state == "cannot tell"
    assert judged(trust=replace(CURVES, slope=0.3, slope_error=0.15))["trust"].state == "cannot tell"
    assert judged(trust=replace(CURVES, slope=0.10, slope_error=0.02))["trust"].state == "present"
    assert judged(trust=replace(CURVES, slope=0.04, slope_error=0.01))["trust"].state == "absent"


def test_without_random_slots_levels_tell_of_trust_only_where_documents_are_absent() -> None:
    none = replace(CURVES, slope=None, slope_error=None)
    flat = replace(MATRIX, p=0.005, flatter=0.4, flatter_interval=(0.3, 0.5))
    assert judged(trust=none)["trust"].state == "absent"
    assert judged(trust=none, matrix=flat)["trust"].state == "present"
    untold = replace(none, documents=None, documents_error=None, documents_reason="no swaps")
    assert judged(trust=untold, matrix=flat)["trust"].state == "cannot tell"
    wide = replace(MATRIX, flatter_interval=(-0.3, 0.3))
    assert judged(trust=none, matrix=wide)["trust"].state == "cannot tell"


def test_advice_says_how_many_pages_for_what_precision() -> None:
    wide = replace(CURVES, documents=0.0, documents_error=0.05, slope=0.0, slope_error=0.12)
    said = judged(trust=wide)
    assert "shuffle about 60,000 more pages" in said["documents"].advice.text  # (0.05 / 0.0125)² - 1 times 4,000
    assert "shuffle about 32,000 more pages" in said["trust"].advice.text  # (0.12 / 0.04)² - 1 times 4,000
    assert "standard error of 0.04" in said["trust"].advice.text
    assert "16 times as many pages" in judged(trust=replace(wide, shuffled_pages=0))["documents"].advice.text
    none = replace(CURVES, slope=None, slope_error=None, documents=None, documents_error=None)
    assert "shuffle 800 pages or more" in judged(trust=none, matrix=replace(MATRIX, p=None))["trust"].advice.text
    assert "700 pages: examination of neighbouring ranks is then known within 10%" in (
        judged(evidence=UNSEEN)["position"].advice.text
    )
    hanging = judged(together=replace(ALONE, lower=0.02, lower_error=0.02))["people"]
    assert "about 3,900 pages" in hanging.advice.text  # (1.96)² times 1,000


def test_a_column_without_values_is_not_called_harmless() -> None:
    empty = FactorEffect(
        "device", (), (), (), None, (), (), None, 0, "fewer than two values of device have clicks"
    )
    assert judged(factors=FactorEffects((empty,)))["page"].state == "cannot tell"
    assert judged(factors=FactorEffects((COIN, empty)))["page"].state == "cannot tell"
    strong = replace(COIN, effect=(1.0, 1.5), p=1e-6)
    said = judged(factors=FactorEffects((empty, strong)))["page"]
    assert said.state == "present"
    assert "coin" in said.advice.text
    assert judged(factors=FactorEffects((replace(COIN, effect=(1.0, 1.05), p=1e-6),)))["page"].state == "absent"
    none = judged(factors=FactorEffects((), "no columns were named"))["page"]
    assert "serp_" in none.advice.text


def test_people_are_judged_by_clicks_that_hang_together() -> None:
    assert judged(together=replace(ALONE, lower=0.05, lower_error=0.01))["people"].state == "present"
    assert judged(together=replace(ALONE, lower=0.05, lower_error=0.02))["people"].state == "cannot tell"
    said = judged(together=replace(ALONE, all=0.05, all_error=0.01))["people"]
    assert said.state == "present"
    assert "0.050" in said.evidence


def holds(found: Conclusion) -> dict[str, bool | None]:
    return {method: one.holds for one in found.methods for method in one.methods}


def test_whose_assumptions_hold_follows_from_the_verdicts() -> None:
    plain = holds(concluded())
    assert {name for name, held in plain.items() if held} >= {"ipw", "dla", "affine", "lbd"}
    assert plain["naive"] is False
    assert plain["mixem"] is False
    trusted = holds(concluded(trust=replace(CURVES, slope=0.3, slope_error=0.05)))
    assert (trusted["dla"], trusted["ipw"], trusted["affine"]) == (False, False, True)
    differ = holds(concluded(trust=replace(CURVES, documents=0.2, documents_error=0.02)))
    assert (differ["dla"], differ["affine"], differ["lbd"]) == (False, False, True)
    untold = holds(concluded(trust=replace(CURVES, documents=0.0, documents_error=0.1)))
    assert (untold["dla"], untold["affine"], untold["lbd"]) == (None, None, True)
    level = replace(CURVE, theta=(1.0,) * 3, lower=(0.95,) * 3, upper=(1.05,) * 3)
    flat = replace(FOUND, curves={"swaps": level}, flat=0.7)
    assert holds(concluded(flat))["naive"] is True


def test_the_conclusion_names_methods_and_says_which_ranks_are_linked() -> None:
    found = concluded()
    assert found.recoverable == "yes"
    assert "methods whose assumptions hold here: ipw, dla" in found.next[-1].text
    assert "those of naive and mixem do not" in found.next[-1].text
    bare = FactorEffects((), "no columns were named")
    steep = replace(CURVES, slope=0.3, slope_error=0.05)
    likely = concluded(factors=bare, trust=steep).next[-1].text
    told = "hold here but for other factors of the page, which are not told: affine, tal, vectorization and lbd; "
    assert told in likely
    several = concluded(factors=bare, together=replace(ALONE, lower=0.05, lower_error=0.01)).next[-1].text
    assert several.startswith(
        "methods whose assumptions hold here: mixem; methods whose assumptions hold here but for"
    )
    parts = replace(GRAPH, ranks=8, components=((1, 2, 3, 4, 5, 6), (7,), (8,)))
    apart = concluded(replace(FOUND, graph=parts))
    assert apart.recoverable == "cannot tell"
    assert apart.why.startswith("ranks 1 to 6 are linked with each other, ranks 7 and 8 with none: ")
    assert apart.next[0].text.startswith("swap neighbouring results on 900 pages")
    assert concluded(UNSEEN).recoverable == "no"
    assert set(holds(concluded(UNSEEN)).values()) == {None, False}
    assert concluded(replace(UNSEEN, coverage=SHOWN)).recoverable == "cannot tell"


@pytest.mark.parametrize(
    ("told", "connected", "held"), [(0.9, False, False), (0.9, True, None), (0.5, False, True)]
)
def test_two_towers_are_doubted_where_features_tell_the_rank(
    told: float, connected: bool, held: bool | None
) -> None:
    linked = ((1, 2, 3),) if connected else ((1, 2), (3,))
    ordering = RankByFeatures(0.7, told, 100, linked=linked)
    said = judged(ordering=ordering)
    after = conclude(tuple(said.values()), FOUND, ordering)
    assert holds(after)["ipw"] is True
    assert holds(after)["dla"] is held
    text = " ".join(step.text for step in after.next)
    assert ("two towers would put relevance into the rank" in text) == (told >= 0.8)
    assert ("dla" in said["position"].advice.text) is (held is True)


def test_columns_of_the_page_rule_out_methods_that_take_no_factors() -> None:
    strong = replace(COIN, effect=(1.0, 1.5), p=1e-6)
    found = concluded(factors=FactorEffects((strong,)))
    assert {name for name, held in holds(found).items() if held} >= {"dla", "tal", "lbd"}
    assert {holds(found)[name] for name in ("naive", "ipw", "affine")} == {False}
    assert {step.command for step in found.next if "factors of a method" in step.text} == {
        "unskew learn log.parquet --features features.parquet --method dla --factor coin"
    }


# --------------------------------------------------------------------------------- logs that tell nothing


def table(rows: list[tuple[Any, ...]], **more: Any) -> pa.Table:
    names = ("page_id", "query_id", "doc_id", "position", "click")
    return pa.table({**{name: [row[at] for row in rows] for at, name in enumerate(names)}, **more})


def pages(count: int, *, shuffled: bool, queries: int = 20, results: int = 4) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    orders = (rng.permutation(results) if shuffled else np.arange(results) for _ in range(count))
    return [
        (page, page % queries, f"d{document}", rank, int(rng.random() < 0.4 / rank))
        for page, order in enumerate(orders)
        for rank, document in enumerate(order, start=1)
    ]


TEN = [(page, 1, page % 2, 1 + (page + page // 2) % 2, 1) for page in range(10)]
NOTHING = {
    "ten rows": (TEN, "5 clicks below rank 1"),
    "one position": ([(page, page % 3, page % 7, 1, page % 2) for page in range(900)], "one rank"),
    "one document a query": ([(page, page % 30, 0, 1, int(page % 3 == 0)) for page in range(900)], "one rank"),
    "no swaps": (pages(400, shuffled=False), "two ranks"),
    "queries once": (pages(300, shuffled=True, queries=300), "two ranks"),
    "no clicks": ([(*row[:4], 0) for row in pages(100, shuffled=True)], "0 clicks"),
}
"""Rows, and a word of the reason for position."""


@pytest.mark.parametrize(("rows", "reason"), NOTHING.values(), ids=NOTHING)
def test_logs_that_tell_nothing_get_a_reason_for_each_verdict(rows: list[tuple[Any, ...]], reason: str) -> None:
    with open_tables(table(rows)) as tables:
        seen = evidence(tables)
        said = verdicts(seen, *(part(tables) for part in (click_matrix, trust, factors, co_clicks)))
    told = {one.key: one for one in said}
    assert set(seen.examination.theta[1:]) <= {None}
    assert {one.state for one in said} <= {"cannot tell", "absent"}
    assert [told[key].state for key in ("position", "documents", "trust", "page")] == ["cannot tell"] * 4
    assert reason in told["position"].evidence
    assert all(one.evidence and one.advice.text for one in said)
    assert not any("nan" in f"{one.evidence} {one.advice.text}".split() for one in said)
    found = conclude(said, seen)
    assert found.recoverable != "yes"
    assert "no method's assumptions are known to hold here" in found.next[-1].text


def test_one_rank_is_not_told_to_be_shuffled() -> None:
    with open_tables(table(NOTHING["one position"][0])) as tables:
        seen = evidence(tables)
        said = verdicts(seen, *(part(tables) for part in (click_matrix, trust, factors, co_clicks)))
    for one in said[:3]:
        assert "one rank" in one.evidence
        assert "shuffle" not in one.advice.text


def test_segments_of_three_rows_are_not_judged() -> None:
    rows = pages(600, shuffled=True)
    kind = np.where(np.arange(len(rows)) % 800 == 7, "rare", "common")
    with open_tables(table(rows, device=kind), segments=["device"]) as tables:
        effects = factors(tables)
    assert (kind == "rare").sum() == 3
    said = judged(factors=effects)["page"]
    assert said.state == "cannot tell"
    assert "device" in said.evidence


# ------------------------------------------------------------------------------------------ small worlds


@pytest.fixture(scope="module")
def small() -> dict[str, dict[str, Any]]:
    """Parts of the diagnosis of small logs of six ranks, all pages shuffled."""
    lists, found = make_lists(queries=60, features=6, documents=8, seed=1), {}
    people = {"position": PositionBias(), "trust": TrustBias(), "mixture": Mixture()}
    for name, behaviour in people.items():
        log = simulate(lists, behaviour, pages=8000, cutoff=6, randomized=1.0, seed=2, logger="random")
        with open_tables(log) as tables:
            found[name] = {"trust": trust(tables), "together": co_clicks(tables)}
    return found


def test_random_slots_tell_how_much_a_click_tells(small: dict[str, dict[str, Any]]) -> None:
    fit = small["trust"]["trust"]
    alpha, beta = TrustBias().affine(6)
    mean = alpha * 0.2 + beta  # of what is worth 0.2 on the average
    truth = (alpha[3] / mean[3]) / (alpha[0] / mean[0])
    low, high = fit.informative_interval[3]
    assert 1.5 < low < truth < high
    assert fit.slope > 5 * fit.slope_error
    assert abs(small["position"]["trust"].slope) < 3 * small["position"]["trust"].slope_error
    assert fit.shuffled_pages == pytest.approx(8000, rel=0.05)


def test_the_lower_half_of_a_page_is_that_of_the_ranks_it_has(small: dict[str, dict[str, Any]]) -> None:
    mixed, plain = small["mixture"]["together"], small["position"]["together"]
    assert len(mixed.matrix) == 6
    assert mixed.all > 3.5 * mixed.all_error
    assert abs(plain.all) < 3 * plain.all_error
    tau = np.array(mixed.matrix)
    assert min(tau[3:, 3:][np.triu_indices(3, 1)]) < mixed.lower < max(tau[3:, 3:][np.triu_indices(3, 1)])


def labelled(offset: float) -> RateMatrix:
    rng = np.random.default_rng(0)
    label, rank = rng.integers(0, 3, 20_000), rng.integers(1, 4, 20_000)
    click = rng.random(20_000) < (label + 1) / 5 / rank + offset / rank**2
    columns = {"page_id": np.arange(20_000), "query_id": label, "doc_id": label, "position": rank}
    with open_tables(pa.table({**columns, "click": click.astype(int), "label": label})) as tables:
        return click_matrix(tables, labels=read_labels(tables), draws=99)


def test_a_matrix_of_products_has_rank_one_and_one_with_offsets_has_not() -> None:
    plain, offset = labelled(0.0), labelled(0.3)
    assert plain.p is not None
    assert plain.p > 0.05
    assert plain.d == 1
    assert offset.p == pytest.approx(0.01)
    assert offset.d is not None
    assert offset.d > 1
