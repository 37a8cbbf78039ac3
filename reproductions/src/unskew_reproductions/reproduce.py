"""Reproduce a table or figure of a paper: run its recipe, and put what comes out beside what was printed.

A folder of a reproduction holds

    reproduce.json     the recipe and what it ran on
    <data>-<panel>/    a comparison for each data set and panel, which resumes
    runs/              trained models, where a figure looks into them
    numbers.parquet    every number, with the paper's
    table.md           the tables
    report.html        the same with figures, opens offline
    figure.svg         the figures
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew import __version__
from unskew.errors import ConfigError
from unskew.files import Ours, complete_file, complete_folder, is_free, locked, refuse_existing, write_json
from unskew.pages.console import Tell
from unskew.pages.numbers import command_line
from unskew.pages.origins import GENERATED, simulated_on
from unskew.pages.page import Page, Section, write_page
from unskew.results import Result, plain
from unskew.settings import listed
from unskew.studies.compare.config import asked_for
from unskew_reproductions.claims import Judged, tally
from unskew_reproductions.data import DataSet, choose_sources, resized
from unskew_reproductions.embedding import draw_spaces
from unskew_reproductions.inference import time_models
from unskew_reproductions.pages import follow_pages
from unskew_reproductions.recipe import Recipe, recipe_named, recipe_names
from unskew_reproductions.search_engine import run_search_engine
from unskew_reproductions.table import run_panels
from unskew_reproductions.trial import How, Tried

REPRODUCE_MARK = "reproduce.json"
"""The file by which a folder is known for a reproduction."""
REPRODUCED = Ours(REPRODUCE_MARK, ("*",))
"""A reproduction that is gone on with, whatever else lies in its folder."""
BARE = Ours("data", ("data/*",))
"""One that was killed while its data were made."""
KINDS_OF_RECIPE: Mapping[str, Callable[[Recipe, Sequence[DataSet], How], Tried]] = {
    "table": run_panels,
    "sweep": run_panels,
    "inference": time_models,
    "embedding": draw_spaces,
    "page": follow_pages,
    "search_engine": run_search_engine,
}
QUICK = (
    "This is a quick look with little data and training, to see that everything runs. It is not a reproduction."
)
OTHER = "The paper's numbers are of other data. Values do not compare with them; only orders may."
CHOSEN = "Settings and weights are chosen on labelled validation lists, as in the papers."
HOW = (
    "Orders are tested with a t-test over seeds and queries, Holm-corrected over the orders of a table; "
    "significant means p < .05. Seeds says with how many the first is ahead. ~ stands for about equal: that no "
    "difference is found does not prove that there is none. + and - mark methods that are better and worse than "
    "the best baseline of a metric with p < .05, ++ and -- with p < .005."
)
HOW_GAINS = (
    "Orders are tested with a t-test over all queries of all seeds, p at least that of a t-test over the means of "
    "seeds, Holm-corrected over the orders of a table; significant means p < .05. Seeds says with how many the "
    "first is ahead. + and - mark methods that are better and worse than the best baseline with p < .05, ++ and "
    "-- with p < .005; ± is the standard deviation over seeds."
)
RANKS = "Ranks are the paper's, then ours, among the methods that the paper prints."


@dataclass(frozen=True)
class Reproduction(Result):
    """What came of a recipe."""

    out: Path
    page: Page
    records: Sequence[Mapping[str, Any]]
    """Rows of numbers.parquet."""
    judged: Sequence[Judged]
    """Every order that was tested."""

    def to_dict(self) -> dict[str, Any]:
        """Its folder, what came out in short, numbers and claims, as JSON has them."""
        claims = [{"claim": each.text, **asdict(each)} for each in self.judged]
        told = {"out": self.out, "lead": self.page.lead, "numbers": self.records, "claims": claims}
        told |= {"failed": self.page.failed}
        return {name: plain(each) for name, each in told.items()}


def reproduce(
    name: str,
    out: Path | str | None = None,
    *,
    data: Sequence[Path | str] = (),
    on: Sequence[str] = (),
    seeds: int | None = None,
    pages: int | None = None,
    steps: int | None = None,
    quick: bool = False,
    size: Mapping[str, int] | None = None,
    jobs: int | None = None,
    force: bool = False,
    tell: Tell | None = None,
) -> Reproduction:
    """Run a recipe on the data sets found in `data`, and write tables and figures into `out`.

    `on` names the data sets; without it Yahoo! and Istella-S are used where found, else MQ2008 and MSLR where
    found, and generated lists, whose `size` may be set: queries, features, documents. What has been run before is
    not run again, unless `force` says so.
    """
    recipe, place = recipe_named(name), Path(out) if out is not None else Path("reproduced") / name
    given = {"seeds": seeds, "pages": pages, "steps": steps}
    changes = {key: value for key, value in given.items() if value is not None}
    for key, value in changes.items():
        if value < 1:
            raise ConfigError("must be at least 1", argument=key, value=value)
    marked = (place / REPRODUCE_MARK).exists()
    refuse_existing(place, force=True, ours=REPRODUCED if marked else BARE)
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place):
        chosen = choose_sources(on, [Path(folder) for folder in data], place / "data", quick=quick)
        if not quick:  # which has a size of its own
            chosen = [resized(source, recipe.lists_size() | dict(size or {})) for source in chosen]
        about = {"recipe": name, "on": [source.name for source in chosen], "quick": quick, "version": __version__}
        with complete_folder(place) if is_free(place) else nullcontext(place) as begun:  # never without its mark
            write_json(begun / REPRODUCE_MARK, about)
        how = How(place, quick, changes, jobs, force, tell)
        tried = KINDS_OF_RECIPE[recipe.kind](recipe, chosen, how)
        page = reproduction_page(recipe, chosen, tried, quick=quick, changes=changes)
        asked = {"data": list(data), "on": list(on)} | given | {"quick": quick} | dict(size or {})
        again = command_line(name, **asked, out=out).replace("unskew", "python -m unskew_reproductions", 1)
        page = replace(page, origin=origin_of(recipe, chosen, how), command=again)
        with complete_file(place / "numbers.parquet") as path:
            pq.write_table(numbers_table(tried.records), path)
        write_page(page, place)
    return Reproduction(place, page, tried.records, tried.judged)


def reproduction_page(
    recipe: Recipe, chosen: Sequence[DataSet], tried: Tried, *, quick: bool, changes: Mapping[str, int]
) -> Page:
    """What the paper says, then what came out."""
    timed = recipe.kind == "inference"
    lead = tally(tried.judged)
    if timed:
        lead = " ".join(f"{section.heading}: {section.text.split(';')[0]}." for section in tried.sections)
    about = [recipe.says, recipe.reference + "."]
    about += [OTHER] * (not timed and not all(source.paper for source in chosen))
    sizes = ", ".join(f"{value:,} {key if value > 1 else key.removesuffix('s')}" for key, value in changes.items())
    asked = [f"In the place of the recipe's sizes: {sizes}."] if sizes and not timed else []
    by_labels = recipe.compare.get("training", {}).get("validate_on") == "labels"
    gains = recipe.kind == "search_engine"
    notes = [
        *asked,
        *recipe.notes,
        *[CHOSEN] * by_labels,
        *[HOW_GAINS if gains else HOW] * bool(tried.judged),
        *[RANKS] * (bool(recipe.paper) and not gains),
    ]
    sections = [Section("The paper", "\n\n".join(about)), *tried.sections]
    answer = f"{QUICK} {lead}" if quick else lead
    terms = list({term.name: term for term in tried.terms}.values())
    return Page(recipe.title, answer, sections, notes, tried.failed, terms=terms)


def origin_of(recipe: Recipe, chosen: Sequence[DataSet], how: How) -> str:
    """What was simulated and what was real."""
    lists = [GENERATED if source.name == "generated" else f"the real lists of {source.title}" for source in chosen]
    if recipe.kind == "inference":
        return f"Models with random weights, timed on {listed(lists)}; there are no clicks."
    asked = asked_for(how.content(recipe, recipe.panels[0], chosen[0]), Path())
    return simulated_on(asked.behaviours.values(), lists)


def numbers_table(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """One row per number, with the paper's beside it."""
    names = list(dict.fromkeys(itertools.chain.from_iterable(records)))
    texts = ("data", "panel", "behaviour", "method", "metric", "mark", "paper_mark", "paper_data", "status")
    types = dict.fromkeys(texts, pa.string()) | {"seeds": pa.int64(), "comparable": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist([dict(record) for record in records], schema=schema)


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    return {name: recipe_named(name) for name in recipe_names()}
