"""Runs as tests ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.learning.fitting.training import Training
from unskew.learning.methods import Learner
from unskew.learning.rankers import Ranker
from unskew.types import Lists, Log
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.settings import Auto, Settings


def settings(
    method: str | Learner | Auto,
    ranker: str | Ranker | None = None,
    scaling: str | None = None,
    training: Training | None = None,
    options: Mapping[str, object] | None = None,
    validation: Lists | Log | None = None,
    factors: Sequence[str] = (),
) -> Settings:
    """Settings of a run of data in memory."""
    given = {"ranker": ranker, "scaling": scaling, "training": training, "options": options}
    return ask(None, method=method, validation=validation, factors=factors, **given).settings  # type: ignore[arg-type]
