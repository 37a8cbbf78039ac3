"""The log of a small shop that comes with the examples is what its script makes, and has the bias that it says."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "shop"


def shop_module() -> ModuleType:
    """The script of the example, as a module."""
    spec = importlib.util.spec_from_file_location("make_shop", EXAMPLE / "make_shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_shop"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_the_files_are_what_the_script_makes(tmp_path: Path) -> None:
    made = shop_module()
    made.write_shop(made.make_shop(), tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["log.csv.gz", "matches.csv", "products.csv", "queries.csv"]
    for name in names:
        assert content(tmp_path / name) == content(EXAMPLE / name), name
    assert sum((EXAMPLE / name).stat().st_size for name in names) < 600_000


def test_people_look_as_far_as_the_script_says() -> None:
    made = shop_module()
    shop = made.make_shop(5)
    ranks = {device: np.zeros((made.PAGE, 2)) for device in made.STEEPNESS}
    for page in made.visits(shop, 12_000, 5):
        if page[0].shuffled:
            for row in page[: made.PAGE]:
                ranks[row.device][row.rank] += 1, row.clicked
    for device, steepness in made.STEEPNESS.items():
        shown, clicks = ranks[device].T
        rate = clicks / shown
        wanted = 1 / np.arange(1, 6) ** steepness
        np.testing.assert_allclose(rate[:5] / rate[0], wanted, atol=4 / np.sqrt(clicks[0]))


@pytest.mark.parametrize("name", ["products.csv", "queries.csv", "matches.csv", "log.csv.gz"])
def test_what_people_want_is_in_no_file(name: str) -> None:
    assert b"grade" not in content(EXAMPLE / name)
