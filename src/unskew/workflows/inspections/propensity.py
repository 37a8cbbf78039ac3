"""`unskew propensity`: examination by rank, as a run learned it or a log shows it, with weights for any learner.

The weight of a click at rank k is 1 / examination, relative to rank 1: what LightGBM and others take as the weight
of a row.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from unskew.diagnosis.evidence.evidence import measured
from unskew.diagnosis.evidence.tables import open_tables
from unskew.errors import ConfigError, Option
from unskew.examination import Examination
from unskew.learning.scoring.scorer import Scorer
from unskew.names import Names
from unskew.options.logs import PropensityArguments
from unskew.settings import known
from unskew.types import Log
from unskew.workflows.proofs.proof import learned_examination
from unskew.workflows.runs.run import Run

By = Literal["shuffled", "swaps"]
"""How examination is measured on a log."""


@PropensityArguments.checks
def propensity(
    source: Run | Scorer | Log | Path | str | Any,
    *,
    by: By | None = None,
    max_weight: float | None = None,
    feedback: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Examination:
    """Examination by rank of a run or a log (in memory, a table, or a path), with weights of clicks.

    On a log it is measured `by` its shuffled pages or by documents that it shows at several ranks (swaps); unless
    given, by what tells more ranks. With `feedback`, a result
    with any of it counts as clicked. `max_weight` clips the weights, as it does for the method `ipw`. `columns`
    says theirs for ours.
    """
    if by is not None:
        known("by", by, get_args(By))
    found = learned_examination(source)
    if found is not None and by is not None:
        raise ConfigError((Option("by", by), " is for logs; this is a run, which learned its own"))
    if found is None:
        own = isinstance(source, Log)  # its feedback stands in the place of clicks already
        with open_tables(source, names=Names.of(columns), feedback=None if own else feedback) as tables:
            found = measured(tables, by)
    return replace(found, max_weight=max_weight)
