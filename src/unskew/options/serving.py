"""VerbOptions of what serves a run, fills its store, or writes it for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from unskew.options.base import (
    COLUMNS,
    FORCE,
    SEED,
    Columns,
    Files,
    Names,
    Place,
    Text,
    Typed,
    VerbOptions,
    argument,
    option,
)


class ExploreArguments(VerbOptions):
    """What is left to chance."""

    explore: str | None = option(
        None,
        "Leave some pages to chance: top_one, swaps, shuffle, plackett_luce, team_draft.",
        metavar="POLICY",
        known=("top_one", "swaps", "shuffle", "plackett_luce", "team_draft"),
    )
    share: float | None = option(None, "Share of traffic that takes part; 0.05 unless given.", ge=0, le=1)
    cap: int | None = option(None, "Ranks that a result moves at most.", ge=0)
    depth: int | None = option(None, "First results that take part; 10 unless given.", ge=1)
    temperature: float | None = option(None, "Of plackett_luce: higher is more random.")
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
    seed: int = SEED
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
    columns: Columns = COLUMNS
    force: bool = FORCE
