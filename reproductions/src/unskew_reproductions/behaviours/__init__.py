"""User behaviours of papers: `--behaviour unskew_reproductions.behaviours.mixture:Mixture`, for one."""

from unskew.simulation import BEHAVIOURS as NAMED
from unskew.simulation import Behaviour
from unskew_reproductions.behaviours.dynamic_bayesian import DynamicBayesian
from unskew_reproductions.behaviours.individual import IndividualBias
from unskew_reproductions.behaviours.matrix import ClickMatrix
from unskew_reproductions.behaviours.mixture import Mixture

BEHAVIOURS: dict[str, type[Behaviour]] = {
    "dynamic_bayesian": DynamicBayesian,
    "click_matrix": ClickMatrix,
    "mixture": Mixture,
    "individual": IndividualBias,
}
"""Each by the name that tables and pages give it."""
EVERY = NAMED | BEHAVIOURS
"""With those of the package."""
