"""Models in folders for search engines: what an engine can run exactly, and trees in the place of what it cannot.

All run linear models and trees; Solr runs networks without LayerNorm, Vespa all as ONNX. What an engine cannot run
says why; with lists, trees learn its scores (`distillation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option
from unskew.files import Ours, complete_folder, refuse_existing, write_json
from unskew.learning.scoring.scorer import Scorer
from unskew.names import Names
from unskew.options.serving import ExportArguments
from unskew.serving.export import opensearch, solr, vespa
from unskew.serving.export.distillation import distill
from unskew.serving.export.exported import ExportedModel
from unskew.serving.export.networks import plain_layers, plain_weights, scored_network, standalone
from unskew.serving.export.plain import GIVEN, EngineFeature, Form, features_of, plain_trees
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
        return Form("trees", plain_trees(scorer))
    if (found := plain_weights(scorer)) is not None:
        return Form("linear", found)
    if to == "solr":
        return Form("network", plain_layers(scorer, solr.ACTIVATIONS))
    if to == "vespa":
        return Form("ONNX", standalone(scorer))
    scored_network(scorer)  # it may have a better reason
    raise ConfigError("networks do not run there")


def write_engine(scorer: Scorer, asked: ExportArguments, out: Path) -> ExportedModel:
    """Write the folder of an engine."""
    to = str(asked.to)
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
    """The form of a model, or trees that learned its scores; and what there is to tell of it."""
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
    """What features.json says."""
    given = {name: how for name, how in GIVEN.items() if name != "missing"}
    return given | {"features": [vars(each) for each in features]}
