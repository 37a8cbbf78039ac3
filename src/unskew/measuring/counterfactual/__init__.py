"""What a ranking is worth, from logged clicks, without labels: estimates on different grounds, a verdict."""

from unskew.measuring.counterfactual.evidence import ClickEvidence as ClickEvidence
from unskew.measuring.counterfactual.evidence import GainEstimate as GainEstimate
from unskew.measuring.counterfactual.evidence import RankExamination as RankExamination
from unskew.measuring.counterfactual.examination import examination_of as examination_of
from unskew.measuring.counterfactual.judge import Judge as Judge
from unskew.measuring.counterfactual.pages import LoggedPages as LoggedPages
from unskew.measuring.counterfactual.pages import missing_overlap as missing_overlap
from unskew.measuring.counterfactual.pages import places as places
from unskew.measuring.counterfactual.pages import shown_places as shown_places
from unskew.measuring.page_ndcg import PageNdcg as PageNdcg
from unskew.measuring.page_ndcg import page_ndcg_metric as page_ndcg_metric
from unskew.measuring.page_ndcg import rank_weights as rank_weights
