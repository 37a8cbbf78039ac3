"""What is exported, and what was, as told to who asked; and which forms an option is for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from unskew.errors import ConfigError, Option
from unskew.learning.scoring.scorer import Scorer, load_scorer
from unskew.options.runs import ExportArguments
from unskew.results import Result
from unskew.workflows.runs.run import Run

Source = Run | Scorer | Path | str

ENGINES = ("solr", "opensearch", "elasticsearch", "vespa")
JUDGED = ("quepid", "workbench")
USED: Mapping[str, tuple[str, ...]] = {
    "lists": ENGINES,
    "candidates": ENGINES,
    "name": ENGINES,
    "rows": ("propensities",),
    "max_weight": ("propensities",),
    "columns": ("propensities", *JUDGED),
    "confidence": JUDGED,
    "top": JUDGED,
}
"""Which forms take an option; all take those not named."""


def refuse_unused(asked: ExportArguments) -> None:
    """Refuse what does nothing for a form."""
    for name, targets in USED.items():
        if asked.to not in targets and getattr(asked, name) != type(asked).model_fields[name].default:
            told = f" {', '.join(targets)}, not for {asked.to}"
            raise ConfigError((Option(name), " is for ", Option("to"), told))


def opened(run: Source) -> Scorer:
    """The model of a run."""
    return run.model if isinstance(run, Run) else run if isinstance(run, Scorer) else load_scorer(run)


@dataclass(frozen=True)
class Exported(Result):
    """What was written, and where."""

    out: str
    beside: str | None = None
    """The file that says more (features, confidence in grades), or how the names of several begin."""
    absent: ClassVar[tuple[str, ...]] = ("beside",)


@dataclass(frozen=True)
class Fidelity(Result):
    """How near trees that learned the scores of a model come to its order, on documents that are new to them."""

    lists: int
    """How many they were tried on."""
    kendall_tau: float
    ndcg: float
    """At 10, with the model's own scores as gains."""


@dataclass(frozen=True, kw_only=True)
class ExportedModel(Exported):
    """A model in another form."""

    model: str | None = None
    """In an engine: linear, trees, network or ONNX; or distilled into trees."""
    why: str | None = None
    """Why it was distilled."""
    trees: int | None = None
    fidelity: Fidelity | None = None
    """Of a model that was distilled."""
    inexact_splits: int | None = None
    """Splits of trees that Solr makes beside their place."""
    features: int
    """Numbers that the form takes."""
    absent = ("beside", "model", "why", "trees", "fidelity", "inexact_splits")


@dataclass(frozen=True, kw_only=True)
class ExportedExamination(Exported):
    """Examination by rank, and weights of rows where a log was given."""

    positions: int
    found_by: str
    rows: int | None = None
    pages: int | None = None
    absent = ("beside", "rows", "pages")


@dataclass(frozen=True, kw_only=True)
class ExportedJudgments(Exported):
    """Grades of documents."""

    queries: int
    judgments: int
    top_relevance: float
    """Where grades end."""
    left_out: Mapping[str, int]
    """How many have no grade, by the reason."""
    unknown: str | None = None
    """Why a log tells no examination; then grades lean on click rates by rank."""
    absent = ("beside", "unknown")
