"""What is called examination is P(seen at k) / P(seen at 1), in all methods; the rest has other names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.helpers.every_method import METHODS
from unskew.learning.curves import EXAMINATION, Curve
from unskew.learning.fitting.loop import Trainer
from unskew.learning.fitting.training import Training
from unskew.learning.methods import DLA, Additive, MethodConfig, RegressionEM
from unskew.learning.rankers import Linear
from unskew.learning.scoring.model import Model, build
from unskew.logs.counts.batches import Batches
from unskew.pages.documents.summaries import run_page
from unskew.simulation import PositionBias, simulate
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Lists, Log
from unskew.workflows.runs.data import LogData
from unskew_reproductions.methods import GradientReversal, PairDebias, TowerDropout

CURVE = (0.7, 0.5, 0.35, 0.2, 0.1)
QUERIES, K = 4, len(CURVE)
ERROR = 0.1
"""What examination may be off by, relative to the truth; the log alone is off by 0.02."""
VARIANTS: dict[str, MethodConfig] = {
    **{name: config() for name, config in METHODS.items()},
    "dla-elu": DLA(elu=True),
    "dla-tower": DLA(bias="tower"),
    "additive-softmax": Additive(loss="softmax"),
    "tower_dropout-softmax": TowerDropout(loss="softmax"),
    "gradient_reversal-softmax": GradientReversal(loss="softmax"),
    "regression_em-gradient": RegressionEM(form="gradient"),
    "pair_debias-paper": PairDebias(regularization=0.0),
}
KNOWS = {"ipw", "doubly_robust", "dla", "dla-elu", "dla-tower", "upe", "additive-softmax", "pal", "regression_em"}
"""Who must say what examination is, and not hold back."""


@pytest.fixture(scope="module")
def log() -> Log:
    """A pure position-based world: all pages shuffled, a feature for every document so that any ranker can fit."""
    grades = np.tile([4, 3, 2, 0, 0], QUERIES).astype(np.int16)
    features = np.eye(QUERIES * K, dtype=np.float32)
    lists = Lists(features, np.arange(QUERIES + 1) * K, grades, np.arange(QUERIES))
    return simulate(lists, PositionBias(curve=CURVE), pages=60_000, randomized=1.0, truth=True, seed=0)


def learned(log: Log, config: MethodConfig) -> Model:
    """A linear ranker and the method, after 250 steps over all there is."""
    data = LogData(log if config.reduction != "pages" else log.take(np.arange(3000)))
    context = LogData(log).context(config)
    torch.manual_seed(0)
    model = build(config, Linear(), fit_scaler("none", log.lists), log.lists.dim, context)
    training = Training(steps=250, learning_rate=0.05, validate_on="nothing", validate_every=250)
    Trainer(model.ranker, model.method, training).run(
        Batches(config.table(data.train, context.presentation), size=600)
    )
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_examination_is_right_or_not_claimed(variant: str, log: Log) -> None:
    model = learned(log, VARIANTS[variant])
    propensity = model.propensity()
    assert (propensity is not None) >= (variant in KNOWS)
    named = [curve for curve in model.curves() if curve.what == EXAMINATION]
    if propensity is None:
        assert not named
        return
    assert named[0].values == pytest.approx(propensity.tolist(), abs=1e-5)
    assert np.abs(propensity / (np.array(CURVE) / CURVE[0]) - 1).max() < ERROR


def test_a_run_is_summed_up_with_the_right_label() -> None:
    curves = [
        Curve("odds of a click", (1.0, 0.25), "position", (), relative=True),
        Curve("trust alpha", (0.5, 0.25), relative=False),
        Curve(EXAMINATION, (1.0, 0.7), "device", ("desktop", "phone")),
    ]
    (section,) = run_page("finished: run", ("nothing", None, 0), curves, []).sections
    assert section.text.split("\n\n") == [
        "odds of a click relative to rank 1: 1.000 0.250",
        "trust alpha by rank: 0.500 0.250",
        "examination by device relative to desktop: desktop 1.000, phone 0.700",
    ]
