"""`unskew ship`: may a ranking replace another? A lower bound on its gain, and who is seen more and who less.

How it is decided is in `measuring/shipping.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.errors import ConfigError
from unskew.measuring.shipping import BOUNDS, Bound, Shipping, Watched, decided
from unskew.pages.documents.proof import ship_page
from unskew.pages.page_files import page_place, write_found
from unskew.types import Log
from unskew.workflows.inputs.rankings import SHOWN, open_ranking
from unskew.workflows.proofs.proof import prove


def ship(
    ranking: Any,
    log: Log | Path | str,
    *,
    against: Any = SHOWN,
    risk: float = 0.05,
    at_least: float = 0.0,
    bound: Bound = "auto",
    group: str | None = None,
    at: int = 10,
    out: Path | str | None = None,
    command: str = "",
    force: bool = False,
    **options: Any,
) -> Shipping:
    """Whether a ranking may replace another, or what was shown, by the clicks of a log and without labels.

    `risk` is the chance of shipping what gains no more than `at_least`, a share such as 0.01 for 1 %. `group` is a
    column of the log, or of features, to tell exposure by. `out` is a page (.html). `options` are those of
    `unskew.prove`: features, examination, columns, metric, seed and those of the engine.
    """
    if not 0 < risk < 0.5:
        raise ConfigError("above 0 and below 0.5, such as 0.05", argument="risk", value=risk)
    if bound not in BOUNDS:
        raise ConfigError(", ".join(BOUNDS), argument="bound", value=bound)
    place = page_place(out, force=force)
    watched = Watched(at)
    named = {key: options[key] for key in ("features", "columns", "doc_ids", "tracked") if key in options}
    new, other = open_ranking(ranking, **named), open_ranking(against, **named)
    found = prove(new, other, log=log, at=at, level=1 - 2 * risk, watch=watched, group=group, **options)
    made = decided(found, watched, new.name, other.name, risk=risk, at_least=at_least, bound=bound)
    if place is not None:
        write_found(place, ship_page(made, command=command))
    return made
