"""Rankers that read: an encoder of transformers alone, or mixed with features such as tracked clicks.

Reference: Zou et al., "Approximated Doubly Robust Search Relevance Estimation", CIKM 2022, sections 4, 6.2, 7.3.

    h = encoder([CLS] query [SEP] title abstract [SEP])        x: features of the document
    cross_encoder        w . h + b
    vanilla_mix          MLP([h, x])
    doubly_robust_mix    w . h + b,  MLP_1(x),  MLP_2(x), ...   the first output reads, the others have clicks

The last is made for the method `approximated_dr`: imputation, affine estimate and coefficient share no weight.

Documents come as `Tokens` writes them. Those that say the same are encoded once. They are sorted by length, cut
into parts of at most `tokens` tokens and padded to the longest of their part. Several parts in one step are
computed again when their gradient is due, so that the memory is that of one part and the gradient that of all.
A trained encoder remembers the vectors of texts that it has seen; training, other weights and another device make
it forget them. With all layers frozen it remembers them in training too, which costs as little as a network then.

Differences from the paper: any encoder in the place of ERNIE 2.0; networks are LayerNorm, Linear, ELU, as others
here; the encoder takes smaller steps than they do, where the published ones all take steps of 2e-6.

Legend: n documents, D features, L tokens, H width of the encoder, O outputs.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unskew.errors import ConfigError, DataError, Key, first_line, optional
from unskew.learning.rankers.networks import MLP, NOTHING, ClickNetworks, RankerConfig, alone, network
from unskew.tables.lists.inputs import Tokens
from unskew.types import Array, Lists

BLOCK = 8192
"""Documents whose tokens are made at once."""
FOLDER = "text"
"""Where a model folder keeps the encoder's config and the tokenizer's files."""
ROUND = 100
"""Steps of the first round, where no number of steps is given."""


class TextRanker(RankerConfig):
    """An encoder of transformers, and how it is used."""

    reads: ClassVar[bool] = True
    model: str
    """The encoder with its tokenizer: a folder, or a name on the Hugging Face hub."""
    scratch: bool = False
    """Start from random weights rather than from the model's."""
    max_length: int = Field(256, ge=8)
    """Most tokens of a query with its document; the longer of the two is cut."""
    pooling: Literal["cls", "mean"] = "cls"
    """h is the vector of [CLS], as published, or the mean over all tokens."""
    encoder_rate: float = Field(0.01, gt=0)
    """Step size of the encoder, as a share of `training.learning_rate`."""
    frozen: int = Field(0, ge=0)
    """Layers, counted from the input, that keep their weights; with any, the embeddings keep theirs too. With all
    each text is encoded once, and training costs what a network on the vectors costs."""
    tokens: int = Field(16_384, ge=1)
    """Tokens encoded at once. A batch with more is encoded in parts whose gradients add up: the step is the same,
    the memory is that of one part, the time about a third more."""
    cache: int = Field(20_000, ge=0)
    """Texts whose vectors a trained model remembers from call to call; 0 remembers none."""
    bfloat16: bool = False
    """Encode in 16 bits, which newer GPUs do faster."""

    def usual_training(self, steps: int | None) -> Mapping[str, int]:
        """Small batches, a tenth of the steps (of the first round) to warm up, and ten validations."""
        tenth = (steps or ROUND) // 10
        return {"batch": 16, "warmup": tenth, "validate_every": max(tenth, 1)}

    def located(self, folder: Path) -> Self:
        """The encoder in this folder, if it is there; else it stays a name."""
        there = (folder / self.model).is_dir()
        return self.model_copy(update={"model": str((folder / self.model).resolve())}) if there else self

    def kept_in(self, folder: Path) -> Self:
        """The same with the encoder that a model folder keeps; its weights are read with the others."""
        return self.model_copy(update={"model": str(folder / FOLDER), "scratch": True})


class TextEncoder(nn.Module):
    """[CLS] query [SEP] title abstract [SEP] as tokens [n, L] -> h [n, H]."""

    def __init__(self, model: nn.Module, tokenizer: Any, config: TextRanker) -> None:
        super().__init__()
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.rate_factor = config.encoder_rate
        self.known: dict[bytes, Tensor] = {}
        depth: int | None = getattr(model.config, "num_hidden_layers", None)
        self.still = [*_lowest(model, config.frozen, depth)]
        for part in self.still:
            part.requires_grad_(False)
        self.constant = config.frozen == depth
        """Whether no layer is trained, so that texts may be remembered while the rest is."""

    @property
    def width(self) -> int:
        """Length of its vectors, H."""
        return int(self.model.config.hidden_size)  # type: ignore[union-attr,arg-type]

    @property
    def longest(self) -> int:
        """The most tokens of a text that the encoder reads; the rest is cut off."""
        can = getattr(self.model.config, "max_position_embeddings", None) or self.config.max_length
        return int(min(self.config.max_length, self.tokenizer.model_max_length, can))

    def train(self, mode: bool = True) -> Self:
        """Switch training on or off: vectors of texts are forgotten, and frozen layers stay without dropout."""
        if mode and not self.constant:
            self.known.clear()
        super().train(mode)
        for part in self.still:
            part.eval()
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        """Load weights, and forget the vectors that earlier weights gave."""
        self.known.clear()
        super()._load_from_state_dict(*args)

    def _apply(self, *args: Any) -> Self:
        """On another device the vectors are elsewhere."""
        self.known.clear()
        moved: Self = super()._apply(*args)  # type: ignore[no-untyped-call]
        return moved

    def read(self, lists: Lists, features: Array, device: str | torch.device = "cpu") -> Tokens:
        """Tokens of every document with its query, beside its features."""
        if lists.texts is None:
            raise DataError(
                "the ranker reads text, and the lists have none",
                path=lists.name,
                hint="give a table with query_id, doc_id, query_text, title and abstract, as data.texts",
            )
        asked, said = np.repeat(lists.texts.query, lists.sizes), lists.texts.document
        parts = [self.codes(asked[at : at + BLOCK], said[at : at + BLOCK]) for at in range(0, len(said), BLOCK)]
        none = np.zeros(0, np.int64)
        codes, sizes = (np.concatenate([none, *(part[at] for part in parts)]) for at in (0, 1))
        return Tokens.of(features, codes, sizes, device)

    def codes(self, queries: Array, documents: Array) -> tuple[Array, Array]:
        """Codes of the tokens of some documents with their queries, one after another, and how many each has."""
        made = self.tokenizer(
            queries.tolist(), documents.tolist(), truncation="longest_first", max_length=self.longest
        )
        ids = made["input_ids"]
        codes = 2 * np.concatenate([np.asarray(each, np.int64) for each in ids])
        if "token_type_ids" in made:
            codes += np.concatenate([np.asarray(each, np.int64) for each in made["token_type_ids"]])
        return codes, np.array([len(each) for each in ids])

    def forward(self, tokens: Tensor) -> Tensor:
        """The vector of each document, remembered where nothing is learned."""
        codes = tokens.detach().long()
        if not len(codes):
            return tokens.new_zeros(0, self.width)
        if self.config.cache and (self.constant or not (self.training or torch.is_grad_enabled())):
            with torch.no_grad():
                return self.remembered(codes)
        distinct, place = torch.unique(codes, dim=0, return_inverse=True)
        return self.distinct(distinct)[place]

    def distinct(self, codes: Tensor) -> Tensor:
        """Vectors of texts [n, L] that differ, part after part of about equal lengths."""
        lengths = (codes >= 0).sum(-1)
        order = lengths.argsort(stable=True)
        parts = [
            codes[order[part], : int(lengths[order[part][-1]])]
            for part in buckets(lengths[order], self.config.tokens)
        ]
        again = len(parts) > 1 and torch.is_grad_enabled()
        vectors = [
            checkpoint(self.encode, part, use_reentrant=False) if again else self.encode(part) for part in parts
        ]
        return torch.cat(vectors)[order.argsort()]

    def inputs(self, codes: Tensor) -> dict[str, Tensor]:
        """What the encoder takes of padded texts, [n, L] each."""
        where = codes >= 0
        ids = (codes.where(where, 0) // 2).where(where, self.tokenizer.pad_token_id or 0)
        given = {"input_ids": ids, "attention_mask": where.long()}
        if "token_type_ids" in self.tokenizer.model_input_names:
            given["token_type_ids"] = (codes % 2).where(where, 0)
        return given

    def encode(self, codes: Tensor) -> Tensor:
        """Vectors of padded texts, [n, L] -> [n, H]."""
        with torch.autocast(codes.device.type, torch.bfloat16, enabled=self.config.bfloat16):
            hidden: Tensor = self.model(**self.inputs(codes)).last_hidden_state  # [n, L, H]
        hidden = hidden.float() if self.config.bfloat16 else hidden
        if self.config.pooling == "cls":
            return hidden[:, 0]
        weight = (codes >= 0).unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)  # a text of no token at all is 0

    def remembered(self, codes: Tensor) -> Tensor:
        """Vectors of texts, of which only those not known are computed; the oldest are forgotten first."""
        rows = codes.cpu().numpy().astype(np.int32)
        keys = [row[row >= 0].tobytes() for row in rows]
        found = {key: self.known[key] for key in keys if key in self.known}
        new = {key: at for at, key in enumerate(keys) if key not in found}
        if new:
            vectors = self.distinct(codes[torch.tensor([*new.values()], device=codes.device)])
            found |= dict(zip(new, vectors, strict=True))
            self.known |= {key: found[key] for key in new}
            for key in [*self.known][: max(len(self.known) - self.config.cache, 0)]:
                del self.known[key]
        return torch.stack([found[key] for key in keys])

    def write(self, folder: Path) -> None:
        """Write the encoder's config and the tokenizer's files; the weights are written with the others."""
        self.model.config.save_pretrained(folder / FOLDER)  # type: ignore[union-attr,operator]
        self.tokenizer.save_pretrained(folder / FOLDER)


def buckets(lengths: Tensor, tokens: int) -> Iterator[slice]:
    """Ranges of ascending lengths that padded to their longest have at most so many tokens, or one document.

    >>> [(part.start, part.stop) for part in buckets(torch.tensor([2, 2, 3, 9]), 8)]
    [(0, 2), (2, 3), (3, 4)]
    """
    start, sizes = 0, lengths.tolist()
    for at, size in enumerate(sizes):
        if at > start and size * (at - start + 1) > tokens:
            yield slice(start, at)
            start = at
    if sizes:
        yield slice(start, len(sizes))


def open_encoder(config: TextRanker) -> TextEncoder:
    """The encoder and tokenizer that a config names, from a folder, the local store of the hub, or the hub."""
    package = transformers()
    try:
        tokenizer = package.AutoTokenizer.from_pretrained(config.model)
        if config.scratch:
            model = package.AutoModel.from_config(package.AutoConfig.from_pretrained(config.model))
        else:
            model = package.AutoModel.from_pretrained(config.model)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        what = f"{config.model!r} is neither a folder with an encoder nor a name on the hub within reach"
        raise ConfigError(f"{what} ({first_line(error)})", argument=Key("ranker.model")) from error
    return TextEncoder(model.float(), tokenizer, config)


def transformers() -> Any:
    """The package, without its progress bars and advice."""
    package = optional("transformers", "text")
    package.logging.set_verbosity_error()
    package.logging.disable_progress_bar()
    return package


def encoders(ranker: nn.Module) -> list[TextEncoder]:
    """The part of a ranker that reads, if it has one."""
    return [module for module in ranker.modules() if isinstance(module, TextEncoder)]


def _lowest(model: nn.Module, count: int, depth: int | None) -> Iterator[nn.Module]:
    """The embeddings and the first layers of an encoder that has so many."""
    if not count:
        return
    stacks = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == depth]
    if not stacks or count > len(stacks[0]):
        raise ConfigError(f"{count} layers, but the encoder has {depth}", argument=Key("ranker.frozen"))
    yield from (part for name, part in model.named_children() if "embed" in name)
    yield from stacks[0][:count]


# ---- rankers ----


class TextTower(nn.Module):
    """An encoder and what makes outputs of its vectors and the features, [n, D + L] -> [n, O]."""

    def __init__(
        self,
        encoder: TextEncoder,
        features: int,
        head: nn.Module,
        *,
        mixed: bool = False,
        others: nn.Module | None = None,
    ) -> None:
        """The head takes h, with x beside it where it is `mixed`; `others` take x alone, for more outputs."""
        super().__init__()
        self.encoder, self.features, self.head, self.mixed, self.others = encoder, features, head, mixed, others

    def forward(self, documents: Tensor) -> Tensor:
        """Outputs of each document."""
        h, x = self.encoder(documents[:, self.features :]), documents[:, : self.features]
        first: Tensor = self.head(torch.cat([h, x], dim=-1) if self.mixed else h)
        return first if self.others is None else torch.cat([first, self.others(x)], dim=-1)

    def side(self, sizes: tuple[int, ...]) -> nn.Module:
        """A second network on what the encoder reads, as it stands, and on the features."""
        return OnText(self, network(self.encoder.width + self.features, sizes, MLP(), norm=False))


class OnText(nn.Module):
    """A network on the vectors of an encoder that is trained elsewhere, and on the features."""

    def __init__(self, tower: TextTower, layers: nn.Module) -> None:
        super().__init__()
        self.tower, self.layers = (tower,), layers  # in a tuple torch does not count its weights as ours

    def forward(self, documents: Tensor) -> Tensor:
        """Outputs of each document; no gradient reaches the encoder."""
        (tower,) = self.tower
        with torch.no_grad():
            h = tower.encoder(documents[:, tower.features :])
        return self.layers(torch.cat([h, documents[:, : tower.features]], dim=-1))  # type: ignore[no-any-return]


class CrossEncoder(TextRanker):
    """A cross-encoder: query and document read together."""

    name: Literal["cross_encoder"] = "cross_encoder"

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> TextTower:
        """The encoder with a new head; features are not looked at."""
        encoder = open_encoder(self)
        return TextTower(encoder, features, network(encoder.width, (outputs,), MLP(), at_zero))


class MixedRanker(TextRanker):
    """What the rankers of text and features may be told."""

    sizes: tuple[int, ...] = Field((64, 32, 16), strict=False)
    """Hidden units of the networks."""

    def opened(self, features: int) -> TextEncoder:
        """The encoder, after a check that there are features to mix with."""
        if not features:
            what = "mixes text with features, and the documents have none"
            raise ConfigError(f"{self.name} {what}; give features, or use cross_encoder")
        return open_encoder(self)


class VanillaMix(MixedRanker):
    """One network on what a cross-encoder reads and on the features."""

    name: Literal["vanilla_mix"] = "vanilla_mix"

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> TextTower:
        """The encoder with a new network on it."""
        encoder = self.opened(features)
        head = network(encoder.width + features, (*self.sizes, outputs), MLP(), at_zero)
        return TextTower(encoder, features, head, mixed=True)


class DoublyRobustMix(MixedRanker):
    """A cross-encoder for the first output, and for each other a network on the features."""

    name: Literal["doubly_robust_mix"] = "doubly_robust_mix"

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> TextTower:
        """The encoder with a new head, and new networks."""
        encoder = self.opened(features)
        head = network(encoder.width, (1,), MLP(), alone(0, at_zero, outputs))
        others = ClickNetworks(features, outputs, at_zero, self.sizes)
        return TextTower(encoder, features, head, others=others)
