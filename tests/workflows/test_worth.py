"""Logs that nothing can be learned from are refused; what a log cannot tell is a warning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.errors import DataError
from unskew.learning.methods import DLA, PAL, Labeled, Naive
from unskew.logs.counts.reduction import Facts
from unskew.types import Array, Log
from unskew.workflows.runs.data import check_worth, compares, held_pages

QUICK = {"ranker": "linear", "steps": 2}


def facts(pages: int, clicks: int, ranks: list[int], weighted: str | None = None) -> Facts:
    """A log in numbers, with so many impressions at each rank."""
    shown = np.array(ranks, float)
    return Facts(pages, int(shown.sum()), clicks, 5, 0, np.stack([shown, 0 * shown]), weighted)


@pytest.fixture(scope="module")
def log() -> Log:
    """60 pages of 5 results."""
    lists = unskew.make_lists(queries=20, features=4, documents=8, seed=0)
    return unskew.simulate(lists, "position", pages=60, cutoff=5, seed=0)


def first_results(log: Log) -> Log:
    """The pages cut to the result at rank 1."""
    return log.keep(log.position == 1)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (
            facts(10, 0, [10, 10]),
            "nothing is clicked in 20 impressions, so nothing says what is wanted;",
        ),
        (facts(10, 20, [10, 10]), "every one of 20 impressions is clicked, so nothing says what is not"),
        (facts(20, 3, [10, 10]), "every page has one result, and naive as it is set compares the results"),
    ],
)
def test_refused(about: Facts, said: str) -> None:
    with pytest.raises(DataError) as told:
        check_worth(Naive(), about)
    assert str(told.value).startswith(said)
    check_worth(Labeled(), about)  # which reads labels


def test_methods_of_single_clicks_take_pages_of_one_result() -> None:
    assert compares(Naive())
    assert compares(DLA())
    assert not compares(PAL())
    check_worth(Naive(loss="sigmoid"), facts(20, 3, [10, 10]))
    with pytest.raises(DataError, match=r"take a method of single clicks: .*pal"):
        check_worth(DLA(), facts(20, 3, [10, 10]))


def test_weights_may_add_up_to_more_or_less_than_the_impressions() -> None:
    check_worth(Naive(), facts(10, 0, [10, 10], "price"))
    check_worth(Naive(), facts(10, 900, [10, 10], "price"))


def test_one_rank_is_learned_with_a_warning_unless_it_was_drawn(log: Log) -> None:
    first = first_results(log)
    with pytest.warns(UserWarning, match="everything was shown at rank 1, so position bias cannot be known: pal"):
        made = unskew.learn(first, "pal", **QUICK)
    assert np.isfinite(made.score(log.lists)).all()
    drawn = replace(first, randomized=np.ones(len(first.row), bool))
    unskew.learn(drawn, "pal", learn_from="randomized", **QUICK)  # warnings are errors here


@pytest.mark.parametrize(("click", "said"), [(0, "nothing is clicked"), (1, "is clicked, so nothing says")])
def test_learning_refuses_before_it_trains(log: Log, click: int, said: str) -> None:
    same: Array = np.full_like(log.click, click)
    with pytest.raises(DataError, match=said):
        unskew.learn(replace(log, click=same), "dla", **QUICK)


def test_a_tenth_of_the_pages_is_held_out(log: Log) -> None:
    held = held_pages(log, 3)
    assert held.sum() == 6
    assert (held == held_pages(log, 3)).all()
    assert (held != held_pages(log, 4)).any()
