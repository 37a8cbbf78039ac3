"""What `unskew export` can be told besides, and which forms each of it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, Option
from unskew.types import Lists

ENGINES = ("solr", "opensearch", "elasticsearch", "vespa")
JUDGED = ("quepid", "workbench")


@dataclass(frozen=True)
class ExportOptions:
    """Told by name; what a form does not take is refused."""

    lists: Lists | Sequence[Path | str] | Any = None
    """Documents that trees learn the scores of, where an engine cannot run a model."""
    candidates: Sequence[Path | str] | Any = None
    """Which documents a query has, where lists are features of items alone: a log, or a table of both ids."""
    name: str = "unskew"
    """What the model is called in the engine."""
    rows: Path | str | None = None
    """A log whose rows get a weight each."""
    max_weight: float | None = None
    """Clips weights."""
    columns: Mapping[str, str] | None = None
    """Our columns of a log, by the names that it has."""
    confidence: float = 0.5
    """Least confidence in a grade that is written."""
    top: float | None = None
    """The relevance where grades end; the 95th percentile unless given."""
    force: bool = False
    """Overwrite what is there."""

    def check(self, to: str) -> None:
        """Refuse what does nothing for a form."""
        for each in fields(self):
            targets = USED.get(each.name)
            if targets is not None and to not in targets and getattr(self, each.name) != each.default:
                told = f" {', '.join(targets)}, not for {to}"
                raise ConfigError((Option(each.name), " is for ", Option("to"), told))
        if not 0 <= self.confidence <= 1:
            raise ConfigError("from 0 to 1", argument="confidence", value=self.confidence)
        if self.top is not None and not self.top > 0:
            raise ConfigError("a relevance above 0", argument="top", value=self.top)


USED: Mapping[str, tuple[str, ...]] = {
    "lists": ENGINES,
    "candidates": ENGINES,
    "name": ENGINES,
    "rows": ("propensities",),
    "max_weight": ("propensities",),
    "columns": ("propensities", *JUDGED),
    "confidence": JUDGED,
    "top": JUDGED,
}
"""Which forms take an option; all take those not named."""
