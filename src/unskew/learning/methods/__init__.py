"""One paper, one file; `METHODS` lists them."""

from unskew.learning.methods.additive import Additive
from unskew.learning.methods.affine import Affine
from unskew.learning.methods.approximated_dr import ApproximatedDR
from unskew.learning.methods.bal import BAL
from unskew.learning.methods.contract import Context as Context
from unskew.learning.methods.contract import Learner as Learner
from unskew.learning.methods.contract import MethodConfig as MethodConfig
from unskew.learning.methods.contract import MethodModule as MethodModule
from unskew.learning.methods.dla import DLA
from unskew.learning.methods.doubly_robust import DoublyRobust
from unskew.learning.methods.edot import EDot, EInter
from unskew.learning.methods.ipw import IPW
from unskew.learning.methods.lbd import LBD
from unskew.learning.methods.mixem import MixEM
from unskew.learning.methods.naive import Labeled, Naive
from unskew.learning.methods.packages import LightGBM, LightGBMPosition, XGBoost, XGBoostUnbiased
from unskew.learning.methods.packages import PackageConfig as PackageConfig
from unskew.learning.methods.pal import PAL
from unskew.learning.methods.regression_em import RegressionEM
from unskew.learning.methods.tal import TAL
from unskew.learning.methods.vectorization import Vectorization

METHODS: dict[str, type[MethodConfig]] = {
    "naive": Naive,
    "labeled": Labeled,
    "ipw": IPW,
    "dla": DLA,
    "regression_em": RegressionEM,
    "vectorization": Vectorization,
    "lbd": LBD,
    "additive": Additive,
    "edot": EDot,
    "einter": EInter,
    "mixem": MixEM,
    "pal": PAL,
    "tal": TAL,
    "affine": Affine,
    "doubly_robust": DoublyRobust,
    "bal": BAL,
    "approximated_dr": ApproximatedDR,
}
"""Every method by the name that Python, TOML and the command line use; each trains any ranker."""

PACKAGES: dict[str, type[PackageConfig]] = {
    "lightgbm": LightGBM,
    "lightgbm_position": LightGBMPosition,
    "xgboost": XGBoost,
    "xgboost_unbiased": XGBoostUnbiased,
}
"""Packages that grow their own trees from clicks, by name."""

LEARNERS: dict[str, type[Learner]] = {**METHODS, **PACKAGES}
"""All that `method =` may name."""


def found_as(method: Learner) -> str:
    """What finds a method in a file: its name, or `module:Class` where it is none of these."""
    own = type(method)
    return method.name if method.name in LEARNERS else f"{own.__module__}:{own.__qualname__}"
