"""Click models compared, as a page: which one explains held-out clicks best, and by rank."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.diagnosis.click_models.comparison import ClickModelComparison, ComparedModel
from unskew.pages.figures import Point, curves_figure
from unskew.pages.numbers import number
from unskew.pages.page import BEST, WORDS_HEADING, Figure, Page, Section, Table, Term
from unskew.settings import listed

HOW = (
    "Mean log-likelihood of a held-out page; how far below the best, with its standard error over queries; "
    "perplexity of each click by itself, and of each given the clicks above it: 1 is certain and right, 2 a coin."
)

FEW = 5
"""Models of the first chart."""
MODELS = {
    "rcm": "A click needs nothing: one rate for all.",
    "rctr": "A click needs the rank.",
    "dctr": "A click needs the document.",
    "pbm": "A click needs that the rank is examined and that the document attracts.",
    "ubm": "As pbm; examination depends on the last click above too.",
    "cascade": "Readers go down from the top to their only click.",
    "dcm": "As cascade; after a click readers go on by a chance of the rank.",
    "sdbn": "Readers go on until a clicked document satisfies them.",
    "dbn": "As sdbn, and readers may lose patience.",
    "ccm": "Readers go on by a chance that depends on the relevance of what they clicked.",
}
"""What click models assume, in a sentence."""
WORDS = (
    Term("log-likelihood", "Of a held-out page, in natural logarithms; closer to 0 is better."),
    Term("behind", "How far a model is below the best; within two standard errors (SE) it is a tie."),
    Term("perplexity", "How much a click surprises: 1 where every one was foreseen, 2 where a coin does as well."),
    Term("conditional", "Perplexity given the clicks above: what a model knows of how pages are read on."),
    Term("held-out page", "A page that was not fitted on."),
)


def click_models_page(found: ClickModelComparison, origin: str = "", command: str = "") -> Page:
    """What `fit_and_compare` found; `origin` and `command` are the page's."""
    level = [name for name in found.level if name != found.best]
    lead = f"{found.best} explains the {found.held_out:,} held-out pages best."
    if level:
        lead += f" {listed(level)} {'is' if len(level) == 1 else 'are'} not clearly worse."
    strangers = (
        f"{found.unseen:,} of {found.impressions:,} held-out impressions are of documents that were never "
        "shown in the pages fitted on; the mean of the prior stands for them."
    )
    slow = [model.name for model in found.models if not model.converged]
    stopped = [f"{listed(slow)} had not come to rest after all rounds."] if slow else []
    # the best models by themselves, where lines lie close, and all of them
    few = [_by_rank(f"The best {FEW}", found.models[:FEW])] if len(found.models) > FEW else []
    figures = [*few, _by_rank("All models" if few else "Perplexity by rank", found.models)]
    named = dict.fromkeys(part for model in found.models for part in model.name.split("+"))
    return Page(
        "Click models",
        lead,
        [
            Section("Held-out clicks", f"Fitted on {found.pages:,} pages.", [_table(found.models)]),
            Section("By rank", figures=figures),
        ],
        notes=[strangers, *found.notes, *stopped],
        origin=origin,
        terms=[*(Term(name, MODELS[name]) for name in named if name in MODELS), *WORDS],
        terms_heading=WORDS_HEADING,
        command=command,
    )


def _table(models: Sequence[ComparedModel]) -> Table:
    rows = [
        {
            "model": model.name,
            "log-likelihood": number(model.log_likelihood),
            "behind": number(model.behind),
            "± SE": number(model.standard_error, empty=""),
            "perplexity": number(model.perplexity),
            "conditional": number(model.conditional_perplexity),
            "parameters": f"{model.parameters:,}",
            "rounds": str(model.rounds),
            "seconds": number(model.seconds, ".1f"),
        }
        for model in models
    ]
    return Table.of(rows, wide=("seconds", "rounds", "parameters"), marks={(0, 1): BEST}, legend=HOW)


def _by_rank(title: str, models: Sequence[ComparedModel]) -> Figure:
    curves: dict[str, list[Point]] = {}
    for model in models:
        by_rank = model.conditional_perplexity_by_rank.items()
        curves[model.name] = [(rank, value, None, None) for rank, value in by_rank if value is not None]
    return curves_figure(title, curves, "conditional perplexity", from_zero=False)
