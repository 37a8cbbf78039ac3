"""What lies at a path where a log was wanted: raw text, features, a run, the parts of a log, or nothing.

Commands read logs that `unskew ingest` or `unskew simulate` wrote. Whoever gives anything else is told what it is,
and the command to type, with guesses which of their columns are which of ours.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from unskew.errors import DataError, Option, RunError, Words
from unskew.files import PACKED, restore
from unskew.names import NO_NAMES, REQUIRED, Names, guess_columns
from unskew.settings import no_such
from unskew.tables.engine.parquet import impressions_in
from unskew.tables.reading.files import kind_of, magic_of, refuse_disguised

FOLDERS = {
    "model.json": ("a run folder, not a log", "name the log that it learned from"),
    "run.json": ("a run folder, not a log", "name the log that it learned from"),
    "slots": ("counts, not a log", "name the log that was counted; `learn` takes counts as data.counts"),
    "store.json": ("a tracking store, not a log", "name the log that was tracked"),
    "examination.json": ("an examination model, not a log", "name the log that it was learned from"),
    "diagnosis.json": ("a diagnosis, not a log", "name the log that was diagnosed"),
    "graph.json": ("a folder of causes, not a log", "name the log that they were found in"),
}
"""What a folder is, by what lies in it."""
PARTS = ("train", "validation", "test")
TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", *PACKED)
LETOR = re.compile(rb"^\s*-?\d+(\.\d+)?\s+qid:\S+")
SHOWN = ("page_id", "position", "click")
"""What a log has and a table of features has not."""


def refuse_other(path: Path | str) -> None:
    """Refuse what is no log in Parquet files, and say what it is."""
    if "://" in str(path):
        return
    place = restore(Path(path))
    if not place.exists():
        raise no_such(place, "log")
    if place.is_dir():
        _refuse_folder(place)
    elif (kind := magic_of(place)) != "Parquet":
        with place.open("rb") as file:
            if LETOR.match(file.read(200)):
                what = "these are lists with features (LETOR), not a log"
                raise DataError(what, path=place, hint="name the log")
        if place.suffix == ".parquet" or not place.stat().st_size or (kind and place.suffix not in TEXTS):
            refuse_disguised(place, "parquet", kind)
        raise _raw(place, "a raw log", place)


def not_a_run(folder: Path) -> RunError:
    """The error of a folder that holds no model, with what it may be."""
    if not folder.exists():
        return RunError(str(no_such(folder, "run")))
    logs = folder.is_file() or any((folder / name).is_dir() for name in ("impressions", *PARTS))
    if logs or next(folder.rglob("*.parquet"), None) is not None:
        return RunError(f"{folder}: this is a log or a table, not a run; name a folder that `unskew learn` wrote")
    return RunError(f"{folder} holds no model.json; it is not a finished run")


def _refuse_folder(folder: Path) -> None:
    there = {each.name for each in folder.iterdir()}
    if parts := [name for name in PARTS if name in there and (folder / name).is_dir()]:
        hint = f"name one of them, such as {folder / parts[0]}"
        raise DataError(f"a log that was split into {', '.join(parts)}", path=folder, hint=hint)
    for name, (what, hint) in FOLDERS.items():
        if name in there:
            raise DataError(f"this is {what}", path=folder, hint=hint)
    texts = sorted(each for each in folder.rglob("*") if each.suffix in TEXTS and each.name[0] not in "._")
    if any(folder.rglob("*.parquet")):
        rows = [each for each in texts if each.suffix in (".csv", ".tsv", ".jsonl", ".ndjson")]
        if rows and impressions_in(folder) == folder:
            raise _raw(folder, f"Parquet and raw files such as {rows[0].name}", rows[0])
        return
    if texts:
        raise _raw(folder, f"a folder of raw files such as {texts[0].name}", texts[0])
    what = "the folder is empty" if not there else "the folder has no *.parquet files"
    raise DataError(what, path=folder, hint="name the folder that `unskew ingest` wrote")


def _raw(path: Path, what: str, file: Path) -> DataError:
    """The error of a raw log, with the command that ingests it, by the columns that one of its files has."""
    from unskew.tables.reading.options import Texts
    from unskew.tables.reading.text import text_columns

    present: list[str] = []
    with suppress(DataError):
        present = text_columns(file, kind_of(file) or "csv", Texts())
    return DataError(what, path=path, hint=f"ingest it first: {ingest_command(path, present)}")


def ingest_command(path: Path | str, present: Sequence[str], names: Names = NO_NAMES) -> str:
    """The command that ingests a raw log, with its columns as they may be meant.

    >>> ingest_command("shop.csv", ["page_id", "term", "doc_id", "rank", "click"])
    'unskew ingest shop.csv --out shop_log --column query_id=term --column position=rank'
    """
    guess = guess_columns(present) | names
    stem = Path(path).resolve()
    while stem.suffix in (*TEXTS, ".parquet"):
        stem = stem.with_suffix("")
    found = {*present, *guess}
    visits = {"user_id", "timestamp", "query_id"} <= found  # pages are then found
    unknown = [name for name in REQUIRED if name not in found and not (name == "page_id" and visits)]
    named = {name: guess[name] for name in (*REQUIRED, "timestamp", "user_id", "visit_id") if name in guess}
    pairs = [f"{ours}={theirs}" for ours, theirs in (named | dict.fromkeys(unknown, "THEIRS")).items()]
    words = ["unskew", "ingest", str(path), "--out", f"{stem.name}_log"]
    return shlex.join([*words, *(word for pair in pairs for word in ("--column", pair))])


def require_log(
    wanted: Iterable[str], present: Collection[str], path: Path | str, names: Names = NO_NAMES
) -> None:
    """The columns that a log must have are there; else what the table may be, and what to do."""
    missing = [name for name in wanted if name not in present]
    if not missing:
        return
    raw = [names.theirs(name) for name in present]
    there = ", ".join(raw[:20])[:500] or "none"
    guess = guess_columns(list(present))
    what = f"missing columns: {', '.join(missing)}; there are {there}"
    if {"query_id", "doc_id"} <= {*present} and not {*SHOWN} & ({*present} | {*guess}):
        raise DataError(f"this is a table of features, not a log: {what}", path=path, hint="name the log")
    first = f"ingest it first: {ingest_command(path, raw, names)}"
    hint: Words = first
    if all(name in guess for name in missing):
        meant = Option("columns", {name: guess[name] for name in missing})
        hint = (f"{first}; or, where only names differ, give ", meant)
    elif not {*missing} & {*REQUIRED}:
        hint = "ingest the log with them, or name others"
    raise DataError(what, path=path, hint=hint)
