"""From data to a trained model: scale, reduce, train with validation, and write a run folder.

A run folder holds

    config.json            what was asked for, every default spelled out
    run.json               status, seed, versions, fingerprint of the data, times
    run.toml               a run file that does it again, where the data are files
    model.json             what `unskew.load` needs besides weights
    weights.safetensors    ranker, method and scaling
    model.onnx             a network once more, for serving without torch
    trees_0.txt, ...       where there are trees: LightGBM's text, one file for each relevance output of theirs
    trees_0.json           where they are XGBoost's: its own JSON
    curve.jsonl            one line per validation
    metrics.json           validation, standing against what was shown, and test metrics where there are test lists
    checkpoint.safetensors while a run is unfinished

It is written beside its place and renamed when done; an interrupted one is usable and resumes. Only a package has
nothing to show before it is done, and begins again.
"""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from unskew.errors import DataError, Option, RunError, Unproven, warn
from unskew.files import publish, write_json
from unskew.learning.curves import Curve
from unskew.learning.fitting.distributed import workers_of, world
from unskew.learning.fitting.loop import Fit, Report
from unskew.learning.fitting.runtime import FILE as CHECKPOINT
from unskew.learning.scoring.model import Model
from unskew.learning.scoring.onnx_graph import CHECKED
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.counts.shards import Shards
from unskew.logs.ingest.summary import IngestedLog
from unskew.measuring import ClickEvidence, measure_ranking
from unskew.measuring.counterfactual.evidence import Answer
from unskew.measuring.ranking import RankingReport
from unskew.pages.documents.summaries import run_page
from unskew.pages.page import Page
from unskew.results import Result, plain
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.lists import ScoresLists
from unskew.workflows.inputs.rankings import ModelRanking
from unskew.workflows.proofs.proof import prove
from unskew.workflows.runs.correction import Begun, Safety, started
from unskew.workflows.runs.data import TrainingData, check_worth, encoded, own_lists
from unskew.workflows.runs.fitters import FITTERS, Fitter
from unskew.workflows.runs.folder import RUN, RUN_FILE, claimed, refuse_to_overwrite, versions
from unskew.workflows.runs.judges import Pick
from unskew.workflows.runs.settings import Settings, settled

CANNOT = "Against what was shown: cannot tell"


@dataclass(frozen=True)
class Standing(Result):
    """A learned order beside the one shown."""

    verdict: Answer
    sentence: str
    """The verdict with its numbers, in words."""
    evidence: ClickEvidence | None = None
    """Every estimate that the verdict rests on; None where there was nothing to judge by."""
    tested: bool = False
    """Whether the clicks are those of a test log, which played no part in choosing weights."""
    queries: int = 0
    never_shown: float | None = None
    """Share of the documents of the held-out lists that no held-out page shows."""


def standing(scorer: ScoresLists, log: Log | None, *, tested: bool = False) -> Standing:
    """How the clicks of held-out pages judge a model; `tested` where they are those of a test log."""
    if log is None or not log.click.any():
        return Standing("cannot tell", f"{CANNOT}, no click was held out.", tested=tested)
    pages = log.take(log.sizes > 0)
    if int(pages.sizes.max()) < 2:
        return Standing("cannot tell", f"{CANNOT}, the held-out pages have one result each.", tested=tested)
    pages = own_lists(pages)
    found = prove(ModelRanking(scorer, "the run"), log=pages)
    missing = float(1 - len(np.unique(pages.row)) / len(pages.lists.features))
    queries, kind = len(pages.lists), "test" if tested else "held-out"
    where = f"{kind} pages of {queries:,} quer{'y' if queries == 1 else 'ies'}"
    said = f"Against what was shown: {found.verdict}, by {where}. {found.sentence}"
    if missing >= 0.01:
        said += f" {missing:.0%} of the documents were never shown: clicks say nothing of them."
    return Standing(found.verdict, said, found, tested=tested, queries=queries, never_shown=missing)


@dataclass(frozen=True)
class Validation(Result):
    """What the weights of a run were chosen by."""

    on: str
    """labels, a metric of clicks, or nothing."""
    best: float | None
    step: int


@dataclass(frozen=True)
class RunMetrics(Result):
    """What is known of how good a run is: metrics.json."""

    validation: Validation
    propensity: tuple[float, ...] | None
    """Examination relative to rank 1, where the method has it."""
    curves: tuple[Curve, ...]
    """Curves of bias that the method learned, such as examination by rank."""
    standing: Standing
    """Where it stands against what was shown."""
    test: RankingReport | None = None
    """Metrics on the lists of `test`."""
    safety: Safety | None = None
    """What held-out clicks allow a safe run."""
    auto: Pick | None = None
    """How the method was chosen, where that was asked for."""
    engine: Begun | None = None
    """How the score begins as the engine, or why it does not."""
    absent = ("test", "safety", "auto", "engine")

    @classmethod
    def of(cls, model: Scorer, validation: Validation, standing: Standing, *others: Any) -> RunMetrics:
        """The metrics of a run with the curves of bias that its model learned."""
        seen = model.propensity()
        rounded = None if seen is None else tuple(round(float(value), 6) for value in seen)
        return cls(validation, rounded, model.curves(), standing, *others)


@dataclass(frozen=True)
class Run(Result):
    """A run that has ended: what it learned, how it went, and how good it is; it scores as its model does."""

    model: Scorer
    fit: Fit
    metrics: RunMetrics
    """Metrics of the run: on what chose its weights, on `test`, and beside the order shown."""
    folder: Path | None
    """Where it was written, if anywhere."""
    ingested: IngestedLog | None = None
    """What `ingest` found in the table that was learned from, where it was one in memory."""

    def to_dict(self) -> dict[str, Any]:
        """Where it lies, how it ended and how good it is, as JSON has it."""
        return {"run": plain(self.folder), "status": self.fit.status, **self.metrics.to_dict()}

    def page(self) -> Page:
        """The result of the run as a page."""
        found = self.metrics
        chosen = found.validation.on, found.validation.best, found.validation.step
        told = (found.engine, found.standing, found.safety)
        said = [each.sentence for each in told if each is not None]
        return run_page(f"{self.fit.status}: {self.folder}", chosen, found.curves, said, found.test)

    def score(self, documents: object) -> Array:
        """Scores, higher is better: see `Scorer.score`."""
        return self.model.score(documents)

    def rank(self, documents: object) -> Array:
        """The order to show one list in, best first: see `Scorer.rank`."""
        return self.model.rank(documents)

    def propensity(self) -> Array | None:
        """Examination relative to rank 1, as the method learned it; None where it has no such thing."""
        return self.model.propensity()

    def curves(self) -> tuple[Curve, ...]:
        """All that the method learned of bias, each under its name."""
        return self.model.curves()

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write the model alone to a folder, for `unskew.load`."""
        self.model.save(folder, force=force)


def run(
    asked: Settings,
    data: TrainingData,
    *,
    test: Lists | Log | None = None,
    out: Path | str | None = None,
    force: bool = False,
    report: Report | None = None,
    run_file: str | None = None,
    pick: Pick | None = None,
    judged: bool = True,
) -> Run:
    """Train as asked; the model with its best weights, and how training went.

    Under torchrun every process calls this; the first validates and writes the run folder, with the text of a run
    file where there is one. `pick` is what chose the method. A run that is not `judged` does not say
    where it stands.
    """
    place = None if out is None else Path(out).resolve()
    if place is not None:
        refuse_to_overwrite(place, force)
    began, leads = time.time(), world()[0] == 0
    if world()[1] > 1:
        workers = {"workers": workers_of(asked.training)}
        asked = asked.model_copy(update={"training": asked.training.model_copy(update=workers)})
    encoding = data.fit_encoding(asked.encoding)
    data, test = data.encoded(encoding), encoded(test, encoding)
    lists = test if isinstance(test, Lists) else None
    if lists is not None and lists.dim != data.documents.dim:
        what = f"the test lists have {lists.dim} features, the log's lists {data.documents.dim}"
        raise DataError(what, path=lists.name)
    if not data.facts().impressions:
        raise DataError("the log has no impressions to learn from", path=data.documents.name)
    check_worth(asked.method, data.facts(), drawn=asked.training.learn_from == "randomized")
    fitter = prepare(asked, data, lists)
    asked = fitter.asked
    with claimed(place, force) if place is not None and leads else nullcontext() as folder:
        if folder is not None:
            fitter.identity["data"] = data.fingerprint(labels=asked.method.target == "labels")
        if place is not None:
            _resume(fitter, folder)
        model, fit = fitter.fit(report, folder)
        begun, safety = started(model, data, asked.engine)
        model.card = replace(model.card, encoding=encoding)
        _sample(model, data.documents)
        stands = standing(model, None)
        if leads and judged:
            tested = isinstance(test, Log)
            judging = test.with_ranks() if isinstance(test, Log) else data.held_out_pages()
            stands = standing(model, judging, tested=tested)
            if stands.evidence is not None and stands.verdict != "better":
                warn(stands.sentence, Unproven)  # where nobody reads metrics.json
        on = "nothing" if data.held_out is None else asked.method.click_metric
        chosen = Validation("labels" if data.validation else on, fit.best, fit.best_step)
        if begun is not None:
            begun = begun.remember(model, data, clicks=safety is None)
        measured = None if lists is None else measure_ranking(model.score(lists), lists)
        done = Run(model, fit, RunMetrics.of(model, chosen, stands, measured, safety, pick, begun), place)
        if folder is not None and place is not None:
            write_run(folder, asked, data, done, began, fitter.identity["data"])
            if run_file is not None:
                (folder / RUN_FILE).write_text(run_file, encoding="utf-8")
            publish(folder, place, force=True, ours=RUN)
    return done


def prepare(asked: Settings, data: TrainingData, test: Lists | None = None) -> Fitter:
    """An untrained model and what trains it, with the settings that follow from the data.

    Scaling is fitted on the training lists; the published preparation (`ultra`) looks at the others' features too.
    """
    others = [other for other in (data.validation, test) if other is not None]
    scaler = data.fit_scaler(asked.scaling, *others)
    with torch.random.fork_rng():
        torch.manual_seed(asked.training.seed)
        return FITTERS[asked.fitted_by](settled(asked, data.facts().queries), data, scaler)


def _sample(model: Scorer, documents: Lists | Shards) -> None:
    if isinstance(model, Model) and isinstance(documents, Lists) and not model.reads:
        lists_seen = int(np.searchsorted(documents.offsets, CHECKED)) + 1
        first = documents.take(slice(0, min(lists_seen, len(documents))))
        model.sample = model.prepared(first)[:CHECKED]


def write_run(folder: Path, asked: Settings, data: TrainingData, done: Run, began: float, data_hash: str) -> None:
    """Everything a run folder holds but the checkpoint."""
    done.model.write(folder)
    fit, facts = done.fit, data.facts()
    numbers = {name: getattr(facts, name) for name in ("pages", "impressions", "clicks", "queries")}
    if isinstance(data.documents, Shards):
        numbers["shards"] = len(data.documents)
    about = {
        "status": fit.status,
        "steps": fit.step,
        "seed": asked.training.seed,
        "data": {"fingerprint": data_hash, **numbers},
        "versions": versions(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "seconds": round(time.time() - began, 3),
    }
    for name, content in (("config", asked.model_dump(mode="json")), ("metrics", done.metrics), ("run", about)):
        write_json(folder / f"{name}.json", content)
    (folder / "curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in fit.curve))
    if fit.status != "interrupted":
        (folder / CHECKPOINT).unlink(missing_ok=True)


def _resume(fitter: Fitter, folder: Path | None) -> None:
    try:
        fitter.resume(folder)
    except (ValueError, KeyError, SafetensorError, DataError) as error:
        place = CHECKPOINT if folder is None else folder / CHECKPOINT
        raise RunError(f"damaged ({error})", path=place, hint=(Option("force", True), " starts afresh")) from error
