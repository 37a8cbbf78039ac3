"""Click logs with a bias that we know: labelled lists, a logging ranker and a user behaviour."""

from __future__ import annotations

from typing import Literal

from unskew.clicks.simulate.behaviour import Behaviour, Outcome, Shown, relevance_probability
from unskew.clicks.simulate.cascade import Cascade
from unskew.clicks.simulate.dynamic_bayesian import DynamicBayesian
from unskew.clicks.simulate.individual import IndividualBias
from unskew.clicks.simulate.logger import (
    LOGGERS,
    FeatureLogger,
    LinearRanker,
    Logger,
    OracleLogger,
    RandomLogger,
    ScoresLogger,
    SvmLogger,
    logging_scores,
)
from unskew.clicks.simulate.matrix import ClickMatrix
from unskew.clicks.simulate.mixture import Mixture
from unskew.clicks.simulate.position import PositionBias
from unskew.clicks.simulate.simulation import simulate_clicks
from unskew.clicks.simulate.trust import TrustBias
from unskew.clicks.simulate.user_browsing import UserBrowsing
from unskew.errors import ConfigError, did_you_mean
from unskew.types import Lists, Log

BEHAVIOURS: dict[str, type[Behaviour]] = {
    "position": PositionBias,
    "cascade": Cascade,
    "user_browsing": UserBrowsing,
    "dynamic_bayesian": DynamicBayesian,
    "trust": TrustBias,
    "click_matrix": ClickMatrix,
    "mixture": Mixture,
    "individual": IndividualBias,
}
"""User behaviours by the name that a run file or the command line uses."""

__all__ = [
    "BEHAVIOURS",
    "LOGGERS",
    "Behaviour",
    "Cascade",
    "ClickMatrix",
    "DynamicBayesian",
    "FeatureLogger",
    "IndividualBias",
    "LinearRanker",
    "Logger",
    "Mixture",
    "OracleLogger",
    "Outcome",
    "PositionBias",
    "RandomLogger",
    "ScoresLogger",
    "Shown",
    "SvmLogger",
    "TrustBias",
    "UserBrowsing",
    "logging_scores",
    "relevance_probability",
    "simulate",
]


def simulate(
    lists: Lists,
    behaviour: Behaviour | str = "position",
    *,
    pages: int | None = None,
    clicks: int | None = None,
    seed: int = 0,
    logger: Logger | str = "svm",
    cutoff: int | Literal["usual"] | None = "usual",
    drop_clickless: bool = False,
    randomized: float = 0.0,
    truth: bool = False,
) -> Log:
    """Simulate a click log; the same seed gives the same log.

    Queries are drawn uniformly with replacement, and a query without documents never. Each page shows the top
    of its list in the order of the logging ranker, and the behaviour clicks.

    Give `pages`, or `clicks`: then the log ends with the first page that reaches as many. `cutoff` is the
    length of a page, None for whole lists; "usual" is 10, and whole lists for a `Mixture`. With `drop_clickless`
    a page without a click is left out and not counted. `randomized` is the probability of a page whose page
    is shuffled: the same documents in a uniformly random order, every impression marked. With `truth` the log has
    the columns `true_examination` (given the earlier clicks of the page) and `true_relevance`.

    >>> import numpy as np
    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 3]), np.array([4, 0, 0]), np.array([1]))
    >>> log = simulate(lists, Cascade(noise=0.0), pages=2, logger="oracle")
    >>> log.click.tolist(), log.position.tolist()
    ([1, 0, 0, 1, 0, 0], [1, 2, 3, 1, 2, 3])
    """
    if isinstance(behaviour, str):
        if behaviour not in BEHAVIOURS:
            raise ConfigError(f"there is no behaviour {behaviour!r}. {did_you_mean(behaviour, BEHAVIOURS)}")
        behaviour = BEHAVIOURS[behaviour]()
    return simulate_clicks(
        lists,
        behaviour,
        pages=pages,
        clicks=clicks,
        seed=seed,
        logger=logger,
        cutoff=cutoff,
        drop_clickless=drop_clickless,
        randomized=randomized,
        truth=truth,
    )
