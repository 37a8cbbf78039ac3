"""Metrics of rankings and of click predictions, and paired comparisons between runs."""

from unskew.measuring.clicks import (
    auc_metric,
    click_loglikelihood_metric,
    listwise_click_loglikelihood_metric,
    perplexity_by_rank_metric,
    perplexity_metric,
)
from unskew.measuring.formulas import Empty, Gain
from unskew.measuring.ranked import RankedLists, rank_lists
from unskew.measuring.ranking import (
    arp_legacy_metric,
    arp_metric,
    dcg_metric,
    err_metric,
    map_metric,
    mrr_metric,
    ndcg_metric,
    precision_metric,
)
from unskew.measuring.report import DEFAULT_METRICS, RankingReport, measure_ranking
from unskew.measuring.tests import (
    Interval,
    PairedTest,
    SeedSummary,
    bootstrap_mean,
    crossed_t_test,
    gap_closed,
    holm,
    mean_over_seeds,
    paired_bootstrap,
    paired_t_test,
)

__all__ = [
    "DEFAULT_METRICS",
    "Empty",
    "Gain",
    "Interval",
    "PairedTest",
    "RankedLists",
    "RankingReport",
    "SeedSummary",
    "arp_legacy_metric",
    "arp_metric",
    "auc_metric",
    "bootstrap_mean",
    "click_loglikelihood_metric",
    "crossed_t_test",
    "dcg_metric",
    "err_metric",
    "gap_closed",
    "holm",
    "listwise_click_loglikelihood_metric",
    "map_metric",
    "mean_over_seeds",
    "measure_ranking",
    "mrr_metric",
    "ndcg_metric",
    "paired_bootstrap",
    "paired_t_test",
    "perplexity_by_rank_metric",
    "perplexity_metric",
    "precision_metric",
    "rank_lists",
]
