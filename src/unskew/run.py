"""From a log to a trained model: scale, reduce, train with validation, and write a run folder.

A run folder holds

    config.json            what was asked for, every default spelled out
    run.json               status, seed, versions, fingerprint of the data, times
    model.json             what `unskew.load` needs besides weights
    weights.safetensors    ranker, method and scaling
    curve.jsonl            one line per validation
    metrics.json           validation and, where test lists were given, test metrics
    checkpoint.safetensors while a run is unfinished

It is written beside its place and renamed when done; an interrupted one is usable and resumes.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import time
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unskew.clicks.batches import Batches
from unskew.clicks.counts import Counts, label_table, reduce_log
from unskew.clicks.scaling import fit_scaler
from unskew.config import Settings, settings
from unskew.errors import DataError, RunError
from unskew.learning.checkpoint import FILE as CHECKPOINT
from unskew.learning.losses import list_log_softmax
from unskew.learning.methods import Context, MethodConfig, MethodModule
from unskew.learning.model import Model, build
from unskew.learning.rankers import Ranker
from unskew.learning.train import Fit, Report, Trainer, Training, Validate
from unskew.measuring import measure_ranking, ndcg_metric
from unskew.types import Array, Lists, Log


@dataclass(frozen=True)
class Data:
    """What a run learns from and is chosen by."""

    train: Log
    held_out: Log | None
    """Sessions of other queries, to choose weights by the likelihood of their clicks."""
    validation: Lists | None
    """Labelled lists, to choose weights by nDCG@10."""


def learn(
    log: Log,
    method: str | MethodConfig = "dla",
    *,
    ranker: str | Ranker = "mlp",
    scaling: str = "standard",
    validation: Lists | Log | None = None,
    test: Lists | None = None,
    training: Training | None = None,
    out: Path | str | None = None,
    force: bool = False,
    report: Report | None = None,
    **options: Any,
) -> Model:
    """Learn a ranker from clicks; `options` are fields of `Training` such as steps= and seed=.

    Weights are chosen on `validation`: labelled lists by nDCG@10, a log by the likelihood of its clicks. Without
    it a tenth of the log's queries is held out for that. With `out` a run folder is written, and an interrupted
    run found there goes on where it stopped.
    """
    asked = settings(method, ranker, scaling, training, options, validation)
    model, _ = run(asked, split(log, validation, asked), test=test, out=out, force=force, report=report)
    return model


def split(log: Log, validation: Lists | Log | None, asked: Settings) -> Data:
    """Training sessions, and what the weights are chosen by: given, or a tenth of the log's queries."""
    training = asked.training
    if training.validate_on == "nothing":
        return Data(log, None, None)
    if isinstance(validation, Lists):
        return Data(log, None, validation)
    if validation is not None:
        return Data(log, validation, None)
    shown = np.unique(log.query)
    if len(shown) < 2:
        raise DataError(
            "the log has one query, so none can be held out", hint='give validation=, or validate_on="nothing"'
        )
    rng = np.random.default_rng([training.seed, 7])
    held = rng.choice(shown, size=max(1, len(shown) // 10), replace=False)
    apart = np.isin(log.query, held)
    if asked.method.target == "labels":  # it may read labels, and clicks would choose the wrong weights
        return Data(log.take(~apart), None, log.lists.take(np.sort(held)))
    return Data(log.take(~apart), log.take(apart), None)


def run(
    asked: Settings,
    data: Data,
    *,
    test: Lists | None = None,
    out: Path | str | None = None,
    force: bool = False,
    report: Report | None = None,
) -> tuple[Model, Fit]:
    """Train as asked; the model with its best weights, and how training went."""
    folder = None if out is None else _claim(Path(out), force)
    began = time.time()
    warn_if_filtered(asked.method, data.train)
    with torch.random.fork_rng():
        torch.manual_seed(asked.training.seed)
        trainer, batches, model = prepare(asked, data)
    if folder is not None:
        trainer.identity["data"] = fingerprint(data.train)
        trainer.resume(folder)
    fit = trainer.run(batches, validate=validator(model, data, asked.training), report=report, checkpoints=folder)
    if folder is not None and out is not None:
        write_run(folder, asked, data, model, fit, test, began)
        _publish(folder, Path(out))
    return model, fit


def prepare(asked: Settings, data: Data) -> tuple[Trainer, Batches, Model]:
    """Scaled batches, an untrained model, and a trainer for it."""
    lists, training = data.train.lists, asked.training
    device = training.torch_device()
    scaler = fit_scaler(asked.scaling, lists)
    counts = table(asked.method, data.train)
    context = Context(positions=int(data.train.position.max()), log=data.train)
    model = build(asked.method, asked.ranker, scaler, lists.dim, context)
    model.ranker.to(device)
    model.method.to(device)
    identity = asked.model_dump(mode="json", exclude={"training"})
    batches = Batches(counts, scaler.apply(lists).features, size=training.batch, seed=training.seed, device=device)
    return Trainer(model.ranker, model.method, training, identity), batches, model


def table(method: MethodConfig, log: Log) -> Counts:
    """The rows that a method trains on: reduced clicks, or grades for the method that reads them."""
    if method.target == "labels":
        return label_table(log, every=getattr(method, "documents", "shown") == "all")
    return reduce_log(log, method.reduction)


def warn_if_filtered(method: MethodConfig, log: Log) -> None:
    """Methods that model "not clicked" need the sessions in which nothing was clicked."""
    if not method.needs_clickless:
        return
    clicks = np.add.reduceat(log.click.astype(np.int64), log.offsets[:-1][log.sizes > 0])
    if len(clicks) >= 100 and clicks.min() > 0:
        warnings.warn(
            f"every session of this log has a click; {method.name} needs those without one too, or it takes the "
            "filter for examination",
            stacklevel=3,
        )


def validator(model: Model, data: Data, training: Training) -> Validate | None:
    """The function that the training loop chooses weights by."""
    if training.validate_on == "nothing":
        return None
    if data.validation is not None:
        return _label_validator(model, data.validation)
    if data.held_out is None:
        raise RunError('validate_on = "clicks" needs held-out sessions')
    return _click_validator(model, data.held_out, training)


def _label_validator(model: Model, lists: Lists) -> Validate:
    scaled = torch.from_numpy(model.scaler.apply(lists).features)

    def validate(ranker: nn.Module, method: MethodModule) -> float:
        scores = model.score_scaled(scaled, lists.sizes)
        return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))

    return validate


def _click_validator(model: Model, held_out: Log, training: Training) -> Validate:
    scaled = model.scaler.apply(held_out.lists).features
    batches = Batches(reduce_log(held_out), scaled, size=4096, device=training.torch_device())
    return lambda ranker, method: click_likelihood(model, batches)


def click_likelihood(model: Model, batches: Batches) -> float:
    """Mean log-probability of the clicked slot among those shown, under the model's click scores."""
    total = clicks = 0.0
    with torch.no_grad():
        for batch in batches.in_order():
            scores = model.method.click_scores(batch.pad(model.ranker(batch.documents)), batch)
            total += (batch.clicks * list_log_softmax(scores, batch.where)).sum().item()
            clicks += batch.clicks.sum().item()
    return total / max(clicks, 1.0)


def fingerprint(log: Log) -> str:
    """A hash of the clicks and of the features they point at."""
    digest = hashlib.blake2b(digest_size=16)
    for array in (log.query, log.offsets, log.row, log.position, log.click, log.lists.features, log.lists.offsets):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the result may depend on."""
    packages = ("unskew", "torch", "numpy", "scipy", "scikit-learn", "pyarrow")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


def write_run(
    folder: Path, asked: Settings, data: Data, model: Model, fit: Fit, test: Lists | None, began: float
) -> None:
    """Everything a run folder holds but the checkpoint."""
    model.save(folder, force=True)
    metrics: dict[str, Any] = {
        "validation": {
            "on": "clicks" if data.validation is None else "labels",
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
        "data": {
            "fingerprint": fingerprint(data.train),
            "sessions": len(data.train),
            "impressions": len(data.train.row),
            "clicks": int(data.train.click.sum()),
            "queries": len(np.unique(data.train.query)),
        },
        "versions": versions(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began)),
        "seconds": round(time.time() - began, 3),
    }
    for name, content in (("config", asked.model_dump(mode="json")), ("metrics", metrics), ("run", about)):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n")
    (folder / "curve.jsonl").write_text("".join(json.dumps(point) + "\n" for point in fit.curve))
    if fit.status != "interrupted":
        (folder / CHECKPOINT).unlink(missing_ok=True)


def status(folder: Path) -> str | None:
    """How the run in this folder ended; None where there is no run."""
    path = folder / "run.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


def _claim(out: Path, force: bool) -> Path:
    """The folder to work in, beside `out`: new, or that of a run that was killed or interrupted."""
    working = out.with_name(out.name + ".partial")
    if force:
        shutil.rmtree(working, ignore_errors=True)
    elif out.exists():
        if status(out) != "interrupted":
            raise RunError(
                f"{out} exists and is never overwritten; choose another place, or use --force (force=True)"
            )
        if not working.exists():
            shutil.copytree(out, working)
    working.mkdir(parents=True, exist_ok=True)
    return working


def _publish(working: Path, out: Path) -> None:
    """Put the working folder in its place."""
    if out.exists():
        shutil.rmtree(out)
    working.rename(out)


def _numbers(array: Array | None) -> list[float] | None:
    return None if array is None else [round(float(value), 6) for value in array]
