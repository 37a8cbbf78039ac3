"""`unskew export RUN --to lightgbm`: LightGBM's text, whose trees take features as they are.

OUT is the text for `lightgbm.Booster(model_file=OUT)`. OUT.features.json says which features in which order: a
category is given as the code of its value, `other` for values it does not name, what is missing as NaN.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.files import complete_file, refuse_existing, write_json
from unskew.learning.scoring.scorer import Scorer

GIVEN = {"missing": "NaN", "true and false": "1 and 0", "dates and times": "days since 1970-01-01 UTC"}
"""How values are given to exported models."""


def beside(out: Path) -> Path:
    """Where the features of a model that is one file are told."""
    return out.with_name(f"{out.name}.features.json")


def write_trees(scorer: Scorer, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Write the trees of a model; in numbers."""
    for place in (out, beside(out)):
        refuse_existing(place, force=force)
    made = scorer.raw_trees()
    out.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(out) as ready:
        ready.write_text(made.text, encoding="utf-8")
    write_json(beside(out), {**GIVEN, "features": made.features})
    trees = made.text.count("\nTree=")
    return {"out": str(out), "features in": str(beside(out)), "trees": trees, "features": len(made.features)}
