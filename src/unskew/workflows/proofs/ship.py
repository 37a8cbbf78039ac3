"""`unskew ship`: may a ranking replace another? A lower bound on its gain, and who is seen more and who less.

How it is decided is in `measuring/shipping.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from unskew.errors import ConfigError
from unskew.measuring.counterfactual.evidence import Metric
from unskew.measuring.shipping import BOUNDS, Bound, Shipping, Watched, decided
from unskew.options.base import EngineConnection
from unskew.options.runs import ShipArguments
from unskew.pages.documents.proof import ship_page
from unskew.pages.page_files import page_place, write_found
from unskew.tables.engine.engine import Engine
from unskew.types import Log
from unskew.workflows.inputs.rankings import SHOWN, open_ranking
from unskew.workflows.proofs.proof import Examined, prove


def ship(
    run: Any,
    log: Log | Path | str,
    *,
    against: Any = SHOWN,
    features: Any = None,
    risk: float = 0.05,
    at_least: float = 0.0,
    bound: Bound = "auto",
    group: str | None = None,
    propensities: Examined = None,
    by: Metric = "dcg",
    at: int = 10,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
    out: Path | str | None = None,
    command: str = "",
    force: bool = False,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Shipping:
    """Whether a ranking may replace another, or what was shown, by the clicks of a log and without labels.

    `risk` is the chance of shipping what gains no more than `at_least`, a share such as 0.01 for 1 %. `group` is a
    column of the log, or of features, to tell exposure by. `out` is a page (.html). The rest is as for
    `measure`.
    """
    ShipArguments.check(risk=risk)
    if bound not in BOUNDS:
        raise ConfigError(", ".join(BOUNDS), argument="bound", value=bound)
    place = page_place(out, force=force)
    watched = Watched(at)
    opened = {"features": features, "columns": columns, "doc_ids": doc_ids, "tracked": tracked}
    new, other = open_ranking(run, **opened), open_ranking(against, **opened)
    how: dict[str, Any] = {"propensities": propensities, "by": by, "at": at, "seed": seed, "columns": columns}
    how |= {"features": features, "group": group, "watch": watched, "engine": engine}
    found = prove(new, other, log=log, level=1 - 2 * risk, **how, **connection)
    made = decided(found, watched, new.name, other.name, risk=risk, at_least=at_least, bound=bound)
    if place is not None:
        write_found(place, ship_page(made, command=command))
    return made
