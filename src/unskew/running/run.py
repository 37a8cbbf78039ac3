"""From a log to a trained model: scale, reduce, train with validation, and write a run folder.

A run folder holds

    config.json            what was asked for, every default spelled out
    run.json               status, seed, versions, fingerprint of the data, times
    model.json             what `unskew.load` needs besides weights
    weights.safetensors    ranker, method and scaling
    trees_0.txt, ...       where there are trees: LightGBM's text, one file for each relevance output of theirs
    trees_0.json           where they are XGBoost's: its own JSON
    curve.jsonl            one line per validation
    metrics.json           validation and, where test lists were given, test metrics
    checkpoint.safetensors while a run is unfinished

It is written beside its place and renamed when done; an interrupted one is usable and resumes. Only a package has
nothing to show before it is done, and begins again.
"""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn

from unskew.clicks.counts.batches import Batches, as_tensor
from unskew.clicks.counts.reduction import Counts, label_table, reduce_log
from unskew.clicks.lists.scaling import Scaler, fit_scaler
from unskew.errors import ConfigError, DataError, RunError
from unskew.learning.fitting.boosting import Boosting
from unskew.learning.fitting.checkpoint import FILE as CHECKPOINT
from unskew.learning.fitting.distributed import Parallel, row_parts
from unskew.learning.fitting.loop import Fit, Report, Trainer, Training, Validate, threads
from unskew.learning.fitting.packaged import Packaged
from unskew.learning.fitting.packages import Baseline
from unskew.learning.fitting.processes import workers_of, world
from unskew.learning.losses import list_log_softmax
from unskew.learning.methods import Context, MethodConfig, MethodModule, PackageConfig
from unskew.learning.model import Model, build
from unskew.learning.rankers.networks import Ranker
from unskew.learning.rankers.trees import Trees
from unskew.measuring import measure_ranking, ndcg_metric
from unskew.running.folder import claim, fingerprint, publish, refuse_to_overwrite, versions
from unskew.running.settings import IN_MEMORY, Settings, settings
from unskew.running.shards import ShardData
from unskew.types import Array, Lists, Log


@dataclass(frozen=True)
class Data:
    """What a run learns from and is chosen by."""

    train: Log
    held_out: Log | None
    """Pages of other queries, to choose weights by the likelihood of their clicks."""
    validation: Lists | None
    """Labelled lists, to choose weights by nDCG@10."""


def learn(
    log: Log,
    method: str | MethodConfig = "dla",
    *,
    ranker: str | Ranker | None = None,
    scaling: str | None = None,
    validation: Lists | Log | None = None,
    test: Lists | None = None,
    training: Training | None = None,
    out: Path | str | None = None,
    force: bool = False,
    report: Report | None = None,
    **options: Any,
) -> Model:
    """Learn a ranker from clicks; `options` are fields of `Training` such as steps= and seed=.

    The ranker is an `mlp` on features of scaling `standard` unless given. A package such as `lightgbm_position`
    takes no ranker: it grows its own trees, on features as they are unless a scaling is given.

    Weights are chosen on `validation`: labelled lists by nDCG@10, a log by the likelihood of its clicks (packages:
    by nDCG@10 on them). Without it a tenth of the log's queries is held out for that; packages keep every tree.
    With `out` a run folder is written, and an interrupted run found there goes on where it stopped.
    """
    asked = settings(method, ranker, scaling, training, options, validation)
    model, _ = run(asked, split(log, validation, asked), test=test, out=out, force=force, report=report)
    return model


def split(log: Log, validation: Lists | Log | None, asked: Settings) -> Data:
    """Training pages, and what the weights are chosen by: given, or a tenth of the log's queries."""
    training = asked.training
    if training.validate_on == "nothing":
        return Data(log, None, None)
    if isinstance(validation, Lists):
        return Data(log, None, validation)
    if validation is not None:
        return Data(log, validation, None)
    held = held_queries(log, training.seed)
    apart = np.isin(log.query, held)
    if asked.method.target == "labels":  # it may read labels, and clicks would choose the wrong weights
        return Data(log.take(~apart), None, log.lists.take(held))
    return Data(log.take(~apart), log.take(apart), None)


def held_queries(log: Log, seed: int) -> Array:
    """A tenth of the queries shown, drawn by the seed, ascending."""
    shown = np.unique(log.query)
    if len(shown) < 2:
        count = "one query" if len(shown) else "no pages"
        raise DataError(
            f"the log has {count}, so none can be held out", hint='give validation=, or validate_on="nothing"'
        )
    held = np.random.default_rng([seed, 7]).choice(shown, size=max(1, len(shown) // 10), replace=False)
    return np.sort(held)


def run(
    asked: Settings,
    data: Data | ShardData,
    *,
    test: Lists | None = None,
    out: Path | str | None = None,
    force: bool = False,
    report: Report | None = None,
) -> tuple[Model, Fit]:
    """Train as asked; the model with its best weights, and how training went.

    Under torchrun every process calls this; the first validates and writes the run folder.
    """
    place = None if out is None else Path(out).resolve()
    if place is not None:
        refuse_to_overwrite(place, force)
    began, leads = time.time(), world()[0] == 0
    if world()[1] > 1:
        workers = {"workers": workers_of(asked.training)}
        asked = asked.model_copy(update={"training": asked.training.model_copy(update=workers)})
    check_data(data, test)
    warn_if_filtered(asked.method, data)
    with torch.random.fork_rng():
        torch.manual_seed(asked.training.seed)
        trainer, batches, model = prepare(asked, data, test)
    # process 0 validates; the others are told the metric, and need only know that there is one
    absent = None if asked.training.validate_on == "nothing" else lambda ranker, method: float("nan")
    validate = validator(model, data, asked.training) if leads else absent
    folder = claim(place, force) if place is not None and leads else None
    if folder is not None:
        trainer.identity["data"] = data_fingerprint(asked, data)
    if place is not None:
        _resume(trainer, folder)
    fit = trainer.run(batches, validate=validate, report=report, checkpoints=folder)
    with torch.random.fork_rng(), threads(asked.training.threads):
        torch.manual_seed(asked.training.seed)
        model.method.finish(model.ranker, batches, fit.step)
    if folder is not None and place is not None:
        write_run(folder, asked, data, model, fit, test, began, trainer.identity["data"])
        publish(folder, place)
    return model, fit


def check_data(data: Data | ShardData, test: Lists | None) -> None:
    """Refuse before training what could only fail after it."""
    if isinstance(data, Data) and not len(data.train.row):
        raise DataError("the log has no impressions to learn from", path=data.train.lists.name)
    dim = data.train.lists.dim if isinstance(data, Data) else data.shards.dim
    if test is not None and test.dim != dim:
        raise DataError(f"the test lists have {test.dim} features, the log's lists {dim}", path=test.name)


def prepare(asked: Settings, data: Data | ShardData, test: Lists | None = None) -> tuple[Trainer, Any, Model]:
    """Scaled batches, an untrained model, and a trainer for it.

    Scaling is fitted on the training lists; the published preparation (`ultra`) looks at the others' features too.
    """
    training, device = asked.training, _device(asked.training)
    others = [other for other in (data.validation, test) if other is not None]
    workers = workers_of(training)
    if asked.trees is not None and (workers > 1 or isinstance(data, ShardData)):
        raise ConfigError(IN_MEMORY)
    if isinstance(data, ShardData):
        scaler, context = data.shards.fit_scaler(asked.scaling, *others), data.context()
    else:
        scaler = fit_scaler(asked.scaling, data.train.lists, *others)
        counts = None if isinstance(asked.method, PackageConfig) else table(asked.method, data.train)
        sizes = factor_sizes(asked.method, data.train)
        context = Context(int(data.train.position.max()), data.train, sizes)
    model = build(asked.method, asked.ranker, scaler, scaler.width, context)
    model.ranker.to(device)
    model.method.to(device)
    identity = asked.model_dump(mode="json", exclude={"training"})
    batches: Any
    if isinstance(data, ShardData):
        batches = data.batches(scaler, training, device, workers)
    elif counts is None:
        held_out = None if data.held_out is None else scaled_log(data.held_out, scaler)
        chosen_by = held_out if data.validation is None else scaler.apply(data.validation)
        return Packaged(model, scaled_log(data.train, scaler), chosen_by, training, identity), None, model
    else:
        features = np.asarray(scaler.apply(data.train.lists).features, np.float32)
        batches = Batches(counts, features, size=training.batch, seed=training.seed, device=device)
        batches = batches if workers == 1 else row_parts(batches, workers)
    if isinstance(asked.ranker, Trees):
        return Boosting(model.ranker, model.method, asked.ranker, training, identity), batches, model
    kind = Trainer if workers == 1 else Parallel
    return kind(model.ranker, model.method, training, identity), batches, model


def scaled_log(log: Log, scaler: Scaler) -> Log:
    """The log over lists with scaled features."""
    return replace(log, lists=scaler.apply(log.lists))


def _device(training: Training) -> torch.device:
    """The device asked for, if it can be used."""
    try:
        device = training.torch_device()
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        raise ConfigError(f"training.device: {str(error).splitlines()[0]}") from error
    return device


def table(method: MethodConfig, log: Log) -> Counts:
    """The rows that a method trains on: reduced clicks, or grades for the method that reads them."""
    if method.target == "labels":
        return label_table(log, every=getattr(method, "documents", "shown") == "all")
    return reduce_log(log, method.reduction, serp=method.serp)


def factor_sizes(method: MethodConfig, log: Log) -> dict[str, int]:
    """Number of values of each bias factor that the method names."""
    sizes = {}
    for name in method.serp:
        column = log.columns.get(name)
        if column is None or column.dtype.kind not in "iub" or column.min(initial=0) < 0:
            raise DataError(f"bias factor {name}: the log needs a column of that name with integers from 0")
        sizes[name] = int(column.max(initial=0)) + 1
    return sizes


def warn_if_filtered(method: MethodConfig, data: Data | ShardData) -> None:
    """Methods that model "not clicked" need the pages in which nothing was clicked."""
    if not method.needs_clickless:
        return
    if isinstance(data, ShardData):
        pages, fewest = data.shards.totals()["pages"], int(data.shards.totals()["clickless"] == 0)
    else:
        log = data.train
        clicks = np.add.reduceat(log.click.astype(np.int64), log.offsets[:-1][log.sizes > 0])
        pages, fewest = len(clicks), int(clicks.min())
    if pages >= 100 and fewest > 0:
        warnings.warn(
            f"every page of this log has a click; {method.name} needs those without one too, or it takes the "
            "filter for examination",
            stacklevel=4,  # the line that called `learn`
        )


def validator(model: Model, data: Data | ShardData, training: Training) -> Validate | None:
    """The function that the training loop chooses weights by."""
    if training.validate_on == "nothing":
        return None
    if data.validation is not None:
        return _label_validator(model, data.validation)
    if data.held_out is None:
        raise RunError('validate_on = "clicks" needs held-out pages')
    if isinstance(model.method_config, PackageConfig) and isinstance(data, Data):
        held_out = data.held_out
        return lambda ranker, method: click_ndcg(model, held_out)
    if isinstance(data, ShardData):
        counts, name = data.held_counts(), data.shards.name
    else:
        clicked, name = data.held_out.click.any(), data.held_out.lists.name
        counts = reduce_log(data.held_out, serp=model.method_config.serp) if clicked else None
    if counts is None:
        raise DataError(
            "the held-out pages have no click, so clicks cannot choose weights",
            path=name,
            hint='give validation=, or validate_on="nothing"',
        )
    return _click_validator(model, counts, training)


def _label_validator(model: Model, lists: Lists) -> Validate:
    if not (lists.labels > 0).any():
        raise DataError(
            "no validation document has a grade above 0, so labels cannot choose weights", path=lists.name
        )
    scaled = as_tensor(np.asarray(model.scaler.apply(lists).features, np.float32), torch.device("cpu"))

    def validate(ranker: nn.Module, method: MethodModule) -> float:
        scores = model.score_scaled(scaled, lists.sizes)
        return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))

    return validate


def _click_validator(model: Model, counts: Counts, training: Training) -> Validate:
    scaled = np.asarray(model.scaler.apply(counts.lists).features, np.float32)
    batches = Batches(counts, scaled, size=4096, device=training.torch_device())
    return lambda ranker, method: click_likelihood(model, batches)


def click_likelihood(model: Model, batches: Batches) -> float:
    """Mean log-probability of the clicked slot among those shown, under the model's click scores."""
    total = clicks = 0.0
    with torch.no_grad():
        for batch in batches.in_order():
            scores = model.method.click_scores(batch.pad(model.ranker(batch.documents)), batch)
            total += (batch.clicks * list_log_softmax(scores, batch.where)).sum().item()
            clicks += batch.clicks.sum().item()
    return total / clicks if clicks else float("nan")


def click_ndcg(model: Model | Baseline, log: Log) -> float:
    """nDCG@10 of the pages of a log, by their clicks: how well a model without a click model ranks them."""
    values = ndcg_metric(model.score(log.lists)[log.row], log.click.astype(np.int64), offsets=log.offsets, at=10)
    return float("nan") if np.isnan(values).all() else float(np.nanmean(values))


def data_fingerprint(asked: Settings, data: Data | ShardData) -> str:
    """A hash of all that a run learns from and is chosen by."""
    if isinstance(data, ShardData):
        return f"{data.shards.key}-{data.stay}-{fingerprint(data.validation)}"
    return fingerprint(data.train, data.held_out, data.validation, labels=asked.method.target == "labels")


def write_run(
    folder: Path,
    asked: Settings,
    data: Data | ShardData,
    model: Model,
    fit: Fit,
    test: Lists | None,
    began: float,
    data_hash: str,
) -> None:
    """Everything a run folder holds but the checkpoint."""
    model.save(folder, force=True)
    metrics: dict[str, Any] = {
        "validation": {
            "on": chosen_on(asked, data),
            "best": fit.best,
            "step": fit.best_step,
        },
        "propensity": _numbers(model.propensity()),
    }
    if test is not None:
        metrics["test"] = measure_ranking(model.score(test), test).to_dict()
    about = {
        "status": fit.status,
        "steps": fit.step,
        "seed": asked.training.seed,
        "data": {"fingerprint": data_hash} | in_numbers(data),
        "versions": versions(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "seconds": round(time.time() - began, 3),
    }
    for name, content in (("config", asked.model_dump(mode="json")), ("metrics", metrics), ("run", about)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in fit.curve))
    if fit.status != "interrupted":
        (folder / CHECKPOINT).unlink(missing_ok=True)


def in_numbers(data: Data | ShardData) -> dict[str, int]:
    """What was learned from, in numbers."""
    if isinstance(data, ShardData):
        return data.in_numbers()
    return {
        "pages": len(data.train),
        "impressions": len(data.train.row),
        "clicks": int(data.train.click.sum()),
        "queries": len(np.unique(data.train.query)),
    }


def chosen_on(asked: Settings, data: Data | ShardData) -> str:
    """What the weights were chosen on."""
    clicks = "nDCG of clicks" if isinstance(asked.method, PackageConfig) else "clicks"
    return "labels" if data.validation is not None else clicks if data.held_out is not None else "nothing"


def _resume(trainer: Trainer, folder: Path | None) -> None:
    try:
        trainer.resume(folder)
    except (ValueError, KeyError, SafetensorError, DataError) as error:
        place = CHECKPOINT if folder is None else folder / CHECKPOINT
        raise RunError(f"{place}: damaged ({error}); --force (force=True) starts afresh") from error


def _numbers(array: Array | None) -> list[float] | None:
    return None if array is None else [round(float(value), 6) for value in array]
