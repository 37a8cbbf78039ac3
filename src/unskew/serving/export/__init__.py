"""`unskew export`: a model, or what was learned of clicks, in a form that others run or read, one of TARGETS.

Linear models and trees go to engines exactly, networks where an engine runs them; others are distilled into trees
from `lists`. What cannot go says why, and `possible` says it of all. docs/how_to/export.md has a table of it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option, UnskewError
from unskew.files import complete_file, read_json, refuse_existing, write_json, write_manifest
from unskew.learning.scoring.scorer import MODEL, Scorer, load_scorer
from unskew.logs.reader import StoredLog
from unskew.options.runs import ExportArguments
from unskew.serving.export import engines
from unskew.serving.export.exported import ENGINES, JUDGED, Exported, ExportedModel, Source, opened, refuse_unused
from unskew.serving.export.forms import GIVEN, features_of, standalone
from unskew.serving.export.tables import GRADED, has_judgments, write_judgments, write_propensities
from unskew.settings import checked, known, no_such
from unskew.workflows.inspections.propensity import propensity


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
    labels: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
) -> Exported:
    """Write a model, or judgments, in another form, one of TARGETS. `ExportArguments` explains each option."""
    asked = checked(ExportArguments, dict(locals()), None)  # the arguments: nothing else has a name yet
    write = TARGETS[known("to", to, TARGETS)]
    refuse_unused(asked)
    if out is None and to != "onnx":
        raise ConfigError(("say where to write, for ", Option("to", to)), argument="out")
    return write(asked, Path(out or ""))


def possible(run: Source) -> dict[str, str]:
    """What a run, a log or a table of judgments can be written as: by target, how, or why not."""
    if isinstance(run, str | Path) and not (Path(run) / "model.json").exists():
        place = Path(run)
        if not place.exists():
            raise no_such(place)
        if has_judgments(place):
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
    if to == "lightgbm":
        return f"exactly: {len(scorer.raw_trees().features)} features as they are"
    if to == "onnx":
        return f"exactly: {len(standalone(scorer)):,} bytes"
    if to in ENGINES:
        return f"exactly: {engines.exact_form(scorer, to).kind}"
    if to == "propensities":
        return f"{len(propensity(run).values)} ranks"
    raise ConfigError(GRADED)


def _lightgbm(asked: ExportArguments, out: Path) -> ExportedModel:
    made = opened(asked.run).raw_trees()
    trees, about = made.text.count("\nTree="), GIVEN | {"features": made.features}
    return _one_file(asked, out, made.text.encode(), about, trees=trees)


def _onnx(asked: ExportArguments, out: Path) -> ExportedModel:
    if asked.out is None:
        if not isinstance(asked.run, str | Path):
            raise ConfigError("say where to write, or name a run folder that is to have its model.onnx")
        return _completed(Path(asked.run))
    scorer = opened(asked.run)
    return _one_file(asked, out, standalone(scorer), engines.told(features_of(scorer)))


def _one_file(
    asked: ExportArguments, out: Path, content: bytes, about: Mapping[str, Any], trees: int | None = None
) -> ExportedModel:
    """Write a model that is one file, and beside it what its features are."""
    beside = out.with_name(f"{out.name}.features.json")
    for place in (out, beside):
        refuse_existing(place, force=asked.force)
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        ready.write_bytes(content)
    write_json(beside, about)
    return ExportedModel(str(out), str(beside), trees=trees, features=len(about["features"]))


def _completed(folder: Path) -> ExportedModel:
    """Write model.onnx into a run folder that lacks it."""
    scorer = load_scorer(folder)
    why_not = scorer.write_onnx(folder)
    if why_not is not None:
        raise ConfigError(f"{folder}: no ONNX model: {why_not}")
    about = read_json(folder / "model.json")
    write_manifest(folder / MODEL.marker, about | {"no_onnx": None}, MODEL.files(folder))
    return ExportedModel(str(folder / "model.onnx"), features=scorer.card.features)


TARGETS: Mapping[str, Callable[[ExportArguments, Path], Exported]] = {
    "lightgbm": _lightgbm,
    "onnx": _onnx,
    "solr": engines.write_engine,
    "opensearch": engines.write_engine,
    "elasticsearch": engines.write_engine,
    "vespa": engines.write_engine,
    "propensities": write_propensities,
    "quepid": write_judgments,
    "workbench": write_judgments,
}
"""What can be written, by what."""
