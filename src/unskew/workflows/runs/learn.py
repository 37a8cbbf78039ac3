"""`unskew.learn`: from a log, tables or files, or as a run file says, to a run."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from unskew.errors import located
from unskew.learning.fitting.distributed import process_group
from unskew.learning.fitting.loop import Report
from unskew.learning.fitting.training import Training, TrainingKeywords
from unskew.learning.methods import Learner
from unskew.learning.rankers import Ranker
from unskew.options.runs import Beginning
from unskew.tables.features.encoding import EncodingRules
from unskew.types import Lists, Log
from unskew.workflows.inputs.logs import MissingFeatures
from unskew.workflows.runs.auto import picked
from unskew.workflows.runs.data import TrainingData, split
from unskew.workflows.runs.folder import refuse_to_overwrite
from unskew.workflows.runs.judges import named_table
from unskew.workflows.runs.request import Request, ask
from unskew.workflows.runs.run import Run, run
from unskew.workflows.runs.settings import Auto
from unskew.workflows.runs.shards import open_shard_data


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
    engine: Beginning | None = None,
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
    The score begins as the order shown where the log tells how far ranks are looked at, and clicks that it has
    not seen say how far it is corrected (`metrics.engine`); with `engine` "shown" it begins so in any case, with
    "safe" too, and goes no further from that order than clicks carry it surely, with "none" never.
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
    given = {"features": features, "validation": validation, "test": test, "columns": columns}
    given |= {"scaling": scaling, "feedback": feedback, "missing_features": missing_features, "engine": engine}
    how: dict[str, Any] = {"encoding": encoding, "training": training, "options": options}
    request = ask(log, method, ranker, factors=tuple(factors), **how, **given)
    return learn_request(request, request.place(out), force=force, report=report)


def learn_request(request: Request, out: Path | None, *, force: bool = False, report: Report | None = None) -> Run:
    """A run as it was asked for, its method chosen where that is asked for; torchrun's processes all call this."""
    if out is not None:
        refuse_to_overwrite(out, force)  # before minutes of reading
    files = request.file.data
    place = nullcontext() if request.source is None else located(request.base / (files.log or files.counts or ""))
    with process_group(request.settings.training):
        data, test = open_data(request)
        with place:
            asked, pick = picked(request.settings, data)
            if pick is not None:
                taken = {"method": named_table(pick.method), "auto": pick.in_short()}
                if pick.ranker is not None:
                    taken["ranker"] = named_table(pick.ranker)
                request = replace(request, settings=asked, file=request.file.model_copy(update=taken))
            again = None if out is None or request.source is None else request.toml(out)
            done = run(asked, data, test=test, out=out, force=force, report=report, run_file=again, pick=pick)
    return replace(done, ingested=getattr(request.sources.logs.get("train"), "summary", None))


def open_data(request: Request) -> tuple[TrainingData, Lists | Log | None]:
    """What a run learns from and is chosen by, and what it is measured on: lists, or a log."""
    sources, asked = request.sources, request.settings
    on, clicks = asked.training.validate_on, sources.is_log("validation")
    chosen = sources.part("validation") if on == "labels" or (on == "clicks" and clicks) else None
    test = sources.part("test")
    if sources.in_shards:
        return open_shard_data(request, chosen), test
    log = sources.log("train")
    assert log is not None, "a run has a log or counts"
    sources.warn_of_overlap(log)
    return split(log, chosen, asked), test
