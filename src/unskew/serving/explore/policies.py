"""A policy by its name and settings, as commands and callers give them; what is wrong is said by their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from unskew.errors import ConfigError, Key, Option
from unskew.serving.explore.plackett_luce import PlackettLuce
from unskew.serving.explore.policy import Policy
from unskew.serving.explore.shuffle import BoundedShuffle
from unskew.serving.explore.swaps import SwapRanks
from unskew.serving.explore.team_draft import TeamDraft
from unskew.serving.explore.top_one import TopOne
from unskew.settings import Config, checked, known

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
OWN: Mapping[str, str] = {"temperature": "plackett_luce", "swap_plan": "swaps", "against": "team_draft"}
"""Settings that one policy alone has."""


def policy_from(
    name: str,
    *,
    share: float | None = None,
    cap: int | None = None,
    depth: int | None = None,
    temperature: float | None = None,
    swap_plan: Path | str | None = None,
    served: str | None = None,
    against: str | None = None,
) -> Policy:
    """The policy of a name, with the settings that are given.

    `swap_plan` is the JSON of a diagnosis, for `swaps`. `served` and `against` are what the log calls the model
    that is served anyway and the one that `team_draft` interleaves with it.

    >>> policy_from("shuffle", cap=2).policy_id
    'shuffle(share=0.05,cap=2)'
    """
    policy = POLICIES[known("explore", name, POLICIES)]
    own = {"temperature": temperature, "swap_plan": swap_plan, "against": against}
    for setting, value in own.items():
        if value is not None and OWN[setting] != name:
            raise ConfigError(f"{name} has none; it is for {OWN[setting]}", argument=setting)
    usual = SHARE.get(name, 1.0) if share is None else share
    given = _given(share=usual, cap=cap, depth=depth, temperature=temperature)
    if policy is SwapRanks:
        if swap_plan is None:
            raise ConfigError(
                ("swaps needs ", Option("swap_plan"), ", the file that `unskew diagnose LOG --json FILE` writes")
            )
        return _told(SwapRanks, given | SwapRanks.plan_of(swap_plan, depth=depth))
    if policy is TeamDraft:
        if against is None:
            raise ConfigError(("team_draft interleaves two models: name the other one with ", Option("against")))
        if against == served:
            raise ConfigError("a model is not interleaved with itself", argument="against", value=against)
        given |= _given(first=served, second=against)
    return _told(policy, given)


def _given(**settings: object) -> dict[str, object]:
    """What is not left out."""
    return {name: value for name, value in settings.items() if value is not None}


def _told(policy: type[Policy], settings: Mapping[str, object]) -> Policy:
    """The policy, or an error that calls settings as they were given."""
    try:
        return checked(policy, settings, None)
    except ConfigError as error:
        if error.argument is not None and error.argument.split(".")[0] == "swaps":
            error.argument = Key(error.argument.replace("swaps", "swap_plan", 1))
        raise


class ExploreSettings(Config):
    """What is left to chance, and how much of it."""

    policy: str
    """Its name, of POLICIES."""
    share: float | None = Field(None, ge=0, le=1)
    """Share of the traffic that takes part; 0.05 unless given, 1 for `swaps` and `team_draft`."""
    cap: int | None = Field(None, ge=0)
    """Ranks that a result moves at most."""
    depth: int | None = Field(None, ge=1)
    """First results that take part."""
    temperature: float | None = Field(None, gt=0)
    """Of `plackett_luce`."""
    swap_plan: str | None = None
    """File of `unskew diagnose --json`, for `swaps`."""
    against: str | None = None
    """The model that the first one is interleaved with, for `team_draft`."""

    def build(self, first: str) -> Policy:
        """The policy; `first` is the name of the model that is shown otherwise."""
        given = self.model_dump(exclude={"policy"}, exclude_none=True)
        return policy_from(self.policy, served=first, **given)
