"""unskew: unbiased learning to rank, from biased click logs to rankings one can trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

# The one table of public names, for type checkers and for `__getattr__`, which reads it below and imports a name
# when it is first used: torch takes seconds to import.
if TYPE_CHECKING:
    from unskew.clicks import simulate as _behaviours
    from unskew.clicks.counts.counting import counts as counts
    from unskew.clicks.ingest.logs import ingest as ingest
    from unskew.clicks.lists.features import read_features as read_features
    from unskew.clicks.lists.letor import read_letor as read_letor
    from unskew.clicks.lists.letor import write_letor as write_letor
    from unskew.clicks.lists.presets import read_preset as read_preset
    from unskew.clicks.lists.scaling import SCALINGS as SCALINGS
    from unskew.clicks.lists.synthetic import make_lists as make_lists
    from unskew.clicks.lists.texts import read_texts as read_texts
    from unskew.clicks.lists.texts import with_texts as with_texts
    from unskew.clicks.lists.tracked import with_tracked as with_tracked
    from unskew.clicks.log import read_log as read_log
    from unskew.clicks.log import write_log as write_log
    from unskew.clicks.simulate import BEHAVIOURS as BEHAVIOURS
    from unskew.clicks.simulate import Simulation as Simulation
    from unskew.clicks.simulate import Traffic as Traffic
    from unskew.clicks.simulate import simulate as simulate
    from unskew.clicks.split import split as split
    from unskew.clicks.tables import lists_from_table as lists_from_table
    from unskew.clicks.tables import log_from_table as log_from_table
    from unskew.clicks.tracking.examination import Examination as Examination
    from unskew.clicks.tracking.examining import examination as examination
    from unskew.clicks.tracking.judgments import judge as judge
    from unskew.clicks.tracking.track import track as track
    from unskew.clicks.tracking.windows import Lookup as Lookup
    from unskew.diagnosis import models as _click_models
    from unskew.learning import methods as methods
    from unskew.learning import rankers as rankers
    from unskew.learning.fitting.training import Training as Training
    from unskew.learning.methods import METHODS as METHODS
    from unskew.learning.model import Model as Model
    from unskew.learning.model import load as load
    from unskew.learning.scorer import Scorer as Scorer
    from unskew.learning.scorer import load_scorer as load_scorer
    from unskew.measuring import measure_ranking as measure_ranking
    from unskew.measuring.interleaving import team_draft as team_draft
    from unskew.running.causes import causes as causes
    from unskew.running.diagnosis import diagnose as diagnose
    from unskew.running.drift import drift as drift
    from unskew.running.experiment import experiment as experiment
    from unskew.running.importance import importance as importance
    from unskew.running.impute import impute as impute
    from unskew.running.learn import learn as learn
    from unskew.running.measure import measure as measure
    from unskew.running.predict import predict as predict
    from unskew.running.proof import prove as prove
    from unskew.running.propensity import propensity as propensity
    from unskew.running.report import report as report
    from unskew.running.run import Run as Run
    from unskew.running.ship import ship as ship
    from unskew.running.twin import twin as twin
    from unskew.serving.export import export as export
    from unskew.serving.starting import serve as serve
    from unskew.serving.store.putting import store as store
    from unskew.studies.compare.compare import compare as compare
    from unskew.studies.demo import demo as demo
    from unskew.studies.plan import plan as plan
    from unskew.studies.reproduce.reproduce import reproduce as reproduce
    from unskew.terminal.doctor import doctor as doctor
    from unskew.types import ClickBatch as ClickBatch
    from unskew.types import Lists as Lists
    from unskew.types import Log as Log

    behaviours = _behaviours  # a type checker exports an import only under its own name
    click_models = _click_models
else:
    import ast
    import importlib

    def _homes():
        for node in ast.walk(ast.parse(__loader__.get_source(__name__))):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("unskew."):
                yield from ((alias.asname.lstrip("_"), (node.module, alias.name)) for alias in node.names)

    _HOMES = dict(_homes())
    __all__ = sorted(_HOMES)

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'unskew' has no attribute {name!r}")
        home, own = _HOMES[name]
        module = importlib.import_module(home)
        return getattr(module, own) if hasattr(module, own) else importlib.import_module(f"{home}.{own}")

    def __dir__():
        return sorted([*globals(), *__all__])
