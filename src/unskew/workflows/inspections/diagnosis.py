"""`unskew diagnose` and `drift`: from logs to what was found in files: a page, JSON, propensities."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from unskew.diagnosis.diagnosis import Diagnosis
from unskew.diagnosis.diagnosis import diagnose as find
from unskew.diagnosis.drift import Drift
from unskew.diagnosis.drift import drift as find_drift
from unskew.errors import ConfigError, DataError, located
from unskew.files import Ours, complete_folder, refuse_existing, write_json, write_text
from unskew.logs.log import TABLE
from unskew.logs.reader import StoredLog
from unskew.names import KEYS, Names
from unskew.options.base import EngineConnection
from unskew.options.logs import DiagnoseArguments, DriftArguments
from unskew.pages.documents.diagnosis import TOP, diagnosis_page
from unskew.pages.documents.drift import drift_page
from unskew.pages.origins import log_origin
from unskew.pages.page import PAGE_FILES, Page, write_page
from unskew.pages.page_files import page_place, write_found
from unskew.pages.web import html
from unskew.tables.engine.engine import Engine

FILE = "diagnosis.json"
NAME = "propensities"
FILES = (".html", ".json", ".csv")
"""How names of files end, where others are of folders."""
DIAGNOSED = Ours(FILE, (f"{NAME}.json", f"{NAME}.csv", *PAGE_FILES))
"""What lies in a folder of a diagnosis."""


@DiagnoseArguments.checks
def diagnose(
    log: Any,
    *,
    out: Path | str | None = None,
    json: Path | str | None = None,
    propensities: Path | str | None = None,
    segments: Sequence[str] = (),
    serp: bool = True,
    features: Any = None,
    labels: Any = None,
    models: bool = False,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    command: str = "",
    force: bool = False,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Diagnosis:
    """Say which biases a log has and whether they can be removed, and write what was found.

    `out` is a page (.html), or a folder for the page, `diagnosis.json` and propensities; `json` and `propensities`
    (.json or .csv) are files. Results are told apart by serp_* columns, unless `serp` is off, and by the columns
    of `segments`. `features`, as `learn` takes them, show how far they tell the rank; `labels` are a table or file
    of query_id, doc_id and label; `models` fits click models too. `columns` says theirs for ours;
    `connection` says how the engine is reached.
    """
    files = [Path(each) for each in (out, json, propensities) if each is not None]
    for path in files:
        refuse_existing(path, force=force, ours=None if path.suffix in FILES else DIAGNOSED)
    if propensities is not None and Path(propensities).suffix not in (".json", ".csv"):
        raise ConfigError("give a name that ends in .json or .csv", argument="propensities", value=propensities)
    # what queries and documents are called in features, where `ingest` has renamed those of the log
    stored = isinstance(log, str | Path) and features is not None and not columns
    renamed = Names.of(None, log).only(KEYS) if stored else None
    found = find(
        log,
        segments=segments,
        serp=serp,
        features=features,
        labels=labels,
        models=models,
        names=Names.of(columns),
        feature_names=renamed,
        engine=engine,
        seed=seed,
        **connection,
    )
    if json is not None:
        write_json(Path(json), found)
    if out is not None:
        origin = log_origin(log) if isinstance(log, str | Path) else ""
        _write(found, Path(out), diagnosis_page(found, origin, command), force)
    if propensities is not None:
        with located(log if isinstance(log, str | Path) else TABLE):
            found.propensities().write(Path(propensities))
    return found


def _write(found: Diagnosis, out: Path, page: Page, force: bool) -> None:
    if out.suffix == ".html":
        write_text(out, html(page))
        return
    with complete_folder(out, force=force, ours=DIAGNOSED) as folder:
        write_json(folder / FILE, found)
        write_page(page, folder)
        with suppress(DataError):  # the page says why there are none
            told = found.propensities()
            for suffix in (".json", ".csv"):
                told.write(folder / f"{NAME}{suffix}")


def brief(found: Diagnosis) -> Page:
    """The verdicts in a few lines, for a terminal."""
    whole = diagnosis_page(found)
    top = [section for section in whole.sections if section.heading in TOP]
    bare = [replace(section, figures=(), tables=()) for section in top]
    return replace(whole, sections=bare, notes=())


@DriftArguments.checks
def drift(
    old: Any,
    new: Any,
    *,
    segments: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    out: Path | str | None = None,
    command: str = "",
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Drift:
    """Say what changed from an old log to a new one, and whether propensities of the old one still hold.

    Logs are Parquet files, folders of them, tables in memory or `Log`s. `out` is a page (.html) to write; it is
    overwritten by `force` alone. `segments` are columns to compare the mix of, serp_* unless given; `columns` says
    theirs for ours; `connection` says how the engine is reached.
    """
    place, names = page_place(out, force=force), Names.of(columns)
    for each in (old, new):
        if isinstance(each, str | Path) and "://" not in str(each):
            StoredLog.open(each, names, shared=True)
    found = find_drift(old, new, segments=segments, names=names, engine=engine, **connection)
    if place is not None:
        write_found(place, drift_page(found, command))
    return found
