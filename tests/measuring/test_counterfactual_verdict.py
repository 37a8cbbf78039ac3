"""What estimates say together: the rule, the sentence, agreement, and how many shuffled pages would decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn_pages import pages_by_rank

from unskew.errors import ConfigError, DataError
from unskew.examination import Examination
from unskew.measuring import (
    GainEstimate,
    Judge,
    examination_of,
    places,
    shown_places,
)
from unskew.measuring.counterfactual.evidence import conclude
from unskew.measuring.counterfactual.examination import from_shuffled

GROUNDS = {
    "direct": "random",
    "clicks": "shown",
    "ips": "examination",
    "clipped": "examination",
    "dr": "examination",
    "swaps": "display",
}


def told(name, difference, error=0.1, *, other=1.0, unit="DCG", pages=100):
    """An estimate and its draws."""
    interval = (difference - 1.96 * error, difference + 1.96 * error)
    one = GainEstimate(
        name=name,
        assumes="",
        grounds=GROUNDS[name],
        unit=unit,
        new=other + difference,
        other=other,
        difference=difference,
        interval=interval,
        effective=50.0,
        overlap=1.0,
        clusters=10_000,
        freedom=9_999,
        pages=pages,
    )
    rng = np.random.default_rng(sum(map(ord, name)))
    noise = rng.standard_normal(4000)
    return one, difference + error * (noise - noise.mean()) / noise.std()


def concluded(*pairs, level=0.95):
    drawn = {one.name: draws for one, draws in pairs}
    ones = [one for one, _ in pairs]
    return conclude(ones, drawn, pages=100, changed=50, outlook=(0.5, 2.0), level=level)


@pytest.mark.parametrize(
    ("pairs", "verdict", "names"),
    [
        ([told("direct", 0.4)], "better", ("direct",)),
        ([told("direct", -0.4), told("ips", 0.5)], "worse", ("direct",)),
        ([told("direct", 0.22)], "cannot tell", ()),  # out of the interval of 95 %, not of 99 %
        ([told("direct", 0.22), told("swaps", 0.3)], "better", ("direct", "swaps")),
        ([told("direct", 0.02), told("ips", 0.4), told("swaps", 0.4)], "better", ("ips", "swaps")),
        ([told("direct", -0.02), told("ips", 0.4), told("swaps", 0.4)], "cannot tell", ()),  # not borne out
        ([told("ips", 0.4), told("dr", 0.4)], "cannot tell", ()),  # both rest on examination
        ([told("ips", 0.4), told("swaps", 0.4)], "better", ("ips", "swaps")),
        ([told("dr", 0.4), told("swaps", 0.4)], "cannot tell", ()),  # both count clicks of the same displays
        ([told("dr", 0.4), told("swaps", 0.4), told("ips", 0.4)], "better", ("dr", "swaps", "ips")),
        ([told("dr", 0.4), told("clicks", 0.4)], "better", ("dr", "clicks")),
        ([told("clipped", -0.4), told("swaps", -0.4)], "cannot tell", ()),  # clipping favours the order shown
        ([told("clipped", 0.4), told("swaps", 0.4)], "better", ("clipped", "swaps")),
        ([told("ips", 0.4), told("swaps", 0.4), told("dr", -0.4)], "cannot tell", ()),
        ([told("clicks", 0.4), told("ips", 0.4)], "better", ("clicks", "ips")),
        ([told("clicks", -0.4), told("ips", -0.4)], "cannot tell", ()),  # raw clicks favour the order shown
        ([told("clicks", -0.4), told("ips", 0.4), told("swaps", 0.4)], "better", ("ips", "swaps")),
    ],
)
def test_the_rule(pairs, verdict, names) -> None:
    found = concluded(*pairs)
    assert (found.verdict, found.decided_by) == (verdict, names)
    assert (f"ranks {verdict}" in found.sentence) == (verdict != "cannot tell")


def test_the_sentence_says_why_nobody_can_tell() -> None:
    assert "better by ips and dr, and nothing" in concluded(told("ips", 0.4), told("dr", 0.4)).sentence
    assert "contradicts" in concluded(told("ips", 0.4), told("swaps", -0.4)).sentence
    assert "only raw or clipped clicks are against it" in concluded(told("clicks", -0.4)).sentence
    assert "no difference" in concluded(told("ips", 0.1)).sentence


def test_estimates_in_one_unit_are_compared_on_the_same_draws() -> None:
    assert "agree within chance" in concluded(told("direct", 0.1), told("ips", 0.3)).agreement
    apart = concluded(told("direct", 0.1), told("ips", 0.8)).agreement
    assert "do not agree: direct (+10.0%) and ips (+80.0%)" in apart
    assert "agree within" in concluded(told("direct", 0.1), told("ips", 0.8, unit="clicks")).agreement
    assert "no two" in concluded(told("ips", 0.1), told("dr", 0.3)).agreement


def test_the_more_estimates_are_compared_the_further_apart_they_may_be() -> None:
    two = [told("direct", 0.1), told("ips", 0.49)]  # p is some 0.006
    assert "do not agree" in concluded(*two).agreement
    assert "agree within chance" in concluded(*two, told("swaps", 0.3, unit="shares")).agreement  # three pairs


def test_pages_needed_by_the_variance_seen_or_by_click_rates() -> None:
    seen = concluded(told("direct", 0.1, 0.2, pages=400))  # 400 x (2.8 x 0.2 / 0.1)^2
    assert seen.pages_needed == pytest.approx(400 * 5.6**2, rel=0.01)
    assert f"{seen.pages_needed:,} shuffled pages" in seen.sentence
    rates = concluded(told("ips", 0.1, other=1.0))  # a tenth of a level of 2, variance 0.5 a page
    assert rates.pages_needed == pytest.approx(0.5 * (2.8 / 0.2) ** 2, abs=1)


def drawn(seed, pages=4000, queries=40, ranks=5, shuffled=0.0, weeks=1):
    """Users who look at rank k with 1/k, relevance that falls with the rank; some weeks show other orders."""
    rng = np.random.default_rng(seed)
    relevance = np.sort(rng.uniform(0.1, 0.9, (queries, ranks)), axis=1)[:, ::-1]
    query, week = rng.integers(queries, size=pages), rng.integers(weeks, size=pages)
    usual = np.argsort(np.arange(ranks) + 2.0 * rng.random((weeks, queries, ranks)), axis=2)[week, query]
    random = rng.random(pages) < shuffled
    return pages_by_rank(rng, relevance, query, usual, random, np.arange(pages)), relevance.ravel()


@pytest.mark.parametrize(("options", "kind"), [({"shuffled": 0.3}, "shuffled"), ({"weeks": 4}, "swaps")])
def test_examination_from_the_pages_themselves(options, kind) -> None:
    pages, _ = drawn(3, pages=20_000, **options)
    found = examination_of(pages)
    assert found is not None
    assert found.source == kind
    truth, error = 1 / np.arange(1, 6), found.draws.std(axis=0)
    assert (np.abs(found.theta - truth)[1:] < 3.5 * error[1:]).all()
    assert (error[1:] / truth[1:] < 0.2).all()


def test_random_slots_count_only_below_a_random_first_one() -> None:
    """What stands first by choice is more relevant than what chance puts below it."""
    pages, _ = drawn(3, pages=20_000, shuffled=0.5)
    whole = pages.per_page(pages.shuffled) > 0
    lower = replace(pages, shuffled=pages.shuffled | ((pages.position > 1) & ~whole[pages.page]))
    found, known = from_shuffled(lower), from_shuffled(pages)
    assert found is not None
    assert known is not None
    assert found.theta == pytest.approx(known.theta)


def test_one_order_only_tells_no_examination() -> None:
    assert examination_of(drawn(3)[0]) is None


def test_swaps_and_weighted_clicks_decide_without_random_slots() -> None:
    pages, relevance = drawn(5, pages=12_000, weeks=4)
    for score, verdict in ((relevance, "better"), (-relevance, "worse")):
        judge = Judge(examination=examination_of(pages))
        judge.add(pages, places(score[pages.document], pages), shown_places(pages))
        found = judge.finish()
        assert found.verdict == verdict
        assert {"ips", "swaps"} <= set(found.decided_by)
        assert found.to_dict()["estimates"][0]["reason"] == "no page is marked as shuffled"


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="at=: input should be greater than or equal to 1, not 0"):
        Judge(at=0)
    with pytest.raises(DataError, match="no pages"):
        Judge().finish()
    with pytest.raises(ConfigError, match="positive"):
        Examination.of(np.array([1.0, 0.0]), "file")
    pages, _ = drawn(1, pages=20)
    with pytest.raises(DataError, match="places for 100 results"):
        Judge().add(pages, np.ones(3), np.ones(100))
