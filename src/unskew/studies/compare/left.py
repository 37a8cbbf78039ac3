"""What each method's ranking still knows of the logging ranking, given grades: CMIP, as a section of the page."""

from __future__ import annotations

import numpy as np

from unskew.pages.page import Section, Table
from unskew.studies.compare.table import Comparison

HOW = (
    "CMIP on the test lists, mean over seeds, in nats: how far scores follow the logging ranking among documents "
    "of one grade. 0 is a ranking that learned nothing of where documents stood; a random one has 0 too, so read "
    "it beside nDCG."
)


def left_section(comparison: Comparison) -> list[Section]:
    """CMIP of every arm with its chosen settings, a column for each behaviour; none where nothing is known."""
    found: dict[str, dict[str, list[float]]] = {}
    for finding in comparison.findings:
        cell, value = finding.cell, finding.content.get("cmip")
        chosen = comparison.chosen.get((comparison.ways[0], cell.behaviour, cell.arm))
        if value is not None and chosen == cell.index:
            found.setdefault(cell.arm, {}).setdefault(cell.behaviour, []).append(float(value))
    if not found:
        return []
    names = comparison.behaviours
    rows = [[arm, *(_mean(values.get(name, [])) for name in names)] for arm, values in found.items()]
    return [Section("Bias that is left", tables=[Table(["method", *names], rows, legend=HOW)])]


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.4f}" if values else ""
