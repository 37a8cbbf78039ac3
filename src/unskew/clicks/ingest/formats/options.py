"""What a user may set about a format reader."""

from __future__ import annotations

from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator

from unskew.checking import Config


class ReaderOptions(Config):
    """Settings of the format readers; each reader uses those that concern it."""

    click_actions: Annotated[tuple[str, ...], Field(strict=False)] = ("click", "click_through")
    """Names of the actions that are clicks (ubi: action_name, ranklens: type)."""
    ordinal_base: int | None = Field(None, ge=0, le=1)
    """Whether ordinals of UBI events count from 0 or 1; None finds out from the log."""
    timezone: str = "UTC"
    """Zone of times that name none."""
    randomized: bool = False
    """Mark every result as shown in random order; for logs known to be shuffled, as RankLens is (ranklens)."""
    items: bool = False
    """Also keep the fields of the items, as the side table `items` (ranklens)."""
    longest_line: int = Field(10 * 2**20, ge=1)
    """Bytes of a record; longer ones are rejected without being held."""
    most_results: int = Field(10_000, ge=1, le=32_767)
    """Results on a page; larger pages are rejected."""
    expansion: int = Field(1_000, ge=1)
    """How many times its size a compressed file may expand to, once past `expansion_floor`."""
    expansion_floor: int = Field(256 * 2**20, ge=0)
    """Bytes that a compressed file may always expand to."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"unknown time zone {name!r}; name one as in 'Europe/Paris'") from error
        return name
