"""How a recipe is tried again, and what comes of it; the same for tables, spaces and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unskew.pages.console import Tell
from unskew.pages.page import Section, Term
from unskew.studies.compare.config import Asked, asked_for
from unskew.studies.compare.report import arm_term
from unskew_reproductions.claims import Judged
from unskew_reproductions.data import DataSet
from unskew_reproductions.recipe import Panel, Recipe, compare_content


@dataclass(frozen=True)
class How:
    """How a recipe is run."""

    out: Path
    quick: bool = False
    changes: Mapping[str, int] = field(default_factory=dict)
    """Seeds, pages and steps, where they are not to be the recipe's."""
    jobs: int | None = None
    force: bool = False
    tell: Tell | None = None

    def content(self, recipe: Recipe, panel: Panel, on: DataSet) -> dict[str, Any]:
        """The compare file of a panel on a data set."""
        content, changes = compare_content(recipe, panel, on.name, on.data, quick=self.quick), dict(self.changes)
        steps = {"steps": changes.pop("steps")} if "steps" in changes else {}
        return content | changes | {"training": content.get("training", {}) | steps}

    def asked(self, recipe: Recipe, on: DataSet) -> Asked:
        """The same checked, of a recipe with one panel."""
        return asked_for(self.content(recipe, recipe.panels[0], on), Path())


@dataclass(frozen=True)
class Tried:
    """What came of a recipe."""

    sections: Sequence[Section]
    records: Sequence[Mapping[str, Any]]
    """Rows of numbers.parquet."""
    judged: Sequence[Judged] = ()
    """Every order that was tested."""
    failed: Sequence[str] = ()
    """What has no result, and why."""
    terms: Sequence[Term] = ()
    """What the arms are."""


def arm_terms(asked: Asked, *, labels: bool = True) -> list[Term]:
    """What the arms of a comparison are, those that learn from labels only where asked for."""
    return [arm_term(arm.label, arm.points[0]) for arm in asked.arms if labels or not arm.points[0].reads_labels]
