"""Policies of serving: the same page for the same request, chances by enumeration and by drawing, caps kept."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew
from unskew.errors import ConfigError, DataError
from unskew.serving.explore import (
    POLICIES,
    BoundedShuffle,
    ExploreSettings,
    PlackettLuce,
    Policy,
    SwapRanks,
    TeamDraft,
    TopOne,
    chance_matrix,
    policy_cost,
    policy_from,
)
from unskew.serving.explore.plackett_luce import arrival_chances, capped_chances
from unskew.serving.explore.policy import RankedRequest
from unskew.serving.explore.scoreless import SwappedRanks
from unskew.serving.service.server import ServePlan
from unskew.settings import table_of

SCORES = np.array([0.3, 2.0, -0.5, 1.1, 0.9, -1.5])
ORDER = np.argsort(-SCORES)
OTHER = np.array([2, 1, 5, 3, 0, 4])
SWAPS = (SwappedRanks(ranks=(1, 2), share=0.3), SwappedRanks(ranks=(2, 4), share=0.5))
Pages = dict[tuple[int, ...], float]

EVERY: dict[str, Policy] = {
    "top_one": TopOne(share=0.4),
    "top_one capped": TopOne(share=0.4, cap=2),
    "swaps": SwapRanks(swaps=SWAPS, cap=2),
    "shuffle": BoundedShuffle(share=0.7),
    "shuffle capped": BoundedShuffle(cap=2, depth=5),
    "plackett_luce": PlackettLuce(temperature=0.8, depth=5),
    "plackett_luce capped": PlackettLuce(temperature=2.0, cap=1, share=0.9),
    "team_draft": TeamDraft(depth=4),
    "team_draft capped": TeamDraft(cap=2, share=0.5),
}


def ranked(policy: Policy, candidates: int = 6) -> RankedRequest:
    place = np.argsort(ORDER)
    return RankedRequest(ORDER, SCORES[ORDER], min(policy.depth, candidates), place[OTHER])


def top_one_pages(policy: Policy) -> Pages:
    last = 6 if policy.cap is None else policy.cap + 1
    return {(i, *(r for r in range(6) if r != i)): 1 / last for i in range(last)}


def swap_pages(policy: Policy) -> Pages:
    return {(0, 1, 2, 3, 4, 5): 1 - 0.15 - 0.25, (1, 0, 2, 3, 4, 5): 0.15, (0, 3, 2, 1, 4, 5): 0.25}


def shuffle_pages(policy: Policy) -> Pages:
    depth = min(policy.depth, 6)
    length = depth if policy.cap is None else policy.cap + 1
    pages: Pages = defaultdict(float)
    cuts = range(1, length + 1) if policy.cap is not None else [depth]  # where the first block ends
    for cut in cuts:
        ends = [*range(cut, depth, length), depth]
        blocks = [range(low, high) for low, high in itertools.pairwise([0, *ends]) if low < high]
        several = [list(itertools.permutations(block)) for block in blocks]
        for page in itertools.product(*several):
            flat = tuple(itertools.chain(*page, range(depth, 6)))
            pages[flat] += 1 / len(cuts) / math.prod(len(each) for each in several)
    return pages


def plackett_luce_pages(policy: Policy) -> Pages:
    assert isinstance(policy, PlackettLuce)
    depth, cap = min(policy.depth, 6), 99 if policy.cap is None else policy.cap
    weight = [math.exp(SCORES[doc] / policy.temperature) for doc in ORDER]
    pages: Pages = {}
    for page in itertools.permutations(range(depth)):
        chance = 1.0
        for slot, rank in enumerate(page):
            left = [r for r in page[slot:] if r <= slot + cap]
            left = [r for r in left if r == slot - cap] or left
            chance *= weight[rank] / sum(weight[r] for r in left) if rank in left else 0.0
        pages[(*page, *range(depth, 6))] = chance
    return pages


class Coins(np.random.Generator):
    """Coins that fall as they are told."""

    def __init__(self, fall: tuple[float, ...]) -> None:
        super().__init__(np.random.PCG64(0))
        self.fall = iter(fall)

    def random(self, *_: Any, **__: Any) -> Any:
        return next(self.fall)


def team_pages(policy: Policy) -> Pages:
    assert isinstance(policy, TeamDraft)
    pages: Pages = defaultdict(float)
    second = ranked(policy).other
    assert second is not None
    if policy.cap is not None:  # by hand: ranks of OTHER in ORDER are 4 0 5 1 3 2, within two of their places
        assert second.tolist() == [4, 0, 5, 1, 3, 2]
        assert policy.cap == 2
        second = np.array([0, 1, 4, 5, 2, 3])
    depth = min(policy.depth, 6)
    for fall in itertools.product((0.1, 0.9), repeat=4):
        drafted = unskew.team_draft(range(6), second.tolist(), length=depth, seed=Coins(fall)).items
        pages[(*drafted, *(r for r in range(6) if r not in drafted))] += 1 / 16
    return pages


PAGES = {
    "top_one": top_one_pages,
    "swaps": swap_pages,
    "shuffle": shuffle_pages,
    "plackett_luce": plackett_luce_pages,
    "team_draft": team_pages,
}


def marginals(pages: Pages) -> np.ndarray:
    chances = np.zeros((6, 6))
    for page, chance in pages.items():
        chances[page, range(6)] += chance
    return chances


@pytest.mark.parametrize("name", EVERY)
def test_chances_are_those_of_all_pages_written_down(name: str) -> None:
    policy = EVERY[name]
    pages = PAGES[policy.name](policy)
    assert sum(pages.values()) == pytest.approx(1)
    expected = marginals(pages)
    for page in pages:
        chance = policy.chance(ranked(policy), np.array(page))
        np.testing.assert_allclose(chance, expected[page, range(6)], atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_pages_come_as_often_as_their_propensities_say_and_keep_the_cap(name: str) -> None:
    policy, requests = EVERY[name], 600
    seen, told = np.zeros((6, 6)), np.full((6, 6), np.nan)
    for number in range(requests):
        made = policy.rank(ORDER, SCORES, request_id=f"r{number}", other=OTHER)
        seen[made.order, range(6)] += 1 / requests
        told[made.order, range(6)] = made.propensity
        if policy.cap is not None:
            assert (np.abs(np.argsort(made.order) - np.argsort(ORDER)) <= policy.cap).all()
    shown = seen > 0
    error = np.sqrt(told * (1 - told) / requests)
    assert (np.abs(seen - told)[shown] <= 4.5 * error[shown] + 1e-9).all()
    assert np.where(shown, told, 0).sum() == pytest.approx(6, abs=0.05)  # what never came had next to no chance


@pytest.mark.parametrize("name", EVERY)
def test_the_same_request_has_the_same_page_and_others_differ(name: str) -> None:
    def page(request: str, secret: bytes = b"") -> list[int]:
        made = EVERY[name].rank(ORDER, SCORES, request_id=request, secret=secret, other=OTHER)
        return list(made.order.tolist())

    several = [page(f"q{i}") for i in range(40)]
    assert several == [page(f"q{i}") for i in range(40)]
    assert len({tuple(each) for each in several}) > 1
    assert several != [page(f"q{i}", secret=b"hidden") for i in range(40)]


@st.composite
def explored(draw: st.DrawFn) -> tuple[Policy, np.ndarray, np.ndarray]:
    """A policy, scores of its candidates with ties, and a second ranking."""
    scores = np.array(draw(st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.0, 1.0, 2.5]), min_size=1, max_size=8)))
    order = np.array(draw(st.permutations(range(len(scores)))))
    chosen: dict[str, Any] = {
        "share": draw(st.sampled_from([0.0, 0.3, 1.0])),
        "cap": draw(st.sampled_from([None, 0, 1, 2, 5])),
        "depth": draw(st.integers(1, 10)),
    }
    name = draw(st.sampled_from(sorted(POLICIES)))
    if name == "swaps":
        chosen |= {"swaps": SWAPS[:1] if chosen["cap"] == 1 else SWAPS, "depth": 10}
        chosen["cap"] = chosen["cap"] or None
    return POLICIES[name](**chosen), scores, order


@given(explored(), st.text(max_size=5))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_no_cap_is_ever_broken_and_chances_add_up(made: Any, request: str) -> None:
    policy, scores, other = made
    order = np.argsort(-scores, kind="stable")
    page = policy.rank(order, scores, request_id=request, other=other)
    count = len(order)
    assert sorted(page.order.tolist()) == list(range(count))
    assert ((page.propensity > 0) & (page.propensity <= 1)).all()
    ranks = np.argsort(order)[page.order]  # what was drawn, as ranks of the model
    if policy.cap is not None:
        assert (np.abs(ranks - np.arange(count)) <= policy.cap).all()
    if policy.name != "team_draft":
        assert (page.order[policy.depth :] == order[policy.depth :]).all()
    chances = chance_matrix(policy, scores[order], np.argsort(order)[other])
    if policy.cap is not None:
        away = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) > policy.cap
        assert (chances[away] == 0).all()
    np.testing.assert_allclose(chances.sum(0), 1, atol=1e-8)
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-8)
    np.testing.assert_allclose(page.propensity, chances[ranks, range(count)], atol=1e-12)


def test_the_cost_is_that_of_the_worst_page() -> None:
    def worst(policy: Policy, other: tuple[int, ...]) -> float:
        chances, seen = chance_matrix(policy, np.zeros(4), other), 1 / np.arange(1.0, 5)
        pages = [np.arange(4) < good for good in range(1, 5)]  # the first ones are good, the others are not
        return max(1 - good @ chances @ seen / (good @ seen) for good in pages)

    assert policy_cost(TopOne(share=0.5, depth=4)).loss == pytest.approx(0.5 * 0.75 * 0.5)  # 3 in 4, rank 2 for 1
    for policy in (TopOne(depth=4, cap=2), BoundedShuffle(depth=4), PlackettLuce(depth=4, cap=1)):
        assert policy_cost(policy).loss == pytest.approx(worst(policy, (0, 1, 2, 3)))
    turned = TeamDraft(depth=4)
    every = [worst(turned, other) for other in itertools.permutations(range(4))]
    assert worst(turned, (3, 2, 1, 0)) == max(every) <= policy_cost(turned).loss
    cost = policy_cost(SwapRanks(swaps=SWAPS, share=0.5))
    assert (cost.furthest, cost.share) == (2, 0.4)
    assert policy_cost(TeamDraft(cap=2)).furthest == 2
    told = ServePlan(models={"a": "run"}, explore=ExploreSettings(policy="top_one"), log="served").cost()
    assert told == policy_cost(TopOne(share=0.05))
    assert "as far as the second model asks" in policy_cost(turned).sentence


def test_slots_are_marked_only_where_marked_slots_hold_the_same_mix() -> None:
    def marks(policy: Policy) -> set[tuple[int, ...]]:
        made = (policy.rank(ORDER, SCORES, request_id=str(i), other=OTHER) for i in range(60))
        return {tuple(np.flatnonzero(each.randomized).tolist()) for each in made}

    assert marks(TopOne(share=0.5)) == {(), (0,)}
    assert marks(BoundedShuffle(share=0.5, depth=4)) == {(), (0, 1, 2, 3)}
    for name in ("shuffle capped", "swaps", "plackett_luce", "team_draft"):
        assert marks(EVERY[name]) == {()}


def test_a_share_of_none_and_lists_of_one_or_none_stay_as_they_are() -> None:
    for policy in EVERY.values():
        for size in (0, 1):
            made = policy.rank(np.arange(size), np.zeros(size), request_id="a", other=np.arange(size))
            assert made.propensity.tolist() == [1.0] * size
    made = PlackettLuce(share=0.0).rank(ORDER, SCORES, request_id="a")
    assert made.order.tolist() == ORDER.tolist()
    assert (made.propensity == 1).all()


def test_chances_by_the_integral_are_exact_for_steep_scores_and_long_pages() -> None:
    weights = np.exp(np.array([0.0, -3.0, -45.0, -49.0]))
    ranks = np.array([1, 0, 3, 2])
    exact = capped_chances(weights, cap=4)[ranks, range(4)]
    np.testing.assert_allclose(arrival_chances(weights, ranks), exact, rtol=1e-9)
    np.testing.assert_allclose(arrival_chances(np.ones(40), np.arange(40)), 1 / 40, rtol=1e-9)


def test_teams_are_named_and_a_page_that_takes_no_part_has_none() -> None:
    policy = TeamDraft(first="old", second="new", depth=4, share=0.5)
    pages = [policy.rank(ORDER, SCORES, request_id=str(i), other=OTHER) for i in range(30)]
    teams = [page.team for page in pages]
    assert None in teams
    for team in (team for team in teams if team is not None):
        assert sorted(map(str, team)) == ["None", "None", "new", "new", "old", "old"]


def wrong() -> Iterator[tuple[dict[str, object], str]]:
    yield {"name": "top"}, "unknown name 'top'. Did you mean"
    yield {"name": "top_one", "shar": 0.1}, "explore.shar: unknown key. Did you mean share"
    yield {"name": "swaps", "swaps": [{"ranks": [1, 3], "share": 0.1}], "cap": 1}, "further apart than the cap"
    yield {"name": "swaps", "swaps": [{"ranks": [1, 2], "share": 0.9}, {"ranks": [2, 3], "share": 0.2}]}, "than 1"
    yield {"name": "swaps", "swaps": [{"ranks": [11, 12], "share": 0.9}]}, "set it to 12"
    yield {"name": "plackett_luce", "cap": 7}, "a cap is at most 5 here"


@pytest.mark.parametrize(("content", "message"), list(wrong()))
def test_wrong_settings_say_what_is_wrong(content: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        table_of("explore", content, POLICIES)


def test_wrong_rankings_say_what_is_wrong() -> None:
    with pytest.raises(DataError, match="order is no ranking of 3 candidates"):
        TopOne().rank([0, 1, 1], [1.0, 2.0, 3.0], request_id="a")
    with pytest.raises(DataError, match="not a finite number"):
        TopOne().rank([0, 1], [1.0, math.nan], request_id="a")
    with pytest.raises(DataError, match="was given one"):
        TeamDraft().rank([0, 1], [1.0, 0.0], request_id="a")


def test_the_plan_of_a_diagnosis_is_carried_out(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(
        json.dumps({"swap_plan": [{"ranks": [6, 7], "share": 0.25}, {"ranks": [11, 12], "share": 0.5}]})
    )
    policy = policy_from("swaps", swap_plan=path, cap=1)
    assert policy.policy_id == "swaps(6-7:0.25,11-12:0.5)"
    made = policy.rank(np.arange(12), -np.arange(12.0), request_id="a")
    assert made.propensity[5] in (0.125, 0.875)
    assert made.propensity[0] == 1
    path.write_text(json.dumps({"swap_plan": None}))
    with pytest.raises(DataError, match="has no swap_plan"):
        policy_from("swaps", swap_plan=path)


def test_a_policy_comes_from_the_settings_of_a_command(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"swap_plan": [{"ranks": [11, 12], "share": 0.5}]}))
    assert policy_from("top_one") == TopOne(share=0.05)
    assert policy_from("shuffle", share=1.0, cap=2, depth=6) == BoundedShuffle(cap=2, depth=6)
    assert policy_from("plackett_luce", temperature=0.5) == PlackettLuce(share=0.05, temperature=0.5)
    assert policy_from("team_draft", served="a", against="b") == TeamDraft(first="a", second="b")
    plan = SwapRanks(swaps=(SwappedRanks(ranks=(11, 12), share=0.5),), depth=12, cap=1)
    assert policy_from("swaps", swap_plan=path, cap=1) == plan


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("topone", {}, "Did you mean top_one"),
        ("top_one", {"share": 1.5}, "share=: input should be less than or equal to 1, not 1.5"),
        ("shuffle", {"temperature": 2.0}, "temperature=: unknown key. Known: cap, depth, share"),
        ("plackett_luce", {"cap": 7}, "a cap is at most 5 here"),
        ("swaps", {}, "swaps needs swap_plan="),
        ("team_draft", {}, "with against="),
        ("team_draft", {"served": "a", "against": "a"}, "not interleaved with itself"),
    ],
)
def test_wrong_settings_of_a_command_are_called_by_their_names(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        policy_from(name, **settings)


def test_a_damaged_plan_says_so(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"swap_plan": [{"share": 0.5}]}))
    with pytest.raises(DataError, match="no list of ranks and shares"):
        policy_from("swaps", swap_plan=path)
    path.write_text(json.dumps({"swap_plan": [{"ranks": [11, 12], "share": 0.5}]}))
    with pytest.raises(ConfigError, match="depth is 5; set it to 12"):
        policy_from("swaps", swap_plan=path, depth=5)
