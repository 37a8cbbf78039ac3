"""Options of the verbs that make, reduce and track logs, look for bias in them, and report on it."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field

from unskew.options.base import (
    COLUMNS,
    DOC_IDS,
    FORCE,
    LOG,
    SEED,
    TRACKED,
    Columns,
    Files,
    Names,
    OnEngine,
    Place,
    Synthetic,
    Text,
    Typed,
    VerbOptions,
    argument,
    option,
)
from unskew.settings import Config

_LOGGER = option("svm", "What ranked the pages: svm, random, oracle, feature.", table="loggers")


class IngestArguments(OnEngine):
    """Read a click log into impressions: checked, cleaned, and written whole or not at all."""

    source: Files = argument("File, folder or pattern; may be several.")
    out: Place = option(..., "Folder to write.")
    format: str | None = option(
        None,
        "parquet, csv, tsv, jsonl, ubi, metarank, or a reader of yours as module:Class.",
        known=("parquet", "csv", "tsv", "jsonl"),
        table="formats",
    )
    mapping: Place = option(None, "TOML: columns, time, positions, rules, reader.")
    keep: Names = option((), "Further column to keep; repeatable.")
    clicks: Files = option((), "Click events in files of their own.")
    page_columns: Annotated[tuple[str, ...], Typed(str)] = option(
        (), "Columns that make one page, as user_id,query_id,timestamp."
    )
    time_zone: str | None = option(None, "Zone of times that name none, as Europe/Berlin.")
    positions_from: int | None = option(None, "0 or 1; found from the pages unless given.", ge=0, le=1)
    by: Names = option((), "Column that names a person, to find pages; repeatable.")
    page_gap: str | None = option(
        None, "Find pages by person, query and this pause; 30m where there is no page_id."
    )
    page_number: str | None = option(None, "Column of the results page, where positions begin again on each.")
    page_size: int | None = option(None, "Results on a results page; found unless given.", ge=1)
    off: Names = option((), "Rule that shall not remove; repeatable.")
    max_rejected: float | None = option(
        None, "Share of broken rows past which nothing is written; 0.01.", ge=0, le=1
    )
    max_removed: float | None = option(
        None, "Share that rules may remove; 0.2, of robots and duplicates 0.5.", ge=0, le=1
    )
    force: bool = FORCE


class SplitArguments(OnEngine):
    """Find visits in a log and split it by time, no visit in two parts."""

    log: Place = argument(LOG)
    out: Place = option(..., "Folder to write: train, validation, test.")
    gap: str = option("30m", "Pause that ends a visit, such as 30m or 1h.")
    by: Names = option((), "Column that names a person; may be repeated. user_id if there.")
    validation: float = option(0.1, "Share of visits, before the test's.", ge=0, le=1)
    test: float = option(0.1, "Share of visits, the latest.", ge=0, le=1)
    force: bool = FORCE


class CountsArguments(OnEngine):
    """Reduce a log, exactly, to how often each slot of each ranking was shown and clicked."""

    log: Place = argument(LOG)
    out: Place = option(..., "Folder to write.")
    serp: Names = option((), "Presentation column to keep apart; may be repeated.")
    pairs: bool = option(False, "Count pages with two clicks too.")
    feedback: str | None = option(None, "Column of weights to add up in the place of clicks, as purchases.")
    force: bool = FORCE


class LogOptions(Config):
    """How long a simulated log is, and which pages are in it."""

    model_config = ConfigDict(use_attribute_docstrings=False)

    pages: int | None = option(None, "Result pages to draw; give these, or clicks.", ge=0)
    clicks: int | None = option(None, "The log ends with the first page that reaches as many clicks.", ge=0)
    randomized: float = option(
        0.0, "Share of pages whose results are shuffled: the same ones, every impression marked.", ge=0, le=1
    )
    cutoff: int | None = option(
        None,
        "Results of a page; 0 shows the whole list. The behaviour says unless given: mostly 10.",
        ge=0,
    )
    drop_clickless: bool = option(False, "Leave out pages without a click, and do not count them.")


class SimulationOptions(LogOptions):
    """What a simulated log depends on besides lists, behaviour and logger."""

    truth: bool = option(
        False, "Add the columns true_examination, given the earlier clicks of the page, and true_relevance."
    )
    seed: int = SEED


class SimulateArguments(SimulationOptions, Synthetic):
    """Show labelled lists to simulated people and log what they click; or simulate a twin of a log."""

    lists: Files = option(..., "LETOR file (may be repeated), or synthetic.")
    out: Place = option(..., "Parquet file to write.")
    behaviour: Text = option(
        "position",
        "How people click; see `unskew catalogue behaviours`.",
        flag=("--behaviour", "--behavior"),
        table="behaviours",
    )
    logger: Text = _LOGGER
    config: Place = option(None, "TOML with [behaviour] and [logger] settings.")
    doc_ids: bool = DOC_IDS
    force: bool = FORCE


class TwinArguments(VerbOptions):
    """Fit a twin to a log, and simulate another log from it whose relevance is known."""

    log: Place = argument(LOG)
    out: Place = option(..., "Parquet file to write.")
    features: Files = option(None, "Features of the log's documents; repeatable.")
    pages: int | None = option(None, "Result pages to show; as many as the log has.", ge=1)
    randomized: float | None = option(None, "Share of pages with a shuffled list; the log's.", ge=0, le=1)
    seed: int = SEED
    doc_ids: bool = DOC_IDS
    columns: Columns = COLUMNS
    report: Place = option(None, "Page (.html) with the twin beside its log.")
    force: bool = FORCE


class TrafficOptions(Config):
    """What the log of a simulated search engine depends on, as far as the command line says it."""

    model_config = ConfigDict(use_attribute_docstrings=False)

    pages: int = option(..., "Result pages to show.", ge=0)
    days: float = option(60.0, "Days that they are spread over; more is searched by day than by night.", gt=0)
    start: Annotated[date, Typed(str), Field(strict=False)] = option(
        date(2024, 1, 1), "First day (UTC); 2024-01-01."
    )
    skew: float = option(1.0, "Power of a query's popularity; 0 draws all queries alike.", ge=0)
    shuffled: float = option(0.02, "Share of pages in random order, every slot marked `randomized`.", ge=0, le=1)
    random_top: float = option(
        0.02, "Share of pages whose first slot has a document at random; that slot alone is marked.", ge=0, le=1
    )
    seed: int = SEED


class TrafficArguments(TrafficOptions, Synthetic):
    """Simulate a search engine: months of pages, frequent and rare queries, display and dwell times."""

    lists: Files = option(..., "LETOR file (may be repeated), or synthetic.")
    out: Place = option(..., "Parquet file to write.")
    logger: Text = _LOGGER
    truth: bool = option(False, "Add columns of what is true.")
    doc_ids: bool = DOC_IDS
    force: bool = FORCE


class DisplayTimesOptions(Config):
    """How examination is learned, as far as the command line says it."""

    model_config = ConfigDict(use_attribute_docstrings=False)

    seen: float = option(5.0, "Seconds of display beyond which a result counts as examined.", gt=0)
    unseen: float = option(1.0, "Seconds of display below which it counts as not examined.", gt=0)
    own_click: bool = option(
        False,
        "Judge by a result's own click too, as published; examination then follows relevance.",
    )
    trees: int = option(100, "How many trees are grown.", ge=1)
    seed: int = SEED


class DisplayTimesArguments(DisplayTimesOptions, OnEngine):
    """Learn from display times whether a result was looked at."""

    log: Place = argument(LOG)
    out: Place = option(..., "Folder to write: the model, and a report.")
    force: bool = FORCE


class TrackArguments(OnEngine):
    """Count clicks per query and document over the last day, week and month; every page once."""

    log: Place = argument(LOG)
    out: Place = option(..., "Store to make, or to add to.")
    examination: Place = option(None, "Examination model that judges every result; else the log's own column.")
    until: str | None = option(None, "End of the last full hour, as 2024-03-01T14:00:00Z; later pages wait.")
    rewind: bool = option(False, "Go back to --until, where a wrong clock took the store beyond.")
    refresh: str = option("due", "Windows to write anew: due, all or none.", known=("due", "all", "none"))
    max_rejected: float = option(0.01, "Share of broken pages past which nothing is counted.", ge=0, le=1)


_FIRST = "Alpha and beta of rank 1; 1 0 is its click rate."


class JudgeArguments(OnEngine):
    """Estimate relevance per query and document from tracked clicks, as judgments with standard errors."""

    store: Place = argument("Store that `unskew track` made.")
    out: Place = option(..., "File to write, .csv or .parquet.")
    estimator: str | None = option(
        None,
        "ipw, affine, or doubly_robust, the usual one with an imputation.",
        known=("ipw", "affine", "doubly_robust"),
    )
    window: str = option("month", "day, week or month.", known=("day", "week", "month"))
    curves: str = option("shuffled", "shuffled (random slots), em, or a JSON file: alpha, beta, theta, trust.")
    first: tuple[float, float] = option((1.0, 0.0), _FIRST)
    imputation: Place = option(None, "Parquet or CSV of query_id, doc_id and relevance, by a model.")
    shrink: bool = option(True, "Trust the imputation more where little was seen.", flag="--shrink/--no-shrink")
    force: bool = FORCE


class ImputeArguments(VerbOptions):
    """Write what a run says of documents as relevance: the imputation of `unskew judge`."""

    run: Place = argument("Run folder.")
    lists: Files = option(..., "LETOR file, features or texts in Parquet; may be repeated.")
    out: Place = option(..., "File to write, .csv or .parquet.")
    first: tuple[float, float] = option((1.0, 0.0), _FIRST)
    tracked: Place = TRACKED
    columns: Columns = COLUMNS
    doc_ids: bool = DOC_IDS
    force: bool = FORCE


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
        "both",
        "both (counts, and kernels where these may tell more), kci, rcit, fastkci or gsq.",
        known=("both", "kci", "rcit", "fastkci", "gsq"),
    )
    alpha: float = option(0.05, "Level of the tests.")
    sample: int | None = option(None, "Impressions to test on; 10,000 to count, 1,000 for kernels if none.", ge=50)
    repeats: int = option(0, "Other samples, to see how often an edge is found.", ge=0)
    tests: int | None = option(2000, "Tests of a graph at most; edges that are left then stay.", ge=0)
    seed: int = SEED
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
    labels: Place = option(None, "Some labels that make judgments better: query_id, doc_id, label; by (whose).")
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
    detect: float = option(0.01, "Relative difference that sample sizes are told for.", gt=0)
    level: float = option(0.95, "Of intervals.", gt=0.5, lt=1)
