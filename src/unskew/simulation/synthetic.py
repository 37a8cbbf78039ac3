"""Labelled lists made up from a known relevance function, for tests, benchmarks and first steps.

Legend: Q queries, N documents, D features, H hidden units.

A *world* fixes everything that lists of one kind share: which features matter and how, on what scale each one is
measured, where the grades begin. The seed only draws queries and documents, so training, validation and test
lists are made with one world and three seeds.

    z = √a_j q_j + √(1 - a_j) d_j           latent value of feature j: a query's share a_j and a document's
    u = s·tanh(z) + v·tanh(W z + b) + Σ_p c_p z_i z_j      utility, scaled to variance 1
    grade = number of thresholds below u + noise · normal

About two in five features carry the utility, three in ten are noisy copies of those, the others are noise. They
are observed through monotone maps: as they are, shifted and stretched, skewed, squeezed into (0, 1), or counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from unskew.errors import ConfigError
from unskew.types import Array, Lists

GRADES = (0.26, 0.36, 0.285, 0.076, 0.019)
"""Shares of grades 0 to 4 in Yahoo's learning-to-rank set 1."""
HIDDEN = 8
"""Units of the network in the utility."""
OBSERVED: Mapping[str, Callable[[Array, Array, Array], Array]] = {
    "plain": lambda values, shift, stretch: values,
    "stretched": lambda values, shift, stretch: shift + stretch * values,
    "skewed": lambda values, shift, stretch: stretch * np.exp(np.float32(0.6) * values),
    "squeezed": lambda values, shift, stretch: 1 / (1 + np.exp(-values)),
    "count": lambda values, shift, stretch: np.floor(np.exp(np.float32(0.5) * values + np.float32(1.5))),
}
"""How a feature is observed: a monotone map."""
KINDS = tuple(OBSERVED)
CALIBRATION = (1000, 24)
"""Queries, and documents of each, from which a world takes its scales and thresholds."""
BLOCK = 65_536
"""Documents drawn at a time."""
SPREAD = 0.4
"""Standard deviation of the logarithm of a list's length."""


def make_lists(
    queries: int = 2000,
    features: int = 40,
    documents: int | tuple[int, int] = 24,
    seed: int = 0,
    *,
    world: int = 0,
    confounder: bool = True,
    noise: float = 0.5,
    grades: tuple[float, ...] = GRADES,
) -> Lists:
    """Make labelled lists like those of learning-to-rank collections.

    `documents` is the mean length of a list, or its (lowest, highest) length. With `confounder` one feature, named
    by `Lists.confounder`, has nothing to do with relevance, and the logging ranker `svm` likes it. `noise` is the
    standard deviation of what the features cannot tell, in units of the utility's.

    >>> lists = make_lists(queries=3, features=5, documents=(2, 4), seed=1)
    >>> len(lists), lists.dim, lists.labels.dtype, lists.confounder is not None
    (3, 5, dtype('int16'), True)
    """
    low, high = documents if isinstance(documents, tuple) else (documents, documents)
    if queries < 1 or features < 4 or not 1 <= low <= high:
        raise ConfigError(f"cannot make {queries} queries with {features} features and {documents} documents each")
    if noise < 0 or len(grades) < 2 or min(grades) < 0 or not np.isclose(sum(grades), 1):
        raise ConfigError(f"noise must not be negative, and the shares of the grades {grades} must sum to 1")
    return draw_lists(make_world(world, features, confounder, noise, grades), queries, documents, seed, noise)[0]


def draw_lists(
    world: ListWorld, queries: int, documents: int | tuple[int, int], seed: int, noise: float
) -> tuple[Lists, Array]:
    """Lists of a world, and the true utility of every document, [N] float32."""
    rng = np.random.default_rng([seed, 1])
    if isinstance(documents, tuple):
        sizes = rng.integers(documents[0], documents[1], size=queries, endpoint=True)
    else:  # log-normal around the mean, and at least 2
        drawn = documents * np.exp(SPREAD * rng.standard_normal(queries) - SPREAD**2 / 2)
        sizes = np.maximum(np.rint(drawn), 2).astype(np.int64)
    features, utility = draw_documents(world, sizes, rng)
    noisy = utility + noise * rng.standard_normal(len(utility), dtype=np.float32)
    lists = Lists(
        features=features,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        labels=np.searchsorted(world.thresholds, noisy, side="right").astype(np.int16),
        query_ids=np.arange(queries, dtype=np.int64),
        confounder=world.confounder,
        name="synthetic",
    )
    return lists, utility


@dataclass(frozen=True)
class ListWorld:
    """What lists of one kind share."""

    informative: Array  # [I] columns that carry the utility
    parent: Array  # [D] column that a feature is a noisy copy of; itself where it is not a copy
    query_share: Array  # [D] share of a feature's variance that belongs to the query
    kind: Array  # [D] index into KINDS
    shift: Array  # [D]
    stretch: Array  # [D]
    saturating: Array  # [I] s
    inner: Array  # [I, H] W
    offset: Array  # [H] b
    outer: Array  # [H] v
    pairs: Array  # [P, 2] indices into `informative`
    products: Array  # [P] c
    confounder: int | None
    mean: float = 0.0
    """Mean of the utility before it is scaled."""
    scale: float = 1.0
    """Spread of the utility before it is scaled."""
    thresholds: Array = field(default_factory=lambda: np.zeros(0))  # [grades - 1], where the next grade begins

    def utility(self, latent: Array) -> Array:
        """Utility u of documents with latent features [N, D], [N] float32."""
        z = latent[:, self.informative]
        raw = np.tanh(z) @ self.saturating + np.tanh(z @ self.inner + self.offset) @ self.outer
        raw += (z[:, self.pairs[:, 0]] * z[:, self.pairs[:, 1]]) @ self.products
        scaled: Array = ((raw - self.mean) / self.scale).astype(np.float32)
        return scaled

    def observe(self, latent: Array) -> Array:
        """Turn latent features [N, D] into observed ones, in place."""
        for column, kind in enumerate(self.kind):
            seen = OBSERVED[KINDS[kind]]
            latent[:, column] = seen(latent[:, column], self.shift[column], self.stretch[column])
        return latent


def make_world(seed: int, features: int, confounder: bool, noise: float, grades: tuple[float, ...]) -> ListWorld:
    """The world of this seed, with its scales and thresholds taken from documents of its own."""
    rng = np.random.default_rng([seed, 0])
    bare = draw_world(rng, features, confounder)
    _, raw = draw_documents(bare, np.full(CALIBRATION[0], CALIBRATION[1]), rng)
    mean, scale = float(raw.mean(dtype=float)), float(raw.std(dtype=float)) or 1.0
    noisy = (raw - mean) / scale + noise * rng.standard_normal(len(raw))
    # all but the last share, summed: where grades 1, 2, ... begin
    thresholds = np.quantile(noisy, np.minimum(np.cumsum(grades[:-1]), 1.0))
    return replace(bare, mean=mean, scale=scale, thresholds=thresholds)


def draw_world(rng: np.random.Generator, features: int, confounder: bool) -> ListWorld:
    """Weights and scales of a world, all float32 where documents meet them."""
    order = rng.permutation(features)
    planted, order = (int(order[0]), order[1:]) if confounder else (None, order)
    count = max(2, round(0.4 * len(order)))
    informative, copies = order[:count], order[count : count + round(0.3 * features)]
    parent = np.arange(features)
    parent[copies] = rng.choice(informative, len(copies))
    kind = rng.integers(len(KINDS), size=features)
    query_share = rng.uniform(0.1, 0.4, features)
    if planted is not None:
        kind[planted], query_share[planted] = KINDS.index("plain"), 0.0
    pairs = np.stack([np.arange(count), np.roll(np.arange(count), 1)], axis=1)[: count // 2 * 2 : 2]

    def weights(size: float, *shape: int) -> Array:
        return (size * rng.standard_normal(shape)).astype(np.float32)

    return ListWorld(
        informative=informative,
        parent=parent,
        query_share=query_share.astype(np.float32),
        kind=kind,
        shift=weights(10.0, features),
        stretch=np.exp(weights(1.5, features)),
        saturating=np.abs(weights(1 / np.sqrt(count), count)) + np.float32(0.5 / np.sqrt(count)),
        inner=weights(1.5 / np.sqrt(count), count, HIDDEN),
        offset=weights(0.5, HIDDEN),
        outer=weights(0.9 / np.sqrt(HIDDEN), HIDDEN),
        pairs=pairs,
        products=weights(0.6 / np.sqrt(len(pairs)), len(pairs)),
        confounder=planted,
    )


def draw_documents(world: ListWorld, sizes: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Observed features [N, D] and utility [N] of lists of these lengths, both float32."""
    dim, total = len(world.kind), int(sizes.sum())
    of_query = rng.standard_normal((len(sizes), dim), dtype=np.float32) * np.sqrt(world.query_share)
    own = np.sqrt(1 - world.query_share)
    query = np.repeat(np.arange(len(sizes)), sizes)
    features, utility = np.empty((total, dim), np.float32), np.empty(total, np.float32)
    for start in range(0, total, BLOCK):
        block = slice(start, min(start + BLOCK, total))
        latent = rng.standard_normal((block.stop - start, dim), dtype=np.float32) * own + of_query[query[block]]
        copies = np.flatnonzero(world.parent != np.arange(dim))
        latent[:, copies] = 0.8 * latent[:, world.parent[copies]] + 0.6 * latent[:, copies]
        utility[block] = world.utility(latent)
        features[block] = world.observe(latent)
    return features, utility
