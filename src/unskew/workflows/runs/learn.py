"""`unskew.learn`: from a log, tables or files, or as a run file says, to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from unskew.errors import located
from unskew.learning.fitting.distributed import process_group
from unskew.learning.fitting.loop import Report
from unskew.learning.fitting.training import Training, TrainingKeywords
from unskew.learning.methods import Learner
from unskew.learning.rankers import Ranker
from unskew.names import Names
from unskew.tables.features.encoding import EncodingRules
from unskew.types import Lists, Log
from unskew.workflows.inputs.frames import MissingFeatures
from unskew.workflows.runs.auto import picked
from unskew.workflows.runs.data import TrainingData, split
from unskew.workflows.runs.folder import refuse_to_overwrite
from unskew.workflows.runs.judges import method_table
from unskew.workflows.runs.request import Request, ask
from unskew.workflows.runs.run import Run, run
from unskew.workflows.runs.settings import Auto
from unskew.workflows.runs.sources import TableReader, kept_columns, on_disk, open_data


def learn(
    log: Any,
    method: str | Learner | Auto | None = None,
    *,
    features: Any = None,
    ranker: str | Ranker | None = None,
    scaling: str | None = None,
    validation: Any = None,
    test: Any = None,
    columns: Mapping[str, str] | None = None,
    feedback: str | None = None,
    factors: Sequence[str] = (),
    missing_features: MissingFeatures | None = None,
    encoding: EncodingRules | None = None,
    training: Training | None = None,
    out: Path | str | None = None,
    force: bool = False,
    report: Report | None = None,
    **options: Unpack[TrainingKeywords],
) -> Run:
    """Learn a ranker from clicks: of a log in memory or on disk, of a data frame, or as a run file says.

    `options` are fields of `Training` such as steps= and seed=. The method is `dla` unless given, the ranker an
    `mlp` on features of scaling `standard`. A package such as `lightgbm_position` takes no ranker: it grows its
    own trees, on features as they are unless a scaling is given. The method `auto` is the best of several by pages
    that they did not learn from; `metrics.auto` says which and why.

    Weights are chosen on `validation`: labelled lists by nDCG@10, a log by the likelihood of its clicks (packages:
    by nDCG@10 on them). Without it a tenth of the log's queries is held out for that; packages keep every tree.
    `test` is measured in the end: labelled lists by ranking metrics, a log by where the run stands on its pages.
    With `out` a run folder is written, and an interrupted run found there goes on where it stopped.

    A table (a data frame of pandas or polars, an Arrow table, a dict of columns) is read by the checks and rules
    of `ingest`, counted in the run's `ingested`; `validation` and `test` may be tables too. It needs `features`,
    as a log on disk does: tables in memory or files, which are joined (`read_features`). In a folder that `split`
    wrote, the parts are used as such. For a run file, which ends in .toml, what is given here stands in for what
    the file says. `columns` says theirs for ours, `feedback` is the column to learn from in the place of click,
    `factors` are columns that bias depends on besides the rank, `encoding` how categories and missing values of
    features become numbers; `missing_features="drop"` leaves out impressions without features.
    """
    said: dict[str, Any] = {"method": method, "ranker": ranker, "scaling": scaling, "factors": factors}
    said |= {"training": training, "options": options, "settings": told(missing_features, encoding)}
    if isinstance(log, str | Path) and on_disk(features, validation, test):
        files = {"features": features, "validation": validation, "test": test}
        request = ask(log, columns=columns, feedback=feedback, **files, **said)
        return learn_request(request, request.place(out), force=force, report=report)
    reader = TableReader(Names.of(columns), feedback, kept_columns(factors, method), missing_features or "error")
    given = reader.given(log, features, validation, test)
    request = ask(None, validation=given.validation, **said)
    data = split(given.log, given.validation, request.settings)
    done = _learned(request, data, given.test, None if out is None else Path(out), force, report)
    return replace(done, ingested=given.log.summary)


def learn_request(request: Request, out: Path | None, *, force: bool = False, report: Report | None = None) -> Run:
    """A run on files, as it was asked for; under torchrun every process calls this."""
    if out is not None:
        refuse_to_overwrite(out, force)  # before minutes of reading
    files = request.file.data
    with process_group(request.settings.training):
        data, test = open_data(request)
        with located(request.base / (files.log or files.counts or "")):
            return _learned(request, data, test, out, force, report)


def _learned(
    request: Request,
    data: TrainingData,
    test: Lists | Log | None,
    out: Path | None,
    force: bool,
    report: Report | None,
) -> Run:
    """The run on opened data, its method chosen where that is asked for."""
    asked, pick = picked(request.settings, data)
    if pick is not None:
        taken = {"method": method_table(pick.method), "auto": pick.in_short()}
        request = replace(request, settings=asked, file=request.file.model_copy(update=taken))
    again = None if out is None or request.source is None else request.toml(out)
    return run(asked, data, test=test, out=out, force=force, report=report, run_file=again, pick=pick)


def told(missing_features: str | None, encoding: EncodingRules | None) -> dict[str, object]:
    """What was said of features, as keys of a run file."""
    rules = {} if encoding is None else encoding.model_dump(exclude_unset=True)
    missing = {} if missing_features is None else {"data.missing_features": missing_features}
    return missing | {f"encoding.{name}": value for name, value in rules.items()}
