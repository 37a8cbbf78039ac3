"""Networks and encoders as ONNX graphs, by torch's own exporter: whoever serves them needs no torch.

A graph is run there and then on documents of training, more than it was traced with, and must say what torch says:
no output may differ by more than TOLERANCE times the spread of outputs, and rounding. One that differs, or that
cannot be written, is left out: the model is saved without it, with a warning and the reason.

Legend: n documents, D features, O outputs, L tokens, H width of an encoder.
"""

import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from unskew.errors import RunError, first_line
from unskew.files import complete_file, write_json
from unskew.learning.rankers.networks import WithSide
from unskew.learning.rankers.text_rankers import FOLDER, TextEncoder, TextTower, encoders
from unskew.learning.rankers.trees import tree_rankers
from unskew.learning.scoring import onnx_file as onnx
from unskew.types import Array

TOLERANCE = 1e-5
"""Largest difference from torch, in spreads of the outputs."""
ROUNDING = 1e-6
"""What is allowed besides, times the largest output: sums of 32-bit floats depend on their order."""
CHECKED, READ = 256, 16
"""Documents, and texts, that a graph is tried on."""
SAID = (
    ("red shoes", "a pair of red shoes"),
    ("Ünïcode ＡＢＣ", "中文 😀 naïve x" + "\N{COMBINING ACUTE ACCENT}"),
    ("", "wing lift drag " * 300),
    ("query " * 300, ""),
)
"""Queries and documents that a tokenizer is tried on."""


def write_graphs(ranker: nn.Module, features: int, sample: Array | None, folder: Path) -> str | None:
    """Write the graphs that serving runs in the place of a ranker; else why there are none.

    `sample` are prepared documents of training, else some are drawn. The files of a tokenizer lie in the folder.
    """
    network = ranker
    for name in (onnx.GRAPH, onnx.ENCODER):
        (folder / name).unlink(missing_ok=True)
    if tree_rankers(ranker):
        if not (sides := [*_sides(ranker)]):
            return "trees are served by their own package"
        network = sides[0] if len(sides) == 1 else WithSide(*sides)
    if not onnx.available():
        return "the packages onnx and onnxruntime were absent; run: pip install 'unskew[serve]'"
    rows = None if sample is None or not len(sample) else sample[:CHECKED]
    for encoder in encoders(ranker):
        codes = drawn_codes(encoder) if rows is None else rows[:READ, features:].astype(np.int64)
        if (reason := _write_encoder(encoder, codes, folder)) is not None:
            return reason
        network, rows, features = OnVectors(ranker), None, features + encoder.width
    if rows is None:
        rows = np.random.default_rng(0).normal(size=(CHECKED, features))
    return _write(network, np.ascontiguousarray(rows, np.float32), onnx.INPUT, folder / onnx.GRAPH)


def _write_encoder(encoder: TextEncoder, codes: Array, folder: Path) -> str | None:
    """Write the graph of an encoder, tried on codes [n, L], and how its tokenizer reads; else why not."""
    if encoder.config.bfloat16:
        return "it encodes in 16 bits; learn with ranker.bfloat16 = false to serve it"
    if (size := 4 * sum(weight.numel() for weight in encoder.parameters())) > onnx.LARGEST:
        return f"its encoder has {size:,} bytes, and a graph at most {onnx.LARGEST:,}; score with `unskew predict`"
    if not (folder / FOLDER / onnx.TOKENIZER).exists():
        return "its tokenizer has no tokenizer.json; learn with a fast one to serve it"
    own = encoder.tokenizer
    types, left = "token_type_ids" in own.model_input_names, own.truncation_side == "left"
    reading = onnx.TextInputs(longest=encoder.longest, types=types, left=left)
    try:
        _check_tokens(encoder, reading, folder / FOLDER)
    except Exception as error:  # whatever the packages raise, which share no base
        return told_of(onnx.ENCODER, error)
    write_json(folder / FOLDER / onnx.READING, reading.model_dump())
    return _write(Encode(encoder), codes, onnx.CODES, folder / onnx.ENCODER)


def _write(network: nn.Module, rows: Array, given: str, path: Path) -> str | None:
    """Write the graph of a module to a file, once it was tried on rows; else why not.

    A model that took hours to learn is not lost for a second copy of it, so trouble is told and not raised.
    """
    try:
        model = graph_of(network, rows[:2, :4] if given == onnx.CODES else rows[:2], given)
        check_graph(model, network, rows, given)
    except Exception as error:  # whatever the packages raise, which share no base
        return told_of(path.name, error)
    with complete_file(path) as ready:
        ready.write_bytes(model)
    return None


def _sides(ranker: nn.Module) -> Iterator[nn.Module]:
    """The networks beside trees, in the order of their outputs."""
    if isinstance(ranker, WithSide):
        yield from _sides(ranker.ranker)
        yield ranker.side


class Encode(nn.Module):
    """The forward pass of an encoder, of which it remembers nothing."""

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, codes: Tensor) -> Tensor:
        """Vectors [n, H] of texts [n, L]."""
        return self.encoder.encode(codes)


class OnVectors(nn.Module):
    """A ranker that reads, of documents whose texts were read already: [x, h] in the place of [x, tokens]."""

    def __init__(self, ranker: nn.Module) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, rows: Tensor) -> Tensor:
        """Relevance outputs [n, O] of documents with these features."""
        towers = [each for each in self.ranker.modules() if isinstance(each, TextTower)]
        kept = [tower.encoder for tower in towers]
        try:
            for tower in towers:
                tower.encoder = nn.Identity()  # type: ignore[assignment]
            found: Tensor = self.ranker(rows)
        finally:
            for tower, encoder in zip(towers, kept, strict=True):
                tower.encoder = encoder
        return found


def graph_of(module: nn.Module, rows: Array, given: str = onnx.INPUT, output: str = onnx.OUTPUT) -> bytes:
    """The ONNX graph of a module with one input, traced with some rows; others may be more, and texts longer."""
    made, axes = io.BytesIO(), {0: "n"}
    module.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # it calls itself old, and warns of all that it takes for constant
        torch.onnx.export(
            module,
            (_tensor(module, rows),),
            made,  # type: ignore[arg-type]
            dynamo=False,  # the new exporter takes seconds, and a package more
            input_names=[given],
            output_names=[output],
            dynamic_axes={given: {0: "n", 1: "tokens"} if given == onnx.CODES else axes, output: axes},
            opset_version=onnx.OPSET,
        )
    return made.getvalue()


def _tensor(module: nn.Module, rows: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows)).to(next(module.parameters()).device)


@torch.no_grad()
def check_graph(model: bytes, module: nn.Module, rows: Array, given: str = onnx.INPUT) -> None:
    """Refuse a graph that does not say what a module says of these rows."""
    onnx.checked_model(model, given, onnx.READER if given == onnx.CODES else onnx.NETWORK)
    module.eval()
    expected = module(_tensor(module, rows)).cpu().float().numpy()
    (found,) = onnx.opened(model)({given: rows})
    apart = np.abs(found - expected).max(initial=0.0)
    spread, size = float(expected.std(0).max(initial=0.0)), float(np.abs(expected).max(initial=0.0))
    if not apart <= TOLERANCE * spread + ROUNDING * size:  # true of NaN too
        raise RunError(f"it differs from the model by {apart:.2g}, and outputs spread by {spread:.2g}")


def _check_tokens(encoder: TextEncoder, reading: onnx.TextInputs, folder: Path) -> None:
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
    codes: Array = 2 * drawn.integers(0, vocabulary, (READ, min(12, encoder.longest)))
    codes[::2, -3:] = -1
    return codes


def told_of(name: str, error: Exception) -> str:
    """Why there is no such file, and what to do; a warning says it too."""
    what = first_line(error)[:200]
    why = (
        f"{name} was not written: {what}. All else is saved: score with `unskew predict`, or try other versions "
        f"of torch, onnx and onnxruntime, then `unskew export RUN --to onnx`"
    )
    warnings.warn(why, stacklevel=2)
    return why
