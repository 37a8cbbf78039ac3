"""Opt-in randomisation while serving, so that the next log tells examination from relevance.

A policy is made of its name and settings, as commands and callers give them; what is wrong is said by their names.
"""

from collections.abc import Mapping

from pydantic import Field

from unskew.errors import ConfigError, Key, Option
from unskew.options.runs import ExploreArguments
from unskew.serving.explore.plackett_luce import PlackettLuce
from unskew.serving.explore.policy import Decision, Policy, PolicyCost, as_ranked, chance_matrix, policy_cost
from unskew.serving.explore.scoreless import BoundedShuffle, SwapRanks, TeamDraft, TopOne
from unskew.settings import checked, known

__all__ = [
    "POLICIES",
    "BoundedShuffle",
    "Decision",
    "ExploreSettings",
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

POLICIES: dict[str, type[Policy]] = {
    "top_one": TopOne,
    "swaps": SwapRanks,
    "shuffle": BoundedShuffle,
    "plackett_luce": PlackettLuce,
    "team_draft": TeamDraft,
}
"""Every policy by its name."""
SHARE: Mapping[str, float] = {"top_one": 0.05, "shuffle": 0.05, "plackett_luce": 0.05}
"""Share of the traffic that takes part unless given; a swap plan and an experiment say it themselves."""


class ExploreSettings(ExploreArguments):
    """What is left to chance, and how much of it."""

    policy: str = Field()

    def build(self, served: str | None = None) -> Policy:
        """The policy; `served` is what the log calls the model that is shown otherwise."""
        policy = POLICIES[known("explore", self.policy, POLICIES)]
        share = SHARE.get(self.policy, 1.0)
        given = {"share": share} | self.model_dump(exclude={"policy"}, exclude_none=True)
        if policy is SwapRanks:
            if (plan := given.pop("swap_plan", None)) is None:
                told = ", the file that `unskew diagnose LOG --json FILE` writes"
                raise ConfigError(("swaps needs ", Option("swap_plan"), told))
            given |= SwapRanks.plan_of(plan, depth=self.depth)
        if policy is TeamDraft:
            if (against := given.pop("against", None)) is None:
                told = "team_draft interleaves two models: name the other one with "
                raise ConfigError((told, Option("against")))
            if against == served:
                raise ConfigError("a model is not interleaved with itself", argument="against", value=against)
            given |= {"second": against} | ({} if served is None else {"first": served})
        try:
            return checked(policy, given, None)
        except ConfigError as error:  # it calls settings as they were given
            if error.argument is not None and error.argument.split(".")[0] == "swaps":
                error.argument = Key(error.argument.replace("swaps", "swap_plan", 1))
            raise


def policy_from(name: str, *, served: str | None = None, **settings: object) -> Policy:
    """The policy of a name, with the other settings of `ExploreSettings` that are given.

    >>> policy_from("shuffle", cap=2).policy_id
    'shuffle(share=0.05,cap=2)'
    """
    return checked(ExploreSettings, {"policy": name, **settings}, None).build(served)
