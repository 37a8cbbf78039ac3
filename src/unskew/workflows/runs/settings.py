"""Settings of a run, from Python arguments or from a TOML file, checked strictly.

Unknown keys, wrong types and missing values are errors that name the key and, where one is close, what was meant.
"""

from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny

from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training, decay_for
from unskew.learning.methods import Learner
from unskew.learning.rankers import MLP, DoublyRobustMLP, Linear, Ranker
from unskew.learning.rankers.trees import Growing
from unskew.options.runs import Begins, DataFiles
from unskew.settings import Config, Table, known
from unskew.tables.features.encoding import EncodingRules
from unskew.tables.lists.scaling import SCALINGS

USUAL_METHOD = "dla"
"""The method of a run that names none."""
IN_MEMORY = (
    "trees grow from a log in memory, in one process; choose another ranker, or for a package another method, for "
    "shards, counts or torchrun"
)
"""What those who grow trees are told of larger data."""


class Auto(Config):
    """In the place of a method: the best of several, by pages that they did not learn from."""

    name: Literal["auto"] = "auto"
    candidates: Annotated[tuple[str | Table, ...], Field(strict=False, min_length=1)] = (
        *("naive", Table(name="naive", loss="sigmoid"), "dla", "regression_em", "affine", "additive", "tal"),
        *("lbd", "vectorization", "edot", "einter", "mixem", "ipw", Table(name="ipw", propensity="swaps")),
    )
    """What to choose from: names of methods, or tables of a name and settings."""
    steps: int = Field(300, ge=1)
    """Most training steps of a candidate; the one that is taken learns as long as the run says."""
    rankers: Annotated[tuple[str, ...], Field(strict=False)] = ("linear", "trees")
    """Rankers that the method is also tried with, where none was named."""
    parts: int = Field(3, ge=2)
    """Parts that the pages are dealt out into; a candidate learns without one and is judged on it."""
    factors: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Columns that bias depends on besides the rank; candidates that take none are left out."""


class Settings(Begins):
    """Method, ranker, scaling and training of a run."""

    method: SerializeAsAny[Learner]
    """How bias is modelled."""
    ranker: Ranker | None
    """What scores documents; none where the method is a package, whose trees are its own."""
    scaling: str
    """How features are scaled."""
    training: Training
    """How it is trained."""
    encoding: EncodingRules = EncodingRules()
    """How categories and missing values of features become numbers."""
    auto: Auto | None = Field(None, exclude=True)
    """What is to choose the method; None once there is one."""

    @property
    def fitted_by(self) -> Literal["steps", "rounds", "package"]:
        """Whether a network takes steps, trees are grown in rounds, or a package trains."""
        return "package" if self.ranker is None else self.ranker.fitted_by

    @property
    def steps(self) -> int | None:
        """Steps of the training, or rounds where trees are grown; none where held-out clicks say when to stop."""
        grown = self.method if self.ranker is None else self.ranker
        return grown.rounds if isinstance(grown, Growing) else self.training.steps


class RunFile(Begins):
    """A whole run file."""

    out: str | None = None
    """Run folder, from the folder of the file; the command or call may name another."""
    data: DataFiles
    method: Table = Field(default_factory=lambda: Table(name=USUAL_METHOD))
    """How bias is modelled: the name of a method, and its settings; `auto` chooses one."""
    ranker: Table | None = None
    """`mlp` unless given; a package takes none."""
    training: Table = Field(default_factory=dict)
    """How it is trained: settings of `Training`."""
    encoding: EncodingRules = EncodingRules()
    """How categories and missing values of features become numbers."""
    auto: Table = Field(default_factory=dict)
    """What chose the method, as a run with method `auto` wrote it down; nothing depends on it."""


def suited(method: Learner, ranker: Ranker | None, scaling: str | None, training: Training, key: str) -> Settings:
    """Settings with the ranker and scaling that suit the method, where none were given.

    A package grows its own trees on features as they are, and refuses what it would not heed.
    """
    wrong = method.refused(ranker=ranker is not None, training=frozenset(training.model_fields_set))
    if wrong is not None:
        raise wrong
    ranker = MLP() if ranker is None and method.fitted_by == "ranker" else ranker
    if ranker is not None:
        usual = {"learn_from": method.usual_rows, **ranker.usual_training(training.round_at(0)[1])}.items()
        own = {name: value for name, value in usual if name not in training.model_fields_set}
        training = training.model_copy(update=own)
    scaling = known(key, method.usual_scaling if scaling is None else scaling, SCALINGS)
    if training.learn_from == "randomized" and not method.needs_clickless:
        raise ConfigError(
            f'{method.name} compares the results of a page, and learn_from = "randomized" leaves one of each; use '
            'naive with loss = "sigmoid", or approximated_dr'
        )
    return Settings(method=method, ranker=ranker, scaling=scaling, training=training)


def settled(asked: Settings, queries: int) -> Settings:
    """The settings with what follows from the data: the weight decay of a network, where none was given."""
    if asked.training.weight_decay is not None:
        return asked
    decay = decay_for(queries) if isinstance(asked.ranker, MLP | Linear | DoublyRobustMLP) else 0.0
    return asked.model_copy(update={"training": asked.training.model_copy(update={"weight_decay": decay})})
