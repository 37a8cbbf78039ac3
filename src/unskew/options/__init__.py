"""What every verb can be told, said once: flags, arguments and the reference page are made from these classes."""

from __future__ import annotations

from unskew.options import diagnosis, logs, runs, serving, studies
from unskew.options.base import VerbOptions

VERBS: dict[str, type[VerbOptions]] = {
    "ingest": logs.IngestArguments,
    "split": logs.SplitArguments,
    "counts": logs.CountsArguments,
    "simulate": logs.SimulateArguments,
    "twin": logs.TwinArguments,
    "traffic": logs.TrafficArguments,
    "display_times": logs.DisplayTimesArguments,
    "track": logs.TrackArguments,
    "judge": logs.JudgeArguments,
    "impute": logs.ImputeArguments,
    "diagnose": diagnosis.DiagnoseArguments,
    "causes": diagnosis.CausesArguments,
    "compare_click_models": diagnosis.ClickModelsArguments,
    "propensity": diagnosis.PropensityArguments,
    "drift": diagnosis.DriftArguments,
    "report": diagnosis.ReportArguments,
    "learn": runs.LearnArguments,
    "measure": runs.MeasureArguments,
    "experiment": diagnosis.ExperimentArguments,
    "importance": runs.ImportanceArguments,
    "predict": runs.PredictArguments,
    "ship": runs.ShipArguments,
    "serve": serving.ServeArguments,
    "store": serving.StoreArguments,
    "export": serving.ExportArguments,
    "demo": studies.DemoArguments,
    "plan": studies.PlanArguments,
    "compare": studies.CompareArguments,
    "reproduce": studies.ReproduceArguments,
}
"""The options of each verb."""
