"""The approximated doubly robust strategy: its formulas by hand, what trains what, and which impressions count."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import unskew
from tests.helpers.asked import settings
from unskew.errors import ConfigError, DataError
from unskew.learning.losses import sigmoid_loss
from unskew.learning.methods import ApproximatedDR, Context, MethodModule, Naive
from unskew.learning.methods.approximated_dr import between, published, published_loss, repaired_loss
from unskew.learning.rankers.networks import MLP, DoublyRobustMLP, network
from unskew.learning.scoring.model import Model, build_tower
from unskew.tables.lists.inputs import Vectors
from unskew.types import Array, ClickBatch, Lists, Log
from unskew.workflows.proofs.clicks import impression_likelihood
from unskew.workflows.runs.data import LogData, selected, split

torch.set_num_threads(1)


def batch_of(clicks: Tensor, documents: Tensor | None = None) -> ClickBatch:
    """One result a page, shown once; clicks may be rates."""
    rows, one = torch.arange(len(clicks)), torch.ones(len(clicks), 1)
    shown = torch.zeros(len(clicks), 1) if documents is None else documents
    return ClickBatch(Vectors(shown), rows, rows, one.long(), clicks.unsqueeze(-1), one, one > 0)


# ---- formulas


def test_losses_by_hand() -> None:
    y, c = torch.tensor([[0.3], [0.8], [1.2], [-0.1]]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    batch, floor = batch_of(c), 0.01
    inside = [math.log(0.3), math.log(0.2), math.log(0.01), math.log(0.01)]
    expected = (-sum(inside) + 0.2 + 0.1) / 4
    assert repaired_loss(y, batch, floor).item() == pytest.approx(expected, abs=1e-6)
    signed = [math.log(0.3), -math.log(0.8), -math.log(1.2), math.log(0.01)]
    assert published_loss(y, batch, floor).item() == pytest.approx(-sum(signed) / 4, abs=1e-6)


def test_no_gradient_passes_between_the_parts() -> None:
    torch.manual_seed(0)
    relevance = torch.randn(6, 1, 3, requires_grad=True)
    batch = batch_of(torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]))
    method = ApproximatedDR(centred=False).build(Context(1))
    method(relevance, batch).backward()
    assert relevance.grad is not None
    for part in range(2):  # as if there were nothing else
        alone = relevance.detach()[..., part].clone().requires_grad_()
        sigmoid_loss(alone, batch.clicks, where=batch.where, impressions=batch.impressions).backward()
        torch.testing.assert_close(relevance.grad[..., part], alone.grad)
    z = relevance.detach()[..., 2].clone().requires_grad_()
    imputed, affine, _ = relevance.detach().sigmoid().unbind(-1)
    repaired_loss(between(imputed, affine, z), batch, 1e-3).backward()
    torch.testing.assert_close(relevance.grad[..., 2], z.grad)


def test_the_published_combination_keeps_its_parts_apart() -> None:
    """y = tanh(z) y_imp + y_aff in the loss, and the gradient of i and a is that of their own terms alone."""
    torch.manual_seed(0)
    relevance = torch.randn(6, 1, 3, requires_grad=True)
    batch = batch_of(torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, 1.0]))
    method = ApproximatedDR(centred=False, combination="published").build(Context(1))
    loss = method(relevance, batch)
    loss.backward()
    assert relevance.grad is not None
    total = 0.0
    for (i, a, z), click in zip(
        relevance.detach().squeeze(1).tolist(), batch.clicks.flatten().tolist(), strict=True
    ):
        imputed, affine = 1 / (1 + math.exp(-i)), 1 / (1 + math.exp(-a))
        y = math.tanh(z) * imputed + affine
        outside = max(y - 1, -y, 0.0)
        for p in (imputed, affine, min(max(y, 1e-3), 1 - 1e-3)):
            total -= math.log(p if click else 1 - p)
        total += outside
    assert loss.item() == pytest.approx(total / 6, rel=1e-5)
    expected = (relevance.detach()[..., :2].sigmoid() - batch.clicks.unsqueeze(-1)) / 6
    torch.testing.assert_close(relevance.grad[..., :2], expected)


def test_what_is_ranked_by_is_what_is_learned() -> None:
    """After training y is that of outputs from their mean; z starts at 0, so y is the affine estimate at first."""
    method = ApproximatedDR().build(Context(1)).eval()
    method.centre.copy_(torch.tensor([0.4, -0.3]))
    method.levels.data.copy_(torch.tensor([-1.0, -2.0]))
    relevance, where = torch.tensor([[[0.5, 1.0, 0.2], [1.5, -1.0, -0.7], [9.0, 9.0, 9.0]]]), torch.ones(1, 3) > 0
    where[0, 2] = False

    def y(i: float, a: float, z: float) -> float:
        imputed, affine = (1 / (1 + math.exp(-x)) for x in (i - 0.4 - 1.0, a + 0.3 - 2.0))
        return affine + math.tanh(z) * (imputed - affine)

    expected = [y(0.5, 1.0, 0.2), y(1.5, -1.0, -0.7), 0.0]
    assert method.score(relevance, where).tolist() == [pytest.approx(expected, abs=1e-6)]
    outputs = build_tower(MLP(sizes=(4,)), 5, method)(torch.randn(7, 5))
    assert (outputs[:, 2] == 0).all()
    assert (outputs[:, :2] != 0).all()


def test_networks_of_features_and_of_clicks_share_nothing() -> None:
    """The first output reads the first features, the others the last, each by weights of its own."""
    torch.manual_seed(0)
    tower = DoublyRobustMLP(tracked=2, imputation=(4,), sizes=(4,)).build(5, 3)
    documents = torch.randn(6, 5, requires_grad=True)
    for output, read in ((0, [1, 1, 1, 0, 0]), (1, [0, 0, 0, 1, 1]), (2, [0, 0, 0, 1, 1])):
        (gradient,) = torch.autograd.grad(tower(documents)[:, output].sum(), documents)
        assert [int(bool(moved)) for moved in (gradient != 0).any(0)] == read
    weights = list(tower.parameters())
    shares = [torch.autograd.grad(tower(documents)[:, at].sum(), weights, allow_unused=True) for at in (1, 2)]
    used = [{at for at, gradient in enumerate(each) if gradient is not None and gradient.any()} for each in shares]
    assert used[0]
    assert not used[0] & used[1]


def test_the_coefficient_is_found() -> None:
    """0.2 + 0.5 * 0.6 = 0.5 is the click rate; the published loss has no such point and runs away below it."""
    imputed, affine, batch = torch.tensor([[0.6]]), torch.tensor([[0.2]]), batch_of(torch.tensor([0.5]))
    found = {}
    for loss, clicks in ((repaired_loss, batch), (published_loss, batch_of(torch.tensor([0.4])))):
        z = torch.zeros(1, 1, requires_grad=True)
        optimizer = torch.optim.Adam([z], lr=0.05)
        for _ in range(300):
            optimizer.zero_grad()
            loss(published(imputed, affine, z), clicks, 1e-3).backward()
            optimizer.step()
        found[loss.__name__] = z.tanh().item()
    assert found["repaired_loss"] == pytest.approx(0.5, abs=1e-3)
    assert found["published_loss"] * 0.6 + 0.2 < 0.01


@pytest.mark.parametrize(("y", "click", "back"), [(1.3, 0.0, -1), (1.3, 1.0, -1), (-0.2, 1.0, 1), (-0.2, 0.0, 1)])
def test_an_estimate_outside_is_brought_back(y: float, click: float, back: int) -> None:
    value = torch.tensor([[y]], requires_grad=True)
    repaired_loss(value, batch_of(torch.tensor([click])), 1e-3).backward()
    assert value.grad is not None
    assert -value.grad.sign().item() == back


# ---- a world with queries that are asked often and seldom


class Tower(nn.Module):
    """i from the first feature, which stands for a text, a and z from the others, which count clicks."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.text = network(1, (1,), MLP())
        self.affine = network(features - 1, (32, 16, 1), MLP())
        self.coefficient = network(features - 1, (32, 16, 1), MLP(), slice(0, 1))

    def forward(self, documents: Tensor) -> Tensor:
        text, x = documents[:, :1], documents[:, 1:]
        return torch.cat([self.text(text), self.affine(x), self.coefficient(x)], dim=-1)


def head_and_tail(seed: int, count: int = 3000) -> tuple[Tensor, Array, Array, Tensor]:
    """Documents with a text and earlier clicks, their relevance, times shown, and clicks in random slots."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 2, count)
    text = np.log(relevance / (1 - relevance)) + rng.normal(0, 1.0, count)
    shown = np.where(rng.random(count) < 0.5, 400, rng.integers(0, 4, count))
    theta = rng.uniform(0.2, 1, count)  # examination differs from document to document
    clicks, seen = rng.binomial(shown, theta * (0.9 * relevance + 0.05)), rng.binomial(shown, theta)
    x = np.stack([text, np.log1p(shown), np.log1p(clicks), np.log1p(seen), clicks / np.maximum(seen, 1)], 1)
    first = rng.binomial(20, 0.9 * relevance + 0.05) / 20
    return torch.tensor((x - x.mean(0)) / x.std(0)).float(), relevance, shown, torch.tensor(first).float()


def trained(config: ApproximatedDR, documents: Tensor, clicks: Tensor) -> tuple[MethodModule, Tensor]:
    torch.manual_seed(0)
    tower, method = Tower(documents.shape[1]), config.build(Context(1))
    optimizer = torch.optim.Adam([*tower.parameters(), *method.parameters()], lr=0.01)
    draws = np.random.default_rng(0)
    for _ in range(300):
        rows = torch.tensor(draws.integers(len(documents), size=256))
        batch = batch_of(clicks[rows], documents[rows])
        optimizer.zero_grad()
        method(batch.pad(tower(batch.documents)), batch).backward()
        nn.utils.clip_grad_norm_(tower.parameters(), 5.0)
        optimizer.step()
    method.eval()
    with torch.no_grad():
        return method, tower(documents)


def agreements(config: ApproximatedDR) -> dict[str, tuple[float, float, float]]:
    """Rank correlation of y, imputation and affine estimate with relevance, on head and tail."""
    documents, relevance, shown, clicks = head_and_tail(0)
    method, outputs = trained(config, documents, clicks)
    y = method.score(outputs.unsqueeze(0), torch.ones(1, len(outputs), dtype=torch.bool)).squeeze(0)
    found = {}
    for name, some in (("head", shown > 10), ("tail", shown <= 10)):
        each = (y, outputs[:, 0], outputs[:, 1])
        y_, i, a = (float(spearmanr(values[some].numpy(), relevance[some]).statistic) for values in each)
        found[name] = (y_, i, a)
    return found


def test_it_ranks_by_clicks_where_there_are_some_and_by_text_elsewhere() -> None:
    found = agreements(ApproximatedDR())
    y, imputed, affine = found["head"]
    assert affine > imputed + 0.05
    assert y > affine - 0.01
    y, imputed, affine = found["tail"]
    assert imputed > affine + 0.2
    assert y > imputed - 0.02


def test_as_published_too_little_of_the_text_is_taken_where_nothing_was_clicked() -> None:
    y, imputed, affine = agreements(ApproximatedDR(combination="published"))["tail"]
    assert affine + 0.08 < y < imputed - 0.05


def test_features_and_clicks_share_no_weight() -> None:
    torch.manual_seed(0)
    tower = DoublyRobustMLP(tracked=3, imputation=(4,), sizes=(4,)).build(5, 3, slice(2, 3))
    documents = torch.randn(6, 5, requires_grad=True)
    outputs = tower(documents)
    assert not outputs[:, 2].any()  # the coefficient starts at 0
    nn.init.normal_(next(iter(tower.clicks.each[1][-1:])).weight)
    for output, moved in enumerate(([1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 1, 1, 1])):
        (gradient,) = torch.autograd.grad(tower(documents)[:, output].sum(), documents)
        assert gradient.abs().sum(0).sign().tolist() == moved
    with pytest.raises(ConfigError, match="42 of the features are to be tracked clicks, and there are 40"):
        DoublyRobustMLP().build(40, 3)


def test_the_published_loss_takes_the_text_away_where_little_is_clicked() -> None:
    """Below a click rate of a half most terms are + log y, so the coefficient runs towards -1."""
    documents, _, shown, clicks = head_and_tail(0)
    as_published = ApproximatedDR(combination="published")
    _, repaired = trained(as_published, documents, clicks)
    eq_5 = as_published.model_copy(update={"coefficient_loss": "published"})
    _, unbounded = trained(eq_5, documents, clicks)
    tail = shown <= 10
    assert repaired[tail, 2].tanh().mean() > 0
    assert unbounded[tail, 2].tanh().mean() < -0.5


# ---- which impressions are learned from


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=40, features=5, documents=(4, 8), seed=1)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    log = unskew.simulate(lists, "position", pages=3000, seed=2, randomized=0.4)
    times = np.random.default_rng(0).choice([0.0, 3.0, np.nan], len(log.row))
    return replace(log, columns={**log.columns, "display_time": times})


def test_impressions_are_kept_with_their_pages(log: Log) -> None:
    page = np.repeat(np.arange(len(log)), log.sizes)
    for what in ("displayed", "randomized"):
        assert log.randomized is not None
        shown_first = log.randomized & (log.position == 1)
        mask = log.columns["display_time"] == 3.0 if what == "displayed" else shown_first
        kept = selected(log, what)  # type: ignore[arg-type]
        assert np.array_equal(kept.row, log.row[mask])
        assert np.array_equal(kept.position, log.position[mask])
        assert np.array_equal(np.repeat(kept.query, kept.sizes), log.query[page[mask]])
        assert (kept.sizes > 0).all()
    assert selected(log, "randomized").position.max() == 1
    assert selected(log, "everything") is log


def test_training_and_held_out_clicks_are_of_one_kind(log: Log) -> None:
    asked = settings(Naive(loss="sigmoid"), "linear", None, None, {"learn_from": "randomized"}, None)
    data = split(log, None, asked)
    assert data.held_out is not None
    assert data.train.position.max() == data.held_out.position.max() == 1
    other = split(log, log, asked)
    assert other.held_out is not None
    assert len(other.held_out.row) == len(selected(log, "randomized").row)


def test_single_results_are_judged_one_by_one(log: Log) -> None:
    """The likelihood of held-out impressions, by hand; a list likelihood would be 0 whatever the weights."""
    run = unskew.learn(
        log,
        Naive(loss="sigmoid"),
        ranker="linear",
        steps=30,
        validate_every=10,
        learn_from="randomized",
        threads=1,
    )
    model = run.model
    assert isinstance(model, Model)
    only = selected(log, "randomized")
    batches = LogData(only, only).held_out_batches(model, torch.device("cpu"))
    assert batches is not None
    level = model.method.level.item()  # type: ignore[union-attr,operator]
    centre = model.method.centre.item()  # type: ignore[union-attr,operator]
    p = 1 / (1 + np.exp(-(model.score(only.lists)[only.row] - centre + level)))
    expected = np.where(only.click, np.log(p), np.log1p(-p)).mean()
    assert impression_likelihood(model, batches) == pytest.approx(expected, abs=1e-5)
    metrics = [point["metric"] for point in run.fit.curve]
    assert len(set(metrics)) == 3
    assert all(metric < 0 for metric in metrics)


def test_approximated_dr_learns_from_random_slots_unless_told(log: Log) -> None:
    assert settings("approximated_dr", None, None, None, {}, None).training.learn_from == "randomized"
    told = settings("approximated_dr", None, None, None, {"learn_from": "everything"}, None)
    assert told.training.learn_from == "everything"
    assert settings("naive", None, None, None, {}, None).training.learn_from == "everything"


def test_what_cannot_be_learned_from_is_said(log: Log, lists: Lists, tmp_path: Path) -> None:
    plain = replace(log, randomized=None, columns={})
    for what, missing in (("randomized", "randomized"), ("displayed", "display_time")):
        with pytest.raises(DataError, match=f'there is no column `{missing}`; learn_from="everything" takes all'):
            selected(plain, what)  # type: ignore[arg-type]
    assert log.randomized is not None
    with pytest.raises(DataError, match="no impression is randomized"):
        selected(replace(log, randomized=np.zeros_like(log.randomized)), "randomized")
    with pytest.raises(
        ConfigError, match='dla compares the results of a page, and learn_from = "randomized" leaves one'
    ):
        unskew.learn(log, "dla", learn_from="randomized")
    unskew.write_log(log, tmp_path / "log.parquet")
    unskew.write_letor(lists, tmp_path / "lists.txt")
    data = '[data]\nlog = "log.parquet"\nfeatures = "lists.txt"\nshards = 2\n'
    (tmp_path / "run.toml").write_text(f'out = "run"\n{data}[training]\nlearn_from = "displayed"\n')
    with pytest.raises(ConfigError, match=r"training.learn_from takes a log in memory, not data.shards"):
        unskew.learn(tmp_path / "run.toml")
