"""Fitted click models on disk: `model.json` with settings and shared parameters, `pairs.parquet` with the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.diagnosis.click_models.em import Assumed
from unskew.diagnosis.click_models.fitted import FittedClickModel, ParameterEvidence
from unskew.diagnosis.click_models.names import model_of, settings_of
from unskew.diagnosis.click_models.pages import ShownPairs
from unskew.errors import DataError
from unskew.files import Ours, complete_folder, read_json, write_json
from unskew.settings import require_columns
from unskew.types import Array

FILE, PAIRS = "model.json", "pairs.parquet"
SAVED = Ours(FILE, (PAIRS,))
"""What lies in the folder of a click model."""
KIND = "unskew click model"
OWN = ("name", "pages", "converged", "seconds", "trace", "parameter_count")
EVIDENCE = ("impressions", "clicks", "examined", "standard_error")


def save_model(fitted: FittedClickModel, folder: Path | str, *, force: bool = False) -> None:
    """Write a folder, whole or not at all."""
    with complete_folder(Path(folder), force=force, ours=SAVED) as working:
        write_model(fitted, working)


def write_model(fitted: FittedClickModel, folder: Path) -> None:
    """Write the files of a model into a folder that is there."""
    pairs = len(fitted.pairs)
    of_pairs = {name: values for name, values in fitted.parameters.items() if is_of_pairs(name)}
    shared = {name: values.tolist() for name, values in fitted.parameters.items() if name not in of_pairs}
    proof = {name: getattr(fitted.evidence, name) for name in EVIDENCE}
    columns: dict[str, Any] = {name: getattr(fitted.pairs, name) for name in ("query_id", "doc_id", "query")}
    columns |= {name: values[:pairs] for name, values in (of_pairs | proof).items() if values is not None}
    unseen = {name: float(values[pairs]) for name, values in (of_pairs | proof).items() if values is not None}
    content: dict[str, Any] = {"kind": KIND, **{name: getattr(fitted, name) for name in OWN}}
    content |= {"model": settings_of(fitted.model), "parameters": shared, "unseen": unseen}
    content["assumed"] = {name: prior._asdict() for name, prior in fitted.assumed.items()}
    write_json(folder / FILE, content)
    pq.write_table(pa.table(columns), folder / PAIRS, compression="zstd")


def load_model(folder: Path | str) -> FittedClickModel:
    """Read what `save_model` wrote."""
    place = Path(folder) / FILE
    content = read_json(place)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError("is not a click model", path=place, hint="name the folder that one was saved in")
    try:
        table = pq.read_table(Path(folder) / PAIRS)
        return _assembled(content, table, Path(folder) / PAIRS)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"cannot be read ({error})", path=Path(folder) / PAIRS) from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"is damaged ({error!r})", path=place, hint="fit the model again") from error


def _assembled(content: dict[str, Any], table: Any, place: Path) -> FittedClickModel:
    require_columns(["query_id", "doc_id", "query"], table.column_names, path=place)
    query_id, doc_id = (table[name].combine_chunks() for name in ("query_id", "doc_id"))
    whole: dict[str, Array] = {
        name: np.append(table[name].to_numpy(), value) for name, value in content["unseen"].items()
    }
    proof = {name: whole.pop(name, None) for name in EVIDENCE}
    shared = {name: np.asarray(values) for name, values in content["parameters"].items()}
    return FittedClickModel(
        model=model_of(content["model"]),
        pairs=ShownPairs(query_id, doc_id, table["query"].to_numpy()),
        parameters=whole | shared,
        assumed={name: Assumed(**prior) for name, prior in content["assumed"].items()},
        evidence=ParameterEvidence(**proof),  # type: ignore[arg-type]
        **{name: content[name] for name in OWN},
    )


def is_of_pairs(name: str) -> bool:
    """Whether every pair has a parameter of this kind; within a mixture its name begins with a number."""
    return name.split()[-1] in ("attractiveness", "satisfaction")
