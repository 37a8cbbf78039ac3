"""Run folders: where they are written, how they ended, and what their data were.

A run is written beside its place and renamed when done. A finished one is never overwritten unasked, and nothing
that is not a run ever is.
"""

import contextlib
import hashlib
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from unskew.errors import DataError, Option, RunError
from unskew.files import Ours, beside, is_free, locked, read_json, refuse_existing, remove, restore, told_of_disks
from unskew.learning.fitting.runtime import FILE as CHECKPOINT
from unskew.learning.scoring.scorer import MODEL
from unskew.logs.log import hash_arrays
from unskew.types import Lists, Log

MARKER = "run.json"
"""What makes a folder a run, which force may replace."""
RUN_FILE = "run.toml"
"""The run file that does a run again."""
RUN = Ours(
    MARKER, ("config.json", "metrics.json", "curve.jsonl", RUN_FILE, CHECKPOINT, MODEL.marker, *MODEL.names)
)
"""What lies in a run folder."""


def fingerprint(*parts: Log | Lists | None, labels: bool = False) -> str:
    """A hash of clicks, columns and the features they point at; of a log's grades only where they are read."""
    digest = hashlib.blake2b(digest_size=16)
    seen: list[Lists] = []  # pages that were held out share their lists with the others
    for part in parts:
        lists = part.lists if isinstance(part, Log) else part
        arrays = [] if lists is None or any(lists is other for other in seen) else [lists.features, lists.offsets]
        if lists is not None:
            seen.append(lists)
            arrays += [lists.labels] if labels or lists is part else []
            for texts in () if lists.texts is None else (lists.texts.query, lists.texts.document):
                digest.update("\0".join(texts).encode())
        if isinstance(part, Log):
            arrays += [part.query, part.offsets, part.row, part.position, part.click]
            arrays += [] if part.randomized is None else [part.randomized]
            for name, column in sorted(part.columns.items()):
                digest.update(name.encode())
                arrays.append(column)
        hash_arrays(digest, arrays)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the result may depend on; packages that are not installed are left out."""
    packages = "unskew torch numpy scipy scikit-learn pyarrow lightgbm xgboost-cpu xgboost transformers tokenizers"
    found = {"python": platform.python_version()}
    for name in packages.split():
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def status(folder: Path) -> str | None:
    """How the run in this folder ended; None where there is no run."""
    path = restore(folder) / MARKER
    if not path.exists():
        return None
    try:
        return str(read_json(path)["status"])
    except (DataError, KeyError) as error:
        raise RunError("damaged", path=path, hint=(Option("force", True), " starts afresh")) from error


def refuse_to_overwrite(out: Path, force: bool) -> None:
    """A finished run stays unless forced; one that was interrupted goes on. What is not a run stays."""
    refuse_existing(out, force=force or status(out) == "interrupted", ours=RUN)
    _refuse_strangers(_working(out))


@contextmanager
def claimed(out: Path, force: bool) -> Iterator[Path]:
    """The folder to work in, beside `out`: new, or that of a run that was killed or interrupted.

    It is this process's alone. What is there in the end stays, unless it was published.
    """
    working = _working(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with told_of_disks(out), locked(out):
        _refuse_strangers(working)
        if force:
            remove(working)
        elif out.exists() and is_free(working):
            with beside(working) as copy:  # half a copy would be taken for all that there is
                shutil.copytree(out, copy)
                copy.rename(working)
        working.mkdir(exist_ok=True)
        yield working


def _working(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def _refuse_strangers(working: Path) -> None:
    if working.is_symlink() or (working.exists() and not working.is_dir()):
        raise RunError(f"{working} is where the run is written until it is done, and no folder; move it away")
    stranger = next(RUN.strangers(working), None)
    if stranger is not None:
        raise RunError(
            f"{working} is where the run is written until it is done, and we did not write {stranger} in it; "
            "move it away, or choose another place"
        )
