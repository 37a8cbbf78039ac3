"""VerbOptions of what looks for bias in a log, and of pages about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from unskew.options.base import (
    COLUMNS,
    DOC_IDS,
    FORCE,
    LOG,
    SEED,
    Columns,
    Files,
    Names,
    OnEngine,
    Place,
    Text,
    Typed,
    VerbOptions,
    argument,
    option,
)


class DiagnoseArguments(OnEngine):
    """Say which biases a log has, whether they can be removed and what to do next; the log alone is enough."""

    log: Place = argument(LOG)
    out: Place = option(None, "Page to write (.html), or a folder for it, JSON and propensities.")
    propensities: Place = option(None, "Examination by rank for ipw and other learners, .json or .csv.")
    segments: Names = option(
        (), "Further column to tell results by, as the device, beside serp_*; repeatable.", flag="--segment"
    )
    serp: bool = option(True, "Tell results by serp_* columns too, or do not.", flag="--serp/--no-serp")
    features: Files = option(
        None, "Features of documents, as for learn: how far do they tell the rank? Repeatable."
    )
    labels: Text = option(
        None, "query_id, doc_id, label (Parquet, CSV) or LETOR file; those in the log are found."
    )
    models: bool = option(False, "Fit and compare click models too.")
    seed: int = SEED
    columns: Columns = COLUMNS
    force: bool = FORCE


class CausesArguments(OnEngine):
    """Find what on a result page causes clicks besides relevance: rank, media, height, whatever the log says."""

    log: Place = argument(LOG)
    factors: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None, "Column that says how a result looks; repeatable. All serp_* if none.", flag="--factor"
    )
    relevance: str | None = option(None, "Column that stands for relevance; logging_score if there.")
    run: Place = option(None, "Run folder whose scores stand for relevance.")
    features: Files = option(None, "Features of the log's documents, for --run; repeatable.")
    test: str = option(
        "kci", "kci, rcit, fastkci, or gsq for discrete columns.", known=("kci", "rcit", "fastkci", "gsq")
    )
    alpha: float = option(0.05, "Level of the tests.")
    sample: int = option(1000, "Impressions to test on.", ge=50)
    repeats: int = option(0, "Other samples, to see how often an edge is found.", ge=0)
    seconds: float | None = option(300.0, "Time limit.")
    seed: int = SEED
    columns: Columns = COLUMNS
    out: Place = option(None, "Folder for graph.json, graph.dot and the report.")
    doc_ids: bool = DOC_IDS
    force: bool = FORCE


class ClickModelsArguments(OnEngine):
    """Fit click models to a log alone, say which explains held-out clicks best, and judge documents by it."""

    log: Place = argument(LOG)
    models: Annotated[tuple[object, ...] | None, Typed(list[str])] = option(
        None,
        "rcm, rctr, dctr, pbm, cascade, dcm, sdbn, dbn, ubm, ccm; a+b is a mixture. Repeatable.",
        flag="--model",
        table="click_models",
    )
    held_out: Text = option("0.2", "Share of the pages to judge by, or another log.")
    seed: int = SEED
    columns: Columns = COLUMNS
    out: Place = option(None, "Folder for the report, the best model and its judgments.")
    force: bool = FORCE


class PropensityArguments(VerbOptions):
    """Say how likely each rank is looked at, by a run or from a log, and what a click there weighs."""

    source: Place = argument("Run folder, or a log.", metavar="RUN|LOG")
    by: str | None = option(
        None, "How a log is measured: shuffled (pages), or swaps (of documents).", known=("shuffled", "swaps")
    )
    max_weight: float | None = option(None, "Clip weights at this value.", ge=1)
    feedback: str | None = option(None, "Column in the place of click.")
    columns: Columns = COLUMNS


class DriftArguments(OnEngine):
    """Compare two logs: what changed, and whether propensities of the old one still hold. Exits 0, 4 or 5."""

    old: Place = argument("Log of before: Parquet file, or a folder of them.")
    new: Place = argument("Log of now.")
    segments: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None, "Column to compare the mix of; serp_* unless given. Repeatable.", flag="--segment"
    )
    columns: Columns = COLUMNS
    out: Place = option(None, "Page to write, .html.")
    force: bool = FORCE


class ReportArguments(VerbOptions):
    """Join runs, comparisons and diagnoses into one page that opens offline."""

    places: Annotated[tuple[Path | str, ...], Typed(list[Path])] = argument(
        "Folders of runs, comparisons, diagnoses, causes, …", metavar="RUN|COMPARE|DIAGNOSIS…"
    )
    out: Place = option(Path("report.html"), "HTML file to write.")
    title: str = option("Report", "Of the page.")
    force: bool = FORCE


class ExperimentArguments(OnEngine):
    """Judge an A/B test or an interleaved log: difference, intervals one may look at every day, sample sizes."""

    log: Place = argument(LOG)
    metric: str = option(
        "clicks",
        "clicks, ctr, clicked, first-click, or a column of numbers, added up page by page.",
        known=("clicks", "ctr", "clicked", "first-click"),
    )
    by: str | None = option(None, "Column of policies; team where there is one, else policy_id.")
    control: str | None = option(None, "Policy to hold others against; the one shown most.")
    shares: Annotated[Mapping[str, float] | None, Typed(list[str])] = option(
        None,
        "NAME=SHARE, how often a policy should be shown, as new=0.1; repeatable. Equal unless given.",
        flag="--share",
    )
    cluster: str | None = option(None, "Column of people or visits; user_id, visit_id or page_id, what there is.")
    kind: str | None = option(None, "ab or interleaved; found unless given.", known=("ab", "interleaved"))
    planned: int = option(10_000, "People or visits planned for; chosen before looking.", ge=100)
    detect: float = option(0.01, "Relative difference that sample sizes are told for.")
    level: float = option(0.95, "Of intervals.")
    columns: Columns = COLUMNS
