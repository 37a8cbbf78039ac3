"""A trained model: scoring in every shape, ranking, and the way to disk and back for every method."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew
from tests.helpers.every_method import CALLED, METHODS
from unskew.errors import DataError, RunError
from unskew.files import read_json
from unskew.learning.methods import Context
from unskew.learning.rankers import MLP, Linear
from unskew.learning.scoring import scorer as scorer_module
from unskew.learning.scoring.model import Model, build, load
from unskew.learning.scoring.onnx_file import available
from unskew.tables.lists.scaling import SCALINGS, fit_scaler
from unskew.types import Lists, Log
from unskew.workflows.runs.data import LogData

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=30, features=6, documents=(2, 12), seed=1)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=3000, seed=2, randomized=0.5)


def small_model(log: Log, method: str = "dla", scaling: str = "standard", *, linear: bool = False) -> Model:
    """Untrained, so quick to make; its weights and buffers are moved off their starting values."""
    torch.manual_seed(3)
    config = METHODS[method]()
    context = LogData(log).context(config)
    ranker = Linear() if linear else MLP(sizes=(8,))
    made = build(config, ranker, fit_scaler(scaling, log.lists), log.lists.dim, context)
    with torch.no_grad():
        for parameter in (*made.ranker.parameters(), *made.method.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


# ------------------------------------------------------------------------------------------- scoring


@pytest.mark.parametrize("scaling", ["none", "standard", "query_minmax"])
def test_lists_one_list_and_a_block_of_lists_score_alike(log: Log, lists: Lists, scaling: str) -> None:
    model = small_model(log, scaling=scaling)
    whole = model.score(lists)
    assert whole.shape == (len(lists.features),)
    assert whole.std() > 0.1
    for start, stop in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        np.testing.assert_allclose(
            model.score(lists.features[start:stop]), whole[start:stop], rtol=1e-4, atol=1e-5
        )

    even = unskew.make_lists(queries=7, features=6, documents=(5, 5), seed=4)
    block = model.score(even.features.reshape(7, 5, 6))
    assert block.shape == (7, 5)
    np.testing.assert_allclose(block.ravel(), model.score(even), rtol=1e-4, atol=1e-5)


def test_a_linear_model_scores_as_written(log: Log, lists: Lists) -> None:
    model = small_model(log, "naive", linear=True)
    weight, bias = (parameter.detach().double().numpy() for parameter in model.ranker.parameters())
    features = np.asarray(lists.features, float)
    expected = (features - features.mean(0)) / features.std(0) @ weight[0] + bias[0]
    np.testing.assert_allclose(model.score(lists), expected, rtol=1e-3, atol=1e-4)


def test_scores_have_no_dropout(log: Log, lists: Lists) -> None:
    """Not even in the middle of training, where validations score."""
    config = METHODS["dla"]()
    ranker, scaler = MLP(sizes=(8,), dropout=0.5), fit_scaler("standard", log.lists)
    model = build(config, ranker, scaler, log.lists.dim, LogData(log).context(config))
    scores = []
    for _ in range(2):
        model.ranker.train()
        scores.append(model.score(lists))
    assert np.array_equal(*scores)


def test_a_network_is_trained_on_what_it_is_asked_about(log: Log, lists: Lists) -> None:
    """The features of a batch, row by row, are those that a score is made of."""
    model = small_model(log)
    trained = model.input(lists).gather(torch.arange(len(lists.features))).numpy()
    assert np.array_equal(trained, model.prepared(lists))
    features = np.asarray(lists.features, float)
    np.testing.assert_allclose(trained, (features - features.mean(0)) / features.std(0), rtol=1e-3, atol=1e-4)


def test_rank_is_best_first_and_keeps_the_order_of_ties(log: Log, lists: Lists) -> None:
    model = small_model(log)
    two = lists.features[:2]
    better, worse = model.rank(two)
    scores = model.score(two)
    assert scores[better] > scores[worse]
    copies = two[[worse, better, worse, better, worse]]
    assert model.rank(copies).tolist() == [1, 3, 0, 2, 4]


def test_wrong_width_names_both(log: Log) -> None:
    model = small_model(log)
    for shape in ((3, 5), (2, 3, 5)):
        with pytest.raises(DataError, match=r"trained on 6 features.* have 5"):
            model.score(np.zeros(shape, np.float32))
    with pytest.raises(DataError, match=r"not \(6,\)"):
        model.score(np.zeros(6, np.float32))


def test_lists_without_documents(log: Log, lists: Lists) -> None:
    model = small_model(log, scaling="query_minmax")
    assert model.score(np.zeros((0, 6), np.float32)).shape == (0,)
    assert model.rank(np.zeros((0, 6), np.float32)).shape == (0,)
    assert model.score(np.zeros((3, 0, 6), np.float32)).shape == (3, 0)
    assert model.score(lists.take(np.zeros(0, np.int64))).shape == (0,)

    third = int(lists.offsets[3])  # an empty list in the middle changes nothing
    offsets = np.insert(lists.offsets, 3, third)
    gap = Lists(lists.features, offsets, lists.labels, np.arange(len(offsets) - 1))
    np.testing.assert_allclose(model.score(gap), model.score(lists), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaling", ["standard", "query_minmax"])
@pytest.mark.parametrize("chunk", [1, 17, 40])
def test_chunks_do_not_change_scores(
    log: Log, lists: Lists, monkeypatch: pytest.MonkeyPatch, scaling: str, chunk: int
) -> None:
    model = small_model(log, scaling=scaling)
    whole = model.score(lists)
    monkeypatch.setattr(scorer_module, "_CHUNK", chunk)
    ranges = list(scorer_module.list_chunks(lists.offsets))
    assert len(ranges) > 3
    assert [first for first, _ in ranges] == [0, *(last for _, last in ranges[:-1])]
    assert ranges[-1][1] == len(lists)
    np.testing.assert_allclose(model.score(lists), whole, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------- saving and loading


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back_bit_for_bit(log: Log, lists: Lists, tmp_path: Path, name: str) -> None:
    model = unskew.learn(log, CALLED[name], ranker=MLP(sizes=(8,)), steps=4, batch=16, validate_on="nothing").model
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.score(lists).tobytes() == model.score(lists).tobytes()
    before, after = model.propensity(), again.propensity()
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert after.tobytes() == before.tobytes()
    assert again.method_config == model.method_config
    assert again.card == model.card
    for mine, its in ((model.ranker, again.ranker), (model.method, again.method)):
        assert mine.state_dict().keys() == its.state_dict().keys()
        assert all(torch.equal(value, its.state_dict()[key]) for key, value in mine.state_dict().items())


@pytest.mark.parametrize("scaling", SCALINGS)
def test_every_scaling_comes_back(tmp_path: Path, scaling: str) -> None:
    text = "2 qid:1 1:0.5 3:2.25\n0 qid:1 2:1.5\n1 qid:2 1:3 2:4 3:5\n0 qid:2 3:1\n"
    (tmp_path / "sparse.txt").write_text(text)
    sparse = unskew.read_letor(tmp_path / "sparse.txt")
    assert sparse.present is not None  # absent entries stay 0 under the kinds `ultra`
    torch.manual_seed(0)
    made = build(METHODS["naive"](), MLP(sizes=(4,)), fit_scaler(scaling, sparse), 3, Context(2))
    made.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.scaler.kind == scaling
    assert again.score(sparse).tobytes() == made.score(sparse).tobytes()


def test_a_model_is_data_and_not_code(log: Log, tmp_path: Path) -> None:
    small_model(log).save(tmp_path / "model")
    files = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert files == ["model.json", *(["model.onnx"] if available() else []), "weights.safetensors"]
    for path in (tmp_path / "model").iterdir():
        content = path.read_bytes()
        assert not content.startswith((b"\x80", b"PK"))  # a pickle, or torch.save's archive of one
    assert json.loads((tmp_path / "model" / "model.json").read_text())["format"] == 2


def test_saving_does_not_overwrite_unless_told(log: Log, lists: Lists, tmp_path: Path) -> None:
    first, second = small_model(log), small_model(log, "naive")
    first.save(tmp_path)
    with pytest.raises(RunError, match=r"exists and is never overwritten"):
        second.save(tmp_path)
    assert load(tmp_path).card.method["name"] == "dla"
    second.save(tmp_path, force=True)
    assert load(tmp_path).card.method["name"] == "naive"
    np.testing.assert_array_equal(load(tmp_path).score(lists), second.score(lists))


@pytest.fixture
def saved(log: Log, tmp_path: Path) -> Path:
    small_model(log).save(tmp_path / "run")
    return tmp_path / "run"


def edit(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps(read_json(path) | changes))


def test_truncated_weights(saved: Path) -> None:
    content = (saved / "weights.safetensors").read_bytes()
    for length in (0, 4, len(content) // 2, len(content) - 1):
        (saved / "weights.safetensors").write_bytes(content[:length])
        with pytest.raises(RunError, match=r"run: the model cannot be read"):
            load(saved)
    (saved / "weights.safetensors").unlink()
    with pytest.raises(RunError, match=r"run: the model cannot be read"):
        load(saved)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "{}", '{"format": 2}', b"\xff\xfe"])
def test_broken_json(saved: Path, text: str | bytes) -> None:
    (saved / "model.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RunError, match=r"run: the model cannot be read"):
        load(saved)


def test_a_future_format(saved: Path) -> None:
    edit(saved, format=3)
    with pytest.raises(RunError, match=r"written in format 3, this version reads 2"):
        load(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"name": "dlaa"}}, r"method.name: unknown name 'dlaa'\. Did you mean dla\?"),
        ({"method": {"name": "dla", "speed": 3}}, "speed"),
        ({"ranker": {"name": "mpl"}}, r"ranker.name: unknown name 'mpl'\. Did you mean mlp\?"),
        ({"ranker": {"name": "mlp", "sizes": [9]}}, "the weights do not fit model.json"),
        ({"positions": 3}, "the weights do not fit model.json"),
        ({"scaling": "standart"}, r"Did you mean standard\?"),
        ({"scaling": "minmax", "features": 7}, "the weights do not fit model.json"),
        ({"scaling": "none"}, "a none scaler has the arrays"),
    ],
)
def test_model_json_that_says_something_else(saved: Path, changes: dict[str, object], message: str) -> None:
    edit(saved, **changes)
    with pytest.raises(RunError, match=message):
        load(saved)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nothing: there is no such run"):
        load(tmp_path / "nothing")


# ------------------------------------------------------------------------------------------- methods of one's own


def own_method(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a method, in a folder that Python finds modules in; it says when it is imported."""
    (folder / "mine_of_test.py").write_text(
        "from typing import Literal\nfrom unskew.learning.methods import Naive\nprint('imported')\n"
        'class Mine(Naive):\n    """Clicks."""\n\n    name: Literal["mine"] = "mine"\n    many: int = 3\n'
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "mine_of_test", raising=False)


def test_a_method_of_ones_own_is_named_by_its_place(
    log: Log, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_method(tmp_path, monkeypatch)
    how = {"ranker": MLP(sizes=(8,)), "steps": 3, "engine": "none", "validate_on": "nothing"}
    first = unskew.learn(log, "mine_of_test:Mine", **how)
    method = type(first.model.method_config)(many=5)
    run = unskew.learn(log, method, **how)
    run.model.save(tmp_path / "run")
    assert (first.model.method_config.name, first.model.method_config.many) == ("mine", 3)
    assert run.model.card.method == {**method.model_dump(), "name": "mine_of_test:Mine"}
    again = load(tmp_path / "run")
    assert again.method_config == method
    assert again.score(lists).tobytes() == first.score(lists).tobytes() == run.score(lists).tobytes()


def test_a_model_imports_nothing_that_it_names(
    log: Log, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever can write a file of a model could else run what they like where it is loaded."""
    small_model(log, "naive").save(tmp_path / "model")
    own_method(tmp_path, monkeypatch)
    card = read_json(tmp_path / "model" / "model.json")
    card["method"]["name"] = "mine_of_test:Mine"
    (tmp_path / "model" / "model.json").write_text(json.dumps(card))
    with pytest.raises(RunError, match=r"mine_of_test:Mine is not imported.*import mine_of_test first"):
        load(tmp_path / "model")
    assert "mine_of_test" not in sys.modules
    assert capsys.readouterr().out == ""
    import_module("mine_of_test")
    assert np.isfinite(load(tmp_path / "model").score(lists)).all()
    card["method"]["name"] = "unskew_reproductions.formats.ubiquitous:Mine"  # ours are methods alone
    (tmp_path / "model" / "model.json").write_text(json.dumps(card))
    with pytest.raises(RunError, match="is not imported because a file names it"):
        load(tmp_path / "model")
    card["method"]["name"] = "json:JSONDecoder"
    (tmp_path / "model" / "model.json").write_text(json.dumps(card))
    with pytest.raises(RunError, match=r"no subclass of unskew.learning.methods.contract.MethodConfig"):
        load(tmp_path / "model")
