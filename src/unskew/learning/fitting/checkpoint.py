"""Training state on disk without pickle: tensors and a JSON note in one safetensors file, replaced atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from unskew.files import complete_file

FILE = "checkpoint.safetensors"


def write_tensors(path: Path, tensors: dict[str, Tensor], note: dict[str, Any]) -> None:
    """Write tensors and a note; a reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with complete_file(path) as ready:
        save_file(plain, ready, {"unskew": json.dumps(note)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the note of a file."""
    with path.open("rb") as file:  # 8 bytes of length, then a JSON header that holds the metadata
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return load_file(path), json.loads(header["__metadata__"]["unskew"])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors."""
    return {
        f"{key}.{name}": torch.as_tensor(value)
        for key, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put the state back where `optimizer_tensors` took it from."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        key, slot = name.split(".", 1)
        state.setdefault(int(key), {})[slot] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
