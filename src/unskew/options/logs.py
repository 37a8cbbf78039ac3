"""VerbOptions of what makes, reduces and tracks logs."""

from __future__ import annotations

from typing import Annotated

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

_LOGGER = option("svm", "What ranked the pages: svm, random, oracle, feature.", table="loggers")


class IngestArguments(OnEngine):
    """Read a click log into impressions: checked, cleaned, and written whole or not at all."""

    source: Files = argument("File, folder or pattern; may be several.")
    out: Place = option(..., "Folder to write.")
    format: str | None = option(
        None,
        "parquet, csv, tsv, jsonl, ubi, baidu, tiangong, yandex, metarank.",
        known=("parquet", "csv", "tsv", "jsonl"),
        table="formats",
    )
    mapping: Place = option(None, "TOML: columns, time, positions, rules, reader.")
    columns: Columns = COLUMNS
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
    columns: Columns = COLUMNS
    force: bool = FORCE


class CountsArguments(OnEngine):
    """Reduce a log, exactly, to how often each slot of each ranking was shown and clicked."""

    log: Place = argument(LOG)
    out: Place = option(..., "Folder to write.")
    serp: Names = option((), "Presentation column to keep apart; may be repeated.")
    pairs: bool = option(False, "Count pages with two clicks too.")
    feedback: str | None = option(None, "Column of weights to add up in the place of clicks, as purchases.")
    columns: Columns = COLUMNS
    force: bool = FORCE


class SimulateArguments(Synthetic):
    """Show labelled lists to simulated people and log what they click; or simulate a twin of a log."""

    lists: Files = option(..., "LETOR file (may be repeated), or synthetic.")
    out: Place = option(..., "Parquet file to write.")
    behaviour: Text = option(
        "position",
        "How people click; see `unskew catalogue behaviours`.",
        flag=("--behaviour", "--behavior"),
        table="behaviours",
    )
    pages: int | None = option(None, "Result pages to show.", ge=1)
    clicks: int | None = option(None, "Stop at this many clicks instead.", ge=1)
    seed: int = SEED
    logger: Text = _LOGGER
    config: Place = option(None, "TOML with [behaviour] and [logger] settings.")
    cutoff: int | None = option(None, "Results per page; 0 shows the whole list.", ge=0)
    randomized: float | None = option(None, "Share of pages with a shuffled list; 0.", ge=0, le=1)
    drop_clickless: bool = option(False, "Leave out pages without a click.")
    truth: bool = option(False, "Add columns true_examination and true_relevance.")
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


class TrafficArguments(Synthetic):
    """Simulate a search engine: months of pages, frequent and rare queries, display and dwell times."""

    lists: Files = option(..., "LETOR file (may be repeated), or synthetic.")
    out: Place = option(..., "Parquet file to write.")
    pages: int = option(..., "Result pages to show.", ge=1)
    days: float | None = option(None, "Days that they are spread over; 60.", ge=0)
    start: str | None = option(None, "First day, as 2024-01-01.")
    skew: float | None = option(None, "Power of a query's popularity; 1.", ge=0)
    shuffled: float | None = option(None, "Share of shuffled pages; 0.02.", ge=0, le=1)
    random_top: float | None = option(None, "Share of pages with a random first result; 0.02.", ge=0, le=1)
    logger: Text = _LOGGER
    truth: bool = option(False, "Add columns of what is true.")
    seed: int = SEED
    doc_ids: bool = DOC_IDS
    force: bool = FORCE


class DisplayTimesArguments(OnEngine):
    """Learn from display times whether a result was looked at."""

    log: Place = argument(LOG)
    out: Place = option(..., "Folder to write: the model, and a report.")
    seen: float = option(5.0, "Seconds of display beyond which a result was examined.")
    unseen: float = option(1.0, "Seconds of display below which it was not.")
    own_click: bool = option(False, "Judge by a result's own click too, as published.")
    trees: int = option(100, "Trees to grow.", ge=1)
    seed: int = SEED
    columns: Columns = COLUMNS
    force: bool = FORCE


class TrackArguments(OnEngine):
    """Count clicks per query and document over the last day, week and month; every page once."""

    log: Place = argument(LOG)
    out: Place = option(..., "Store to make, or to add to.")
    examination: Place = option(None, "Examination model that judges every result; else the log's own column.")
    until: str | None = option(None, "End of the last full hour, as 2024-03-01T14:00:00Z; later pages wait.")
    refresh: str = option("due", "Windows to write anew: due, all or none.", known=("due", "all", "none"))
    max_rejected: float = option(0.01, "Share of broken pages past which nothing is counted.", ge=0, le=1)
    columns: Columns = COLUMNS


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
    curves: str = option("shuffled", "shuffled (from random slots), em, or a JSON file with alpha, beta, theta.")
    first: tuple[float, float] = option((1.0, 0.0), _FIRST)
    imputation: Place = option(None, "Parquet or CSV of query_id, doc_id and relevance, by a model.")
    shrink: bool = option(True, "Trust the imputation more where little was seen.", flag="--shrink/--no-shrink")
    columns: Columns = COLUMNS
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
