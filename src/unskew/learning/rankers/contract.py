"""What the configs of rankers share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from torch import nn

from unskew.settings import Config


class RankerConfig(Config):
    """Base of all that `ranker =` may name."""

    name: str

    reads: ClassVar[bool] = False
    """Whether it reads what queries and documents say."""

    def usual_training(self, steps: int | None) -> Mapping[str, int]:
        """Training settings that suit the ranker better than the usual ones, where none were given."""
        return {}

    def located(self, folder: Path) -> Self:
        """The same with relative paths taken from this folder; most name no files."""
        return self


def by_rate(module: nn.Module) -> dict[float, list[nn.Parameter]]:
    """Parameters by the factor on their step size: 1, or the `rate_factor` of a part of the module."""
    parts = [part for part in module.modules() if hasattr(part, "rate_factor")]
    factors = {id(weight): float(part.rate_factor) for part in parts for weight in part.parameters()}  # type: ignore[arg-type]
    found: dict[float, list[nn.Parameter]] = {}
    for weight in module.parameters():
        found.setdefault(factors.get(id(weight), 1.0), []).append(weight)
    return found
