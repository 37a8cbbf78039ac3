"""Click models by name; fitted ones: how likely clicks are, what they say of documents, and pages drawn from them.

Legend: S pages, K results of a page, N impressions, P pairs of query and document.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import betaincinv

from unskew.diagnosis.click_models.browsing import DCTR, PBM, RCM, RCTR, UBM
from unskew.diagnosis.click_models.chains import CCM, DBN, DCM, SDBN, CascadeModel
from unskew.diagnosis.click_models.contract import ClickModel, log_chances
from unskew.diagnosis.click_models.em import Assumed, Parameters, climb
from unskew.diagnosis.click_models.labels import AnyLabels, labelled, read_labels
from unskew.diagnosis.click_models.mixture import ModelMixture
from unskew.diagnosis.click_models.pages import AnyLog, ClickPages, ShownPairs, read_pages
from unskew.engine_prior import SMALL
from unskew.errors import ConfigError, DataError
from unskew.files import Ours, complete_folder, read_manifest, write_manifest
from unskew.options.base import LogReading
from unskew.settings import checked, named, require_columns, table_of
from unskew.types import Array, Log

CLICK_MODELS: dict[str, type[ClickModel]] = {
    "rcm": RCM,
    "rctr": RCTR,
    "dctr": DCTR,
    "pbm": PBM,
    "cascade": CascadeModel,
    "dcm": DCM,
    "sdbn": SDBN,
    "dbn": DBN,
    "ubm": UBM,
    "ccm": CCM,
}
"""Click models by name; names joined by + are a mixture of them."""
MIXTURE = "mixture"


def find_model(model: ClickModel | str) -> tuple[str, ClickModel]:
    """A model and its name: settings as they are, `pbm` with its defaults, `pbm+dctr` a mixture of two."""
    if isinstance(model, ClickModel):
        return model_name(model), model
    if not isinstance(model, str):
        raise ConfigError("give a name such as pbm, or a click model", argument="model", value=model)
    parts = tuple(named("model", part.strip(), CLICK_MODELS) for part in model.split("+"))
    return model, parts[0] if len(parts) == 1 else ModelMixture(models=parts)


def model_name(model: ClickModel) -> str:
    """What a model is called."""
    if isinstance(model, ModelMixture):
        return "+".join(model_name(part) for part in model.models)
    return next(name for name, kind in CLICK_MODELS.items() if kind is type(model))


def settings_of(model: ClickModel) -> dict[str, Any]:
    """A model as a table of its settings, with its name."""
    if isinstance(model, ModelMixture):
        own = model.model_dump(exclude={"models"})
        return {"name": MIXTURE, **own, "models": [settings_of(part) for part in model.models]}
    return {"name": model_name(model), **model.model_dump()}


def model_of(settings: Mapping[str, Any], key: str = "model") -> ClickModel:
    """The model that such a table describes."""
    if settings.get("name") != MIXTURE:
        return table_of(key, settings, CLICK_MODELS)
    inner = enumerate(settings.get("models", ()))
    models = tuple(model_of(part, f"{key}.models.{at}") for at, part in inner)
    rest = {name: value for name, value in settings.items() if name != "name"}
    return checked(ModelMixture, rest | {"models": models}, key)


# ---- fitted ----


FILE, PAIRS = "model.json", "pairs.parquet"
SAVED = Ours(FILE, (PAIRS,))
"""What lies in the folder of a click model."""
KIND = "unskew click model"
OWN = ("name", "pages", "converged", "seconds", "trace", "parameter_count", "unknown")
OF_PAIRS = ("attractiveness", "satisfaction")
"""Kinds of parameters that every pair has one of; within a mixture their names begin with a number."""


def save_model(fitted: FittedClickModel, folder: Path | str, *, force: bool = False) -> None:
    """Write a folder, whole or not at all."""
    with complete_folder(Path(folder), force=force, ours=SAVED) as working:
        write_model(fitted, working)


def write_model(fitted: FittedClickModel, folder: Path) -> None:
    """Write the files of a model into a folder that is there."""
    pairs = len(fitted.pairs)
    of_pairs = {name: each for name, each in fitted.parameters.items() if name.split()[-1] in OF_PAIRS}
    shared = {name: values.tolist() for name, values in fitted.parameters.items() if name not in of_pairs}
    columns: dict[str, Any] = {name: getattr(fitted.pairs, name) for name in ("query_id", "doc_id", "query")}
    columns |= {name: values[:pairs] for name, values in (of_pairs | fitted.evidence).items()}
    unseen = {name: float(values[pairs]) for name, values in (of_pairs | fitted.evidence).items()}
    content: dict[str, Any] = {"kind": KIND, **{name: getattr(fitted, name) for name in OWN}}
    content |= {"model": settings_of(fitted.model), "parameters": shared, "unseen": unseen}
    content["assumed"] = {name: prior._asdict() for name, prior in fitted.assumed.items()}
    pq.write_table(pa.table(columns), folder / PAIRS, compression="zstd")
    write_manifest(folder / FILE, content, [folder / PAIRS])


def load_model(folder: Path | str) -> FittedClickModel:
    """Read what `save_model` wrote."""
    place = Path(folder) / FILE
    content = read_manifest(place)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise DataError("is not a click model", path=place, hint="name the folder that one was saved in")
    try:
        table = pq.read_table(Path(folder) / PAIRS)
        require_columns(["query_id", "doc_id", "query"], table.column_names, path=Path(folder) / PAIRS)
        query_id, doc_id = (table[name].combine_chunks() for name in ("query_id", "doc_id"))
        unseen: dict[str, float] = content["unseen"]
        whole = {name: np.append(table[name].to_numpy(), value) for name, value in unseen.items()}
        of_pairs = {name: values for name, values in whole.items() if name.split()[-1] in OF_PAIRS}
        return FittedClickModel(
            model=model_of(content["model"]),
            pairs=ShownPairs(query_id, doc_id, table["query"].to_numpy()),
            parameters=of_pairs | {name: np.asarray(values) for name, values in content["parameters"].items()},
            assumed={name: Assumed(**prior) for name, prior in content["assumed"].items()},
            evidence={name: values for name, values in whole.items() if name not in of_pairs},
            **{name: content[name] for name in OWN},
        )
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"cannot be read ({error})", path=Path(folder) / PAIRS) from error
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"is damaged ({error!r})", path=place, hint="fit the model again") from error


@dataclass(frozen=True)
class Perplexity:
    """2^(-mean log2 P(what happened)): 1 is certain and right, 2 is a coin."""

    overall: float
    by_rank: dict[int, float]


@dataclass(frozen=True)
class FittedClickModel:
    """A click model with its parameters; pairs that it has not seen are taken to be as the prior says."""

    name: str
    """What the model is called."""
    model: ClickModel
    pairs: ShownPairs
    parameters: Parameters
    assumed: dict[str, Assumed]
    """Mean, of all of its parameters, and strength of the prior of each kind."""
    evidence: dict[str, Array]
    """What is known of each pair, [P + 1] each, the last entry of pairs that were never shown: `standard_error`
    of its relevance, and the ends `lower` and `upper` of 95 % intervals, where the model tells documents apart;
    what `ClickPages.simple` says; but of mixtures `examined`, impressions on which it was, and `expected`, how
    attractive it was before its clicks.
    """
    parameter_count: int
    """Parameters about which the log says something."""
    pages: float
    """Pages it was fitted on."""
    trace: list[float] = field(repr=False)
    """Penalised log-likelihood after each round."""
    converged: bool = True
    seconds: float = 0.0
    unknown: str | None = None
    """Why the log tells no examination; judgments then lean on its click rates by rank."""

    def seen_pages(self, log: AnyLog, **reading: Unpack[LogReading]) -> ClickPages:
        """A log as pages of this model's pairs; `reading` is as for `read_pages`."""
        return read_pages(log, examination=False, **reading).known_to(self.pairs)

    def click_probability(self, log: AnyLog, *, given_clicks: bool = False) -> Array:
        """P(click) of every impression [N], page after page; `given_clicks`: given the clicks above it."""
        pages = self.seen_pages(log)
        return self.chances(pages, given_clicks=given_clicks)[pages.where]

    def chances(self, pages: ClickPages, *, given_clicks: bool) -> Array:
        """P(click), [S, K], of pages of this model's pairs."""
        find = self.model.conditional if given_clicks else self.model.marginal
        return find(self.parameters, pages)

    def page_log_likelihood(self, pages: ClickPages) -> Array:
        """log P(clicks of a page), [S]."""
        return np.asarray(log_chances(self.chances(pages, given_clicks=True), pages).sum(1))

    def log_likelihood(self, log: AnyLog) -> float:
        """Mean log P(clicks of a page)."""
        pages = self.seen_pages(log)
        return float(self.page_log_likelihood(pages) @ pages.weight / pages.total)

    def perplexity(self, log: AnyLog, *, given_clicks: bool = False) -> Perplexity:
        """Overall and by rank; `given_clicks`: of each click given those above it, the conditional one."""
        pages = self.seen_pages(log)
        return perplexity(self.chances(pages, given_clicks=given_clicks), pages)

    def examination(self) -> Array | None:
        """P(examined at k) over that at rank 1, with no click above; None where the model has no such curve."""
        theta = self.parameters.get("examination")
        if theta is None:
            return None
        curve: Array = theta.reshape(self.model.ranks, -1)[:, 0]
        return np.asarray(curve / curve[0])

    @property
    def tells_documents_apart(self) -> bool:
        """Whether the model has a relevance of its own for each document, and so gives judgments."""
        return self.model.relevance(self.parameters) is not None

    def relevance(self, labels: AnyLabels | None = None) -> pa.Table:
        """Judgments: a row for each query and document that was shown, best first within a query.

        `labels`, a table or file of query_id, doc_id, label, and `by` (whose it is), make them better.
        """
        found, evidence = self.model.relevance(self.parameters), dict(self.evidence)
        if found is None:
            raise ConfigError(f"{self.name} tells no documents apart; take dctr, pbm or another one")
        if labels is not None:
            given = read_labels(labels, self.pairs)
            single = len(self.model.of_pairs) == 1 and "expected" in evidence
            strength = self.assumed["attractiveness"].strength if single else None
            found, error = labelled(given, found, evidence, self.pairs, strength)
            evidence |= errors(found, error)
        shown = np.flatnonzero(self.evidence["impressions"][:-1] > 0)
        order = shown[np.lexsort((-found[shown], self.pairs.query[shown]))]
        made: dict[str, Any] = {
            "query_id": self.pairs.query_id.take(pa.array(order)),
            "doc_id": self.pairs.doc_id.take(pa.array(order)),
            "relevance": found[order],
        }
        kinds = {name: self.parameters[name] for name in self.model.of_pairs if len(self.model.of_pairs) > 1}
        return pa.table(made | {name: values[order] for name, values in (evidence | kinds).items()})

    def sample(self, log: Log | ClickPages, *, seed: int = 0) -> Any:
        """The same pages with clicks drawn from the model: a Log for a Log, else pages of weight 1."""
        pages = self.seen_pages(log)
        pages = pages.take(np.repeat(np.arange(len(pages)), pages.weight.astype(np.int64)))
        pages = replace(pages, weight=np.ones(len(pages)), click=np.zeros(pages.pair.shape, bool))
        drawn = np.random.default_rng(seed).random(pages.pair.shape)
        for k in range(pages.pair.shape[1]):  # chances at k depend on clicks above k alone
            pages.click[:, k] = drawn[:, k] < self.chances(pages, given_clicks=True)[:, k]
        if isinstance(log, Log):
            return replace(log, click=pages.click[pages.where].astype(np.uint8))
        return pages


def fit_model(name: str, model: ClickModel, pages: ClickPages) -> FittedClickModel:
    """Fit a click model to pages."""
    if not pages.click.any():
        raise DataError("the log has no click, so there is nothing to fit", hint="give pages with clicks")
    began = time.process_time()
    counts, shape = model.counter(pages)(pages.weight), pages.by_rank
    if isinstance(model, ModelMixture):  # what it is worth to each model is not told by all clicks
        shape = shape._replace(strength=None)
    parameters, assumed, trace, converged = climb(
        lambda here: model.expect(counts, here),
        model.start(pages),
        model.priors(),
        rounds=model.rounds,
        tolerance=model.tolerance,
        hidden=model.hidden,
        missing=lambda here: model.uncertain(counts, here),
        shape=shape,
        held=model.held(pages),
    )
    expected = model.expect(counts, parameters).counts
    evidence = {}
    if (variance := model.variance(counts, parameters, assumed)) is not None:
        evidence = errors(np.asarray(model.relevance(parameters)), np.sqrt(variance))
    evidence |= pages.simple
    if "attractiveness" in expected:
        evidence["examined"] = expected["attractiveness"][1]
        evidence["expected"] = np.broadcast_to(assumed["attractiveness"].mean, (pages.bound,))
    return FittedClickModel(
        name=name,
        model=model,
        pairs=pages.pairs,
        parameters=parameters,
        assumed={name: Assumed(float(np.mean(prior.mean)), prior.strength) for name, prior in assumed.items()},
        evidence=evidence,
        parameter_count=int(sum((trials > 0).sum() for _, trials in expected.values())),
        pages=pages.total,
        trace=trace,
        converged=converged,
        unknown=pages.reason,
        seconds=time.process_time() - began,
    )


def errors(relevance: Array, error: Array) -> dict[str, Array]:
    """Standard errors of relevance, and both ends of its 95 % intervals, as if it were a Beta distribution."""
    trials = np.maximum(relevance * (1 - relevance) / np.maximum(error, SMALL) ** 2 - 1, SMALL)
    low, high = (betaincinv(relevance * trials, (1 - relevance) * trials, end) for end in (0.025, 0.975))
    return {"standard_error": error, "lower": low, "upper": high}


def perplexity(p: Array, pages: ClickPages) -> Perplexity:
    """Perplexity of the clicks of pages by chances p [S, K], on the whole and by rank."""
    if not len(pages):
        raise DataError("there are no pages to judge by")
    logs = log_chances(p, pages)
    weight = np.where(pages.where, pages.weight[:, None], 0.0)
    total, shown = (np.bincount(pages.rank.ravel(), each.ravel()) for each in (logs * weight, weight))
    ranks = np.flatnonzero(shown[1:] > 0) + 1
    by_rank = {int(rank): float(np.exp(-total[rank] / shown[rank])) for rank in ranks}
    return Perplexity(float(np.exp(-total[1:].sum() / shown[1:].sum())), by_rank)
