"""unskew: unbiased learning to rank, from biased click logs to rankings one can trust."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unskew.clicks.features import read_features
    from unskew.clicks.letor import read_letor, write_letor
    from unskew.clicks.log import read_log, write_log
    from unskew.clicks.presets import read_preset
    from unskew.clicks.simulate import (
        BEHAVIOURS,
        Cascade,
        ClickMatrix,
        DynamicBayesian,
        IndividualBias,
        Mixture,
        PositionBias,
        SvmLogger,
        TrustBias,
        UserBrowsing,
        simulate,
    )
    from unskew.clicks.synthetic import make_lists
    from unskew.commands import learn_file
    from unskew.commands_ingest import ingest
    from unskew.commands_log import counts, sessions
    from unskew.comparing.compare import compare
    from unskew.learning.baselines import BASELINES, fit_baseline
    from unskew.learning.methods import (
        DLA,
        IPW,
        LBD,
        METHODS,
        PAL,
        TAL,
        UPE,
        Additive,
        Affine,
        AffineList,
        DoublyRobust,
        EDot,
        EInter,
        GradientReversal,
        Labeled,
        LBDBer,
        LBDLips,
        LightGBM,
        LightGBMPosition,
        MixEM,
        Naive,
        PairDebias,
        RegressionEM,
        TowerDropout,
        Unlimited,
        Vectorization,
        XGBoost,
        XGBoostUnbiased,
    )
    from unskew.learning.model import Model, load
    from unskew.learning.rankers import MLP, Linear
    from unskew.learning.train import Training
    from unskew.learning.trees import Trees
    from unskew.measuring import measure_ranking
    from unskew.reproducing.reproduce import reproduce
    from unskew.run import learn
    from unskew.types import ClickBatch, Lists, Log

# torch takes seconds to import, so names are looked up when they are first used
_HOMES = {
    "unskew.clicks.features": ("read_features",),
    "unskew.clicks.letor": ("read_letor", "write_letor"),
    "unskew.clicks.log": ("read_log", "write_log"),
    "unskew.clicks.presets": ("read_preset",),
    "unskew.clicks.simulate": (
        "BEHAVIOURS",
        "Cascade",
        "ClickMatrix",
        "DynamicBayesian",
        "IndividualBias",
        "Mixture",
        "PositionBias",
        "SvmLogger",
        "TrustBias",
        "UserBrowsing",
        "simulate",
    ),
    "unskew.clicks.synthetic": ("make_lists",),
    "unskew.commands": ("learn_file",),
    "unskew.commands_ingest": ("ingest",),
    "unskew.commands_log": ("counts", "sessions"),
    "unskew.comparing.compare": ("compare",),
    "unskew.learning.baselines": ("BASELINES", "fit_baseline"),
    "unskew.learning.methods": (
        "Additive",
        "Affine",
        "AffineList",
        "DLA",
        "DoublyRobust",
        "EDot",
        "EInter",
        "GradientReversal",
        "IPW",
        "LBD",
        "LBDBer",
        "LBDLips",
        "Labeled",
        "LightGBM",
        "LightGBMPosition",
        "METHODS",
        "MixEM",
        "Naive",
        "PAL",
        "PairDebias",
        "RegressionEM",
        "TAL",
        "TowerDropout",
        "UPE",
        "Unlimited",
        "Vectorization",
        "XGBoost",
        "XGBoostUnbiased",
    ),
    "unskew.learning.model": ("Model", "load"),
    "unskew.learning.rankers": ("MLP", "Linear"),
    "unskew.learning.train": ("Training",),
    "unskew.learning.trees": ("Trees",),
    "unskew.measuring": ("measure_ranking",),
    "unskew.reproducing.reproduce": ("reproduce",),
    "unskew.run": ("learn",),
    "unskew.types": ("ClickBatch", "Lists", "Log"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BASELINES",
    "BEHAVIOURS",
    "DLA",
    "IPW",
    "LBD",
    "METHODS",
    "MLP",
    "PAL",
    "TAL",
    "UPE",
    "Additive",
    "Affine",
    "AffineList",
    "Cascade",
    "ClickBatch",
    "ClickMatrix",
    "DoublyRobust",
    "DynamicBayesian",
    "EDot",
    "EInter",
    "GradientReversal",
    "IndividualBias",
    "LBDBer",
    "LBDLips",
    "Labeled",
    "LightGBM",
    "LightGBMPosition",
    "Linear",
    "Lists",
    "Log",
    "MixEM",
    "Mixture",
    "Model",
    "Naive",
    "PairDebias",
    "PositionBias",
    "RegressionEM",
    "SvmLogger",
    "TowerDropout",
    "Training",
    "Trees",
    "TrustBias",
    "Unlimited",
    "UserBrowsing",
    "Vectorization",
    "XGBoost",
    "XGBoostUnbiased",
    "compare",
    "counts",
    "fit_baseline",
    "ingest",
    "learn",
    "learn_file",
    "load",
    "make_lists",
    "measure_ranking",
    "read_features",
    "read_letor",
    "read_log",
    "read_preset",
    "reproduce",
    "sessions",
    "simulate",
    "write_letor",
    "write_log",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
