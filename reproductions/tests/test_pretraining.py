"""Masked-language training of an encoder on the texts that it will rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_bert import WORDS, write_tiny

from unskew.learning.rankers.text_rankers import CrossEncoder, open_encoder
from unskew.types import Lists, ListTexts
from unskew_reproductions.experiments.pretraining import masked, pretrain


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def test_masks_are_drawn_as_published() -> None:
    ids = torch.randint(5, 1000, (200, 100), generator=torch.Generator().manual_seed(1))
    special = torch.zeros_like(ids, dtype=torch.bool)
    special[:, 0] = True
    hidden, labels = masked(ids, special, 4, 1000, torch.Generator().manual_seed(2))
    chosen = labels != -100
    assert not chosen[:, 0].any()
    assert torch.equal(labels[chosen], ids[chosen])
    assert torch.equal(hidden[~chosen], ids[~chosen])
    assert chosen[:, 1:].float().mean().item() == pytest.approx(0.15, abs=0.01)
    assert (hidden[chosen] == 4).float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert (hidden[chosen] == ids[chosen]).float().mean().item() == pytest.approx(0.1, abs=0.02)


def test_pretraining_learns_the_language(tiny: str) -> None:
    """Words that always come in pairs: the hidden one can be told from its neighbour."""
    rng = np.random.default_rng(0)
    pairs = [WORDS[2 * at : 2 * at + 2] for at in range(5)]
    said = np.array([" ".join(pairs[k][0:2] * 2) for k in rng.integers(5, size=64)], object)
    lists = Lists(
        np.zeros((64, 0)),
        np.array([0, 64]),
        np.zeros(64, np.int16),
        np.array([0]),
        texts=ListTexts(np.array([""], object), said),
    )
    torch.manual_seed(0)
    encoder = open_encoder(CrossEncoder(model=tiny, scratch=True)).eval()
    start = {name: weight.clone() for name, weight in encoder.model.state_dict().items()}
    told: list[int] = []
    losses = pretrain(
        encoder,
        encoder.read(lists, lists.features),
        steps=120,
        rate=0.01,
        batch=16,
        seed=0,
        told=lambda step, loss, rate: told.append(step),
    )
    assert told == list(range(1, 121))
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:10])
    assert any(not torch.equal(start[name], weight) for name, weight in encoder.model.state_dict().items())
