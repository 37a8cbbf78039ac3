"""Examination model: was this result looked at, judged by what people did on the page.

L. Zou et al., "Approximated doubly robust search relevance estimation", CIKM 2022, Section 6.1.1. Boosted trees
(LightGBM) on behaviour features, with labels from screens that report how long a result was in view:

    display time > 5 s: examined      < 1 s: not examined      between: no label
    loss  -1[t > 5] log ê - 1[t < 1] log(1 - ê)

Differences from the paper: trees are grown on counts of distinct traces (`traces`), which is the same loss on any
size of log; ê is calibrated by isotonic regression on pages of its own. Two settings are ours. The doubly robust
estimator is unbiased only if E[ê | query, document, k] = θ_k; a result's own click breaks this, because a relevant
result is clicked more often and so seems examined more often: it is left out unless `own_click` asks for it, as
the paper does. And `observed` takes a display time at its word where there is a clear one, and asks the model
elsewhere. Pages are dealt out by a hash of page_id: 70 % to train on, 15 % to calibrate on, 15 % to test on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self, Unpack

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, model_validator

from unskew.errors import ConfigError, DataError, RunError, optional
from unskew.files import Ours, complete_folder, read_manifest, refuse_existing, write_manifest, write_text
from unskew.files.trees import check_lightgbm, read_trees, tried_apart
from unskew.logs.reader import AnyLog, open_log, place_of
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.options.logs import DisplayTimesOptions
from unskew.results import Result
from unskew.settings import checked, require_columns
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.functions import finite
from unskew.tracking.traces import TRACE, behaviour_features, used_features, with_traces
from unskew.types import Array

MARKER, TREES = "examination.json", "trees.txt"
EXAMINATION = Ours(MARKER, (TREES, "table.md", "report.html", "figure.svg"))
"""What lies in the folder of a model, with its report."""
BINS = 10
"""Bins of the calibration table."""
PARTS = {"training": (0, 70), "calibration": (70, 85), "test": (85, 100)}
"""Per cent of the pages, from and below, that trees, calibration and test are given."""
NEEDED = ("page_id", "position", "click")
KEYS = [f"trace_{name}" for name in TRACE]
TraceCounts = Mapping[str, Array]
"""Distinct traces, [n] for each of TRACE, with a `label` of 0 or 1 and the `count` of impressions of each."""


class DisplayTimes(DisplayTimesOptions):
    """How examination is learned and applied."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    observed: bool = True
    """Whether a display time beyond the two is taken at its word, 1 or 0, when examination is added to a log."""
    leaves: Annotated[int, Field(ge=2)] = 31
    """Leaves of a tree."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Learning rate."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.unseen > self.seen:
            raise ValueError(f"unseen ({self.unseen}) must not exceed seen ({self.seen})")
        return self


@dataclass(frozen=True)
class LearnedExamination(Result):
    """How well a model of display times tells, on pages that it did not learn from, and who is looked at."""

    out: str
    tested_on: int
    """Impressions, as `trained_on`."""
    auc: float
    log_loss: float
    calibration_error: float
    calibration: Sequence[Mapping[str, float]]
    """Impressions, mean prediction and share examined, by bins of the prediction."""
    trained_on: int
    by_position: Sequence[Mapping[str, float]]
    """Mean examination and impressions of each rank."""
    below_last_click: Sequence[Mapping[str, float]]
    """The same by ranks below the last click of the page."""


class DisplayTimeModel:
    """Trees and their calibration: from traces to the probability of examination."""

    def __init__(
        self, settings: DisplayTimes, booster: Any, curve: tuple[Array, Array], facts: Mapping[str, Any]
    ) -> None:
        self.settings, self._booster, self.curve = settings, booster, curve
        self.facts = dict(facts)
        """What was measured on held-out pages."""

    def raw(self, traces: Mapping[str, Array]) -> Array:
        """What the trees say, [n], before calibration."""
        features = behaviour_features(traces, own_click=self.settings.own_click)
        return np.asarray(self._booster.predict(features, num_threads=1)) if len(features) else np.zeros(0)

    def __call__(self, traces: Mapping[str, Array]) -> Array:
        """Probability of examination of each of n traces, [n] float64."""
        return np.interp(self.raw(traces), *self.curve)

    def save(self, folder: Path | str, *, force: bool = False) -> None:
        """Write LightGBM's own text and a JSON file; nothing that can run code."""
        with complete_folder(Path(folder), force=force, ours=EXAMINATION) as working:
            write_text(working / TREES, self._booster.model_to_string())
            curve = [values.tolist() for values in self.curve]
            content = {"settings": self.settings.model_dump(), "calibration": curve, "facts": self.facts}
            write_manifest(working / MARKER, content, [working / TREES])


def load_examination(folder: Path | str) -> DisplayTimeModel:
    """The examination model that `DisplayTimeModel.save` wrote."""
    place = Path(folder)
    if not (place / MARKER).is_file():
        raise RunError(f"{place} holds no examination model (no {MARKER}); make one with `unskew display-times`")
    content = read_manifest(place / MARKER, "train it anew")
    try:
        settings = checked(DisplayTimes, content["settings"], "settings")
        raw, said = (np.asarray(values, float) for values in content["calibration"])
        text = read_trees(place / TREES)
    except (KeyError, ValueError, TypeError, ConfigError, OSError) as error:
        raise DataError(f"damaged ({error})", path=place) from error
    library = optional("lightgbm", "trees")
    check_lightgbm(text, place / TREES)
    if "files" not in content:
        tried_apart("lightgbm", place / TREES)
    booster = library.Booster(model_str=text)
    if booster.num_feature() != len(used_features(settings.own_click)):
        raise DataError(f"trees on {booster.num_feature()} features", path=place / TREES, hint="train it anew")
    return DisplayTimeModel(settings, booster, (raw, said), content.get("facts", {}))


def fit_examination(
    settings: DisplayTimes, training: TraceCounts, calibration: TraceCounts, test: TraceCounts
) -> DisplayTimeModel:
    """Grow trees, calibrate them, and measure on the rest; the three parts share no page."""
    from sklearn.isotonic import IsotonicRegression

    library = optional("lightgbm", "trees")
    for part, name in ((training, "train on"), (calibration, "calibrate on"), (test, "test on")):
        if len(np.unique(part["label"])) < 2:
            raise DataError(
                f"the pages to {name} do not have display times both above {settings.seen} s and below "
                f"{settings.unseen} s",
                hint="give a longer log, or other thresholds",
            )
    features = behaviour_features(training, own_click=settings.own_click)
    data = library.Dataset(
        features,
        training["label"],
        weight=training["count"].astype(np.float32),
        feature_name=used_features(settings.own_click),
    )
    options = {
        "objective": "binary",
        "num_leaves": settings.leaves,
        "learning_rate": settings.rate,
        "seed": settings.seed,
        "min_data_in_leaf": 1,
        "min_sum_hessian_in_leaf": 5.0,  # impressions stand behind a row, so rows are not counted
        "deterministic": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    booster = library.train(options, data, num_boost_round=settings.trees)
    model = DisplayTimeModel(settings, booster, (np.zeros(0), np.zeros(0)), {})
    # a rising curve from what the trees say to how often it is so
    rising = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    rising.fit(model.raw(calibration), calibration["label"], sample_weight=calibration["count"])
    model.curve = np.asarray(rising.X_thresholds_, float), np.asarray(rising.y_thresholds_, float)
    model.facts = measure_examination(model, test) | {"trained_on": int(training["count"].sum())}
    return model


def measure_examination(model: DisplayTimeModel, part: TraceCounts) -> dict[str, Any]:
    """AUC, log loss, and calibration in ten bins: how many, mean ê, and the share that was examined."""
    from sklearn.metrics import log_loss, roc_auc_score

    said, label, weight = model(part), part["label"], part["count"].astype(float)
    bins = np.minimum((said * BINS).astype(int), BINS - 1)
    totals, means, shares = (
        np.bincount(bins, values, minlength=BINS) for values in (weight, weight * said, weight * label)
    )
    filled = totals > 0
    error = np.abs(means - shares)[filled].sum() / totals.sum()
    table = [
        {"impressions": int(n), "predicted": float(mean / n), "examined": float(share / n)}
        for n, mean, share in zip(totals[filled], means[filled], shares[filled], strict=True)
    ]
    return {
        "tested_on": int(weight.sum()),
        "auc": float(roc_auc_score(label, said, sample_weight=weight)),
        "log_loss": float(log_loss(label, np.clip(said, 1e-6, 1 - 1e-6), sample_weight=weight)),
        "calibration_error": float(error),
        "calibration": table,
    }


# ---- on an engine ----


def display_times(
    log: AnyLog,
    out: Path | str,
    *,
    seen: float = 5.0,
    unseen: float = 1.0,
    own_click: bool = False,
    trees: int = 100,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> LearnedExamination:
    """Learn examination from a log with display times, into the folder `out`; what was measured.

    A result that was displayed for more than `seen` seconds was examined, one for less than `unseen` was not.
    `columns` says theirs for ours, as for `ingest`; `connection` says how the engine is reached.
    """
    said = {"seen": seen, "unseen": unseen, "own_click": own_click, "trees": trees, "seed": seed}
    asked, needed = checked(DisplayTimes, said, None), [*NEEDED, "display_time"]
    refuse_existing(Path(out), force=force, ours=EXAMINATION)
    with connect(engine, **connection) as running, open_log(running, log, Names.of(columns), needed) as shown:
        model = learn_examination(running, shown, asked, place_of(log))
        model.facts |= examination_curves(running, add_examination(running, shown, model))
    model.save(out, force=force)
    return LearnedExamination(str(out), **model.facts)


def learn_examination(
    engine: Engine, impressions: Table, settings: DisplayTimes, place: Path | str | None = None
) -> DisplayTimeModel:
    """The model of a log, which needs page_id, position, click and display_time, and uses dwell_time."""
    require_columns([*NEEDED, "display_time"], impressions.columns, path=place, hint="it is what is learned from")
    traced = with_traces(clean(engine, impressions))
    part = ((traced.page_id.hash() % 100 + 100) % 100).cast("int64")
    labelled = traced.mutate(part=part, label=shown_label(traced, settings))
    labelled = labelled.filter(labelled.label.notnull())
    found = engine.to_arrow(labelled.group_by([*KEYS, "part", "label"]).agg(count=labelled.count()))
    columns = {name.removeprefix("trace_"): found[name].to_numpy() for name in found.column_names}
    parts = {}
    for name, (low, high) in PARTS.items():
        chosen = (columns["part"] >= low) & (columns["part"] < high)
        parts[name] = {column: values[chosen] for column, values in columns.items()}
    try:
        return fit_examination(settings, **parts)
    except DataError as error:
        error.path = place
        raise


def clean(engine: Engine, impressions: Table) -> Table:
    """The columns that traces are made of, in plain types; times that are no numbers are null."""
    kept = [name for name in ("display_time", "dwell_time") if name in impressions.columns]
    seconds = {}
    for name in kept:
        number = finite(impressions[name], engine.name)
        seconds[name] = ibis.ifelse(number >= 0, number, ibis.null("float64"))
    plain = {"position": impressions.position.cast("int32"), "click": impressions.click.cast("int32")}
    return impressions.mutate(**plain, **seconds)


def shown_label(rows: Table, settings: DisplayTimes) -> Any:
    """1 where the display time says examined, 0 where it says not, else null."""
    t = rows.display_time
    return ibis.cases((t > settings.seen, 1), (t < settings.unseen, 0), else_=ibis.null("int64")).cast("int64")


def add_examination(engine: Engine, impressions: Table, model: DisplayTimeModel) -> Table:
    """The impressions with a column `examination`, ê of every result; distinct traces are predicted once."""
    require_columns(NEEDED, impressions.columns, hint="examination is judged by them")
    rows = clean(engine, impressions.drop("examination") if "examination" in impressions.columns else impressions)
    traced = with_traces(rows)
    found = engine.to_arrow(traced.select(*KEYS).distinct())
    traces = {name: found[key].to_numpy(zero_copy_only=False) for name, key in zip(TRACE, KEYS, strict=True)}
    said = pa.table({f"{key}_of": found[key] for key in KEYS} | {"examination": pa.array(model(traces))})
    predicted = engine.from_arrow(said)
    joined = traced.left_join(predicted, [traced[key] == predicted[f"{key}_of"] for key in KEYS])
    if model.settings.observed and "display_time" in joined.columns:
        word = shown_label(joined, model.settings).cast("float64")
        joined = joined.mutate(examination=ibis.coalesce(word, joined.examination))
    return joined.drop(*KEYS, *(f"{key}_of" for key in KEYS))


def examination_curves(engine: Engine, rows: Table, ranks: int = 10) -> dict[str, Any]:
    """Mean examination by position, and by ranks below the last click of the page (the paper's Figure 4)."""
    by_rank = rows.group_by("position").agg(mean=rows.examination.mean(), n=rows.count())
    clicked = ibis.ifelse(rows.click == 1, rows.position, ibis.null("int32"))
    pages = rows.group_by(page="page_id").agg(last=clicked.max())
    joined = rows.join(pages, rows.page_id == pages.page)
    below = joined.mutate(below=joined.position - joined["last"])
    below = below.filter(below.below >= 0)
    by_distance = below.group_by("below").agg(mean=below.examination.mean(), n=below.count())
    made = {}
    for name, table, key in (("by_position", by_rank, "position"), ("below_last_click", by_distance, "below")):
        found = sorted(engine.rows(table), key=lambda row: row[key])[:ranks]
        made[name] = [
            {key: int(row[key]), "mean": float(row["mean"]), "impressions": int(row["n"])} for row in found
        ]
    return made
