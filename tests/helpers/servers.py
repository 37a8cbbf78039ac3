"""Servers of tests: small models, and `unskew serve` in a process of its own on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from unskew.learning.methods import METHODS, Context
from unskew.learning.scoring.model import build
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Columns, Lists

torch.set_num_threads(1)
ITEMS = {"price": [1.0, 2.0, 3.0, float("nan"), 9.0, 4.0], "brand": [0, 1, 0, 1, float("nan"), 0]}


def make(folder: Path, seed: int, ranker: Any) -> Any:
    """A model of named features, one a category, with drawn weights."""
    values = np.array(list(ITEMS.values()), np.float32).T
    columns = Columns(("price", "brand"), {"brand": ("acme", "bolt")})
    raw = Lists(values, np.array([0, 6]), np.zeros(6, np.int16), np.array([1]), columns=columns)
    encoding = fit_encoding(raw)
    lists = encoding.apply(raw)
    torch.manual_seed(seed)
    model = build(METHODS["naive"](), ranker, fit_scaler("standard", lists), lists.dim, Context(positions=5))
    for weights in model.ranker.parameters():
        weights.data = torch.randn_like(weights)
    model.card = replace(model.card, encoding=encoding)
    model.save(folder, force=True)
    return model


@contextmanager
def serving(log: Path, *words: object) -> Iterator[Any]:
    """A client of a server in a process of its own, which is stopped by its id."""
    with started(log, *words) as (client, _):
        yield client


@contextmanager
def started(log: Path, *words: object) -> Iterator[tuple[Any, subprocess.Popen[bytes]]]:
    """The same, with the process, which leads a group of its own."""
    command = [sys.executable, "-m", "unskew", "serve", *map(str, words), "--port", "0", "--json"]
    settings = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stderr=out, stdout=subprocess.PIPE, env=settings, start_new_session=True
        )
    assert process.stdout is not None
    try:
        told = process.stdout.readline()  # once it listens
        assert told, log.read_text()
        with httpx.Client(base_url=json.loads(told)["address"], timeout=20) as client:
            yield client, process
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


TABLE = {"price": [1.5, None, 7.0], "brand": ["bolt", "never seen", None]}


def request(**more: Any) -> dict[str, Any]:
    rows = [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)]
    documents = [{"id": f"d{at}", "features": row} for at, row in enumerate(rows)]
    return {"query": "shoes", "documents": documents} | more
