"""`unskew export`: a model, or what was learned of clicks, in a form that others run or read.

| to                            | what is written                                                                |
|-------------------------------|--------------------------------------------------------------------------------|
| `lightgbm`                    | LightGBM's text, whose trees take features as they are                         |
| `onnx`                        | a network, with scaling inside; without OUT, the run folder's own `model.onnx` |
| `solr`                        | a folder: model and feature store of Solr's learning to rank                   |
| `opensearch`, `elasticsearch` | a folder: model and feature set of the learning-to-rank plugins                |
| `vespa`                       | a folder: model and rank profile                                               |
| `propensities`                | examination by rank and weights of clicks, as CSV; of a log, for each row too  |
| `quepid`, `workbench`         | relevance from clicks as grades, and the confidence in them                    |

Linear models and trees go to engines exactly, networks where an engine runs them; others are distilled into trees
from `lists`. What cannot go says why, and `possible` says it of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option, UnskewError
from unskew.files import complete_file, refuse_existing, write_json
from unskew.learning.scoring.scorer import Scorer, load_scorer
from unskew.logs.reader import StoredLog
from unskew.names import Names
from unskew.serving.export import engines, judgments, propensities
from unskew.serving.export import plain as lightgbm
from unskew.serving.export.options import ENGINES, JUDGED, ExportOptions
from unskew.serving.export.plain import features_of
from unskew.settings import known, no_such
from unskew.workflows.inputs.rankings import documents
from unskew.workflows.inspections.propensity import propensity
from unskew.workflows.runs.run import Run

Source = Run | Scorer | Path | str


def export(
    run: Source,
    to: str,
    out: Path | str | None = None,
    *,
    lists: Any = None,
    candidates: Any = None,
    name: str = "unskew",
    rows: Path | str | None = None,
    max_weight: float | None = None,
    confidence: float = 0.5,
    top: float | None = None,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a model, or judgments, in another form, one of TARGETS; in numbers. `ExportOptions` explains each."""
    write = TARGETS[known("to", to, TARGETS)]
    asked = ExportOptions(lists, candidates, name, rows, max_weight, columns, confidence, top, force)
    asked.check(to)
    if out is None and to != "onnx":
        raise ConfigError(("say where to write, for ", Option("to", to)), argument="out")
    return write(run, to, None if out is None else Path(out), asked)


def possible(run: Source) -> dict[str, str]:
    """What a run, a log or a table of judgments can be written as: by target, how, or why not."""
    if isinstance(run, str | Path) and not (Path(run) / "model.json").exists():
        place = Path(run)
        if not place.exists():
            raise no_such(place)
        if judgments.has_judgments(place):
            return dict.fromkeys(JUDGED, "grades of its judgments")
        StoredLog.open(place, shared=True)
        return {"propensities": "by its pages"} | dict.fromkeys(JUDGED, "grades, by examination of its pages")
    scorer = opened(run)
    found = {}
    for to in TARGETS:
        try:
            found[to] = _how(scorer, to, run)
        except UnskewError as why:
            offered = to in ENGINES and not scorer.reads
            found[to] = f"{'with --lists, distilled into trees' if offered else 'no'}: {why}"
    return found


def _how(scorer: Scorer, to: str, run: Source) -> str:
    """In which form a model goes to a target."""
    if to == "lightgbm":
        return f"exactly: {len(scorer.raw_trees().features)} features as they are"
    if to == "onnx":
        from unskew.serving.export import onnx

        return f"exactly: {len(onnx.standalone(scorer)):,} bytes"
    if to in ENGINES:
        return f"exactly: {engines.exact_form(scorer, to).kind}"
    if to == "propensities":
        return f"{len(propensity(run).values)} ranks"
    raise ConfigError(GRADED)


def opened(run: Source) -> Scorer:
    """The model of a run."""
    return run.model if isinstance(run, Run) else run if isinstance(run, Scorer) else load_scorer(run)


def _lightgbm(run: Source, to: str, out: Path, asked: ExportOptions) -> dict[str, Any]:
    return lightgbm.write_trees(opened(run), out, force=asked.force)


def _onnx(run: Source, to: str, out: Path | None, asked: ExportOptions) -> dict[str, Any]:
    from unskew.serving.export import onnx

    if out is None:
        if not isinstance(run, str | Path):
            raise ConfigError("say where to write, or name a run folder that is to have its model.onnx")
        return onnx.complete(Path(run))
    beside = lightgbm.beside(out)
    for place in (out, beside):
        refuse_existing(place, force=asked.force)
    scorer = opened(run)
    made, features = onnx.standalone(scorer), features_of(scorer)
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        ready.write_bytes(made)
    write_json(beside, engines.told(features))
    return {"out": str(out), "features in": str(beside), "features": len(features)}


def _engine(run: Source, to: str, out: Path, asked: ExportOptions) -> dict[str, Any]:
    scorer = opened(run)
    given = (
        None
        if asked.lists is None
        else lambda: documents(scorer, asked.lists, Names.of(None, run), candidates=asked.candidates)
    )
    return engines.write_engine(scorer, to, out, lists=given, name=asked.name, force=asked.force)


def _propensities(run: Source, to: str, out: Path, asked: ExportOptions) -> dict[str, Any]:
    return propensities.write_propensities(run, out, asked)


def _judgments(run: Source, to: str, out: Path, asked: ExportOptions) -> dict[str, Any]:
    if not isinstance(run, str | Path) or (Path(run) / "model.json").exists():
        raise ConfigError(GRADED)
    return judgments.write_judgments(Path(run), to, out, asked)


GRADED = "grades come of clicks: of a log, or of judgments by unskew judge or unskew click-models"
TARGETS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "lightgbm": _lightgbm,
    "onnx": _onnx,
    "solr": _engine,
    "opensearch": _engine,
    "elasticsearch": _engine,
    "vespa": _engine,
    "propensities": _propensities,
    "quepid": _judgments,
    "workbench": _judgments,
}
"""What can be written."""
