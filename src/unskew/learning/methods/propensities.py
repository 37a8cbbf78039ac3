"""What methods share that know examination before they train: where it comes from."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from unskew.errors import DataError, Option
from unskew.examination import Examination
from unskew.learning.methods.contract import Context, Measurement, MethodConfig, MethodModule
from unskew.types import Log

FILES = (".json", ".csv")


def randomized_propensity(log: Log) -> Examination:
    """Examination from slots that were shuffled, as `diagnose` measures it.

    In a shuffled list every rank holds the same mix of documents, so clicks at rank k over clicks at rank 1 of the
    lists that reach rank k estimate theta_k / theta_1.
    """
    if log.randomized is None or not log.randomized.any():
        raise DataError(
            "the log has no randomized pages",
            hint='mark shuffled pages, or take propensity = "swaps", numbers, or the method dla',
        )
    return diagnosed(log, "shuffled")


def diagnosed(log: Log, source: str) -> Examination:
    """Examination by rank of a log, as good as it can be told, as far down as ranks hang together."""
    from unskew.diagnosis.evidence.evidence import best_guess  # this takes long to import

    return best_guess(log, source)


def oracle_propensity(log: Log) -> Examination:
    """Examination as the simulator knew it: the mean of `true_examination` at each rank."""
    if "true_examination" not in log.columns:
        raise DataError(
            "the log does not say the true examination", hint=("simulate with ", Option("truth", True))
        )
    shown = np.bincount(log.position)[1:]
    total = np.bincount(log.position, weights=log.columns["true_examination"])[1:]
    return Examination.of(total / np.maximum(shown, 1), "the simulator")


MEASURES: dict[Measurement, Callable[[Log], Examination]] = {
    "randomized": randomized_propensity,
    "swaps": partial(diagnosed, source="swaps"),
    "oracle": oracle_propensity,
}
"""What measures propensities on a log, by name."""


class Propensities(MethodConfig):
    """Base of the configs that need to know examination before they train."""

    propensity: Annotated[tuple[float, ...], Field(strict=False)] | str = "randomized"
    """`randomized`: from the shuffled pages of the log; `swaps`: from documents that it shows at several ranks;
    `oracle`: the simulator's; a .json or .csv file; or one number per rank."""

    @field_validator("propensity")
    @classmethod
    def _known(cls, given: tuple[float, ...] | str) -> tuple[float, ...] | str:
        if isinstance(given, str) and given not in MEASURES and Path(given).suffix not in FILES:
            raise ValueError(f"give {', '.join(MEASURES)}, a .json or .csv file, or numbers, not {given!r}")
        return given

    @property
    def measured(self) -> Measurement | None:
        """How they are to be measured on the log; None where they are given."""
        return self.propensity if self.propensity in MEASURES else None

    def located(self, folder: Path) -> Self:
        """The same with the file taken from this folder."""
        if self.measured is not None or not isinstance(self.propensity, str):
            return self
        return self.model_copy(update={"propensity": str(folder / self.propensity)})

    def theta(self, context: Context) -> Tensor:
        """Examination relative to rank 1, one number per rank of the log; ranks past the last known take its."""
        if context.facts is None:
            seen = Examination.of((1.0,), "numbers")  # to be loaded
        elif self.measured is not None:
            if context.propensities is None:
                raise DataError(f"there are no {self.measured} propensities", hint="give a file of them")
            seen = context.propensities
        elif isinstance(self.propensity, str):
            seen = Examination.read(self.propensity)
        else:
            seen = Examination.of(self.propensity, "numbers")
        return torch.as_tensor(seen.at(np.arange(1, context.positions + 1)), dtype=torch.float32)


class KnownPropensity(MethodModule):
    """A method that knows examination before it trains."""

    config: Propensities
    theta: Tensor

    def __init__(self, config: Propensities, context: Context) -> None:
        super().__init__(config, context)
        self.register_buffer("theta", config.theta(context))

    def propensity(self) -> Tensor:
        """The propensities used, relative to rank 1."""
        return self.theta
