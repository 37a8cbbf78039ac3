"""One paper, one file; `METHODS` lists them."""

from unskew.learning.methods.contract import Context, Method, MethodConfig, MethodModule
from unskew.learning.methods.dla import DLA
from unskew.learning.methods.ipw import IPW
from unskew.learning.methods.labeled import Labeled
from unskew.learning.methods.naive import Naive
from unskew.learning.methods.pair_debias import PairDebias
from unskew.learning.methods.regression_em import RegressionEM

METHODS: dict[str, type[MethodConfig]] = {
    "naive": Naive,
    "labeled": Labeled,
    "ipw": IPW,
    "dla": DLA,
    "regression_em": RegressionEM,
    "pair_debias": PairDebias,
}
"""Every method by the name that Python, TOML and the command line use."""

__all__ = [
    "DLA",
    "IPW",
    "METHODS",
    "Context",
    "Labeled",
    "Method",
    "MethodConfig",
    "MethodModule",
    "Naive",
    "PairDebias",
    "RegressionEM",
]
