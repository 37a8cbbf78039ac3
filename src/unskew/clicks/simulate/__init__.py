"""Click logs with a bias that we know: labelled lists, a logging ranker and a user behaviour."""

from __future__ import annotations

from unskew.checking import checked, named
from unskew.clicks.simulate.behaviour import Behaviour as Behaviour
from unskew.clicks.simulate.behaviour import Outcome as Outcome
from unskew.clicks.simulate.behaviour import Shown as Shown
from unskew.clicks.simulate.behaviour import relevance_probability as relevance_probability
from unskew.clicks.simulate.cascade import Cascade as Cascade
from unskew.clicks.simulate.dynamic_bayesian import DynamicBayesian as DynamicBayesian
from unskew.clicks.simulate.individual import IndividualBias as IndividualBias
from unskew.clicks.simulate.logger import LOGGERS as LOGGERS
from unskew.clicks.simulate.logger import FeatureLogger as FeatureLogger
from unskew.clicks.simulate.logger import LinearRanker as LinearRanker
from unskew.clicks.simulate.logger import Logger as Logger
from unskew.clicks.simulate.logger import OracleLogger as OracleLogger
from unskew.clicks.simulate.logger import RandomLogger as RandomLogger
from unskew.clicks.simulate.logger import ScoresLogger as ScoresLogger
from unskew.clicks.simulate.logger import SvmLogger as SvmLogger
from unskew.clicks.simulate.logger import find_logger
from unskew.clicks.simulate.logger import logging_scores as logging_scores
from unskew.clicks.simulate.matrix import ClickMatrix as ClickMatrix
from unskew.clicks.simulate.mixture import Mixture as Mixture
from unskew.clicks.simulate.page import WholePage as WholePage
from unskew.clicks.simulate.position import PositionBias as PositionBias
from unskew.clicks.simulate.simulation import LogOptions as LogOptions
from unskew.clicks.simulate.simulation import Simulation as Simulation
from unskew.clicks.simulate.traffic import Traffic as Traffic
from unskew.clicks.simulate.trust import TrustBias as TrustBias
from unskew.clicks.simulate.user_browsing import UserBrowsing as UserBrowsing
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
    "page": WholePage,
}
"""User behaviours by the name that a run file or the command line uses."""


def simulate(
    lists: Lists,
    behaviour: Behaviour | str = "position",
    *,
    logger: Logger | str = "svm",
    **options: object,
) -> Log:
    """Simulate a click log as a `Simulation` with these options, of which it explains each.

    They are pages or clicks, seed, cutoff, drop_clickless, randomized and truth.

    Queries are drawn uniformly with replacement, and a query without documents never. Each page shows the top
    of its list in the order of the logging ranker, and the behaviour clicks.

    >>> import numpy as np
    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 3]), np.array([4, 0, 0]), np.array([1]))
    >>> log = simulate(lists, Cascade(noise=0.0), pages=2, logger="oracle")
    >>> log.click.tolist(), log.position.tolist()
    ([1, 0, 0, 1, 0, 0], [1, 2, 3, 1, 2, 3])
    """
    people = named("behaviour", behaviour, BEHAVIOURS) if isinstance(behaviour, str) else behaviour
    asked = options | {"behaviour": people, "logger": find_logger(logger)}
    return checked(Simulation, asked, "").draw(lists)
