"""unskew: unbiased learning to rank, from biased click logs to rankings one can trust."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unskew.clicks.counts.counting import counts
    from unskew.clicks.ingest.command import ingest
    from unskew.clicks.lists.features import read_features
    from unskew.clicks.lists.letor import read_letor, write_letor
    from unskew.clicks.lists.presets import read_preset
    from unskew.clicks.lists.synthetic import make_lists
    from unskew.clicks.log import read_log, write_log
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
    from unskew.clicks.split import split
    from unskew.learning.fitting.loop import Training
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
    from unskew.learning.rankers.trees import Trees
    from unskew.learning.scorer import Scorer
    from unskew.measuring import measure_ranking
    from unskew.running.run import Run, learn
    from unskew.studies.compare.compare import compare
    from unskew.studies.reproduce.reproduce import reproduce
    from unskew.types import ClickBatch, Lists, Log

# torch takes seconds to import, so names are looked up when they are first used
_HOMES = {
    "unskew.clicks.lists.features": ("read_features",),
    "unskew.clicks.lists.letor": ("read_letor", "write_letor"),
    "unskew.clicks.log": ("read_log", "write_log"),
    "unskew.clicks.lists.presets": ("read_preset",),
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
    "unskew.clicks.lists.synthetic": ("make_lists",),
    "unskew.clicks.ingest.command": ("ingest",),
    "unskew.clicks.counts.counting": ("counts",),
    "unskew.clicks.split": ("split",),
    "unskew.studies.compare.compare": ("compare",),
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
    "unskew.learning.fitting.loop": ("Training",),
    "unskew.learning.rankers.trees": ("Trees",),
    "unskew.measuring": ("measure_ranking",),
    "unskew.studies.reproduce.reproduce": ("reproduce",),
    "unskew.learning.scorer": ("Scorer",),
    "unskew.running.run": ("Run", "learn"),
    "unskew.types": ("ClickBatch", "Lists", "Log"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
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
    "Run",
    "Scorer",
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
    "ingest",
    "learn",
    "load",
    "make_lists",
    "measure_ranking",
    "read_features",
    "read_letor",
    "read_log",
    "read_preset",
    "reproduce",
    "simulate",
    "split",
    "write_letor",
    "write_log",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
