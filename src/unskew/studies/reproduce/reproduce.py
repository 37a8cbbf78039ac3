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

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unskew import __version__
from unskew.clicks.lists.files import complete_file
from unskew.errors import ConfigError, RunError
from unskew.studies.compare.compare import Tell
from unskew.studies.reproduce.claims import Judged, tally
from unskew.studies.reproduce.data import Source, choose_sources, resized
from unskew.studies.reproduce.embedding import draw_spaces, embedding_records, embedding_sections
from unskew.studies.reproduce.inference import inference_records, inference_sections, time_ranking
from unskew.studies.reproduce.page import FILES, Page, write
from unskew.studies.reproduce.recipe import Recipe, recipe_named, recipe_names
from unskew.studies.reproduce.table import SECTIONS, Run, run_panels

QUICK = (
    "This is a quick look with little data and training, to see that everything runs. It is not a reproduction."
)
OTHER = (
    "The paper's numbers are of Yahoo! and Istella-S. On other data values do not compare with the paper's; only "
    "orders may."
)
HOW = (
    "Settings and weights are chosen on labelled validation lists, as in the papers. Orders are tested on nDCG@10 "
    "with a t-test over seeds and queries, Holm-corrected over the orders of a table; significant means p < .05. "
    "Seeds says with how many the first is ahead. ~ stands for about equal: that no difference is found does not "
    "prove that there is none."
)
RANKS = "Ranks are the paper's, then ours, among the methods that the paper prints."


@dataclass(frozen=True)
class Reproduction:
    """What came of a recipe."""

    name: str
    recipe: Recipe
    page: Page
    judged: Sequence[Judged]
    """Every order that was tested."""


def reproduce(
    name: str,
    out: Path | str | None = None,
    *,
    data: Sequence[Path | str] = (),
    on: Sequence[str] = (),
    seeds: int | None = None,
    pages: int | None = None,
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
    changes = {key: value for key, value in (("seeds", seeds), ("pages", pages)) if value is not None}
    for key, value in changes.items():
        if value < 1:
            raise ConfigError(f"--{key} must be at least 1, not {value}")
    refuse_foreign(place)
    chosen = choose_sources(on, [Path(folder) for folder in data], place / "data", quick=quick)
    chosen = [resized(source, size or {}) for source in chosen]
    place.mkdir(parents=True, exist_ok=True)
    if force:
        empty(place)
    about = {"recipe": name, "on": [source.name for source in chosen], "quick": quick, "version": __version__}
    with complete_file(place / "reproduce.json") as path:
        path.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    page, judged = _run(recipe, chosen, Run(place, quick, changes, jobs, force, tell))
    write(page)
    return Reproduction(name, recipe, page, judged)


def _run(recipe: Recipe, chosen: Sequence[Source], how: Run) -> tuple[Page, list[Judged]]:
    """Run the recipe as its kind asks, and lay out the page."""
    judged: list[Judged] = []
    failed: list[str] = []
    if recipe.kind == "inference":
        timed = [time_ranking(recipe, source, quick=how.quick) for source in chosen]
        sections, records = inference_sections(recipe, timed), inference_records(recipe, timed)
        lead = " ".join(f"{section.heading}: {section.text.split(';')[0]}." for section in sections)
    elif recipe.kind == "embedding":
        options = {"quick": how.quick, "changes": how.changes, "tell": how.tell}
        drawn = [one for source in chosen for one in draw_spaces(recipe, source, how.out / "runs", **options)]  # type: ignore[arg-type]
        sections, records = embedding_sections(recipe, drawn), embedding_records(drawn)
        judged = [one for found in drawn for one in found.judged]
        lead = tally(judged)
    else:
        outcomes, failed = run_panels(recipe, chosen, how)
        sections = SECTIONS[recipe.kind](recipe, outcomes)
        records = [number.record() for found in outcomes for number in found.numbers]
        judged = [one for found in outcomes for one in found.judged]
        lead = tally(judged)
    about = [recipe.says, recipe.reference + "."]
    about += [OTHER] * (recipe.kind != "inference" and not all(source.paper for source in chosen))
    notes = [*recipe.notes, *([] if recipe.kind == "inference" else [HOW]), *[RANKS] * bool(recipe.paper)]
    lead = f"{QUICK} {lead}" if how.quick else lead
    return Page(how.out, recipe.title, lead, about, sections, notes, records, failed), judged


def refuse_foreign(out: Path) -> None:
    """Write only where there is nothing, or a reproduction."""
    if not out.exists():
        return
    if not out.is_dir() or (any(out.iterdir()) and not (out / "reproduce.json").exists()):
        raise RunError(
            f"{out} exists and is not a reproduction, so nothing is written there; choose another --out"
        )


def empty(out: Path) -> None:
    """Remove what a reproduction wrote itself; comparisons empty their own folders."""
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "runs", ignore_errors=True)


def recipes() -> dict[str, Recipe]:
    """Every recipe by its name."""
    return {name: recipe_named(name) for name in recipe_names()}
