"""BAL: influence models and weights against known densities, graphs during training, and a page with bias."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import unskew
from unskew.diagnosis.causal.discovery import Discovery
from unskew.diagnosis.causal.graph import graph_of
from unskew.diagnosis.causal.page import (
    Influence,
    Memory,
    PageCauses,
    PageEncoding,
    Seen,
    Variable,
    confounding_weights,
    effective_share,
    page_variables,
    spread,
)
from unskew.errors import ConfigError
from unskew.learning.methods import BAL
from unskew.learning.methods.contract import Context
from unskew.logs.presentation import fit_presentation
from unskew.simulation import WholePage, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import ClickBatch, Log
from unskew_reproductions.methods import FBBAL, PBBAL

pytest.importorskip("causallearn", reason="causal-learn is not installed")
torch.set_num_threads(1)

FACTORS = ("serp_media", "serp_height", "serp_max_height")
QUICK = Discovery(sample=100, test="gsq")


def gaussian(x: Tensor, mean: Tensor | float, deviation: float) -> Tensor:
    return -0.5 * ((x - mean) / deviation) ** 2 - math.log(deviation) - 0.5 * math.log(2 * math.pi)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=100, features=8, documents=12, seed=3)
    return simulate(lists, WholePage(), pages=1_000, seed=1)


# ---- weights ----


def test_weights_by_hand() -> None:
    target, source = torch.tensor([[0.2, 0.8], [0.5, 0.5]]), torch.tensor([[0.4, 0.4], [0.25, 0.5]])
    raw = [0.2 / 0.4 * 0.5 / 0.25, 0.8 / 0.4 * 0.5 / 0.5]
    found = confounding_weights(target.log(), source.log(), shown=torch.tensor([1.0, 3.0]), clip=10.0)
    mean = (raw[0] + 3 * raw[1]) / 4
    assert found.tolist() == pytest.approx([raw[0] / mean, raw[1] / mean])
    share = effective_share(found, shown=torch.tensor([1.0, 3.0])).item()
    assert share == pytest.approx((raw[0] + 3 * raw[1]) ** 2 / (4 * (raw[0] ** 2 + 3 * raw[1] ** 2)))


def test_weights_are_clipped_and_finite() -> None:
    log_target, shown = torch.tensor([[100.0, -100.0, math.nan, 0.0]]), torch.tensor([1.0, 1.0, 1.0, 0.0])
    found = confounding_weights(log_target, torch.zeros(1, 4), shown=shown, clip=5.0)
    assert found[0] / found[1] == pytest.approx(25.0)
    assert found[3] == 0
    assert found.isfinite().all()
    nothing = confounding_weights(torch.zeros(1, 2), torch.zeros(1, 2), shown=torch.zeros(2), clip=5.0)
    assert nothing.tolist() == [0.0, 0.0]


def test_the_product_of_weights_is_clipped() -> None:
    """Two variables that each ask for 4: together 16, and 5 at most."""
    log_target = torch.tensor([[4.0, 1.0], [4.0, 1.0]]).log()
    found = confounding_weights(log_target, torch.zeros(2, 2), shown=torch.ones(2), clip=5.0)
    assert found[0] / found[1] == pytest.approx(5.0)


def test_quantiles_count_impressions() -> None:
    r, shown = torch.tensor([[2.0, 1.0, 3.0, 99.0]]), torch.tensor([[1.0, 2.0, 1.0, 0.0]])
    assert spread(r, shown, 4).tolist() == [1.0, 1.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def world() -> tuple[Tensor, Tensor, Tensor, Influence]:
    """r -> x with x = 0.4 r + 0.8 noise, and the influence model that learned it from 4,000 impressions."""
    torch.manual_seed(0)
    r = torch.randn(4000)
    x = 0.4 * r + 0.8 * torch.randn(4000)
    model = Influence([Variable("x", "continuous", 0)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    parents = torch.tensor([[1.0, 0.0]])
    for _ in range(400):
        loss = -model.log_density(0, r, model.encoding({"x": x}), {"x": x}, parents).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return r, x, parents, model.requires_grad_(False)


def test_weights_equal_the_analytic_ratio(world: tuple[Tensor, Tensor, Tensor, Influence]) -> None:
    r, x, parents, model = world
    encoded = model.encoding({"x": x})
    source = model.log_density(0, r, encoded, {"x": x}, parents)
    target = model.log_marginal(0, spread(r, torch.ones_like(r), 64), encoded, {"x": x}, parents)
    found = confounding_weights(target[None], source[None], shown=torch.ones_like(r), clip=20.0).log()
    exact = gaussian(x, 0.0, math.sqrt(0.16 + 0.64)) - gaussian(x, 0.4 * r, 0.8)
    middle = (r.abs() < 2) & (x.abs() < 1.8)
    assert (found - exact)[middle].abs().mean() < 0.05  # and their means are those of a ratio: 1
    assert np.corrcoef(found[middle], exact[middle])[0, 1] > 0.98


def test_the_reweighted_sample_is_independent(world: tuple[Tensor, Tensor, Tensor, Influence]) -> None:
    from unskew.diagnosis.causal.discovery import library

    r, x, parents, model = world
    encoded = model.encoding({"x": x})
    source = model.log_density(0, r, encoded, {"x": x}, parents)
    target = model.log_marginal(0, spread(r, torch.ones_like(r), 64), encoded, {"x": x}, parents)
    weights = confounding_weights(target[None], source[None], shown=torch.ones_like(r), clip=20.0)

    def p_value(chance: Tensor) -> float:
        rows = torch.multinomial(chance, 300, replacement=False)
        columns = [column[rows].double().numpy()[:, None] for column in (r, x)]
        return float(library().test(columns, "kci")(0, 1, ()))

    torch.manual_seed(1)
    assert p_value(torch.ones_like(r)) < 1e-3
    assert np.median([p_value(weights) for _ in range(5)]) > 0.05


def test_a_network_that_has_no_parents_is_a_marginal(world: tuple[Tensor, Tensor, Tensor, Influence]) -> None:
    r, x, _, model = world
    alone = torch.zeros(1, 2)
    encoded = model.encoding({"x": x})
    source = model.log_density(0, r, encoded, {"x": x}, alone)
    target = model.log_marginal(0, r[:8], encoded, {"x": x}, alone)
    torch.testing.assert_close(source, target)


def test_encodings_of_every_kind() -> None:
    columns = {
        "serp_media": np.array(["a", "b", "a"]),
        "serp_rows": np.array([1, 2, 5]),
        "serp_h": np.array([0.5, 1.5, 9]),
    }
    variables = page_variables(4, fit_presentation(columns, list(columns)), ("serp_rows", "serp_media", "serp_h"))
    assert [(v.name, v.kind, v.size) for v in variables] == [
        ("position", "ordinal", 6),
        ("serp_rows", "ordinal", 5),
        ("serp_media", "categorical", 4),
        ("serp_h", "continuous", 0),
    ]
    values = {"position": [0, 3, 9], "serp_rows": [0, 2, 4], "serp_media": [0, 1, 3], "serp_h": [-1.0, 1.0, 99.0]}
    found = PageEncoding(variables)({name: torch.tensor(value) for name, value in values.items()})
    assert found.shape == (3, 4, 4)
    assert found[0, 0, 0] < found[1, 0, 0]  # ranks in order
    assert found[2, 1].tolist() == [0, 0, 0, 0]  # missing
    assert found[:, 3, 0].tolist() == [-1.0, 1.0, 8.0]
    for index, variable in enumerate(variables):  # every density sums to 1
        if variable.size:
            model = Influence(variables)
            every = {n: torch.tensor(v)[:1].expand(variable.size) for n, v in values.items()}
            every |= {variable.name: torch.arange(variable.size)}
            parents = torch.ones(4, 5) - torch.eye(4, 5).roll(1, 1)  # all but itself
            log_p = model.log_density(index, torch.zeros(variable.size), model.encoding(every), every, parents)
            assert log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_the_density_of_a_number_sums_to_one() -> None:
    torch.manual_seed(0)
    model = Influence([Variable("x", "continuous", 0)])
    with torch.no_grad():
        for weight in model.conditionals[0].parameters():
            weight.mul_(2.0)
        x = torch.linspace(-7.9, 7.9, 4000)
        values, r = {"x": x}, torch.full_like(x, 0.7)
        density = model.log_density(0, r, model.encoding(values), values, torch.tensor([[1.0, 0.0]])).exp()
    assert torch.trapezoid(density, x).item() == pytest.approx(1.0, abs=1e-3)


def test_a_density_depends_on_its_parents_alone() -> None:
    torch.manual_seed(0)
    model = Influence([Variable(name, "continuous", 0) for name in ("x", "y")])
    values = {"x": torch.tensor([0.3]), "y": torch.tensor([-0.4])}

    def density(r: float, y: float, parents: list[float]) -> float:
        moved = values | {"y": torch.tensor([y])}
        rows = torch.tensor([parents, parents])
        return model.log_density(0, torch.tensor([r]), model.encoding(moved), values, rows).item()

    for parents, by_r, by_y in (([1.0, 0.0, 0.0], True, False), ([0.0, 0.0, 1.0], False, True)):
        plain = density(0.5, -0.4, parents)
        assert (density(1.5, -0.4, parents) != plain) == by_r
        assert (density(0.5, 0.9, parents) != plain) == by_y


def test_what_stands_for_relevance_is_standardised_over_impressions() -> None:
    score = torch.tensor([[1.0, 4.0, 1e6]])
    found = Seen(score, {}, torch.zeros(1, 3), torch.tensor([[3.0, 1.0, 0.0]])).relevance
    mean, deviation = (3 * 1 + 4) / 4, math.sqrt((3 * 0.75**2 + 2.25**2) / 4)
    assert found[0, :2].tolist() == pytest.approx([(1 - mean) / deviation, (4 - mean) / deviation])


# ---- graphs during training ----


def seen(rows: int = 40) -> Seen:
    torch.manual_seed(3)
    shape = (rows, 5)
    position = torch.arange(5).expand(shape)
    clicks = (torch.rand(shape) < 0.7 - 0.13 * position).float()
    return Seen(torch.randn(shape), {"position": position}, clicks, torch.ones(shape))


def test_memory_keeps_the_latest_and_more_clicks() -> None:
    memory = Memory(3, 8)
    for step in range(10):
        rows = torch.tensor([[step, i, i % 2] for i in range(6)], dtype=torch.float32)
        memory.add(rows)
    held, extra = memory.held()
    assert held.shape == (12, 3)
    assert (held[~extra, 0] >= 6).all()  # two of each step, and room for eight
    assert (held[extra, -1] == 1).all()
    assert torch.equal(memory.state_dict()["bits"].view(torch.float32)[:8], held[:8])


def test_a_graph_is_looked_for_when_due_and_kept_where_nothing_is_told() -> None:
    causes = PageCauses([Variable("position", "ordinal", 7)], None, Discovery(sample=200, test="gsq"))
    for step in range(-3, 0):
        causes.follow(seen(), step, 5)
    assert causes.notes()["graph"] == [["relevance", "click"]]
    causes.follow(seen(), 0, 5)
    assert ["position", "click"] in causes.notes()["graph"]
    quiet = seen()
    assert causes.memory is not None
    causes.memory.count.zero_()
    with pytest.warns(
        UserWarning, match="the causal graph stays as it is: .*every impression is clicked, or none"
    ):
        causes.follow(Seen(quiet.score, quiet.values, torch.zeros_like(quiet.clicks), quiet.shown), 5, 5)
    assert ["position", "click"] in causes.notes()["graph"]


def test_a_first_look_that_tells_nothing_leaves_every_cause() -> None:
    variables = [Variable("position", "ordinal", 7), Variable("serp_height", "continuous", 0)]
    causes, quiet = PageCauses(variables, None, Discovery(sample=200, test="gsq")), seen()
    values = {**quiet.values, "serp_height": torch.randn_like(quiet.score)}
    with pytest.warns(UserWarning, match="all that the page shows is taken for a cause: .*every impression"):
        causes.follow(Seen(quiet.score, values, torch.zeros_like(quiet.clicks), quiet.shown), 0, 5)
    assert causes.of_click().tolist() == [1.0, 1.0]
    weights, _ = causes.weigh(Seen(quiet.score, values, quiet.clicks, quiet.shown), grid=4, clip=5.0)
    assert weights is not None


def test_no_weights_without_confounding() -> None:
    variables, names = [Variable("position", "ordinal", 7)], ("relevance", "position", "click")
    for edges, asked in (([("position", "click")], False), ([("relevance", "position")], False)):
        causes = PageCauses(variables, graph_of(names, edges), QUICK)
        assert (causes.weigh(seen(), grid=4, clip=5.0)[0] is not None) is asked
    both = graph_of(names, [("relevance", "position"), ("position", "click")])
    weights, loss = PageCauses(variables, both, QUICK).weigh(seen(), grid=4, clip=5.0)
    assert weights is not None
    assert weights.mean().item() == pytest.approx(1.0)
    assert not weights.requires_grad
    assert loss.requires_grad


def test_the_networks_of_the_page_learn_what_it_shows() -> None:
    """Relevance decides the rank: after some steps it is likelier, given relevance, than by chance."""
    names = ("relevance", "position", "click")
    known = graph_of(names, [("relevance", "position"), ("position", "click")])
    causes = PageCauses([Variable("position", "ordinal", 7)], known, QUICK)
    rank = torch.arange(5).expand(40, 5)
    page = Seen(-rank.float(), {"position": rank}, torch.zeros(40, 5), torch.ones(40, 5))
    optimizer = torch.optim.Adam(causes.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        _, loss = causes.weigh(page, grid=4, clip=5.0)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > math.log(3)
    assert losses[-1] < math.log(1.5)


# ---- the method ----


def batch_of(log: Log, method: BAL | FBBAL | PBBAL) -> tuple[Tensor, ClickBatch, unskew.methods.MethodModule]:
    from unskew.logs.counts.batches import Batches
    from unskew.workflows.runs.data import LogData

    context: Context = LogData(log).context(method)
    torch.manual_seed(0)
    batch = Batches(method.table(log, context.presentation), size=32).at(0)
    relevance = torch.randn(*batch.where.shape, 1, requires_grad=True)
    return relevance, batch, method.build(context)


def test_variants_have_their_graphs(log: Log) -> None:
    _, _, position = batch_of(log, PBBAL(factors=FACTORS))
    assert position.notes()["graph"] == [["relevance", "click"], ["position", "click"]]
    _, _, full = batch_of(log, FBBAL(factors=FACTORS))
    assert len(full.notes()["graph"]) == 9
    with pytest.raises(ConfigError, match="serp_other, which is not among"):
        batch_of(log, BAL(factors=FACTORS, graph=(("serp_other", "click"),)))
    with pytest.raises(ConfigError, match="forbidden"):
        batch_of(log, BAL(factors=FACTORS, graph=(("click", "position"),)))


def test_settings_from_a_run_file() -> None:
    from unskew.learning.methods import LEARNERS
    from unskew.settings import table_of

    table = {"name": "bal", "graph": [["position", "click"]], "discovery": {"alpha": 0.01, "test": "gsq"}}
    expected = BAL(graph=(("position", "click"),), discovery=Discovery(alpha=0.01, test="gsq"))
    assert table_of("method", table, LEARNERS) == expected
    with pytest.raises(ConfigError, match=r"method.discovery.alpah: unknown key. Did you mean alpha"):
        table_of("method", {"name": "bal", "discovery": {"alpah": 0.1}}, LEARNERS)


def test_the_loss_by_hand(log: Log) -> None:
    relevance, batch, method = batch_of(log, PBBAL(factors=FACTORS, warmup=0, centred=False))
    loss = method(relevance, batch).item()
    rate = float(log.click.mean())
    level = next(value for name, value in method.named_parameters() if name == "level").item()
    assert level == pytest.approx(math.log(rate / (1 - rate)), abs=0.3)
    total = 0.0
    for b, k in batch.where.nonzero().tolist():
        p = 1 / (1 + math.exp(-(relevance[b, k, 0].item() + level)))  # the network starts at slope 1 and level 0
        total -= math.log(p) if batch.clicks[b, k] else math.log(1 - p)
    assert loss == pytest.approx(total / len(batch.where), rel=1e-4)


def test_the_warm_start_is_naive_and_weights_come_after(log: Log) -> None:
    relevance, batch, method = batch_of(log, FBBAL(factors=FACTORS, warmup=2))
    for step in range(3):
        method.zero_grad()
        method(relevance, batch).backward()
        shaped = next(p for n, p in method.named_parameters() if "conditionals.0.out" in n).grad
        assert (shaped is not None and bool(shaped.abs().sum() > 0)) == (step == 2)


def test_gradients_reach_the_ranker_through_its_score_alone(log: Log) -> None:
    relevance, batch, method = batch_of(log, FBBAL(factors=FACTORS, warmup=0, centred=False))
    method(relevance, batch).backward()
    assert relevance.grad is not None
    shown, z = batch.impressions, relevance[..., 0] + method.get_parameter("level")
    expected = (shown * z.sigmoid() - batch.clicks).where(batch.where, 0.0) / len(batch.where)
    ratio = (relevance.grad[..., 0] / expected)[batch.where]  # w of each result, and nothing through p(x | r)
    assert (ratio > 0).all()
    assert ratio.mean().item() == pytest.approx(1.0, abs=1e-3)


def test_each_impression_counts_by_its_weight(log: Log) -> None:
    """sum w ce / pages, and the loss of the networks; w as the graph asks for, held constant."""
    relevance, batch, method = batch_of(log, FBBAL(factors=FACTORS, warmup=0, centred=False))
    shown = batch.impressions.where(batch.where, 0.0)
    page = Seen(relevance[..., 0].detach(), method.values(batch), batch.clicks, shown)
    weights, shaping = method.causes.weigh(page, grid=method.config.grid, clip=method.config.clip)
    assert weights is not None
    assert weights[batch.where].std() > 0.01
    z, total = relevance[..., 0] + method.get_parameter("level"), 0.0
    for b, k in batch.where.nonzero().tolist():
        p, c, n = z[b, k].sigmoid().item(), batch.clicks[b, k].item(), shown[b, k].item()
        total -= weights[b, k].item() * (c * math.log(p) + (n - c) * math.log(1 - p))
    assert method(relevance, batch).item() == pytest.approx(total / len(batch.where) + shaping.item(), rel=1e-4)


def test_clicks_depend_on_their_causes_alone_and_not_in_the_warm_start(log: Log) -> None:
    """relevance -> serp_height, serp_media -> click: of the page, media alone, and nothing at first."""
    graph = (("relevance", "serp_height"), ("serp_media", "click"))
    relevance, batch, method = batch_of(log, BAL(factors=FACTORS, warmup=3, graph=graph))
    torch.manual_seed(4)
    for parameter in method.page.parameters():
        parameter.data = torch.randn_like(parameter)

    def moved(name: str, step: int) -> bool:
        method.step.fill_(step)
        column = batch.serp[name]
        other = replace(batch, serp=batch.serp | {name: column.flip(0) if name == "serp_media" else column + 1.5})
        with torch.no_grad():
            found = [method.eval().logits(relevance, each)[batch.where] for each in (batch, other)]
        return not torch.equal(*found)

    assert [moved(name, 3) for name in ("serp_media", "serp_height")] == [True, False]
    assert not moved("serp_media", 2)


def test_ranks_are_told_apart_to_the_last(log: Log) -> None:
    relevance, batch, method = batch_of(log, PBBAL(warmup=0))
    torch.manual_seed(4)
    for parameter in method.page.parameters():
        parameter.data = torch.randn_like(parameter)
    with torch.no_grad():
        found = method.eval().logits(torch.zeros_like(relevance), batch)[batch.where]
    by_rank = dict(zip(batch.position[batch.where].tolist(), found.tolist(), strict=True))
    assert len(set(by_rank.values())) == method.positions == len(by_rank)


def test_a_better_score_never_lowers_the_click(log: Log) -> None:
    relevance, batch, method = batch_of(log, FBBAL(factors=FACTORS, warmup=0))
    torch.manual_seed(4)
    for parameter in method.parameters():
        parameter.data = 2 * torch.randn_like(parameter)
    low = method.click_probability(relevance, batch)
    high = method.click_probability(relevance + 0.5, batch)
    assert low is not None
    assert high is not None
    assert (high >= low)[batch.where].all()


def test_learning_records_its_graphs_and_can_be_loaded(tmp_path: Path, log: Log) -> None:
    method = BAL(factors=FACTORS, warmup=10, refresh=20, discovery=QUICK)
    run = unskew.learn(log, method, ranker="linear", steps=40, batch=64, validate_every=10, out=tmp_path / "run")
    notes = [point["notes"] for point in run.fit.curve]
    assert notes[0]["graph"] == [["relevance", "click"]]
    assert len(notes[-1]["graph"]) > 1
    assert 0 < notes[-1]["effective_share"] <= 1
    again = unskew.load(tmp_path / "run")
    np.testing.assert_allclose(again.score(log.lists), run.score(log.lists), rtol=1e-5)


@pytest.mark.slow
def test_on_a_page_with_bias_it_beats_those_that_know_the_rank_alone() -> None:
    lists = make_lists(queries=400, features=16, documents=20, seed=21, world=21)
    test = make_lists(queries=200, features=16, documents=20, seed=22, world=21)
    log = simulate(lists, WholePage(), pages=15_000, seed=5)

    def dcg(method: str | BAL) -> float:
        run = unskew.learn(log, method, seed=1, steps=250, batch=128)
        return unskew.measure_ranking(run.score(test), test, ["dcg@10"]).means["dcg@10"]

    few = Discovery(alpha=0.1, sample=600)
    assert dcg(BAL(factors=FACTORS, discovery=few)) > max(dcg("naive"), dcg("dla")) + 0.2
