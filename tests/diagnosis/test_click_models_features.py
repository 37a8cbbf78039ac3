"""Click models whose attraction is a function of features: found again, and good for documents never shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew
from unskew.diagnosis.click_models.features import FeatureClickModel, cells_of, log_likelihood
from unskew.errors import ConfigError, DataError
from unskew.types import Lists, Log

torch.set_num_threads(1)
models = unskew.click_models
WEIGHTS, LEVEL = np.array([1.5, -1.0, 0.5, 0.0]), -1.0


def attraction(lists: Lists) -> np.ndarray:
    """What is true here: a linear function in log-odds."""
    return 1 / (1 + np.exp(-(lists.features[:, :4] @ WEIGHTS + LEVEL)))


@pytest.fixture(scope="module")
def lists() -> Lists:
    made = unskew.make_lists(queries=120, documents=10, features=4, seed=1)
    features = np.random.default_rng(1).normal(size=made.features.shape).astype(np.float32)
    return replace(made, features=features)


def drawn(lists: Lists, name: str, seed: int, pages: int = 6000) -> Log:
    """Pages of these lists, shuffled, with clicks of a model whose attraction follows the features."""
    log = unskew.simulate(lists, "position", pages=pages, seed=seed, randomized=1.0, cutoff=6)
    model = models.fit(log, name)
    curve = np.tile([1.0, 0.8, 0.6, 0.5, 0.4, 0.3, *[0.3] * 44], (51 if name == "ubm" else 1, 1)).T.ravel()
    true = {
        "examination": np.clip(curve, 0.01, 0.999999),
        "attractiveness": np.append(attraction(lists)[np.unique(log.row)], 0.5),
    }
    clicked = replace(model, parameters=true).sample(log, seed=seed)
    assert isinstance(clicked, Log)
    return clicked


@pytest.fixture(scope="module")
def judge(lists: Lists) -> FeatureClickModel:
    return models.fit_with_features(drawn(lists, "pbm", 2), "pbm")


def test_a_linear_function_is_found(judge: FeatureClickModel, lists: Lists) -> None:
    curve = judge.fitted.examination()
    assert curve is not None
    assert curve[:6] == pytest.approx([1.0, 0.8, 0.6, 0.5, 0.4, 0.3], rel=0.1)
    found = judge.attractiveness(lists.features) * judge.fitted.parameters["examination"][0]
    assert float(np.abs(found - attraction(lists)).mean()) < 0.03


def test_it_holds_for_documents_that_were_never_shown(judge: FeatureClickModel, lists: Lists) -> None:
    features = np.random.default_rng(7).normal(size=lists.features.shape).astype(np.float32)
    new = replace(lists, features=features, query_ids=lists.query_ids + 10_000)
    log = drawn(new, "pbm", 3, pages=1500)
    everything = judge.on(new)
    assert len(everything.pairs) == len(new.features)
    assert everything.log_likelihood(log) > judge.fitted.log_likelihood(log) + 0.1
    assert len(everything.relevance()) == 0  # the log it was fitted to shows none of them


def test_ubm_and_networks_too(lists: Lists) -> None:
    log = drawn(lists, "ubm", 4, pages=3000)
    plain = models.fit(log, "ubm")
    found = models.fit_with_features(log, "ubm", models.Descent(hidden=[8], steps=150))
    assert found.fitted.log_likelihood(log) > plain.log_likelihood(log) - 0.1
    again = models.fit_with_features(log, "ubm", models.Descent(hidden=[8], steps=150))
    assert np.array_equal(again.attractiveness(lists.features), found.attractiveness(lists.features))


def test_the_loss_is_the_likelihood_of_the_counts(lists: Lists) -> None:
    log = drawn(lists, "pbm", 5, pages=200)
    model = models.fit(log, "pbm")
    pages = models.read_pages(log)
    counts = model.model.counter(pages)(pages.weight)
    a, theta = (
        torch.logit(torch.from_numpy(model.parameters[kind]))[torch.from_numpy(index)]
        for kind, index in (("attractiveness", counts.pair), ("examination", counts.condition))
    )
    found = log_likelihood(a, theta, *(torch.from_numpy(part) for part in (counts.clicks, counts.unclicked)))
    expected = model.model.expect(counts, model.parameters).log_likelihood / len(log.row)
    assert float(found) == pytest.approx(expected, rel=1e-6)
    part = np.random.default_rng(0).integers(3, size=len(pages.pairs))
    batches = list(cells_of(counts, part, 3))
    assert sorted(np.concatenate(batches)) == list(range(len(counts.pair)))
    assert all(len(np.unique(part[counts.pair[cells]])) == 1 for cells in batches)


def test_what_cannot_be_is_told(judge: FeatureClickModel, lists: Lists) -> None:
    log = drawn(lists, "pbm", 6, pages=50)
    with pytest.raises(ConfigError, match="features are for pbm and ubm"):
        models.fit_with_features(log, "dbn")
    with pytest.raises(ConfigError, match="steps"):
        models.fit_with_features(log, "pbm", models.Descent(steps=0))
    with pytest.raises(DataError, match="give 4 a document"):
        judge.attractiveness(np.zeros((2, 3)))
