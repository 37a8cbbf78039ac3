"""Bias factors beyond the rank: columns of the log, pages of results, tables and towers of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import csv
from typer.testing import CliRunner

import unskew
from tests.helpers.every_method import METHODS
from unskew.errors import ConfigError, DataError
from unskew.learning.curves import EXAMINATION, Curve
from unskew.learning.factors import BiasTable, BiasTower, Factors
from unskew.learning.fitting.loop import Trainer
from unskew.learning.fitting.training import Training, by_rate
from unskew.learning.methods import (
    DLA,
    LBD,
    PAL,
    Additive,
    Context,
    EDot,
    EInter,
    MethodConfig,
    MixEM,
    RegressionEM,
)
from unskew.learning.methods.regression_em import logit_of_product
from unskew.learning.rankers import Linear
from unskew.learning.scoring.model import Model, build
from unskew.logs.counts.batches import Batches
from unskew.logs.presentation import fit_presentation
from unskew.simulation import PositionBias, Shown, simulate
from unskew.tables.lists.inputs import Vectors
from unskew.tables.lists.scaling import fit_scaler
from unskew.terminal.main import app
from unskew.types import Array, ClickBatch, Lists, Log
from unskew.workflows.runs.data import LogData
from unskew_reproductions.behaviours import Mixture
from unskew_reproductions.methods import LBDLips, LBDReleased

torch.set_num_threads(1)

QUERIES, K = 6, 5
RANKS = np.array([0.9, 0.6, 0.4, 0.25, 0.15])
MEDIA = {"text": 0.5, "image": 1.0, "video": 0.25}
GAMMA = np.array([0.8, 0.5, 0.3, 0.15, 0.1])
ERROR = 0.12
"""What ratios may be off by; with a factor left out they are off by much more, see below."""


def world(pages: int = 60_000, *, device: bool = False, seed: int = 0) -> Log:
    """P(click) = theta_rank theta_media gamma; media belong to results, or a device to whole pages, by chance.

    A relevant document is often an image at the top: who leaves media out takes them for relevance and rank.
    """
    rng = np.random.default_rng(seed)
    query = rng.integers(QUERIES, size=pages)
    order = np.argsort(rng.gumbel(size=(pages, K)) + 1.5 * np.log(GAMMA), axis=1)[:, ::-1]  # good ones first
    names = np.array(list(MEDIA))
    chance = rng.random((pages, 1 if device else K))
    kind = np.where(chance < 0.7 - 0.6 * np.arange(chance.shape[1]) / K, 1, np.where(chance < 0.85, 0, 2))
    kind = np.broadcast_to(kind, (pages, K))
    theta = RANKS * np.array(list(MEDIA.values()))[kind]
    click = rng.random((pages, K)) < theta * GAMMA[order]
    lists = Lists(
        np.eye(QUERIES * K, dtype=np.float32),
        np.arange(QUERIES + 1) * K,
        np.tile([4, 3, 2, 1, 0], QUERIES).astype(np.int16),
        np.arange(QUERIES),
    )
    return Log(
        lists,
        query,
        np.arange(pages + 1) * K,
        (query[:, None] * K + order).ravel(),
        np.tile(np.arange(1, K + 1, dtype=np.int16), pages),
        click.ravel().astype(np.uint8),
        columns={"media": names[kind].ravel(), "height": 10.0 * kind.ravel() + rng.random(pages * K)},
    )


def learned(log: Log, config: MethodConfig, steps: int = 300) -> Model:
    """A linear ranker and the method, trained on all there is."""
    context = LogData(log).context(config)
    torch.manual_seed(0)
    model = build(config, Linear(), fit_scaler("none", log.lists), log.lists.dim, context)
    training = Training(steps=steps, learning_rate=0.05, validate_on="nothing", validate_every=steps)
    batches = Batches(config.table(log, context.presentation), size=2000)
    Trainer(model.ranker, model.method, training).run(batches)
    return model


def curves(model: Model) -> dict[str, Curve]:
    return {curve.factor: curve for curve in model.curves()}


def off(curve: Curve, truth: Array) -> float:
    """How far a curve is off at most, relative to the truth."""
    return float(np.abs(np.array(curve.values) / (truth / truth[0]) - 1).max())


MEDIA_SORTED = np.array([MEDIA[name] for name in sorted(MEDIA)])  # image, text, video: as values are encoded
RECOVERS: dict[str, MethodConfig] = {
    "dla": DLA(factors=("media",)),
    "dla-tower": DLA(factors=("media",), bias="tower"),
    "pal": PAL(factors=("media",)),
    "pal-tower": PAL(factors=("media",), bias="tower"),
    "regression_em": RegressionEM(factors=("media",)),
    "regression_em-gradient": RegressionEM(factors=("media",), form="gradient"),
    "additive-softmax": Additive(loss="softmax", factors=("media",)),
}


@pytest.fixture(scope="module")
def log() -> Log:
    return world()


@pytest.mark.parametrize("name", RECOVERS)
def test_a_factor_is_told_from_the_rank(name: str, log: Log) -> None:
    found = curves(learned(log, RECOVERS[name]))
    assert found["media"].what == EXAMINATION
    assert found["media"].names == ("image", "text", "video")
    assert off(found["position"], RANKS) < ERROR
    assert off(found["media"], MEDIA_SORTED) < ERROR


@pytest.mark.parametrize("name", ["dla", "pal", "regression_em"])
def test_without_the_factor_its_effect_is_taken_for_the_rank(name: str, log: Log) -> None:
    model = learned(log, METHODS[name]())
    assert off(curves(model)["position"], RANKS) > 2 * ERROR


def test_odds_add_up_in_a_world_of_logits(log: Log) -> None:
    """P(click) = sig(f + e_rank + e_media): the additive model is right, and its ratios are odds."""
    ranks, media = np.array([0.5, -0.2, -0.8, -1.4, -2.0]), np.array([0.0, -0.7, -1.5])
    kind = np.unique(log.columns["media"], return_inverse=True)[1]
    z = np.log(GAMMA)[log.row % K] + ranks[log.position - 1] + media[kind]
    click = np.random.default_rng(1).random(len(z)) < 1 / (1 + np.exp(-z))
    found = curves(learned(replace(log, click=click.astype(np.uint8)), Additive(factors=("media",))))
    assert found["media"].what == "odds of a click"
    assert off(found["position"], np.exp(ranks)) < ERROR
    assert off(found["media"], np.exp(media)) < ERROR


@pytest.mark.parametrize("name", ["additive", "tal", "edot", "einter", "mixem"])
@pytest.mark.parametrize("bias", ["table", "tower"])
def test_a_factor_explains_clicks(name: str, bias: str, log: Log) -> None:
    """Images are seen most and videos least, whatever the method calls it, and it predicts clicks better."""
    small = log.take(np.arange(6000))
    model = learned(small, METHODS[name](factors=("media",), bias=bias), 200)
    image, text, video = curves(model)["media"].values
    assert image > text > video
    assert likelihood(model, small) > likelihood(learned(small, METHODS[name](), 200), small) + 0.005


@pytest.mark.parametrize("config", [LBD(factors=("media",)), LBDLips(factors=("media",))], ids=str)
def test_observation_of_rank_and_document_tells_factors_apart(config: MethodConfig, log: Log) -> None:
    """By hand at h = 0, and near the truth: documents may take a part of it."""
    model = learned(log, config)
    assert model.propensity() is None
    found = curves(model)
    assert found["media"].what == "observation before the document"
    assert off(found["position"], RANKS) < (ERROR if config.drop else 0.4)
    assert off(found["media"], MEDIA_SORTED) < ERROR
    b = {name: table.tolist() for name, table in model.method.level.tables.items()}
    t = config.drop
    o = [t + (1 - t) / (1 + math.exp(-(b["position"][0] + b["media"][code]))) for code in range(3)]
    assert found["media"].values == pytest.approx([x / o[0] for x in o], abs=1e-4)


def likelihood(model: Model, log: Log) -> float:
    """Mean log-likelihood of a result's click, or none."""
    counts = model.method_config.table(log, model.presentation)
    (batch,) = Batches(counts, size=len(counts)).in_order()
    model.method.eval()
    with torch.no_grad():
        relevance = batch.pad(model.ranker(batch.documents))
        p = model.method.click_scores(relevance, batch).exp()
    p = (p / 4 if isinstance(model.method_config, MixEM) else p).clamp(1e-6, 1 - 1e-6)  # a mean over four models
    n, c = batch.impressions, batch.clicks
    return float((c * p.log() + (n - c) * (1 - p).log()).sum() / n.sum())


# ---- numbers, pages of results, and the rank left out ----------------------------------------------------------


def test_numbers_go_into_a_tower_as_they_are_and_into_a_table_by_bins(log: Log) -> None:
    """Height says which kind of media it is: around 0, 10 and 20."""
    tower, table = (learned(log, PAL(factors=("height",), bias=bias)) for bias in ("tower", "table"))
    assert tower.method.factors.numbers == ("height",)
    assert table.method.factors.sizes["height"] == 10 + 2
    assert off(curves(tower)["position"], RANKS) < 0.2  # at the mean height, where there is nothing to see
    assert off(curves(table)["position"], RANKS) < ERROR
    seen = dict(zip(curves(table)["height"].names, curves(table)["height"].values, strict=True))
    assert next(iter(seen)).startswith("below ")
    text, *_, image, _, _, _, video = seen.values()
    assert (image / text, video / text) == (pytest.approx(2, rel=0.2), pytest.approx(0.5, rel=0.3))


@pytest.mark.parametrize("config", [EInter, Additive, PAL])
def test_a_number_may_stand_in_for_the_rank(config: type[MethodConfig], log: Log) -> None:
    small = log.take(np.arange(2000))
    model = learned(small, config(factors=("height",), position=False, bias="tower"), 20)
    assert model.propensity() is None
    assert [curve.factor for curve in model.curves()] == ["height"]
    assert np.isfinite(model.score(small.lists)).all()


def paged() -> Log:
    """Three pages of two results, or what there is of them; half the readers of a page turn to the next."""
    behaviour = PositionBias(curve=(0.9, 0.45), page_size=2, next_page=0.5)
    log = simulate(world(1).lists, behaviour, pages=40_000, randomized=1.0, seed=2)
    return replace(log, columns={"page_number": (log.position - 1) // 2 + 1})


@pytest.mark.parametrize("name", ["dla", "pal", "regression_em"])
def test_examination_begins_anew_on_every_page_of_results(name: str) -> None:
    model = learned(paged(), METHODS[name](page_size=2))
    found = curves(model)
    assert off(found["position"], np.array([0.9, 0.45, 0.45, 0.225, 0.225])) < ERROR
    assert found["page_number"].names == ("1", "2", "3")
    assert off(found["page_number"], np.array([1.0, 0.5, 0.25])) < ERROR
    propensity = model.propensity()
    assert propensity is not None
    assert propensity.tolist() == pytest.approx(found["position"].values, abs=1e-5)


def test_a_page_number_of_the_log_is_a_factor_like_others() -> None:
    """Positions that count from 1 on every page, as where each page of results is a page of its own."""
    log = paged()
    alone = replace(log, position=((log.position - 1) % 2 + 1).astype(np.int16))
    found = curves(learned(alone, PAL(factors=("page_number",))))
    assert off(found["position"], np.array([0.9, 0.45])) < ERROR
    assert off(found["page_number"], np.array([1.0, 0.5, 0.25])) < ERROR


def test_a_page_number_from_the_shell(tmp_path: Path) -> None:
    """A file in which each page of results is a page of its own: kept, and a factor of the run."""
    log = paged()
    page, number = np.repeat(np.arange(len(log)), log.sizes), log.columns["page_number"]
    columns = {
        "page_id": [f"{visit}-{turned}" for visit, turned in zip(page, number, strict=True)],
        "query_id": log.lists.query_ids[log.query[page]],
        "doc_id": log.lists.document_ids()[log.row],
        "position": (log.position - 1) % 2 + 1,
        "click": log.click,
        "page_number": number,
    }
    csv.write_csv(pa.table(columns), tmp_path / "log.csv")
    unskew.write_letor(log.lists, tmp_path / "lists.txt")
    (tmp_path / "run.toml").write_text(
        'out = "run"\n[data]\nlog = "log"\nfeatures = "lists.txt"\nscaling = "none"\n[method]\nname = "pal"\n'
        'factors = ["page_number"]\n[ranker]\nname = "linear"\n[training]\nsteps = 300\nlearning_rate = 0.05\n'
    )
    ingest = ["ingest", tmp_path / "log.csv", "--keep", "page_number", "--out", tmp_path / "log"]
    for command in (ingest, ["learn", tmp_path / "run.toml", "--quiet"]):
        done = CliRunner().invoke(app, [str(word) for word in command])
        assert done.exit_code == 0, done.output
    assert "examination by page_number relative to 1: 1 1.000, 2 0." in done.output
    found = curves(unskew.load(tmp_path / "run"))
    assert off(found["position"], np.array([0.9, 0.45])) < ERROR
    assert off(found["page_number"], np.array([1.0, 0.5, 0.25])) < ERROR


# ---- the parts, by hand ----------------------------------------------------------------------------------------


def test_tables_add_up_and_towers_are_networks_on_one_hot_codes() -> None:
    presentation = fit_presentation(
        {"media": np.array(["a", "b"]), "height": np.array([0.5, 1.5])}, ["media", "height"]
    )
    factors = Factors(3, presentation)
    assert factors.sizes == {"position": 3, "media": 4}
    assert factors.numbers == ("height",)
    starts = {"position": torch.tensor([0.3, 0.2, 0.1]), "media": torch.tensor([0.0, 1.0, 0.0, 0.0])}
    values = factors.at(torch.tensor([[2, 3]])) | {
        "media": torch.tensor([[1, 0]]),
        "height": torch.tensor([[-1.0, 0.5]]),
    }
    assert BiasTable(factors, starts)(values).tolist() == [[pytest.approx(1.2), pytest.approx(0.1)]]
    torch.manual_seed(0)
    tower = BiasTower(factors, starts, torch.zeros(()))
    one_hot = torch.tensor([[0, 1, 0, 0, 1, 0, 0, -1.0], [0, 0, 1, 1, 0, 0, 0, 0.5]])
    weights = torch.cat([*tower.codes.tables.values(), tower.weights])
    x = one_hot @ weights + tower.bias
    for layer in tower.layers:
        x = layer(x)
    torch.testing.assert_close(tower(values), (x.squeeze(-1) + torch.tensor([1.2, 0.1])).unsqueeze(0))


def test_pages_of_results_share_what_the_ranks_start_from() -> None:
    factors = Factors(5, page_size=2)
    parts = factors.shares(torch.tensor([0.0, -1.0, -2.0, -4.0, -5.0]))
    assert parts["position"].tolist() == [0, -1]
    assert parts["page_number"].tolist() == [0, -2.5, -5]  # mean of -2 - 0 and -4 - -1
    alone = Factors(2, fit_presentation({"m": np.array(["a"])}, ["m"]), rank=False)
    assert alone.shares(torch.tensor([1.0, 3.0]))["m"].tolist() == [2, 2, 2]


def test_em_with_two_factors_by_hand() -> None:
    """P(E_k = 1 | no click) = theta_k (1 - theta_m g) / (1 - theta_k theta_m g), and so for the other."""
    presentation = fit_presentation({"media": np.array(["a", "b"])}, ["media"])
    context = replace(LogData(world(10)).context(RegressionEM()), presentation=presentation, facts=None)
    method = RegressionEM(factors=("media",)).build(context)
    a, b, g = 0.8, 0.6, 0.3
    parts, r = [torch.tensor(a).logit(), torch.tensor(b).logit()], torch.tensor(g).logit()
    first, second = (x.item() for x in method.examined(parts, r))
    assert first == pytest.approx(a * (1 - b * g) / (1 - a * b * g), rel=1e-5)
    assert second == pytest.approx(b * (1 - a * g) / (1 - a * b * g), rel=1e-5)
    product = logit_of_product(parts).item()
    assert product == pytest.approx(math.log(a * b / (1 - a * b)), rel=1e-5)


def test_observation_takes_the_factors_of_each_result() -> None:
    """log o = log sig(h + b_rank + b_media), with t = 0: each result by its own media, at its own rank."""
    presentation = fit_presentation({"media": np.array(["a", "b"])}, ["media"])
    method = LBD(factors=("media",), strength=0.0, drop=0.0).build(Context(3, presentation=presentation)).eval()
    rank, media = [0.5, -0.5, -1.0], [0.3, -0.8, 0.0, 0.0]
    for name, values in (("position", rank), ("media", media)):
        method.level.tables[name].data.copy_(torch.tensor(values))
    rows, one = torch.arange(3), torch.ones(1, 3)
    batch = ClickBatch(Vectors(torch.zeros(3, 1)), rows, rows, rows[None] + 1, 0 * one, one, one > 0)
    batch = replace(batch, serp={"media": torch.tensor([[1, 0, 1]])})
    outputs = torch.tensor([[[0.2, 0.1, 0.0, 0.0], [0.7, 0.0, 0.4, 0.0], [-0.3, 0.0, 0.0, -0.2]]])
    logits = [0.1 + 0.5 - 0.8, 0.4 - 0.5 + 0.3, -0.2 - 1.0 - 0.8]
    expected = [r - math.log(1 + math.exp(-z)) for r, z in zip((0.2, 0.7, -0.3), logits, strict=True)]
    assert method.click_scores(outputs, batch).tolist() == [pytest.approx(expected, abs=1e-6)]


def test_a_tower_takes_a_tenth_of_the_step_of_a_table() -> None:
    rates = {}
    for bias in ("table", "tower"):
        method = PAL(bias=bias).build(Context(3))  # type: ignore[arg-type]
        found = {id(weight): factor for factor, weights in by_rate(method).items() for weight in weights}
        rates[bias] = {found[id(weight)] for weight in method.seen.parameters()}
        assert found[id(method.level)] == 1.0
    assert rates == {"table": {1.0}, "tower": {0.1}}


def test_a_number_is_shown_at_its_mean_and_a_deviation_to_either_side() -> None:
    factors = Factors(2, fit_presentation({"height": np.array([0.5, 1.5])}, ["height"], bins=0))
    values, names = factors.each("height")
    assert dict(zip(names, values["height"].tolist(), strict=True)) == {
        "a deviation below the mean": -1.0,
        "the mean": 0.0,
        "a deviation above": 1.0,
    }
    assert values["position"].tolist() == [0, 0, 0]  # at the reference of the others


# ---- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"factors": ("position",)}, "position is one already"),
        ({"factors": ("media", "media")}, "media is one already"),
        ({"factors": ("page_number",), "page_size": 10}, "page_number is one already"),
        ({"position": False}, "position = false needs factors"),
        ({"position": False, "factors": ("media",), "page_size": 10}, "position = false needs factors"),
        ({"page_size": 0}, "page_size"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PAL(**settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"factors": ("media",), "observation": "free"}, 'which observation = "probability" has'),
        ({"factors": ("media",), "position": False}, "factors add to the level of each rank"),
    ],
)
def test_observation_without_a_level_takes_no_factors(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LBDReleased(**settings)


def test_a_tower_has_no_step_of_em() -> None:
    with pytest.raises(ConfigError, match='needs form = "gradient"'):
        RegressionEM(bias="tower")


def test_a_column_that_is_not_there_is_named(log: Log) -> None:
    with pytest.raises(DataError, match="the log has no column meda; it has media, height"):
        unskew.learn(log, PAL(factors=("meda",)), steps=1)


def test_results_of_one_page_cannot_tell_what_is_the_same_for_all_of_them() -> None:
    log = world(200, device=True)
    with pytest.raises(DataError, match="media is the same for all results of a page"):
        unskew.learn(log, DLA(factors=("media",)), steps=1)
    for config in (DLA(factors=("media",), bias="tower"), PAL(factors=("media",)), EDot(factors=("media",))):
        unskew.learn(log, config, steps=1, ranker="linear")


def test_saved_models_keep_their_factors(tmp_path: Path, log: Log) -> None:
    run = unskew.learn(
        log.take(np.arange(500)), PAL(factors=("media", "height"), bias="tower"), steps=3, out=tmp_path
    )
    again = unskew.load(tmp_path)
    assert again.curves() == run.curves()
    assert [curve.factor for curve in run.curves()] == ["position", "media", "height"]


RUN = """
out = "{name}"
[data]
log = "log.parquet"
features = "lists.parquet"
shards = 2
[method]
{method}
[ranker]
name = "linear"
[training]
steps = 3
"""


def test_run_files_and_shards_take_factors(tmp_path: Path) -> None:
    for name, log in (("media", world(500)), ("device", world(500, device=True))):
        unskew.write_log(log, tmp_path / "log.parquet")
        ids = {"query_id": np.repeat(log.lists.query_ids, log.lists.sizes), "doc_id": log.lists.document_ids()}
        features = {f"f{i}": log.lists.features[:, i] for i in range(log.lists.dim)}
        pq.write_table(pa.table(ids | features), tmp_path / "lists.parquet")
        for method in ('name = "pal"\nbias = "tower"', 'name = "dla"'):
            file = tmp_path / "run.toml"
            file.write_text(RUN.format(name=f"{name}-{method[8:11]}", method=f'{method}\nfactors = ["media"]'))
            if name == "device" and "dla" in method:
                with pytest.raises(DataError, match="media is the same for all results of a page, and dla"):
                    unskew.learn(file)
            else:
                made = {curve.factor: curve.names for curve in unskew.learn(file).curves()}
                assert made == {"position": (), "media": ("image", "text", "video")}


# ---- which clicks factorise ------------------------------------------------------------------------------------

TABLE_1 = {
    "0:0:0:1": (True, True),
    "0:1:0:1": (True, True),
    "1:0:1:0": (True, False),
    "1:1:1:1": (False, True),
    "0:1:1:0": (False, True),
}
"""Yan et al., SIGIR 2022, Table 1: whether P(click) = E(k) R(document), and whether it depends on the rank."""


def interaction(rates: np.ndarray, *, odds: bool = False) -> float:
    """How far click rates [relevance, rank], or odds, are from a product: the largest log deviation from one."""
    z = np.log(rates) - (np.log1p(-rates) if odds else 0.0)
    return float(np.abs(z - z.mean(0) - z.mean(1, keepdims=True) + z.mean()).max())


@pytest.mark.parametrize("ratio", TABLE_1)
def test_which_mixtures_of_click_models_factorise(ratio: str) -> None:
    """RCM : RCTR : DCTR : PBM, with a page of ten results of each grade."""
    factorises, by_rank = TABLE_1[ratio]
    grades = np.repeat(np.arange(5), 10).astype(np.int16)
    lists = Lists(np.zeros((50, 1), np.float32), np.arange(6) * 10, grades, np.arange(5))
    shown = Shown(lists, np.arange(50).reshape(5, 10), grades.reshape(5, 10), np.ones((5, 10), bool))
    rates = Mixture(ratio=tuple(map(float, ratio.split(":")))).click_probability(shown)
    error = interaction(rates)
    assert error < 1e-6 if factorises else error > 0.05
    assert (np.ptp(rates, axis=1).max() > 1e-6) == by_rank
    if by_rank:  # not even then are odds a product: what the additive model takes them for
        assert interaction(rates[:4], odds=True) > 0.01  # grade 4 is clicked for certain
