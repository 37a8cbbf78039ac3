"""unskew: unbiased learning to rank, from biased click logs to rankings one can trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

# The one table of public names, for type checkers and for `__getattr__`, which reads it below and imports a name
# when it is first used: torch takes seconds to import.
if TYPE_CHECKING:
    from unskew import simulation as _behaviours
    from unskew.diagnosis import click_models as _click_models
    from unskew.examination import Examination as Examination
    from unskew.learning import methods as methods
    from unskew.learning import rankers as rankers
    from unskew.learning.fitting.training import Training as Training
    from unskew.learning.scoring.model import Model as Model
    from unskew.learning.scoring.model import load as load
    from unskew.learning.scoring.scorer import Scorer as Scorer
    from unskew.logs.counts.rankings import counts as counts
    from unskew.logs.ingest.ingest import ingest as ingest
    from unskew.logs.log import write_log as write_log
    from unskew.logs.reader import read_log as read_log
    from unskew.logs.split import split as split
    from unskew.measuring import measure_ranking as measure_ranking
    from unskew.measuring.experiments.interleaving import team_draft as team_draft
    from unskew.serving.export import export as export
    from unskew.serving.service.server import serve as serve
    from unskew.serving.store.store import store as store
    from unskew.simulation import Simulation as Simulation
    from unskew.simulation import Traffic as Traffic
    from unskew.simulation import simulate as simulate
    from unskew.simulation import traffic as traffic
    from unskew.simulation.synthetic import make_lists as make_lists
    from unskew.studies.compare.compare import compare as compare
    from unskew.studies.demo import demo as demo
    from unskew.studies.plan import plan as plan
    from unskew.tables.features.features import read_features as read_features
    from unskew.tables.features.texts import read_texts as read_texts
    from unskew.tables.features.texts import with_texts as with_texts
    from unskew.tables.lists import scaling as _scalings
    from unskew.tables.lists.letor import read_letor as read_letor
    from unskew.tables.lists.letor import write_letor as write_letor
    from unskew.terminal.catalogue import catalogue as catalogue
    from unskew.terminal.doctor import doctor as doctor
    from unskew.tracking.display_times import DisplayTimes as DisplayTimes
    from unskew.tracking.display_times import display_times as display_times
    from unskew.tracking.features import with_tracked as with_tracked
    from unskew.tracking.judgments import judge as judge
    from unskew.tracking.track import track as track
    from unskew.tracking.windows import Lookup as Lookup
    from unskew.types import ClickBatch as ClickBatch
    from unskew.types import Lists as Lists
    from unskew.types import Log as Log
    from unskew.workflows.inputs.logs import log_from_table as log_from_table
    from unskew.workflows.inspections.causes import causes as causes
    from unskew.workflows.inspections.click_models import compare_click_models as compare_click_models
    from unskew.workflows.inspections.diagnosis import diagnose as diagnose
    from unskew.workflows.inspections.diagnosis import drift as drift
    from unskew.workflows.inspections.importance import importance as importance
    from unskew.workflows.inspections.impute import impute as impute
    from unskew.workflows.inspections.predict import predict as predict
    from unskew.workflows.inspections.propensity import propensity as propensity
    from unskew.workflows.inspections.report import report as report
    from unskew.workflows.proofs.experiment import experiment as experiment
    from unskew.workflows.proofs.measure import measure as measure
    from unskew.workflows.proofs.measure import ship as ship
    from unskew.workflows.runs.learn import learn as learn
    from unskew.workflows.runs.run import Run as Run
    from unskew.workflows.twins.twin import twin as twin

    behaviours = _behaviours  # a type checker exports an import only under its own name
    click_models = _click_models
    scalings = _scalings
else:
    _HOMES = {}

    def _homes():
        """Where each public name lies; read when one is first asked for, since many who import use none."""
        import ast

        for node in () if _HOMES else ast.walk(ast.parse(__loader__.get_source(__name__))):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "unskew":
                _HOMES.update({alias.asname.lstrip("_"): (node.module, alias.name) for alias in node.names})
        return _HOMES

    def __getattr__(name):
        import importlib

        homes = _homes() if name[:2] != "__" or name == "__all__" else {}
        if name == "__all__":
            return sorted(homes)
        if name not in homes:
            raise AttributeError(f"module 'unskew' has no attribute {name!r}")
        home, own = homes[name]
        module = importlib.import_module(home)
        return getattr(module, own) if hasattr(module, own) else importlib.import_module(f"{home}.{own}")

    def __dir__():
        return sorted(_homes())
