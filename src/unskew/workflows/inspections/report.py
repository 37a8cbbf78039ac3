"""`unskew report`: runs, comparisons and diagnoses joined into one page; files tell what a folder holds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unskew.diagnosis.diagnosis import Diagnosis
from unskew.errors import ConfigError, DataError, RunError
from unskew.files import read_json, refuse_existing, restore, write_text
from unskew.learning.curves import Curve
from unskew.measuring.ranking import RankingReport
from unskew.pages.documents.diagnosis import diagnosis_page
from unskew.pages.documents.summaries import run_page
from unskew.pages.page import Page
from unskew.pages.page_files import SAVED, joined, read_page
from unskew.pages.web import html
from unskew.settings import no_such
from unskew.workflows.runs.folder import MARKER, status

METRICS = "metrics.json"
WANTED = (
    "name a folder of learn, diagnose, compare, reproduce, demo, causes, compare-click-models or display-times"
)


def report(
    places: Sequence[Path | str],
    *,
    out: Path | str | None = None,
    title: str = "Report",
    command: str = "",
    force: bool = False,
) -> Page:
    """Join what lies in several folders into one page, and write it as HTML to a file `out`."""
    if not places:
        raise ConfigError(f"nothing to report; {WANTED}")
    if out is not None:
        refuse_existing(Path(out), force=force)
    pages = {Path(place): page_at(Path(place)) for place in places}
    titles = [page.title for page in pages.values()]
    apart = [
        replace(page, title=f"{page.title} ({place})") if titles.count(page.title) > 1 else page
        for place, page in pages.items()
    ]
    page = joined(apart, title, command)
    if out is not None:
        write_text(Path(out), html(page))
    return page


def page_at(place: Path) -> Page:
    """The page of a folder: the one that was kept there, or that of a run."""
    if not restore(place).exists():
        raise no_such(place)
    if (place / SAVED).is_file():
        return read_page(place / SAVED)
    if place.is_dir() and (place / MARKER).is_file():
        return _run(place)
    if place.suffix == ".json" and place.is_file():  # what `unskew diagnose --json FILE` wrote
        try:
            return diagnosis_page(Diagnosis.from_dict(read_json(place)), command=f"unskew diagnose --json {place}")
        except ValueError as error:
            raise DataError("no diagnosis of ours", path=place, hint=WANTED) from error
    raise DataError("nothing that can be reported", path=place, hint=WANTED)


def _run(folder: Path) -> Page:
    if not (folder / METRICS).is_file():
        raise RunError(f"{folder}: the run has not ended; `unskew learn` with the same --out goes on")
    told = read_json(folder / METRICS)
    try:
        chosen = told["validation"]["on"], told["validation"]["best"], told["validation"]["step"]
        said = [told[name]["sentence"] for name in ("engine", "standing", "safety") if name in told]
        test = RankingReport(per_query={}, **told["test"]) if "test" in told else None
        return run_page(
            f"{status(folder)}: {folder}", chosen, [Curve(**each) for each in told["curves"]], said, test
        )
    except (KeyError, TypeError) as error:
        raise DataError("damaged, numbers of the run are missing", path=folder / METRICS) from error
