"""Click models of a log, compared, and what the best one says written into a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import pyarrow.csv as pacsv

from unskew.diagnosis.click_models import CLICK_MODELS, ClickModelComparison, fit_and_compare, read_pages
from unskew.diagnosis.click_models.fitted import FILE, PAIRS, find_model, fit_model, write_model
from unskew.errors import ConfigError
from unskew.files import Ours, complete_folder, refuse_existing, write_json
from unskew.logs.reader import AnyLog
from unskew.options.base import EngineConnection
from unskew.options.logs import ClickModelsArguments
from unskew.pages.page import PAGE_FILES
from unskew.settings import no_such

COMPARISON, JUDGMENTS, JUDGE = "comparison.json", "judgments.csv", "model"
COMPARED = Ours(COMPARISON, (JUDGMENTS, f"{JUDGE}/{FILE}", f"{JUDGE}/{PAIRS}", *PAGE_FILES))
"""What lies in a folder of compared click models."""


@ClickModelsArguments.checks
def compare_click_models(
    log: AnyLog,
    *,
    models: Sequence[str] | None = None,
    held_out: str | AnyLog = "0.2",
    seed: int = 0,
    labels: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    out: Path | str | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> ClickModelComparison:
    """Fit click models to a log, compare them on held-out pages, and write what was found into a folder `out`.

    `models` are names, joined by + for mixtures, all ten unless given. `held_out` is a share of the pages, or
    another log. The best model that tells documents apart is fitted to the whole log; the folder gets it, its
    `judgments.csv`, which `labels` may better, and `comparison.json`. `connection` says how the engine is
    reached.
    """
    for name in models or ():
        find_model(name)  # before minutes of reading
    part = share_or_log(held_out)
    if out is not None:
        refuse_existing(Path(out), force=force, ours=COMPARED)
    pages = read_pages(log, columns=columns, engine=engine, **connection)
    held = part if isinstance(part, float) else read_pages(part, columns=columns, engine=engine, **connection)
    found = fit_and_compare(pages, models or tuple(CLICK_MODELS), held_out=held, seed=seed)
    if out is not None:
        judge = found.judge
        with complete_folder(Path(out), force=force, ours=COMPARED) as working:
            write_json(working / COMPARISON, found.to_dict() | {"judged_by": judge})
            if judge is not None:
                whole = fit_model(judge, found.fitted[judge].model, pages)
                (working / JUDGE).mkdir()
                write_model(whole, working / JUDGE)
                pacsv.write_csv(whole.relevance(labels=labels), working / JUDGMENTS)
    return found


def share_or_log(given: Any) -> Any:
    """A share of the pages, or a log: where it lies, or one in memory."""
    if not isinstance(given, str):
        return given
    text = given
    try:
        share = float(text)
    except ValueError:
        if not Path(text).exists() and "://" not in text:
            raise no_such(Path(text)) from None
        return Path(text)
    if not 0 < share < 1:
        raise ConfigError("give a share of the pages between 0 and 1, or a log", argument="held_out", value=text)
    return share
