"""Graphs of a saved run through onnxruntime, after a check that they are ours (`learning/onnx_file.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from unskew.errors import DataError, optional
from unskew.learning.onnx_file import LARGEST, OUTPUT, available, check_file
from unskew.types import Array

Run = Callable[[Mapping[str, Array]], Array]


def open_graph(path: Path, inputs: Sequence[str], threads: int) -> Run | None:
    """A graph as a function of its inputs; None where there is none, or nothing to check and run it with."""
    if not path.exists() or not available():
        return None
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path.name} has more than {LARGEST:,} bytes")
    content = path.read_bytes()
    try:
        check_file(content, inputs)
    except DataError as error:
        raise DataError(f"{path.name} is not one that unskew wrote: {error}") from error
    ort = optional("onnxruntime", "serve")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    try:
        opened = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no common base
        raise DataError(f"{path.name} is not a graph: {_first(error)}") from error

    def run(given: Mapping[str, Array]) -> Array:
        try:
            return np.asarray(opened.run([OUTPUT], dict(given))[0])
        except Exception as error:
            raise DataError(f"{path.name} cannot be run: {_first(error)}") from error

    return run


def _first(error: Exception) -> str:
    """The first line of a message."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
