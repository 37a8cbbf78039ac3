"""Models in folders for search engines: what an engine can run exactly, and trees in the place of what it cannot.

All run linear models and trees; Solr runs networks without LayerNorm, Vespa all as ONNX. What an engine cannot run
says why; with lists it is distilled: taught to trees, which learn its scores.

The trees (LightGBM, squared error) learn the scores of all documents given, a distinct one once, weighted by how
often it is there. How faithful they are is told by five others, each taught without a fifth of the lists and tried
on those; where lists share documents, without a fifth of the distinct documents, since a document that was learned
says nothing of new ones. By list and on average:

- Kendall's tau-b of both orders;
- nDCG@10 of the trees' order, where the gain of a document is the model's own score, from 0 for the lowest of its
  list to 1 for the highest; 1 is the order of the model, and a tie counts as the mean of its orders.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from unskew.errors import ConfigError, DataError, Option
from unskew.files import Ours, complete_folder, refuse_existing, write_json
from unskew.learning.boosters import Forest, package
from unskew.learning.scoring.scorer import Scorer
from unskew.names import Names
from unskew.options.runs import ExportArguments
from unskew.serving.export import forms, opensearch, solr, vespa
from unskew.serving.export.exported import ExportedModel, Fidelity, opened
from unskew.serving.export.forms import EngineFeature, Form, Node, features_of
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists
from unskew.workflows.inputs.rankings import documents

FOLDER = Ours("export.json", ("features.json", "model.*", "feature*.json", "*.profile", "*_trees.json"))
"""What lies in the folder of an engine."""
WRITERS: Mapping[str, Callable[[str, Sequence[EngineFeature], Form], dict[str, Any]]] = {
    "solr": solr.files,
    "opensearch": opensearch.files,
    "elasticsearch": opensearch.files,
    "vespa": vespa.files,
}
"""From a model's name, features and form to the files of an engine, by name: JSON, text or bytes."""


def exact_form(scorer: Scorer, to: str) -> Form:
    """What an engine runs in the place of a model, with the same scores; or an error that says why not."""
    if scorer.reads:
        raise ConfigError("it reads text, which engines do not give as numbers; serve it with unskew")
    if scorer.card.trees is not None:
        return Form("trees", forms.plain_trees(scorer))
    from torch import nn

    ranker, _ = forms.scored_network(scorer)
    linear = isinstance(ranker, nn.Sequential) and len(ranker) == 1
    if not linear and to == "vespa":
        return Form("ONNX", forms.standalone(scorer))
    if not linear and to != "solr":
        raise ConfigError("networks do not run there")
    layers = forms.plain_layers(scorer, solr.ACTIVATIONS)
    return Form("linear", layers[0]) if linear else Form("network", layers)


def write_engine(asked: ExportArguments, out: Path) -> ExportedModel:
    """Write the folder of an engine."""
    to, scorer = str(asked.to), opened(asked.run)
    refuse_existing(out, force=asked.force, ours=FOLDER)
    form, facts = _formed(scorer, to, asked)
    features = features_of(scorer)
    if form.kind == "trees":
        facts["trees"] = len(form.model)
        facts |= {"inexact_splits": solr.inexact_splits(form.model)} if to == "solr" else {}
    with complete_folder(out, force=asked.force, ours=FOLDER) as folder:
        for file, given in WRITERS[to](asked.name, features, form).items():
            if isinstance(given, bytes):
                (folder / file).write_bytes(given)
            elif isinstance(given, str):
                (folder / file).write_text(given, encoding="utf-8")
            else:
                write_json(folder / file, given)
        write_json(folder / "features.json", told(features))
        write_json(folder / "export.json", {"to": to, "name": asked.name} | facts)
    return ExportedModel(str(out), features=len(features), **facts)


def _formed(scorer: Scorer, to: str, asked: ExportArguments) -> tuple[Form, dict[str, Any]]:
    try:
        form = exact_form(scorer, to)
        return form, {"model": form.kind}
    except ConfigError as why:
        if scorer.reads:
            raise
        if asked.lists is None:
            told = f"{to} cannot run this model: {why}. Or let trees learn its scores from documents: "
            raise ConfigError((told, Option("lists"))) from why
        lists = documents(scorer, asked.lists, Names.of(None, asked.run), candidates=asked.candidates)
        trees, fidelity = distill(scorer, lists)
        return Form("trees", trees), {"model": "distilled into trees", "why": str(why), "fidelity": fidelity}


def told(features: Sequence[EngineFeature]) -> dict[str, Any]:
    """The content of features.json: the features of the model, and how an engine gets them."""
    given = {name: how for name, how in forms.GIVEN.items() if name != "missing"}
    return given | {"features": [vars(each) for each in features]}


# ---- distillation ----

LEAST = 10
"""Lists needed."""
FOLDS, TOP, ROUNDS = 5, 10, 200
SETTINGS = {
    "objective": "regression",
    "learning_rate": 0.1,
    "num_leaves": 63,
    "min_data_in_leaf": 5,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
    "num_threads": 1,
    "verbosity": -1,
}


def distill(scorer: Scorer, lists: Lists) -> tuple[list[Node], Fidelity]:
    """Teach the scores of a model to trees on unscaled columns; and how faithful such trees are."""
    from sklearn.metrics import ndcg_score  # which takes long to import
    from sklearn.model_selection import GroupKFold

    if len(lists) < LEAST:
        raise DataError(f"{len(lists)} lists to distill from, at least {LEAST} are needed", path=lists.name)
    features, same = np.unique(np.asarray(scorer.encoded(lists).features, np.float32), axis=0, return_inverse=True)
    same = same.reshape(-1)
    scores = np.asarray(scorer.score(lists), np.float64)
    count = np.bincount(same)
    mean = np.bincount(same, scores) / count
    guess, groups = np.zeros(len(features)), np.arange(len(features))
    if len(features) == len(same):  # each is in one list, and is left out with it
        groups[same] = np.repeat(np.arange(len(lists)), lists.sizes)
    for others, own in GroupKFold(FOLDS, shuffle=True, random_state=0).split(features, groups=groups):
        taught = _taught(features[others], mean[others], count[others])
        guess[own] = taught.predict(features[own], num_threads=1)
    told = guess[same]
    places = [slice(*lists.offsets[at : at + 2]) for at in range(len(lists))]
    tried = [each for each in places if each.stop - each.start > 1 and np.ptp(scores[each]) > 0]
    if not tried:
        raise DataError("the model gives all documents of a list the same score", path=lists.name)
    tau = np.mean([np.nan_to_num(kendalltau(told[each], scores[each]).statistic) for each in tried])
    ndcg = np.mean([ndcg_score([scores[each] - scores[each].min()], [told[each]], k=TOP) for each in tried])
    booster = _taught(features, mean, count)
    forest = Forest("lightgbm", [booster], [booster.current_iteration()], np.zeros(1), np.ones(1))
    trees = forms.grown(forms.lightgbm_tables(forest), Scaler("none", features.shape[1]), features_of(scorer))
    return trees, Fidelity(len(tried), round(float(tau), 4), round(float(ndcg), 4))


def _taught(features: Array, scores: Array, count: Array) -> Any:
    library = package("lightgbm")
    data = library.Dataset(features, scores, weight=count, params={"verbosity": -1})
    return library.train(SETTINGS, data, ROUNDS)
