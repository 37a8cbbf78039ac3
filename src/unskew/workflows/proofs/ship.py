"""`unskew ship`: may a ranking replace another? A lower bound on its gain, and who is seen more and who less.

    gain       as a share of what it is held against, so that estimates in different units can be compared
    bound      bootstrap: the lowest end of the intervals of the estimates that the verdict rests on, each with a
               chance of `risk` to lie above the truth; bernstein: of random slots alone, whatever the distribution
    ship       the bound is above `at_least`
    do not     the verdict is worse, or the upper ends of all deciding intervals are below `at_least`
    cannot     anything else

What is estimated, and when there is a verdict, is in `measuring/counterfactual`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.errors import ConfigError
from unskew.files import refuse_existing, write_text
from unskew.measuring.shipping import BOUNDS, Bound, Shipping, Watched, decided
from unskew.pages.documents.proof import ship_page
from unskew.pages.web import html
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
    page = _checked(risk, bound, out, force)
    watched = Watched(at)
    named = {key: options[key] for key in ("features", "columns", "doc_ids", "tracked") if key in options}
    new, other = open_ranking(ranking, **named), open_ranking(against, **named)
    found = prove(new, other, log=log, at=at, level=1 - 2 * risk, watch=watched, group=group, **options)
    made = decided(
        found,
        watched,
        new.name,
        other.name,
        risk=risk,
        at_least=at_least,
        bound=bound,
    )
    if page is not None:
        write_text(page, html(ship_page(made, command=command)))
    return made


def _checked(risk: float, bound: str, out: Path | str | None, force: bool) -> Path | None:
    """The page to write, after a look at what was asked for."""
    if not 0 < risk < 0.5:
        raise ConfigError("above 0 and below 0.5, such as 0.05", argument="risk", value=risk)
    if bound not in BOUNDS:
        raise ConfigError(", ".join(BOUNDS), argument="bound", value=bound)
    page = None if out is None else Path(out)
    if page is not None and page.suffix != ".html":
        raise ConfigError("give a name that ends in .html", argument="out", value=out)
    if page is not None:
        refuse_existing(page, force=force)
    return page
