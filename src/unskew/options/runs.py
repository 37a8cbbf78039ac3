"""Options of the verbs that learn, measure, use and serve runs, and the keys of a run file."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict

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
    Paths,
    Place,
    Text,
    Typed,
    VerbOptions,
    argument,
    flag_of,
    option,
)
from unskew.settings import Config


class LogFiles(Config):
    """How a log and the features of its documents are read: keys that run files and compare files have."""

    model_config = ConfigDict(use_attribute_docstrings=False, defer_build=True)

    features: Paths | None = option(
        None,
        "Features of documents: tables (Parquet, CSV) or LETOR files; repeatable, and joined. Tables are of "
        "items, queries, or documents of queries. A ranker that reads needs none: its documents are those of the "
        "texts, or of the log.",
    )
    columns: dict[str, str] = option(
        {}, "OURS=THEIRS, as position=rank, where a table has other names; repeatable."
    )
    doc_ids: bool = option(False, "Take document ids from the comments of the LETOR files.")
    feedback: str | None = option(
        None, "Column to learn from in the place of click, such as purchases. It has numbers from 0."
    )
    missing_features: Literal["error", "drop"] = option(
        "error", "What to do with impressions whose document has no features."
    )


class DataFiles(LogFiles):
    """Where a run's data lie, from the run file; `learn` has flags for some of the keys."""

    log: str | None = option(
        None,
        "Impressions: a Parquet file, or a folder of them. In a folder that `unskew split` wrote, the run learns "
        "from train, clicks of validation choose, and clicks of test say where it stands.",
    )
    counts: str | None = option(None, "In the place of a log: a folder of counts, as `unskew counts` writes it.")
    texts: Paths | None = option(
        None,
        "Parquet with query_id, doc_id, query_text, title and abstract, for rankers that read; without it the "
        "columns of the lists, of the log, or of validation and test themselves.",
    )
    tracked: str | None = option(
        None, "A store of `unskew track`: what was clicked before, as further features of all lists."
    )
    validation: Paths | None = option(
        None,
        "Labelled lists, or a log, to choose weights by; repeatable. Clicks of a log choose; without it held-out "
        "clicks do.",
    )
    test: Paths | None = option(
        None,
        "Labelled lists, or a log, to measure the result on; repeatable. Clicks of a log say where it stands.",
    )
    scaling: str | None = option(
        None,
        "How features are scaled: standard unless given. `none` is usual where the method is a package.",
        table="scalings",
    )
    shards: int | None = option(
        None, "Train from this many shards on disk, of which two are in memory at once.", ge=1, le=10_000
    )
    memory: str | None = option(
        None, 'Choose the number of shards so that they take no more than this: "500MB", "2GB".'
    )
    shard_steps: int = option(32, "Steps before another shard is taken up.", ge=1)


Beginning = Literal["auto", "shown", "safe", "none"]


class Begins(Config):
    """How scores begin."""

    engine: Beginning = option(
        "auto",
        "Whether scores begin as the order shown, and are corrected from there: auto where the log tells how far "
        "ranks are looked at, shown always, safe always and no further than clicks carry it surely, none never.",
        known=get_args(Beginning),
    )


def key_of(model: type[Config], name: str, flag: str | tuple[str, ...] = (), within: str = "data.") -> Any:
    """A flag that says a key of a run file, with the first sentence of the key."""
    field = model.model_fields[name]
    sentence = str(field.description).partition(". ")[0].removesuffix(".")
    shown = flag_of(field)
    return option(None, f"{sentence}.", flag=flag, table=shown.table, known=shown.known, key=f"{within}{name}")


data_key = partial(key_of, DataFiles)


class LearnArguments(VerbOptions):
    """Learn a ranker from a log, or as a run file says; an interrupted run goes on where it stopped."""

    log: Place = argument("Log to learn from, or a TOML run file.", metavar="LOG|RUN.toml")
    method: Text = option(
        None,
        "Method with its defaults; `unskew catalogue` lists them. dla unless given; auto chooses one.",
        known=("auto",),
        table="methods",
    )
    features: Files = data_key("features")
    ranker: Text = option(None, "What scores documents: mlp unless given.", table="rankers")
    scaling: str | None = data_key("scaling")
    validation: Files = data_key("validation")
    test: Files = data_key("test")
    columns: Columns = data_key("columns", "--column")
    feedback: str | None = data_key("feedback")
    factors: Names = option(
        (), "Column that bias depends on besides the rank; repeatable.", flag="--factor", key="method.factors"
    )
    engine: str | None = key_of(Begins, "engine", within="")
    seed: int | None = option(None, "Seed of all that is drawn at random; 0.", ge=0)
    steps: int | None = option(None, "Training steps, rounds of trees; enough of them unless given.", ge=1)
    settings: Annotated[Mapping[str, Any] | None, Typed(list[str])] = option(
        None, "KEY=VALUE of a run file, as training.batch=256; repeatable.", flag="--set", metavar="KEY=VALUE"
    )
    out: Place = option(None, "Folder to write, instead of the usual one.")
    force: bool = FORCE


RUN_KEYS: dict[str, str] = {
    name: key for name, field in LearnArguments.model_fields.items() if (key := flag_of(field).key) is not None
} | {"missing_features": "data.missing_features"}
"""Arguments of `learn` that say a key of a run file."""


class MeasureArguments(OnEngine):
    """Say whether a ranking is better than what was shown, or than another: by clicks, by labels, or by both."""

    run: Place = argument("Run folder, table of scores, or LightGBM file.", metavar="RUN|SCORES|MODEL.txt")
    lists: Files = option(None, "Labelled lists, LETOR or a table; repeatable. None are needed.")
    metrics: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None, "On the lists, such as ndcg@10; may be repeated.", flag="--metric"
    )
    empty: str = option(
        "skip", "What a query without a relevant document counts: skip, zero, one.", known=("skip", "zero", "one")
    )
    against: Place = option(None, "What to hold it against: shown, another run, scores, a LightGBM file.")
    log: Place = option(None, "Log whose clicks judge, best one that it did not learn from.")
    features: Files = option(
        None, "Features of the log's documents, where the run does not know them; repeatable."
    )
    propensities: Place = option(None, "Examination by rank: a file, or a run; found in the log unless given.")
    by: str = option("dcg", "What clicks judge: dcg, or expected clicks.", known=("dcg", "clicks"))
    at: int = option(10, "Results of a page that count for dcg.", ge=1)
    level: float = option(0.95, "Of intervals.", gt=0, lt=1)
    outcomes: Names = option(
        (), "Column of the log to measure pages by, such as install; repeatable.", flag="--outcome"
    )
    by_frequency: Place = option(None, "Log that says how often queries are asked: head, middle and tail apart.")
    buckets: int | None = option(None, "How many buckets of queries by frequency, in the place of three.", ge=1)
    doc_ids: bool = DOC_IDS
    tracked: Place = TRACKED
    seed: int = SEED
    out: Place = option(None, "Page to write (.html), or a folder for it and JSON.")
    force: bool = FORCE


class ShipArguments(OnEngine):
    """Say whether a ranking may replace what was shown, and who is seen more and less. Exits 0, 4 or 5."""

    run: Place = argument("Run folder, scores (query_id, doc_id, score) or LightGBM file.", metavar="RUN|SCORES")
    log: Place = option(..., "Log to judge by, which the run did not learn from.")
    against: Text = option("shown", "shown, or another run or table of scores.")
    features: Files = option(None, "Features of the log's documents; those of the run unless given. Repeatable.")
    risk: float = option(0.05, "Chance of shipping what gains nothing.", gt=0, lt=0.5)
    at_least: float = option(0.0, "Smallest gain that is worth it, as a share: 0.01 is 1 %.")
    bound: str = option(
        "auto",
        "bernstein, bootstrap, or auto: the first where it says enough.",
        known=("auto", "bernstein", "bootstrap"),
    )
    group: str | None = option(None, "Column of the log or its features to tell exposure by, as the brand.")
    propensities: Place = option(None, "Examination by rank: .json or .csv of `unskew diagnose`, or a run.")
    seed: int = SEED
    doc_ids: bool = DOC_IDS
    tracked: Place = TRACKED
    out: Place = option(None, "Page to write, .html.")
    force: bool = FORCE


class ImportanceArguments(VerbOptions):
    """Say what a run looks at, by feature: gains of trees, weights, and what clicks of a log say."""

    run: Place = argument("Run folder.")
    log: Place = option(None, "Log that the run did not learn from, to shuffle each feature on its pages.")
    features: Files = option(None, "Features of its documents, tables or LETOR files; repeatable.")
    columns: Columns = COLUMNS
    tracked: Place = TRACKED
    doc_ids: bool = DOC_IDS
    repeats: int = option(5, "How often each feature is shuffled.", ge=1)
    pages: int = option(20_000, "Most distinct pages, drawn at random of more.", ge=1)
    seed: int = SEED


class PredictArguments(VerbOptions):
    """Score and rank the documents of queries with a run."""

    run: Place = argument("Run folder.")
    features: Files = option(..., "Features as of training: table (Parquet, CSV) or LETOR file; repeatable.")
    candidates: Files = option(
        None, "Table with query_id and doc_id, as a log, where no features have both; repeatable."
    )
    columns: Columns = COLUMNS
    out: Text = option(None, "File to write, .parquet or .csv; without it, or by -, CSV is printed.")
    doc_ids: bool = DOC_IDS
    tracked: Place = TRACKED
    force: bool = FORCE


class DemoArguments(VerbOptions):
    """Make a world where clicks mislead, learn with and without debiasing, and show the difference."""

    out: Place = option(Path("demo-run"), "Folder to write.")
    seed: int = SEED
    queries: int = option(2000, "Training queries.", ge=20)
    pages: int = option(1_000_000, "Result pages shown.", ge=1000)
    steps: int = option(800, "Training steps of each method.", ge=1)
    force: bool = FORCE


class PlanArguments(VerbOptions):
    """Say how many shuffled pages, which method and how long, by trying them on a twin of the log."""

    log: Place = argument(LOG)
    features: Files = option(None, "Features of the log's documents, to try methods; repeatable.")
    shares: Annotated[tuple[float, ...], Typed(str)] = option(
        (0.0, 0.01, 0.05), "Shares of shuffled pages to try, as 0,0.01,0.05."
    )
    pages: Annotated[tuple[int, ...] | None, Typed(str)] = option(
        None, "Numbers of pages, as 10000,50000; the log's, and four times as many."
    )
    methods: Annotated[tuple[str, ...] | None, Typed(list[str])] = option(
        None, "Method to try; repeatable. naive and dla.", flag="--method", table="methods"
    )
    ranker: str = option("linear", "What learns.", table="rankers")
    repeats: int = option(3, "Logs drawn for each line of the table.", ge=1)
    daily: float | None = option(None, "Pages that you show a day, to tell days.", gt=0)
    seed: int = SEED
    doc_ids: bool = DOC_IDS
    columns: Columns = COLUMNS


class CompareArguments(VerbOptions):
    """Compare methods on simulated clicks or on a real log, and say whether debiasing is worth it."""

    config: Place = argument("TOML compare file.", metavar="COMPARE.toml")
    out: Place = option(None, "Folder to write, instead of the usual one.")
    jobs: int | None = option(None, "Processes; two where processors and memory allow, unless given.", ge=1)
    force: bool = FORCE


class ExploreArguments(VerbOptions):
    """Which pages a server leaves to chance, and how."""

    policy: str | None = option(
        None,
        "Leave some pages to chance: top_one, swaps, shuffle, plackett_luce, team_draft.",
        flag="--explore",
        metavar="POLICY",
        known=("top_one", "swaps", "shuffle", "plackett_luce", "team_draft"),
    )
    share: float | None = option(None, "Share of traffic that takes part; 0.05 unless given.", ge=0, le=1)
    cap: int | None = option(None, "Ranks that a result moves at most.", ge=0)
    depth: int | None = option(None, "First results that take part; 10 unless given.", ge=1)
    temperature: float | None = option(None, "Of plackett_luce: higher is more random.", gt=0)
    swap_plan: Place = option(None, "Of swaps: the file of `unskew diagnose --json`.", metavar="REPORT.json")
    against: str | None = option(None, "Of team_draft: the model to interleave with.", metavar="NAME")


class ServeArguments(VerbOptions):
    """Rank over HTTP: POST /v1/rank, and a page to try it; no torch, reloads when a run changes."""

    runs: Annotated[tuple[Path | str, ...], Typed(list[Path])] = argument(
        "Run folders; the first answers who asks for none.", metavar="RUN..."
    )
    names: Names = option((), "What a model is called, in the order of runs; repeatable.", flag="--name")
    shadows: Names = option(
        (), "Name of a model that is scored and logged, and not shown; repeatable.", flag="--shadow"
    )
    store: Text = option(None, "Store of `unskew store`: a folder, or redis://host:port/db.", metavar="PLACE")
    log: Place = option(None, "Write pages and clicks there, for `unskew ingest`.", metavar="FOLDER")
    secret_file: Place = option(
        None, "File with the secret that keys what is explored, and signs; made where there is none."
    )
    coins: Literal["request", "user"] = option(
        "request",
        "What the coins of --explore fall by: request, or user, for whom a query keeps its page for a day.",
        known=("request", "user"),
    )
    tell_chances: bool = option(False, "Say in answers what explored them, and the chance of each result.")
    signed_pages: bool = option(False, "Sign the ids of pages, and refuse clicks on others; for --log.")
    other_features: bool = option(False, "Take up a new run although callers may not bring its features.")
    host: str = option("127.0.0.1", "Address to listen at; the usual one is this machine's alone.")
    port: int = option(8000, "Port to listen at; 0 takes a free one.", ge=0, le=65535)
    token_file: Place = option(None, "File with the token that callers must bring.")
    workers: int = option(1, "Processes that answer.", ge=1, le=64)
    limits: Place = option(
        None, "Sizes and times past which requests are refused; see the docs.", metavar="FILE.toml"
    )


class StoreArguments(VerbOptions):
    """Put features of items and clicks where a service looks them up, in one step; or say what is there."""

    place: Text = argument("Folder of LMDB files, or redis://host:port/db.")
    items: Annotated[tuple[object, ...], Typed(list[Path])] = option(
        (), "Table of features by doc_id, CSV or Parquet; may be repeated."
    )
    tracked: Place = option(None, "Store of `unskew track` whose click features to put there.")
    columns: Columns = COLUMNS


class ExportArguments(VerbOptions):
    """Write a model in a form that others run: search engines, LightGBM, ONNX; or judgments as grades."""

    run: Place = argument("Run folder; or a log, or a table of judgments.")
    to: str | None = option(
        None,
        "lightgbm, onnx, solr, opensearch, elasticsearch, vespa, propensities, quepid or workbench; without it, "
        "what is possible is told.",
        table="exports",
    )
    out: Place = option(None, "File to write, or folder for an engine.")
    lists: Files = option(None, "Documents that trees learn the scores of, where an engine cannot run the model.")
    candidates: Files = option(
        None, "Log or table with query_id and doc_id, where --lists are features of items alone."
    )
    name: str = option("unskew", "What the model is called in the engine.")
    rows: Place = option(None, "Log whose rows get weights, in files beside OUT that LightGBM and XGBoost read.")
    max_weight: float | None = option(None, "Clip weights at this value.", ge=1)
    confidence: float = option(0.5, "Leave out grades that are less likely right.", ge=0, le=1)
    top: float | None = option(None, "Relevance where grades end; its 95th percentile unless given.", gt=0)
    labels: Place = option(None, "Some labels that make judgments of a log better: query_id, doc_id, label; by.")
    columns: Columns = COLUMNS
    force: bool = FORCE
