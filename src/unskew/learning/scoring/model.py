"""A trained model of ours: a ranker with its method, scored, saved and loaded through torch.

Legend: n documents, D features.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from unskew.errors import ConfigError, Key, Option
from unskew.files import tensors_at
from unskew.learning.boosters import Forest
from unskew.learning.curves import Curve
from unskew.learning.methods import METHODS, Context, MethodConfig, MethodModule, found_as
from unskew.learning.rankers import RANKERS, Ranker, Trees
from unskew.learning.rankers.networks import MLP, Linear, WithSide, network
from unskew.learning.rankers.text_rankers import CrossEncoder, TextRanker, TextTower, encoders
from unskew.learning.rankers.trees import TreeRanker, tree_rankers
from unskew.learning.scoring.combination import Combination
from unskew.learning.scoring.onnx_graph import write_graphs
from unskew.learning.scoring.scorer import LINEAR, Card, Scorer, below, load_scorer, readable, unchanged
from unskew.logs.presentation import Presentation
from unskew.settings import table_of
from unskew.tables.lists.inputs import Tokens, Vectors, as_tensor
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists


@dataclass
class Model(Scorer):
    """A ranker with its method and its feature scaling."""

    method_config: MethodConfig
    scaler: Scaler
    ranker: nn.Module
    method: MethodModule
    card: Card
    presentation: Presentation
    sample: Array | None = None
    """Some documents of training, prepared [n, D], that the ONNX graph is tried on; None: drawn ones."""

    def propensity(self) -> Array | None:
        """Examination relative to rank 1, as the method learned it; None where it has no such thing."""
        values = self.method.propensity()
        return None if values is None else np.asarray(values.detach().cpu())

    def curves(self) -> tuple[Curve, ...]:
        """All that the method learned of bias, each under its name."""
        return self.method.curves()

    @property
    def reads(self) -> bool:
        """Whether the ranker reads what queries and documents say."""
        return bool(encoders(self.ranker))

    def input(self, lists: Lists, device: str | torch.device = "cpu") -> Vectors | Tokens:
        """Documents as the ranker takes them, by row."""
        features = self.scaler.apply(self.encoded(lists)).features
        for encoder in encoders(self.ranker):
            return encoder.read(lists, features, device)
        return Vectors.of(features, device)

    def prepared(self, lists: Lists) -> Array:
        """Scaled features [n, D], and tokens after them where the ranker reads."""
        if not self.reads:
            return super().prepared(lists)
        found: Array = self.input(lists).gather(torch.arange(len(lists.features))).numpy()
        return found

    def score_prepared(self, documents: Array, sizes: Array) -> Array:
        """Scores [n] of whole lists, one after another, whose documents were prepared already."""
        relevance, where = self.relevance(documents, sizes)
        with torch.no_grad():
            flat: Array = self.method.score(relevance, where)[where].cpu().numpy()
        return flat

    @torch.no_grad()
    def relevance(self, documents: Array, sizes: Array) -> tuple[Tensor, Tensor]:
        """Relevance outputs of whole lists, padded [B, K, O], and where there is a document [B, K]."""
        self.ranker.eval()
        self.method.eval()
        device = next(self.ranker.parameters()).device
        where = torch.from_numpy(np.arange(max(int(sizes.max(initial=0)), 1)) < sizes[:, None]).to(device)
        relevance = self.ranker(as_tensor(documents, device))
        padded = relevance.new_zeros(*where.shape, relevance.shape[-1])
        padded[where] = relevance
        return padded, where

    def settle(self, lists: Lists) -> None:
        """Let the method take from a few labelled lists what it was asked to: a base vector of `vectorization`."""
        relevance, where = self.relevance(self.prepared(lists), lists.sizes)
        labels = relevance.new_zeros(where.shape)
        labels[where] = torch.from_numpy(np.asarray(lists.labels, np.float32)).to(relevance)
        with torch.no_grad():
            self.method.settle(relevance, labels, where)

    def numbers(self) -> dict[str, Array]:
        """The weights of ranker and method, and w where the score is linear in the outputs."""
        tensors = nn.ModuleDict({"ranker": self.ranker, "method": self.method}).state_dict()
        weights = self.method.score_weights()
        tensors |= {} if weights is None else {LINEAR: weights}
        return {name: value.detach().cpu().contiguous().numpy() for name, value in tensors.items()}

    def forest(self) -> Forest | None:
        """The boosted part of the ranker, where it has one."""
        for trees in tree_rankers(self.ranker):
            return trees.forest(self.method.score_weights())
        return None

    def feature_weights(self) -> Array | None:
        """Those of a linear ranker whose method has a score that is linear too."""
        ranker, outputs = self.card.ranker or {}, self.method.score_weights()
        layer = getattr(self.ranker, "0", None)
        if ranker.get("name") != "linear" or ranker.get("input_norm") or outputs is None or layer is None:
            return None
        found: Array = (outputs.detach().cpu() @ layer.weight.detach().cpu()).double().numpy()
        return found

    def write_files(self, folder: Path) -> None:
        """Write trees in the text of their package, and the tokenizer of a ranker that reads."""
        for part in (self.forest(), *encoders(self.ranker)):
            if part is not None:
                part.write(folder)

    def write_onnx(self, folder: Path) -> str | None:
        """Write the network as model.onnx, and an encoder as text/encoder.onnx; else why there is no such file."""
        return write_graphs(self.ranker, self.card.features, self.sample, folder)


def build(method: MethodConfig, ranker: Ranker, scaler: Scaler, features: int, context: Context) -> Model:
    """An untrained model, its weights drawn from torch's current random state."""
    module = method.build(context)
    tower = build_tower(ranker, features, module)
    linear = isinstance(tower, TreeRanker) and module.score_weights() is not None
    card = Card(
        method=method.model_dump(mode="json") | {"name": found_as(method)},
        ranker=ranker.model_dump(mode="json"),
        scaling=scaler.kind,
        features=features,
        positions=context.positions,
        presentation=context.presentation.to_dict(),
        trees="lightgbm" if linear else None,
    )
    return Model(method, scaler, tower, module, card, context.presentation)


def build_tower(ranker: Ranker, features: int, module: MethodModule) -> nn.Module:
    """The ranker as a method needs it: its outputs, and a second network where it wants one."""
    if isinstance(ranker, CrossEncoder) and module.input_gradient:
        what = f"{module.config.name} differentiates by features, which text is not"
        raise ConfigError(what, hint=(Option(Key("method.strength"), 0), " turns it off"))
    tower: nn.Module
    if isinstance(ranker, Trees) and module.boosted is not None:  # a network gives the other outputs
        boosted, zero = module.boosted, module.at_zero
        shifted = slice(max(zero.start - boosted, 0), max(zero.stop - boosted, 0))
        beside = network(features, (*ranker.beside, module.outputs - boosted), MLP(), shifted)
        tower = WithSide(ranker.build(features, boosted), beside)
    else:
        tower = ranker.build(features, module.outputs, module.at_zero)
    if module.side is None:
        return tower
    sizes = *module.side.sizes, module.side.width
    side = tower.side(sizes) if isinstance(tower, TextTower) else network(features, sizes, MLP(), norm=False)
    return WithSide(tower, side, later=module.side.later, penalty=module.side.penalty)


def load(folder: Path | str) -> Scorer:
    """Read a model back from a folder that `save` or a run wrote, with its click model where it has one."""
    folder = Path(folder)
    card = Card.read(folder)
    return load_scorer(folder) if card.ranker is None else load_model(folder, card)


def load_model(folder: Path, card: Card) -> Model:
    """The ranker and method in a folder."""
    with readable(folder):
        if card.ranker is None:
            raise ConfigError("there is no ranker")
        known = unchanged(folder)
        tensors = load_file(tensors_at(folder / "weights.safetensors"))
        scaling = {name: value.numpy() for name, value in below(tensors, "scaler.").items()}
        ranker = table_of("ranker", card.ranker, RANKERS)
        method = table_of("method", card.method, METHODS, MethodConfig, imports=False)
        ranker = ranker.kept_in(folder) if isinstance(ranker, TextRanker) else ranker
        scaler = Scaler.from_arrays(card.scaling, scaling)
        context = Context(positions=card.positions, presentation=Presentation.from_dict(card.presentation))
        if isinstance(ranker, MLP | Linear):  # refused before there is memory for a larger network
            widths = [card.features, *(ranker.sizes if isinstance(ranker, MLP) else (1,))]
            wanted = sum(one * other for one, other in pairwise(widths))
            held = sum(value.numel() for value in tensors.values())
            if wanted > held:
                raise ConfigError(f"model.json asks for {wanted:,} weights, and there are {held:,}")
        model = build(method, ranker, scaler, card.features, context)
        model.ranker.load_state_dict(below(tensors, "ranker."))
        model.method.load_state_dict(below(tensors, "method."))
        for trees in tree_rankers(model.ranker):
            trees.read(folder, known=known)
    model.card = card
    model.combination = Combination.read(card.engine, {name: value.numpy() for name, value in tensors.items()})
    model.ranker.eval()
    model.method.eval()
    return model
