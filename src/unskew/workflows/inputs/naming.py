"""What a user calls queries and documents, remembered from a run by whatever is done with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.learning.scorer import Scorer
from unskew.settings import read_toml

if TYPE_CHECKING:
    from unskew.workflows.runs.run import Run


def names_for(run: Run | Scorer | Path | str, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Theirs for ours, {"doc_id": "sku"}: as given, else as the run.toml of a run folder says."""
    if columns:
        return dict(columns)
    if isinstance(run, Scorer):
        return {}
    folder = Path(run) if isinstance(run, str | Path) else run.folder
    if folder is None or not (folder / "run.toml").is_file():
        return {}
    return dict(read_toml(folder / "run.toml").get("data", {}).get("columns", {}))
