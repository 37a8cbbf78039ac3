"""Methods of papers beside ours: `unskew learn --method unskew_reproductions.methods.upe:UPE`, for one."""

from unskew.learning.methods import MethodConfig
from unskew_reproductions.methods.affine_list import AffineList
from unskew_reproductions.methods.bal_baselines import FBBAL, PBBAL
from unskew_reproductions.methods.disentanglement import GradientReversal, TowerDropout
from unskew_reproductions.methods.lbd_baselines import LBDBer, LBDLips, Unlimited
from unskew_reproductions.methods.lbd_released import LBDReleased
from unskew_reproductions.methods.pair_debias import PairDebias
from unskew_reproductions.methods.projections import Projected
from unskew_reproductions.methods.upe import UPE

METHODS: dict[str, type[MethodConfig]] = {
    "pair_debias": PairDebias,
    "vectorization_projected": Projected,
    "lbd_released": LBDReleased,
    "lbd_lips": LBDLips,
    "lbd_ber": LBDBer,
    "unlimited": Unlimited,
    "affine_list": AffineList,
    "upe": UPE,
    "tower_dropout": TowerDropout,
    "gradient_reversal": GradientReversal,
    "pb_bal": PBBAL,
    "fb_bal": FBBAL,
}
"""Each by the name that tables and pages give it."""
