"""Public data sets found by name in the folders that they unpack to."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from unskew.errors import ConfigError, DataError
from unskew_reproductions.formats.labelled import PRESETS, read_preset

COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def lines(label: int, queries: range, width: int) -> str:
    return "".join(f"{label} qid:{query} 1:0.5 {width}:1 #docid = D{query}\n" for query in queries)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("yahoo-set1", ""),
        ("yahoo-set2", ""),
        ("istella", "istella-letor/full"),
        ("istella-s", "istella-s-letor/sample"),
        ("mslr-web10k", "MSLR-WEB10K/Fold1"),
        ("mslr-web30k", "Fold1"),
        ("mq2007", "Fold1"),
        ("mq2008", "MQ2008/Fold1"),
    ],
)
def test_presets_find_their_files(tmp_path: Path, name: str, folder: str) -> None:
    preset = PRESETS[name]
    for label, file in enumerate(preset.files):
        write(tmp_path / folder / file, lines(label, range(3), 2))
    splits = read_preset(name, tmp_path, cache=False)
    assert [split.labels.tolist() for split in splits] == [[0] * 3, [1] * 3, [2] * 3]
    assert {split.dim for split in splits} == {preset.features}
    assert splits.validation.name == f"{name}-validation"


@pytest.mark.parametrize("end", ["", ".gz"])
def test_partitions_in_a_circle(tmp_path: Path, end: str) -> None:
    for part in range(1, 6):
        write(
            tmp_path / f"S{part}.txt{end}", COMPRESS.get(end, bytes)(lines(0, range(part, part + 1), 46).encode())
        )
    splits = read_preset("mq2007", tmp_path, fold=4, cache=False)
    assert [split.query_ids.tolist() for split in splits] == [[4, 5, 1], [2], [3]]
    assert splits.train.document_ids().tolist() == ["D4", "D5", "D1"]


def test_istella_without_a_validation_file(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", lines(0, range(20), 220))
    write(tmp_path / "test.txt", lines(1, range(3), 220))
    train, validation, test = read_preset("istella", tmp_path)
    assert train.query_ids.tolist() == list(range(18))
    assert validation.query_ids.tolist() == [18, 19]
    assert validation.offsets.tolist() == [0, 1, 2]
    assert len(validation.features) == 2
    assert len(test) == 3


def test_presets_say_what_they_looked_for(tmp_path: Path) -> None:
    write(tmp_path / "Fold2" / "train.txt", lines(0, range(3), 46))
    with pytest.raises(DataError) as caught:
        read_preset("mq2008", tmp_path, fold=2)
    message = str(caught.value)
    for part in ("Fold2/vali.txt", "S2.txt, S3.txt, S4.txt, S5.txt, S1.txt", str(tmp_path / "MQ2008")):
        assert part in message
    with pytest.raises(ConfigError, match="folds 1 to 5, not 6"):
        read_preset("mq2008", tmp_path, fold=6)
    with pytest.raises(ConfigError, match="Did you mean istella-s"):
        read_preset("istela-s", tmp_path)


def test_mq2008(data_folder: Path) -> None:
    train, validation, test = read_preset("mq2008", data_folder / "mq2008")
    assert len(train) + len(validation) + len(test) == 784
    assert sum(len(split.features) for split in (train, validation, test)) == 15_211
    assert train.document_ids()[0] == "GX008-86-4444840"
    assert train.features[0, 10] == np.float32(0.471076)
    assert train.present is None
    relevant = sum(int((np.add.reduceat(s.labels, s.offsets[:-1]) > 0).sum()) for s in (train, validation, test))
    assert relevant == 564
