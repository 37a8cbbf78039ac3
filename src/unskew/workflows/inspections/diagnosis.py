"""`unskew diagnose`: from a log to its diagnosis in files: a page, JSON, propensities."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.diagnosis.diagnosis import Diagnosis
from unskew.diagnosis.diagnosis import diagnose as find
from unskew.errors import ConfigError, DataError, located
from unskew.files import Ours, complete_folder, refuse_existing, write_json, write_text
from unskew.logs.log import TABLE
from unskew.names import KEYS, Names
from unskew.pages.documents.diagnosis import TOP, diagnosis_page
from unskew.pages.origins import log_origin
from unskew.pages.page import PAGE_FILES, Page, write_page
from unskew.pages.web import html

FILE = "diagnosis.json"
NAME = "propensities"
FILES = (".html", ".json", ".csv")
"""How names of files end, where others are of folders."""
DIAGNOSED = Ours(FILE, (f"{NAME}.json", f"{NAME}.csv", *PAGE_FILES))
"""What lies in a folder of a diagnosis."""


def diagnose(
    source: Any,
    *,
    out: Path | str | None = None,
    json: Path | str | None = None,
    propensities: Path | str | None = None,
    command: str = "",
    force: bool = False,
    **options: Any,
) -> Diagnosis:
    """Say which biases a log has and whether they can be removed, and write what was found.

    `out` is a page (.html), or a folder for the page, `diagnosis.json` and propensities; `json` and `propensities`
    (.json or .csv) are files. `options`: segments, serp, features, labels, models, columns, seed and those of the
    engine.
    """
    files = [Path(each) for each in (out, json, propensities) if each is not None]
    for path in files:
        refuse_existing(path, force=force, ours=None if path.suffix in FILES else DIAGNOSED)
    if propensities is not None and Path(propensities).suffix not in (".json", ".csv"):
        raise ConfigError("give a name that ends in .json or .csv", argument="propensities", value=propensities)
    found = find(source, **_named(source, options), **options)
    if json is not None:
        write_json(Path(json), found)
    if out is not None:
        origin = log_origin(source) if isinstance(source, str | Path) else ""
        _write(found, Path(out), diagnosis_page(found, origin, command), force)
    if propensities is not None:
        with located(source if isinstance(source, str | Path) else TABLE):
            found.propensities().write(Path(propensities))
    return found


def _named(source: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """What queries and documents are called in features, where `ingest` has renamed those of the log."""
    if not isinstance(source, str | Path) or options.get("features") is None or options.get("columns"):
        return {}
    return {"feature_columns": Names.of(None, source).only(KEYS)}


def _write(found: Diagnosis, out: Path, page: Page, force: bool) -> None:
    """One page, or a folder with all."""
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
