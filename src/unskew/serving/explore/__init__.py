"""Opt-in randomisation while serving, so that the next log tells examination from relevance."""

from __future__ import annotations

from unskew.serving.explore.cost import PolicyCost, chance_matrix, policy_cost
from unskew.serving.explore.plackett_luce import PlackettLuce
from unskew.serving.explore.policies import POLICIES, policy_from
from unskew.serving.explore.policy import Decision, Policy, as_ranked
from unskew.serving.explore.shuffle import BoundedShuffle
from unskew.serving.explore.swaps import SwapRanks
from unskew.serving.explore.team_draft import TeamDraft
from unskew.serving.explore.top_one import TopOne

__all__ = [
    "POLICIES",
    "BoundedShuffle",
    "Decision",
    "PlackettLuce",
    "Policy",
    "PolicyCost",
    "SwapRanks",
    "TeamDraft",
    "TopOne",
    "as_ranked",
    "chance_matrix",
    "policy_cost",
    "policy_from",
]
