"""`unskew export`: a model in a form that others run.

| to         | what is written                                                                                 |
|------------|-------------------------------------------------------------------------------------------------|
| `lightgbm` | LightGBM's text, whose trees take features as they are; beside it, as FILE.features.json, which |
|            | features in which order, and the code of each value of a category                               |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unskew.checking import known
from unskew.disk import complete_file, refuse_existing, write_json
from unskew.learning.scorer import Scorer, load_scorer
from unskew.running.run import Run

GIVEN = {"missing": "NaN", "true and false": "1 and 0", "dates and times": "days since 1970-01-01 UTC"}
"""How values are given to exported trees."""


def export(run: Run | Scorer | Path | str, to: str, out: Path | str, *, force: bool = False) -> dict[str, Any]:
    """Write a model in another form, one of TARGETS; in numbers."""
    return TARGETS[known("to=", to, TARGETS)](run, out, force=force)


def export_trees(run: Run | Scorer | Path | str, out: Path | str, *, force: bool = False) -> dict[str, Any]:
    """Write the trees of a run as a LightGBM model that takes features as they are; in numbers.

    OUT is the text for `lightgbm.Booster(model_file=OUT)`. OUT.features.json says which features in which order:
    a category is given as the code of its value, `other` for values it does not name, what is missing as NaN.
    """
    out = Path(out)
    beside = out.with_name(f"{out.name}.features.json")
    for place in (out, beside):
        refuse_existing(place, force=force)
    scorer = run.model if isinstance(run, Run) else run if isinstance(run, Scorer) else load_scorer(run)
    made = scorer.raw_trees()
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        ready.write_text(made.text, encoding="utf-8")
    write_json(beside, {**GIVEN, "features": made.features})
    trees = made.text.count("\nTree=")
    return {"out": str(out), "features in": str(beside), "trees": trees, "features": len(made.features)}


TARGETS: Mapping[str, Callable[..., dict[str, Any]]] = {"lightgbm": export_trees}
"""What a model can be written as."""
