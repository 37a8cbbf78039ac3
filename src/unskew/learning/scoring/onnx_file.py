"""ONNX graphs of a model folder, and the tokens that they take; looked at before anything runs them; no torch.

    model.onnx           `features` float32 [n, D], as `Scorer.prepared` gives them -> `outputs` float32 [n, O]
    text/encoder.onnx    `codes` int64 [n, L] of tokens, -1 where padded -> `outputs` float32 [n, H]

A graph is data: its nodes are of the kinds given alone, with no graph inside a node, no function, no other domain,
no data in other files, and of every weight as many bytes as its shape says. Encoders have nodes that make numbers
of a shape, so all graphs of a process share an arena that may take half of the machine's memory and no more.

Texts become tokens as `text/reading.json` beside the tokenizer says.

Legend: n documents or texts, D features, O outputs, L tokens, H width of an encoder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from unskew.errors import DataError, first_line, optional
from unskew.files import read_json
from unskew.settings import Config
from unskew.types import Array

OPSET = 17
"""Version that runtimes of 2022 and later read."""
GRAPH, ENCODER = "model.onnx", "text/encoder.onnx"
INPUT, CODES, OUTPUT = "features", "codes", "outputs"
_LAYERS = "Concat Constant Elu Gemm Identity LayerNormalization LeakyRelu Relu Sigmoid Slice Tanh"
_TENSORS = """
Abs Add And Cast Ceil Clip ConstantOfShape CumSum Div Equal Erf Exp Expand Flatten Gather GatherElements Greater
GreaterOrEqual IsNaN Less LessOrEqual Log MatMul Max Min Mod Mul Neg Not Or Pow Range ReduceMean ReduceSum Reshape
Shape Sign Softmax Softplus Split Sqrt Squeeze Sub Tile Transpose Unsqueeze Where
"""
NETWORK = frozenset(_LAYERS.split())
"""Nodes of networks of numbers."""
READER = NETWORK | frozenset(_TENSORS.split())
"""Nodes of encoders; none of them loops or reads a file."""
MOST_NODES = 20_000
LARGEST = 2**30
"""Bytes of a graph that are written and read."""
BYTES = {1: 4, 6: 4, 7: 8, 9: 1}
"""Of each number of a weight, by its type as ONNX counts them: float, int32, int64, bool."""
NUMBERS, TENSOR = (1, 2, 7), 4
"""Attributes of nodes, as ONNX counts them: a float, an int, ints; and a weight."""
TOKENIZER, READING = "tokenizer.json", "reading.json"
MOST_TOKENS = 100_000
AT_ONCE = 16_384
"""Tokens encoded at once."""
LARGEST_TOKENIZER = 2**28
"""Bytes of a tokenizer that are read."""
Run = Callable[[Mapping[str, Array]], list[Array]]


def available() -> bool:
    """Whether graphs can be written and run here."""
    return find_spec("onnx") is not None and find_spec("onnxruntime") is not None


def checked_model(content: bytes, given: str, kinds: frozenset[str]) -> Any:
    """The model in a file, if its graph goes from one input to OUTPUT by nodes of these kinds."""
    try:
        model = optional("onnx", "serve").load_model_from_string(content)
    except Exception as error:  # of protobuf, which has several
        raise DataError(f"not an ONNX graph: {str(error)[:200]}") from error
    graph = model.graph
    if [each.domain for each in model.opset_import] != [""] or len(model.functions) or len(model.training_info):
        raise DataError("the graph has functions, or nodes that are not ONNX's own")
    if [each.name for each in graph.input] != [given] or [each.name for each in graph.output] != [OUTPUT]:
        raise DataError(f"the graph does not go from {given} to {OUTPUT}")
    if len(graph.node) > MOST_NODES or len(graph.sparse_initializer):
        raise DataError(f"the graph has more than {MOST_NODES:,} nodes, or weights that are sparse")
    for node in graph.node:
        if node.op_type not in kinds or node.domain:
            raise DataError(f"the graph has a node {node.domain}{' ' if node.domain else ''}{node.op_type[:40]}")
        for each in node.attribute:
            if each.type == TENSOR and node.op_type in ("Constant", "ConstantOfShape"):
                _check_weight(each.t)
            elif each.type not in NUMBERS:
                raise DataError(f"the graph has a node {node.op_type} with an attribute that is no number")
    for weight in graph.initializer:
        _check_weight(weight)
    return model


def _check_weight(weight: Any) -> None:
    """Refuse numbers that lie elsewhere, or are not as many as is said."""
    if weight.data_location or len(weight.external_data):
        raise DataError(f"the numbers of {weight.name[:40]} are in another file")
    size = BYTES.get(weight.data_type)
    if size is None or any(each < 0 for each in weight.dims):
        raise DataError(f"{weight.name[:40]} has numbers of another type")
    if math.prod(weight.dims) * size != len(weight.raw_data):
        raise DataError(f"{weight.name[:40]} has another shape than numbers")


def opened(content: bytes, outputs: Sequence[str] = (OUTPUT,), threads: int = 1) -> Run:
    """A graph that was checked, as a function from its inputs by name to some of its values."""
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.use_env_allocators", "1")
    folding = ["ConstantFolding"]  # it would make numbers of a shape outside of the arena
    try:
        session = runtime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"], disabled_optimizers=folding
        )
    except Exception as error:  # its errors have no common base
        raise DataError(f"not a graph: {first_line(error)[:200]}") from error
    names = [*outputs]

    def run(given: Mapping[str, Array]) -> list[Array]:
        try:
            return list(session.run(names, dict(given)))
        except Exception as error:
            raise DataError(f"the graph cannot be run: {first_line(error)[:200]}") from error

    return run


def read_graph(path: Path, given: str, kinds: frozenset[str], threads: int) -> tuple[Any, Run]:
    """The model in a file of a folder that may come from anywhere, and what runs it."""
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path.name} has more than {LARGEST:,} bytes")
    content = path.read_bytes()
    try:
        return checked_model(content, given, kinds), opened(content, threads=threads)
    except DataError as error:
        raise DataError(f"{path.name} is not one that unskew wrote: {error}") from error


@cache
def _runtime() -> Any:
    """onnxruntime, which takes at most half of the memory for all that it runs in this process."""
    runtime = optional("onnxruntime", "serve")
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    usual = {"arena_extend_strategy": -1, "initial_chunk_size_bytes": -1, "max_dead_bytes_per_chunk": -1}
    place = runtime.OrtMemoryInfo(
        "Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT
    )
    runtime.create_and_register_allocator(place, runtime.OrtArenaCfg({"max_mem": most, **usual}))
    return runtime


# ---- texts ----


class TextInputs(Config):
    """How texts become the inputs of an encoder's graph."""

    longest: int = Field(ge=1, le=MOST_TOKENS)
    """Most tokens of a query with its document."""
    types: bool
    """Whether query and document have types of their own."""
    left: bool = False
    """Whether texts that are too long are cut at their start."""

    @classmethod
    def read(cls, folder: Path) -> TextInputs:
        """As the folder of the tokenizer says."""
        return cls(**read_json(folder / READING))

    def tokenizer(self, folder: Path) -> Any:
        """The tokenizer of the folder, which cuts as training did."""
        path = folder / TOKENIZER
        if path.stat().st_size > LARGEST_TOKENIZER:
            raise DataError(f"{TOKENIZER} has more than {LARGEST_TOKENIZER:,} bytes")
        try:
            found = optional("tokenizers", "serve").Tokenizer.from_file(str(path))
        except OSError:
            raise
        except Exception as error:  # the package raises no other kind
            raise DataError(f"{TOKENIZER} is no tokenizer: {str(error)[:200]}") from error
        found.no_padding()
        direction = "left" if self.left else "right"
        found.enable_truncation(self.longest, strategy="longest_first", direction=direction)
        return found

    def codes(self, tokenizer: Any, queries: Array, documents: Array) -> list[Array]:
        """2 i + s of the tokens of each document with its query: i the number, s = 1 in the document."""
        made = tokenizer.encode_batch(list(zip(queries.tolist(), documents.tolist(), strict=True)))
        return [2 * np.array(one.ids, np.int64) + np.array(one.type_ids, np.int64) * self.types for one in made]

    def vectors(self, codes: list[Array], width: int, graph: Callable[[Array], Array]) -> Array:
        """h of each text, [n, H]: those of about equal length go through the graph together."""
        found = np.zeros((len(codes), width), np.float32)
        order = sorted(range(len(codes)), key=lambda at: len(codes[at]))
        while order:
            count = max(min(AT_ONCE // max(len(codes[order[-1]]), 1), len(order)), 1)  # the longest go first
            part, order = order[-count:], order[:-count]
            padded = np.full((count, max(len(codes[part[-1]]), 1)), -1, np.int64)
            for row, at in enumerate(part):
                padded[row, : len(codes[at])] = codes[at]
            found[part] = graph(padded)
        return found
