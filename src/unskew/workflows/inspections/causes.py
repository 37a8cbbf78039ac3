"""What causes clicks in a log: sample it, score it where a model is given, find the graph, write it down."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from unskew.diagnosis.causal.discovery import Discovery, Pool, discover, sample_table, shown_columns, to_columns
from unskew.diagnosis.causal.graph import CLICK, POSITION, RELEVANCE, CausalGraph
from unskew.errors import ConfigError, Option
from unskew.files import Ours, complete_folder, refuse_existing, write_json, write_text
from unskew.learning.scoring.model import load
from unskew.logs.reader import AnyLog, TableLog, open_log, opened, place_of
from unskew.names import REQUIRED, Names
from unskew.options.base import EngineConnection
from unskew.pages.page import PAGE_FILES
from unskew.settings import checked
from unskew.tables.engine.engine import connect
from unskew.tables.frames import is_frame
from unskew.tables.joins import join_lists
from unskew.types import Log
from unskew.workflows.inputs.rankings import documents

USUAL = "logging_score"
"""What stands for relevance where a log has it and nothing else is named."""
FILE = "graph.json"
CAUSES = Ours(FILE, ("graph.dot", *PAGE_FILES))
"""What lies in a folder of causes."""
NO_RELEVANCE = "nothing stands for relevance, so what it causes is not told apart; name a column, or give a run"


def causes(
    log: AnyLog,
    *,
    factors: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    relevance: str | None = None,
    run: Path | str | None = None,
    features: Sequence[str] | None = None,
    test: str = "both",
    alpha: float = 0.05,
    sample: int | None = None,
    repeats: int = 0,
    tests: int | None = 2000,
    seed: int = 0,
    doc_ids: bool = False,
    out: Path | str | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> CausalGraph:
    """Find what on a result page causes clicks, from a log in memory or on disk, of any size.

    `factors` are the `serp_*` columns to look at, all unless given; the position always is. `columns` says theirs
    for ours where a file has other names. Relevance is what a
    column says (`relevance`, or `logging_score` where the log has it), or the score of a `run` for the `features`
    of its documents. `test`, `alpha`, `sample`, `repeats`, `tests` and `seed` are of `Discovery`. With `out` a
    folder is written: `graph.json` and `graph.dot`. `connection` says how the engine is reached.
    """
    said = {"test": test, "alpha": alpha, "sample": sample, "repeats": repeats, "tests": tests, "seed": seed}
    asked = checked(Discovery, said, None)
    if (run is None) != (features is None) or (run is not None and relevance is not None):
        raise ConfigError(
            ("give ", Option("run"), " with ", Option("features"), ", or ", Option("relevance"), ", or neither")
        )
    if out is not None:
        refuse_existing(Path(out), force=force, ours=CAUSES)
    named = Names.of(columns)
    log, place = opened(log, named) if is_frame(log) else log, place_of(log)
    with (
        connect(engine, **connection) as running,
        open_log(running, log, named, [*REQUIRED, *(factors or ())]) as shown,
    ):
        names = shown_columns(shown.columns, factors)
        score = relevance or (USUAL if USUAL in shown.columns and run is None else None)
        wanted = [*names, *([] if score is None else [score])]
        table, extra = sample_table(running, shown, wanted, asked.pool, seed=asked.seed, place=place)
    found = to_columns(table, [POSITION, *names, CLICK])
    if score is not None:
        found[RELEVANCE] = to_columns(table, [score])[score]
    elif run is not None:
        model = load(Path(run))
        shows = None if isinstance(log, Log) else log.candidates if isinstance(log, TableLog) else log
        lists = documents(model, features, named, candidates=shows, doc_ids=doc_ids)
        found[RELEVANCE] = model.score(lists)[join_lists(table, lists, place)[1]]
    graph = discover(Pool.of(found, extra), asked)
    if RELEVANCE not in graph.variables:
        graph = replace(graph, notes=(*graph.notes, NO_RELEVANCE))
    if out is not None:
        with complete_folder(Path(out), force=force, ours=CAUSES) as working:
            write_json(working / FILE, graph.to_dict())
            write_text(working / "graph.dot", graph.dot())
    return graph
