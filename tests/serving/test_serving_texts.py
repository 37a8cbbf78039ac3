"""Rankers that read are served without torch: their encoder as a graph, their tokenizer by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import unskew
from tests.helpers.every_method import METHODS
from unskew.errors import ConfigError, DataError, RunError
from unskew.files import read_json
from unskew.learning.methods import Context
from unskew.learning.rankers import CrossEncoder, DoublyRobustMix, Ranker, VanillaMix
from unskew.learning.scoring import onnx_graph
from unskew.learning.scoring.model import Model, build, load
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.parsing import read_request
from unskew.serving.scoring.models import Models, Served
from unskew.serving.service.answers import Answering, Noted
from unskew.serving.service.description import example_request
from unskew.serving.settings import ServeSettings
from unskew.tables.lists.scaling import fit_scaler
from unskew.tracking.features import FEATURES
from unskew.types import Lists, ListTexts

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
torch.set_num_threads(1)
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "wing",
    "drag",
    "lift",
    "heat",
    "##s",
    "flow",
    "jet",
    "<",
    ">",
]
SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
DISTIL = {
    "dim": 8,
    "n_layers": 2,
    "n_heads": 2,
    "hidden_dim": 12,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 24,
}
ENCODERS: dict[str, Any] = {
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**SIZES)),
    "tanh": lambda: transformers.BertModel(transformers.BertConfig(**SIZES, hidden_act="gelu_new")),
    "relu": lambda: transformers.BertModel(transformers.BertConfig(**SIZES, hidden_act="relu")),
    "roberta": lambda: transformers.RobertaModel(transformers.RobertaConfig(**SIZES)),
    "xlm_roberta": lambda: transformers.XLMRobertaModel(transformers.XLMRobertaConfig(**SIZES)),
    "camembert": lambda: transformers.CamembertModel(transformers.CamembertConfig(**SIZES)),
    "electra": lambda: transformers.ElectraModel(transformers.ElectraConfig(**SIZES, embedding_size=6)),
    "ernie": lambda: transformers.ErnieModel(transformers.ErnieConfig(**SIZES, use_task_id=True)),
    "silu": lambda: transformers.BertModel(transformers.BertConfig(**SIZES, hidden_act="silu")),
    "albert": lambda: transformers.AlbertModel(transformers.AlbertConfig(**SIZES, embedding_size=6)),
    "deberta": lambda: transformers.DebertaV2Model(
        transformers.DebertaV2Config(**SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"])
    ),
    "distilbert": lambda: transformers.DistilBertModel(transformers.DistilBertConfig(**DISTIL)),
}


def written(model: Any, folder: Path) -> str:
    """A folder with an encoder and a tokenizer."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return written(ENCODERS["bert"](), tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def lists() -> Lists:
    rng = np.random.default_rng(0)
    made = unskew.make_lists(queries=4, features=4, documents=(3, 6), seed=1)
    said = [" ".join(rng.choice(WORDS[5:], rng.integers(0, 14))) for _ in range(len(made.features))]
    said[1], said[2] = "[PAD] wings [MASK]", "wing " * 40
    queries = ["wing drag", "Heats?", "", "jet " * 30]
    return replace(made, texts=ListTexts(np.array(queries, object), np.array(said, object)))


def made(lists: Lists, ranker: Ranker, method: str = "naive", **options: Any) -> Model:
    """A model with drawn weights."""
    chosen = METHODS[method](name=method, **options)
    torch.manual_seed(3)
    model = build(chosen, ranker, fit_scaler("standard", lists), lists.dim, Context(positions=6))
    for weights in [*model.ranker.parameters(), *model.method.parameters()]:
        weights.data += 0.1 * torch.randn(weights.shape)
    for name, value in model.method.named_buffers():
        if name in ("centre", "ready"):
            value.fill_(1.0)
    return model


def parity(model: Model, lists: Lists, folder: Path) -> Served:
    model.save(folder)
    assert json.loads((folder / "model.json").read_text())["no_onnx"] is None
    served, expected = Served.load(folder), load(folder).score(lists)
    found, spread = served.score(lists), np.ptp(expected)
    assert spread > 1e-3
    assert np.abs(found - expected).max() < 1e-5 * max(spread, 1.0)
    assert served.rank(lists).tolist() == load(folder).rank(lists).tolist()
    assert served.engine == "onnxruntime"
    return served


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("name", ENCODERS)
def test_every_encoder_says_what_torch_says(name: str, pooling: Any, lists: Lists, tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder = written(ENCODERS[name](), tmp_path / "encoder")
    parity(made(lists, CrossEncoder(model=folder, pooling=pooling, max_length=20)), lists, tmp_path / "model")


RANKED: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "mixed": (VanillaMix, "dla", {}),
    "vectors": (VanillaMix, "vectorization", {"base": (4,)}),
    "vectors of texts": (CrossEncoder, "vectorization", {"base": (4,)}),
    "approximated": (DoublyRobustMix, "approximated_dr", {}),
    "doubly robust": (VanillaMix, "doubly_robust", {"propensity": [1.0, 0.5], "regression": (4,)}),
}


@pytest.mark.parametrize("name", RANKED)
def test_every_ranker_that_reads(name: str, bert: str, lists: Lists, tmp_path: Path) -> None:
    ranker, method, options = RANKED[name]
    sizes = {} if ranker is CrossEncoder else {"sizes": (5,)}
    parity(made(lists, ranker(model=bert, max_length=20, **sizes), method, **options), lists, tmp_path / "model")


def test_an_unseen_text_has_the_imputation(bert: str, lists: Lists, tmp_path: Path) -> None:
    model = made(lists, DoublyRobustMix(model=bert, sizes=(5,)), "approximated_dr")
    served = parity(model, lists, tmp_path / "model")
    unseen = served.score(lists, seen=np.zeros(len(lists.features), bool))
    assert np.allclose(unseen, served.score(replace(lists, features=0 * lists.features), seen=unseen < 0))
    assert np.abs(unseen - served.score(lists)).max() > 1e-3


def test_reasons_leave_texts_out(bert: str, lists: Lists, tmp_path: Path) -> None:
    model = made(lists, VanillaMix(model=bert, sizes=(5,)))
    served = parity(model, lists, tmp_path / "model")
    how, parts = served.why(lists)
    assert how == "gradient x input, texts left out"
    rows = torch.tensor(model.prepared(lists), requires_grad=True)
    model.ranker(rows)[:, 0].sum().backward()
    assert rows.grad is not None
    expected = (rows.grad * rows.detach())[:, :4].numpy()
    np.testing.assert_allclose(parts, expected, rtol=1e-3, atol=1e-5)
    bare = replace(lists, features=np.zeros((len(lists.features), 0), np.float32))
    made(bare, CrossEncoder(model=bert)).save(tmp_path / "bare")
    with pytest.raises(ConfigError, match="no reasons by feature"):
        Served.load(tmp_path / "bare").why(bare)


def test_texts_are_remembered_up_to_a_number(bert: str, lists: Lists, tmp_path: Path) -> None:
    served = parity(made(lists, CrossEncoder(model=bert, cache=5)), lists, tmp_path / "model")
    reader = served.texts
    assert reader is not None
    assert len(reader.known) == 5
    before, ran = served.score(lists), []
    graph = reader.graph
    reader.graph = lambda given: ran.append(len(given)) or graph(given)  # type: ignore[func-returns-value]
    np.testing.assert_array_equal(served.score(lists), before)
    texts = lists.texts
    assert texts is not None
    pairs = {*zip(np.repeat(texts.query, lists.sizes), texts.document, strict=True)}
    assert 0 < sum(ran) <= len(pairs) - 5


# ---- requests


def ask(folder: Path, body: dict[str, Any], store: Any = None) -> dict[str, float]:
    """Scores of an answer by id."""
    here = Answering(Models.open({"main": folder}), ServeSettings(), store=store)
    (answer,) = here.answer([read_request(body)], Noted())
    ranking: Any = answer["ranking"]
    return {one["id"]: one["score"] for one in ranking}


class TrackedClicks:
    """A store of clicks alone, which knows the first document."""

    version: ClassVar = {"clicks": "c1"}
    names = FEATURES
    known = np.array([True, False])
    values = np.stack([np.linspace(0, 1, len(FEATURES)), np.zeros(len(FEATURES))]).astype(np.float32)

    def view(self) -> TrackedClicks:
        return self

    def get_clicks(self, query: str, ids: object) -> TrackedClicks:
        return self


def test_texts_with_tracked_clicks_need_nothing_else(bert: str, tmp_path: Path) -> None:
    said, store = ["lift", "drag wings"], TrackedClicks()
    texts = ListTexts(np.array(["wing"], object), np.array(said, object))
    drawn = np.random.default_rng(0).random((2, len(FEATURES))).astype(np.float32)
    one = Lists(drawn, np.array([0, 2]), np.zeros(2, np.int16), np.array([0]), texts=texts)
    model = made(one, DoublyRobustMix(model=bert, sizes=(5,)), "approximated_dr")
    model.save(tmp_path / "model")
    documents = [{"id": each, "text": text} for each, text in zip("ab", said, strict=True)]
    found = ask(tmp_path / "model", {"query": "wing", "documents": documents}, store)
    expected = model.score_texts("wing", said, store.values)
    assert found["a"] == pytest.approx(expected[0], abs=1e-5)
    numbers, outputs = model.numbers(), model.relevance(model.prepared(one), one.sizes)[0]
    logit = outputs[0, 1, 0].item() - numbers["method.centre"][0] + numbers["method.levels"][0]
    assert found["b"] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)  # it was never shown


# ---- what cannot be served


def test_what_cannot_be_served_says_why(bert: str, lists: Lists, tmp_path: Path) -> None:
    made(lists, CrossEncoder(model=bert, bfloat16=True)).save(tmp_path / "half")
    with pytest.raises(RunError, match=r"saved without a graph.*ranker\.bfloat16 = false"):
        Served.load(tmp_path / "half")


def test_an_encoder_that_is_too_large_is_told(
    bert: str, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_graph.onnx, "LARGEST", 100)
    made(lists, CrossEncoder(model=bert)).save(tmp_path / "model")
    with pytest.raises(RunError, match="and a graph at most 100"):
        Served.load(tmp_path / "model")


def test_a_graph_of_an_encoder_that_differs_is_not_written(
    bert: str, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_of = onnx_graph.graph_of

    def of_other_weights(module: torch.nn.Module, *rest: Any) -> bytes:
        other = deepcopy(module)
        for weights in other.parameters():
            weights.data += 1e-3
        return graph_of(other, *rest)

    monkeypatch.setattr(onnx_graph, "graph_of", of_other_weights)
    with pytest.warns(UserWarning, match="it differs from the model by"):
        made(lists, CrossEncoder(model=bert)).save(tmp_path / "model")
    assert not (tmp_path / "model/text/encoder.onnx").exists()
    load(tmp_path / "model")


def test_documents_without_texts_are_refused(bert: str, lists: Lists, tmp_path: Path) -> None:
    made(lists, CrossEncoder(model=bert)).save(tmp_path / "model")
    with pytest.raises(DataError, match="the documents have none"):
        Served.load(tmp_path / "model").score(replace(lists, texts=None))


def test_a_damaged_tokenizer_is_refused(bert: str, lists: Lists, tmp_path: Path) -> None:
    made(lists, CrossEncoder(model=bert)).save(tmp_path / "model")
    about = read_json(tmp_path / "model/model.json")
    (tmp_path / "model/model.json").write_text(json.dumps(about | {"files": None}))
    whole = (tmp_path / "model/text/reading.json").read_text()
    for wrong in ({"longest": 10**9}, {"longest": "0"}, {"left": 1}, {"code": "import os"}):
        (tmp_path / "model/text/reading.json").write_text(json.dumps(json.loads(whole) | wrong))
        with pytest.raises(RunError):
            Served.load(tmp_path / "model")
    (tmp_path / "model/text/reading.json").write_text(whole)
    (tmp_path / "model/text/tokenizer.json").write_text("{}")
    with pytest.raises(RunError, match="is no tokenizer"):
        Served.load(tmp_path / "model")


def test_neither_torch_nor_transformers_is_imported(bert: str, lists: Lists, tmp_path: Path) -> None:
    made(lists, CrossEncoder(model=bert)).save(tmp_path / "model")
    code = (
        "import sys, numpy as np; from unskew.serving.scoring.models import Served\n"
        "found = Served.load(sys.argv[1]).score_texts('wing', ['lift', 'drag'], np.ones((2, 4)))\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules, len(found))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False", "2"], done.stderr


def asked(folder: Path, **more: Any) -> dict[str, Any]:
    """The answer to the model's own example, or to a request with something else in it."""
    models = Models.open({"main": folder})
    content = example_request(models["main"].current) | more
    (answer,) = Answering(models, ServeSettings()).answer([read_request(content)], Noted())
    return answer


def test_texts_of_a_request_are_read(bert: str, lists: Lists, tmp_path: Path) -> None:
    model = made(replace(lists, features=lists.features[:, :0]), CrossEncoder(model=bert, max_length=20))
    model.save(tmp_path / "model")
    said = {"a": "jet flow", "b": "heat", "c": "drag wing"}
    answer = asked(tmp_path / "model", query="wing", documents=[{"id": own, "text": said[own]} for own in said])
    expected = load(tmp_path / "model").score_texts("wing", [*said.values()])
    assert [one["was"] - 1 for one in answer["ranking"]] == np.argsort(-expected, kind="stable").tolist()
    scores = {one["id"]: one["score"] for one in answer["ranking"]}
    assert [scores[own] for own in said] == pytest.approx(expected.tolist(), abs=1e-4)
    for wrong, place in (
        ({"query": ""}, "query"),
        ({"documents": [{"id": "a", "text": "jet"}, {"id": "b"}]}, "documents.1.text"),
        ({"documents": [{"id": "a"}]}, "documents.0.text"),
    ):
        with pytest.raises(BadRequest, match="the model reads") as told:
            asked(tmp_path / "model", **wrong)
        assert (told.value.where, told.value.code) == (place, 422)


def test_texts_and_features_of_a_request_go_together(bert: str, lists: Lists, tmp_path: Path) -> None:
    made(lists, VanillaMix(model=bert, sizes=(5,), max_length=20)).save(tmp_path / "model")
    assert len(asked(tmp_path / "model")["ranking"]) == 4
    with pytest.raises(BadRequest, match="no features, and there is no store"):
        asked(tmp_path / "model", documents=[{"id": "a", "text": "jet"}])
