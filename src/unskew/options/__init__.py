"""What every verb can be told, said once: flags, arguments and the reference page are made from these classes."""

from __future__ import annotations

from unskew.options.base import EngineConnection, VerbOptions
from unskew.options.diagnosis import (
    CausesArguments,
    ClickModelsArguments,
    DiagnoseArguments,
    DriftArguments,
    ExperimentArguments,
    PropensityArguments,
    ReportArguments,
)
from unskew.options.logs import (
    CountsArguments,
    DisplayTimesArguments,
    ImputeArguments,
    IngestArguments,
    JudgeArguments,
    SimulateArguments,
    SplitArguments,
    TrackArguments,
    TrafficArguments,
    TwinArguments,
)
from unskew.options.runs import (
    ImportanceArguments,
    LearnArguments,
    MeasureArguments,
    PredictArguments,
    ShipArguments,
)
from unskew.options.serving import ExploreArguments, ExportArguments, ServeArguments, StoreArguments
from unskew.options.studies import CompareArguments, DemoArguments, PlanArguments, ReproduceArguments

VERBS: dict[str, type[VerbOptions]] = {
    "ingest": IngestArguments,
    "split": SplitArguments,
    "counts": CountsArguments,
    "simulate": SimulateArguments,
    "twin": TwinArguments,
    "traffic": TrafficArguments,
    "display_times": DisplayTimesArguments,
    "track": TrackArguments,
    "judge": JudgeArguments,
    "impute": ImputeArguments,
    "diagnose": DiagnoseArguments,
    "causes": CausesArguments,
    "click_models": ClickModelsArguments,
    "propensity": PropensityArguments,
    "drift": DriftArguments,
    "report": ReportArguments,
    "learn": LearnArguments,
    "measure": MeasureArguments,
    "experiment": ExperimentArguments,
    "importance": ImportanceArguments,
    "predict": PredictArguments,
    "ship": ShipArguments,
    "serve": ServeArguments,
    "store": StoreArguments,
    "export": ExportArguments,
    "demo": DemoArguments,
    "plan": PlanArguments,
    "compare": CompareArguments,
    "reproduce": ReproduceArguments,
}
"""The options of each verb."""

__all__ = [
    "VERBS",
    "CausesArguments",
    "ClickModelsArguments",
    "CompareArguments",
    "CountsArguments",
    "DemoArguments",
    "DiagnoseArguments",
    "DisplayTimesArguments",
    "DriftArguments",
    "EngineConnection",
    "ExperimentArguments",
    "ExploreArguments",
    "ExportArguments",
    "ImportanceArguments",
    "ImputeArguments",
    "IngestArguments",
    "JudgeArguments",
    "LearnArguments",
    "MeasureArguments",
    "PlanArguments",
    "PredictArguments",
    "PropensityArguments",
    "ReportArguments",
    "ReproduceArguments",
    "ServeArguments",
    "ShipArguments",
    "SimulateArguments",
    "SplitArguments",
    "StoreArguments",
    "TrackArguments",
    "TrafficArguments",
    "TwinArguments",
    "VerbOptions",
]
