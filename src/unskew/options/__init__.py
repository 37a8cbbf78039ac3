"""What every verb can be told, said once: flags, arguments and the reference page are made from these classes."""

from unskew.options import logs, runs
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
    "diagnose": logs.DiagnoseArguments,
    "causes": logs.CausesArguments,
    "compare_click_models": logs.ClickModelsArguments,
    "propensity": logs.PropensityArguments,
    "drift": logs.DriftArguments,
    "report": logs.ReportArguments,
    "learn": runs.LearnArguments,
    "measure": runs.MeasureArguments,
    "experiment": logs.ExperimentArguments,
    "importance": runs.ImportanceArguments,
    "predict": runs.PredictArguments,
    "ship": runs.ShipArguments,
    "serve": runs.ServeArguments,
    "store": runs.StoreArguments,
    "export": runs.ExportArguments,
    "demo": runs.DemoArguments,
    "plan": runs.PlanArguments,
    "compare": runs.CompareArguments,
}
"""The options of each verb."""
