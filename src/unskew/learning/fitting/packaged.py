"""A package's own training in the place of the training loop: LightGBM or XGBoost grows, the run does the rest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from unskew.learning.fitting.loop import Fit, Progress, Report, Trainer, Training, Validate
from unskew.learning.fitting.packages import fit_baseline
from unskew.learning.methods.packages import PackageConfig
from unskew.learning.model import Model
from unskew.learning.rankers.trees import tree_rankers
from unskew.types import Lists, Log


class Packaged(Trainer):
    """Trains a model whose method is a package; its steps are the trees in use, and there are no checkpoints."""

    def __init__(
        self, model: Model, log: Log, chosen_by: Lists | Log | None, config: Training, identity: dict[str, Any]
    ) -> None:
        """`log` and `chosen_by` come with scaled features; the second chooses the number of trees."""
        assert isinstance(model.method_config, PackageConfig)
        super().__init__(model.ranker, model.method, config, identity)
        self.asked, self.log, self.chosen_by = model.method_config, log, chosen_by

    def run(
        self,
        batches: Any,
        *,
        validate: Validate | None = None,
        report: Report | None = None,
        checkpoints: Path | None = None,
    ) -> Fit:
        """Let the package grow its trees; those of the best round remain. `validate` says how good they are."""
        began, fit, asked = time.perf_counter(), self.fit, self.asked
        options = asked.options(self.config.threads)
        found = fit_baseline(asked.name, self.log, self.chosen_by, self.config.seed, **options)
        (trees,) = tree_rankers(self.ranker)
        trees.take(found.booster, found.rounds)
        self.modules.eval()
        fit.step, fit.best_step, fit.status = found.rounds, found.rounds, "finished"
        fit.best = None if validate is None else validate(self.ranker, self.method)
        seconds = time.perf_counter() - began
        fit.curve.append({"step": found.rounds, "metric": fit.best, "seconds": seconds})
        if report is not None:
            rate = asked.rounds * len(self.log.row) / seconds
            report(Progress(asked.rounds, float("nan"), fit.best, fit.best, seconds, rate))
        return fit
