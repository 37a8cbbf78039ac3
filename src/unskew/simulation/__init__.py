"""Click logs with a bias that we know: labelled lists, a logging ranker and a user behaviour."""

from typing import Unpack

from unskew.settings import checked, named
from unskew.simulation.behaviours.behaviour import Behaviour as Behaviour
from unskew.simulation.behaviours.behaviour import Outcome as Outcome
from unskew.simulation.behaviours.behaviour import Shown as Shown
from unskew.simulation.behaviours.behaviour import relevance_probability as relevance_probability
from unskew.simulation.behaviours.cascade import Cascade as Cascade
from unskew.simulation.behaviours.page import WholePage as WholePage
from unskew.simulation.behaviours.position import PositionBias as PositionBias
from unskew.simulation.behaviours.trust import TrustBias as TrustBias
from unskew.simulation.behaviours.user_browsing import UserBrowsing as UserBrowsing
from unskew.simulation.logger import LOGGERS as LOGGERS
from unskew.simulation.logger import FeatureLogger as FeatureLogger
from unskew.simulation.logger import LinearRanker as LinearRanker
from unskew.simulation.logger import Logger as Logger
from unskew.simulation.logger import OracleLogger as OracleLogger
from unskew.simulation.logger import RandomLogger as RandomLogger
from unskew.simulation.logger import ScoresLogger as ScoresLogger
from unskew.simulation.logger import SvmLogger as SvmLogger
from unskew.simulation.logger import find_logger
from unskew.simulation.logger import logging_scores as logging_scores
from unskew.simulation.search_engine import Traffic as Traffic
from unskew.simulation.search_engine import TrafficKeywords as TrafficKeywords
from unskew.simulation.simulation import Simulation as Simulation
from unskew.simulation.simulation import SimulationKeywords as SimulationKeywords
from unskew.types import Lists, Log

BEHAVIOURS: dict[str, type[Behaviour]] = {
    "position": PositionBias,
    "cascade": Cascade,
    "user_browsing": UserBrowsing,
    "trust": TrustBias,
    "page": WholePage,
}
"""User behaviours by the name that a run file or the command line uses."""


def simulate(
    lists: Lists,
    behaviour: Behaviour | str = "position",
    *,
    logger: Logger | str = "svm",
    **options: Unpack[SimulationKeywords],
) -> Log:
    """Simulate a click log; `options` are fields of `Simulation`, which explains each; give `pages` or `clicks`.

    Queries are drawn uniformly with replacement, and a query without documents never. Each page shows the top
    of its list in the order of the logging ranker, and the behaviour clicks.

    >>> import numpy as np
    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 3]), np.array([4, 0, 0]), np.array([1]))
    >>> log = simulate(lists, Cascade(noise=0.0), pages=2, logger="oracle")
    >>> log.click.tolist(), log.position.tolist()
    ([1, 0, 0, 1, 0, 0], [1, 2, 3, 1, 2, 3])
    """
    people = named("behaviour", behaviour, BEHAVIOURS, Behaviour) if isinstance(behaviour, str) else behaviour
    return checked(Simulation, {**options, "behaviour": people, "logger": find_logger(logger)}, None).draw(lists)


def traffic(lists: Lists, *, logger: Logger | str = "svm", **options: Unpack[TrafficKeywords]) -> Log:
    """The log of a simulated search engine, with times and the truth; `options` are fields of `Traffic`."""
    return checked(Traffic, {**options, "logger": find_logger(logger)}, None).draw(lists)
