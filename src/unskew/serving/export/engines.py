"""Models in folders for search engines: what an engine can run exactly, and trees in the place of what it cannot.

| engine                    | linear        | trees                        | network                            |
|---------------------------|---------------|------------------------------|------------------------------------|
| Solr                      | `LinearModel` | `MultipleAdditiveTreesModel` | `NeuralNetworkModel`, no LayerNorm |
| OpenSearch, Elasticsearch | `linear`      | `xgboost+json`               | distilled                          |
| Vespa                     | expression    | XGBoost's JSON               | ONNX                               |

What an engine cannot run says why; with lists, trees learn its scores (`distilling`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option
from unskew.files import Ours, complete_folder, refuse_existing, write_json
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.export import opensearch, solr, vespa
from unskew.serving.export import plain as lightgbm
from unskew.serving.export.distillation import distill
from unskew.serving.export.networks import Layer, PlainWeights, plain_layers, plain_weights, scored_network
from unskew.serving.export.plain import EngineFeature, Node, features_of, plain_trees
from unskew.types import Lists

Files = dict[str, Any]
"""What is written, by name: JSON, text or bytes."""
FOLDER = Ours("export.json", ("features.json", "model.*", "feature*.json", "*.profile", "*_trees.json"))
"""What lies in the folder of an engine."""


@dataclass(frozen=True)
class Form:
    """A model as an engine runs it."""

    kind: str
    """linear, trees, network or ONNX."""
    model: PlainWeights | Sequence[Node] | Sequence[Layer] | bytes


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
        from unskew.serving.export import onnx

        return Form("ONNX", onnx.standalone(scorer))
    scored_network(scorer)
    raise ConfigError("networks do not run there")


def write_engine(
    scorer: Scorer,
    to: str,
    out: Path,
    *,
    lists: Callable[[], Lists] | None,
    name: str,
    force: bool,
) -> dict[str, Any]:
    """Write the folder of an engine; in numbers. `lists` opens documents to distill from, where needed."""
    refuse_existing(out, force=force, ours=FOLDER)
    form, facts = formed(scorer, to, lists)
    features = features_of(scorer)
    content, more = WRITERS[to](name, features, form)
    with complete_folder(out, force=force, ours=FOLDER) as folder:
        for file, given in content.items():
            if isinstance(given, bytes):
                (folder / file).write_bytes(given)
            elif isinstance(given, str):
                (folder / file).write_text(given, encoding="utf-8")
            else:
                write_json(folder / file, given)
        write_json(folder / "features.json", told(features))
        write_json(folder / "export.json", {"to": to, "name": name} | facts | more)
    return {"out": str(out), **facts, **more, "features": len(features)}


def formed(scorer: Scorer, to: str, lists: Callable[[], Lists] | None) -> tuple[Form, dict[str, Any]]:
    """The form of a model, or trees that learned its scores; and what it is."""
    try:
        form = exact_form(scorer, to)
    except ConfigError as why:
        if scorer.reads:
            raise
        if lists is None:
            raise ConfigError(
                (
                    f"{to} cannot run this model: {why}. Or let trees learn its scores from documents: ",
                    Option("lists"),
                )
            ) from why
        found = distill(scorer, lists())
        facts = {"model": "distilled into trees", "why": str(why), "trees": len(found.trees)}
        return Form("trees", found.trees), facts | found.to_dict()
    count = {"trees": len(form.model)} if form.kind == "trees" and not isinstance(form.model, PlainWeights) else {}
    return form, {"model": form.kind} | count


def told(features: Sequence[EngineFeature]) -> dict[str, Any]:
    """What features.json says."""
    given = {name: how for name, how in lightgbm.GIVEN.items() if name != "missing"}
    return given | {"features": [each.to_dict() for each in features]}


WRITERS: Mapping[str, Callable[[str, Sequence[EngineFeature], Any], tuple[Files, dict[str, Any]]]] = {
    "solr": solr.files,
    "opensearch": opensearch.files,
    "elasticsearch": opensearch.files,
    "vespa": vespa.files,
}
"""From a model's name, features and form to the files of an engine, and what there is to tell of them."""
