"""A BERT with two layers of width 16 and a vocabulary of ten words, made here."""

from pathlib import Path

import pytest
import torch

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["wing", "drag", "lift", "heat", "flow", "shock", "plate", "jet", "noise", "fuel"]


def write_tiny(folder: Path) -> str:
    """Its folder, as a ranker's `model` names it."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)
