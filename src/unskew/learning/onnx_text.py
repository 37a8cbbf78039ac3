"""The encoder of a ranker that reads as an ONNX graph: from tokens (`text_inputs.py`) to the vector of each text.

    x = norm(word + place + type)          then, layer by layer,
    x = norm(x + W concat_heads(softmax(q k' / sqrt d + log mask) v))
    x = norm(x + W_2 act(W_1 x))           h = sum of x by `share`

Encoders of this shape are written: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, ERNIE and DistilBERT. Others
have attention of other kinds; they are learned, and scored with torch, and their card says so.

Legend: n texts, L tokens, H width of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from unskew.errors import RunError
from unskew.files import complete_file
from unskew.learning.onnx_file import FLOAT, INT, LARGEST, Graph, Shape, check_file
from unskew.learning.onnx_graph import add_module, check_equal, numbers, run_graph, told_of
from unskew.learning.rankers.encoder import FOLDER, TextEncoder
from unskew.learning.scoring.text_inputs import INPUTS, TOKENIZER, TextInputs
from unskew.types import Array

CHECKED = 16
"""Texts that a graph is tried on."""
NEVER = 1e9
"""Taken from what a padded token has to say."""
SAID = (
    ("red shoes", "a pair of red shoes"),
    ("Ünïcode ＡＢＣ", "中文 😀 naïve x" + "\N{COMBINING ACUTE ACCENT}"),
    ("", "wing lift drag " * 300),
    ("query " * 300, ""),
)
"""Queries and documents that a tokenizer is tried on."""
BERTS = ("BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "ElectraModel", "ErnieModel")
COUNTED = ("RobertaModel", "XLMRobertaModel", "CamembertModel")
"""Encoders whose places count tokens."""
COVERED = (*BERTS, "DistilBertModel")
ACTIVATIONS = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "relu": "relu"}


@dataclass(frozen=True)
class EncoderLayer:
    """The modules of one layer."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    out: nn.Linear
    first_norm: nn.LayerNorm
    wide: nn.Linear
    narrow: nn.Linear
    second_norm: nn.LayerNorm


def layers_of(model: Any) -> Iterator[EncoderLayer]:
    """The layers of an encoder, by the names that transformers has for them."""
    if type(model).__name__ == "DistilBertModel":
        for one in model.transformer.layer:
            own = one.attention
            parts = own.q_lin, own.k_lin, own.v_lin, own.out_lin, one.sa_layer_norm
            yield EncoderLayer(*parts, one.ffn.lin1, one.ffn.lin2, one.output_layer_norm)
        return
    for one in model.encoder.layer:
        own, after = one.attention.self, one.attention.output
        parts = own.query, own.key, own.value, after.dense, after.LayerNorm
        yield EncoderLayer(*parts, one.intermediate.dense, one.output.dense, one.output.LayerNorm)


def why_not(encoder: TextEncoder) -> str | None:
    """Why an encoder has no graph; None where it has one."""
    model: Any = encoder.model
    config, name = model.config, type(model).__name__
    if name not in COVERED:
        return f"encoders {name} are not written as graphs, {', '.join(COVERED)} are; score with `unskew predict`"
    relative = getattr(config, "position_embedding_type", "absolute") != "absolute"
    if relative or getattr(config, "is_decoder", False):
        return f"its encoder {name} has places that are relative, or is a decoder; score with `unskew predict`"
    if activation_of(config) not in ACTIVATIONS:
        return f"its encoder has the activation {activation_of(config)}; score with `unskew predict`"
    if encoder.config.bfloat16:
        return "it encodes in 16 bits; learn with ranker.bfloat16 = false to serve it"
    if (size := 4 * sum(weight.numel() for weight in model.parameters())) > LARGEST:
        return f"its encoder has {size:,} bytes, and a graph at most {LARGEST:,}; score with `unskew predict`"
    return None


def activation_of(config: Any) -> str:
    """What stands between the two layers of a feed-forward part."""
    return str(getattr(config, "hidden_act", None) or config.activation)


def graph_of_text(model: Any) -> bytes:
    """The graph of an encoder."""
    graph, config = Graph(), model.config
    heads = int(config.num_attention_heads)
    value = _embedded(graph, model)
    mask = graph.node("Reshape", "mask", _whole(graph, 0, 1, 1, -1))
    mask = graph.node("Mul", graph.node("Add", mask, _number(graph, -1.0)), _number(graph, NEVER))
    for layer in layers_of(model):
        value = _layer(graph, layer, value, mask, heads, activation_of(config))
    share = graph.node("Reshape", "share", _whole(graph, 0, 1, -1))
    width = int(config.hidden_size)
    vector = graph.node("Reshape", graph.node("MatMul", share, value), _whole(graph, 0, width))
    shape: Shape = ["n", "tokens"]
    inputs = {name: (FLOAT if name in ("mask", "share") else INT, shape) for name in INPUTS}
    return graph.file("encoder", inputs, vector, width)


def _embedded(graph: Graph, model: Any) -> str:
    """What goes into the first layer."""
    own = model.embeddings
    value = graph.node("Gather", graph.weight(numbers(own.word_embeddings.weight)), "ids")
    parts = {"position_embeddings": "places", "token_type_embeddings": "types"}
    for name, given in parts.items():
        if getattr(own, name, None) is not None:
            table = graph.weight(numbers(getattr(own, name).weight))
            value = graph.node("Add", value, graph.node("Gather", table, given))
    if getattr(own, "use_task_id", False):
        value = graph.node("Add", value, graph.weight(numbers(own.task_type_embeddings.weight[0])))
    value = add_module(graph, own.LayerNorm, value)
    projection = getattr(model, "embeddings_project", None)
    return value if projection is None else _linear(graph, projection, value)


def _layer(graph: Graph, layer: EncoderLayer, value: str, mask: str, heads: int, activation: str) -> str:
    """Attention, then the feed-forward part."""
    width = layer.query.out_features
    split = _whole(graph, 0, 0, heads, width // heads)

    def by_head(part: nn.Linear, perm: list[int]) -> str:
        return graph.node("Transpose", graph.node("Reshape", _linear(graph, part, value), split), perm=perm)

    query, content = by_head(layer.query, [0, 2, 1, 3]), by_head(layer.value, [0, 2, 1, 3])
    said = graph.node("MatMul", query, by_head(layer.key, [0, 2, 3, 1]))  # [n, heads, L, L]
    said = graph.node("Mul", said, _number(graph, 1 / math.sqrt(width // heads)))
    heard = graph.node("MatMul", graph.node("Softmax", graph.node("Add", said, mask), axis=-1), content)
    heard = graph.node("Transpose", heard, perm=[0, 2, 1, 3])
    heard = _linear(graph, layer.out, graph.node("Reshape", heard, _whole(graph, 0, 0, width)))
    value = add_module(graph, layer.first_norm, graph.node("Add", value, heard))
    wide = _activated(graph, _linear(graph, layer.wide, value), ACTIVATIONS[activation])
    return add_module(graph, layer.second_norm, graph.node("Add", value, _linear(graph, layer.narrow, wide)))


def _linear(graph: Graph, module: nn.Linear, value: str) -> str:
    """x W' + b of the last axis."""
    made = graph.node("MatMul", value, graph.weight(numbers(module.weight).T))
    return graph.node("Add", made, graph.weight(numbers(module.bias)))


def _activated(graph: Graph, value: str, kind: str) -> str:
    """GELU, exact or as a tanh has it, or ReLU."""
    if kind == "relu":
        return graph.node("Relu", value)
    if kind == "erf":
        inner = graph.node("Erf", graph.node("Mul", value, _number(graph, math.sqrt(0.5))))
    else:
        cube = graph.node("Mul", graph.node("Mul", value, value), value)
        cube = graph.node("Add", value, graph.node("Mul", cube, _number(graph, 0.044715)))
        inner = graph.node("Tanh", graph.node("Mul", cube, _number(graph, math.sqrt(2 / math.pi))))
    half = graph.node("Mul", value, _number(graph, 0.5))
    return graph.node("Mul", half, graph.node("Add", inner, _number(graph, 1.0)))


def _number(graph: Graph, value: float) -> str:
    return graph.weight(np.array(value, np.float32))


def _whole(graph: Graph, *values: int) -> str:
    return graph.weight(np.array(values, np.int64))


def inputs_of(encoder: TextEncoder) -> TextInputs:
    """How an encoder reads, for who has no torch."""
    own = encoder.tokenizer
    return TextInputs(
        longest=encoder.longest,
        pad=int(own.pad_token_id or 0),
        types="token_type_ids" in own.model_input_names,
        counted=type(encoder.model).__name__ in COUNTED,
        mean=encoder.config.pooling == "mean",
        left=own.truncation_side == "left",
    )


def write_text_graph(encoder: TextEncoder, codes: Array, folder: Path, name: str) -> str | None:
    """Write the graph of an encoder, once it was tried on codes [n, L] and its tokenizer on texts; else why not.

    What transformers wrote of the tokenizer lies in the folder already.
    """
    if (reason := why_not(encoder)) is not None:
        return reason
    if not (folder / FOLDER / TOKENIZER).exists():
        return "its tokenizer has no tokenizer.json; learn with a fast one to serve it"
    reading = inputs_of(encoder)
    try:
        model = graph_of_text(encoder.model)
        check_file(model, INPUTS)
        _check_vectors(encoder, reading, codes[:CHECKED], model)
        _check_tokens(encoder, reading, folder / FOLDER)
    except Exception as error:  # whatever the packages raise, which share no base
        return told_of(name, error)
    reading.write(folder / FOLDER)
    with complete_file(folder / name) as ready:
        ready.write_bytes(model)
    return None


@torch.no_grad()
def _check_vectors(encoder: TextEncoder, reading: TextInputs, codes: Array, model: bytes) -> None:
    """Refuse a graph whose vectors are not those of torch."""
    encoder.eval()
    device = next(encoder.parameters()).device
    expected = numbers(encoder.encode(torch.from_numpy(codes.astype(np.int64)).to(device)))
    check_equal(run_graph(model, reading.inputs(codes.astype(np.int64))), expected)


def _check_tokens(encoder: TextEncoder, reading: TextInputs, folder: Path) -> None:
    """Refuse a tokenizer that reads otherwise than the one of training."""
    queries, documents = (np.array(each, object) for each in zip(*SAID, strict=True))
    expected, sizes = encoder.codes(queries, documents)
    found = reading.codes(reading.tokenizer(folder), queries, documents)
    if [len(each) for each in found] != sizes.tolist() or not np.array_equal(np.concatenate(found), expected):
        raise RunError("the tokenizer reads otherwise without transformers than with it")


def drawn_codes(encoder: TextEncoder) -> Array:
    """Codes [n, L] of texts without sense, some padded, to try a graph on where there are no documents."""
    drawn = np.random.default_rng(0)
    vocabulary = int(encoder.model.config.vocab_size)  # type: ignore[union-attr,arg-type]
    codes = 2 * drawn.integers(0, vocabulary, (CHECKED, min(12, encoder.longest)))
    codes[::2, -3:] = -1
    return codes
