"""Files of a model are data: a hostile folder ends in an error that names it, and nothing of it is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

import unskew
from unskew.errors import RunError
from unskew.files import read_json, write_manifest
from unskew.learning.methods import METHODS, Context
from unskew.learning.rankers import MLP
from unskew.learning.scoring.model import build
from unskew.learning.scoring.scorer import MODEL
from unskew.serving.scoring.models import Served
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Lists

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=4, features=4, documents=(3, 5), seed=1)


@pytest.fixture
def folder(lists: Lists, tmp_path: Path) -> Path:
    """A model of vectorization, which has settings that are read when it is served."""
    torch.manual_seed(0)
    config = METHODS["vectorization"](name="vectorization")
    build(config, MLP(sizes=(3,)), fit_scaler("standard", lists), lists.dim, Context(positions=4)).save(
        tmp_path / "model"
    )
    return tmp_path / "model"


def told(folder: Path, **changes: Any) -> None:
    """Change model.json, and let it name the files as they are now, as who forges one would."""
    about = read_json(folder / "model.json") | changes
    write_manifest(folder / "model.json", about, () if "files" in changes else MODEL.files(folder))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(RunError) as error:
        Served.load(folder)
    assert str(folder) in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_folder_as_it_was_written_is_served(folder: Path) -> None:
    assert Served.load(folder).engine == "onnxruntime"


# ---- graphs


def looped(graph: Any) -> None:
    inner = helper.make_graph([], "inner", [], [])
    graph.node.insert(0, helper.make_node("Loop", [], ["never"], body=inner))


def of_another_domain(graph: Any) -> None:
    graph.node.insert(0, helper.make_node("Gemm", ["features"], ["never"], domain="com.example"))


def unknown(graph: Any) -> None:
    graph.node.insert(0, helper.make_node("Loader", ["features"], ["never"]))


def with_a_graph_inside(graph: Any) -> None:
    graph.node[0].attribute.append(helper.make_attribute("body", helper.make_graph([], "inner", [], [])))


def elsewhere(graph: Any) -> None:
    weight = graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../secret")


def huge(graph: Any) -> None:
    graph.initializer[0].dims[:] = [2**31, 2**31]


def short(graph: Any) -> None:
    graph.initializer[0].raw_data = graph.initializer[0].raw_data[:-4]


def of_texts(graph: Any) -> None:
    graph.initializer[0].CopyFrom(helper.make_tensor("weight_0", TensorProto.STRING, [1], [b"a"]))


def otherwise_called(graph: Any) -> None:
    graph.input[0].name = "stuff"


def other_numbers(graph: Any) -> None:
    for weight in graph.initializer:
        if weight.data_type == TensorProto.FLOAT:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) + 1, weight.name))


def of_other_shapes(graph: Any) -> None:
    graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((7, 7), np.float32), "weight_0"))


GRAPHS: dict[str, tuple[Callable[[Any], None], str]] = {
    "a loop": (looped, "a node Loop"),
    "a domain": (of_another_domain, "a node com.example Gemm"),
    "an unknown node": (unknown, "a node Loader"),
    "a graph inside": (with_a_graph_inside, "an attribute that is no number"),
    "another file": (elsewhere, "are in another file"),
    "a huge shape": (huge, "another shape than numbers"),
    "too few bytes": (short, "another shape than numbers"),
    "texts": (of_texts, "numbers of another type"),
    "an input": (otherwise_called, "does not go from features to outputs"),
    "other widths": (of_other_shapes, "model.onnx"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_is_not_ours_is_refused(name: str, folder: Path) -> None:
    change, words = GRAPHS[name]
    model = onnx.load(folder / "model.onnx")
    change(model.graph)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    told(folder)
    refused(folder, "model.onnx", words)


def test_a_graph_of_other_weights_is_not_the_one_that_was_saved(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    other_numbers(model.graph)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    refused(folder, "model.onnx: damaged, it is not what was written")


def with_a_node(name: str, graph: Any) -> None:
    graph.node.insert(0, helper.make_node(name, ["features"], ["never"]))


@pytest.mark.parametrize("name", ["Expand", "Tile", "ConstantOfShape", "Range", "Cast", "Loop", "If", "Scan"])
def test_a_network_of_numbers_makes_no_numbers_of_its_own(name: str, folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    with_a_node(name, model.graph)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    told(folder)
    refused(folder, f"a node {name}")


def test_no_graph_takes_more_than_half_of_the_memory(tmp_path: Path) -> None:
    """Encoders may make numbers of a shape; too many are an error, here of a machine that has 256 MiB."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [2**27 * 3 // 2 // 4])
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["outputs"], keepdims=0),
    ]
    given = [helper.make_tensor_value_info("codes", TensorProto.INT64, ["n"])]
    made = [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "bomb", given, made, [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "bomb.onnx").write_bytes(model.SerializeToString())
    code = (
        "import os, pathlib, sys, numpy as np\n"
        "os.sysconf = {'SC_PHYS_PAGES': 2**16, 'SC_PAGE_SIZE': 2**12}.get\n"
        "from unskew.learning.scoring.onnx_file import opened\n"
        "opened(pathlib.Path(sys.argv[1]).read_bytes())({'codes': np.zeros(1, np.int64)})"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "bomb.onnx"], capture_output=True, text=True)
    assert "DataError" in done.stderr, done.stderr


def test_functions_and_nonsense_are_refused(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    told(folder)
    refused(folder, "functions, or nodes that are not ONNX's own")
    (folder / "model.onnx").write_bytes(b"\xff" * 100)
    told(folder)
    refused(folder, "not an ONNX graph")


# ---- model.json, weights and links

CARDS: dict[str, dict[str, Any]] = {
    "a path above": {"files": {"text/../../secret": "0" * 64}},
    "an absolute path": {"files": {"/etc/passwd": "0" * 64}},
    "a file of another kind": {"files": {"run.toml": "0" * 64}},
    "a file that is not there": {"files": {"trees_9.txt": "0" * 64}},
    "huge features": {"features": 10**12},
    "other features": {"features": 5},
    "no ranker": {"ranker": None},
    "a ranker of another kind": {"ranker": {"name": "os.system"}},
    "a ranker that is a text": {"ranker": "mlp"},
    "a method that is none": {"method": {"name": "exec"}},
    "a method that is a list": {"method": []},
    "a huge dimension": {"method": {"name": "vectorization", "dimension": 10**30}},
    "a dimension without end": {"method": {"name": "vectorization", "dimension": 1e999}},
    "a scaling of another kind": {"scaling": "__import__"},
    "trees of another kind": {"trees": "pickle"},
    "positions without end": {"positions": 10**30},
}


@pytest.mark.parametrize("name", CARDS)
def test_a_card_that_lies_is_refused(name: str, folder: Path) -> None:
    told(folder, **CARDS[name])
    refused(folder)


def with_weights(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    numbers = load_file(folder / "weights.safetensors")
    change(numbers)
    save_file(numbers, folder / "weights.safetensors")
    told(folder)


def test_weights_that_do_not_fit_are_refused(folder: Path) -> None:
    whole = (folder / "weights.safetensors").read_bytes()
    with_weights(folder, lambda numbers: numbers.pop("method.ready"))
    refused(folder, "'method.ready' is missing")
    (folder / "weights.safetensors").write_bytes(whole)
    with_weights(folder, lambda numbers: numbers.update({"scaler.shift": np.ones(9), "scaler.scale": np.ones(9)}))
    refused(folder)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}).encode()
    (folder / "weights.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    told(folder)
    refused(folder)


@pytest.mark.parametrize("name", ["weights.safetensors", "model.onnx", "model.json", "trees_0.txt", "text"])
def test_a_link_out_of_the_folder_is_refused(name: str, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    if name == "text":
        outside.mkdir()
        (outside / "secret").write_text("secret")
    elif (folder / name).exists():
        (folder / name).rename(outside)
    else:
        outside.write_text("secret")
    (folder / name).symlink_to(outside)
    refused(folder, "is a link out of the folder")


def test_a_link_within_the_folder_and_to_it_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "model.onnx").rename(folder / "kept")
    (folder / "model.onnx").symlink_to("kept")
    (tmp_path / "current").symlink_to(folder)
    assert Served.load(tmp_path / "current").engine == "onnxruntime"


def test_a_pipe_is_no_file(folder: Path) -> None:
    (folder / "model.onnx").unlink()
    os.mkfifo(folder / "model.onnx")
    refused(folder, "model.onnx is no file")


@pytest.mark.parametrize("load", [Served.load, unskew.load], ids=["to serve", "with torch"])
def test_a_header_of_a_million_tensors_is_refused_before_it_is_parsed(
    folder: Path, load: Callable[[Path], Any]
) -> None:
    empty = b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % each for each in range(90_000))
    header = b"{" + empty + b"}"
    (folder / "weights.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    told(folder)
    with pytest.raises(RunError, match=r"weights\.safetensors: a header of 5,\d+,\d+ bytes, at most 4,194,304"):
        load(folder)
