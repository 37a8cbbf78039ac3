"""What `ingest` is asked for: which column is which, time zone, base of positions, rules; checked strictly."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, field_validator

from unskew.names import OURS
from unskew.settings import Config, did_you_mean

IDS = ("page_id", "query_id", "doc_id")
RULES: Mapping[str, str] = {
    "duplicate_events": "the same document at the same position of the same page, told again",
    "clicks_without_impression": "click events whose page or document was not shown",
    "clicks_before_query": "click events earlier than their page",
    "two_queries_on_one_page": "pages whose rows name more than one query",
    "two_documents_at_one_position": "pages with two documents at one position",
    "gaps_in_positions": "pages that lack more than one result and a tenth of the places from first to last",
    "robots": "pages of somebody with too many clicks or queries in a minute",
    "everything_clicked": "pages of three results or more, all of them clicked",
}
"""Every rule, in the order in which they are asked."""
OFTEN: Mapping[str, float] = {"duplicate_events": 0.5, "robots": 0.5}
"""Shares that rules may remove of a sound log, where they are larger than `max_removed`."""
Names = Annotated[tuple[str, ...], Field(strict=False)]


def _known(what: str, known: Mapping[str, object]) -> AfterValidator:
    """Refuses names that are not known; columns of a page, serp_*, have names of their own."""

    def check(names: Any) -> Any:
        for name in names:
            if name not in known and not (known is OURS and name.startswith("serp_")):
                raise ValueError(f"unknown {what} {name!r}. {did_you_mean(name, known)}")
        return names

    return AfterValidator(check)


class Times(Config):
    """How to read timestamps."""

    zone: str = "UTC"
    """Time zone of times that name none."""
    format: str | None = None
    """Format as of strptime, for text files whose times are not ISO 8601."""

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (KeyError, OSError, ValueError) as error:
            raise ValueError("there is no such time zone; write it like Europe/Berlin") from error
        return zone


class Positions(Config):
    """What positions count from, and whether they begin again."""

    base: Literal[0, 1] | None = None
    """0 or 1; found from the pages unless given."""
    page_number: str | None = None
    """Their column of the number of a results page, where positions begin again on each; they are counted on."""
    page_size: int | None = Field(default=None, ge=1)
    """Results on a results page; the most that any has unless given. 1 for a column that is an offset."""


class Pages(Config):
    """How to find pages by person, query and pause; used where there is no page_id, or where anything is given."""

    by: Names = ()
    """Columns that name a person, by our names or theirs; visit_id, else user_id, unless given."""
    gap: str | None = None
    """Pause that ends a page, such as 30m (which it is unless given)."""


class Events(Config):
    """A log whose rows are events, some of them impressions and some clicks."""

    column: str | None = None
    """The column that says which; a column named `event` is taken unless `click` is a column too."""
    impression: Names = ("impression", "view", "impress", "show")
    """Its values for a result that was shown."""
    click: Names = ("click", "clicked", "click_through")
    """Its values for a click; also the actions that are clicks in the formats ubi and metarank."""


class Robots(Config):
    """When somebody is taken for a program."""

    clicks_per_minute: int = Field(default=30, ge=1)
    """More clicks than this in a minute."""
    queries_per_minute: int = Field(default=20, ge=1)
    """More queries than this in a minute."""


class Rules(Config):
    """Which rules remove rows, and their limits."""

    off: Annotated[Names, _known("rule", RULES)] = ()
    """Rules that count but do not remove."""
    robots: Robots = Robots()
    limits: Annotated[dict[str, float], _known("rule", RULES)] = Field(default_factory=dict)
    """Shares that single rules may remove, in the place of `max_removed`."""


class Texts(Config):
    """How to read text."""

    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Between fields; a tab for .tsv, else the one of , tab ; | that the header has most of."""
    quote: str = Field(default='"', max_length=1)
    """Around fields; empty where quotes are letters like others."""
    max_expansion: int = Field(default=200, ge=1)
    """How many times its size a compressed file may grow to; more is taken for a bomb."""


class ReaderOptions(Config):
    """Settings of the formats that have a reader of their own; each reader uses those that concern it."""

    randomized: bool = False
    """Mark every result as shown in random order; for logs known to be shuffled, as RankLens is (metarank)."""
    item_fields: bool = False
    """Also keep every value of the fields of items, as the side table `item_fields` (metarank)."""
    longest_line: int = Field(default=10 * 2**20, ge=1)
    """Bytes of a record; longer ones are rejected without being held."""
    most_results: int = Field(default=10_000, ge=1, le=32_767)
    """Results on a page; larger pages are rejected."""


class IngestOptions(Config):
    """Everything that `ingest` may be told about a log."""

    columns: Annotated[dict[str, str], _known("column", OURS)] = Field(default_factory=dict)
    """Our name to theirs; in JSON lines a nested field is written as a pointer: /hit/id."""
    keep: Names = ()
    """Further columns to keep."""
    page: Names = ()
    """Our names of the columns that together make one page, where there is no page_id."""
    pages: Pages = Pages()
    time: Times = Times()
    positions: Positions = Positions()
    events: Events = Events()
    rules: Rules = Rules()
    files: Texts = Texts()
    reader: ReaderOptions = ReaderOptions()
    """For formats with a reader of their own."""
    max_rejected: float = Field(default=0.01, ge=0, le=1, strict=False)
    """Share of broken rows past which nothing is written."""
    max_removed: float = Field(default=0.2, ge=0, le=1, strict=False)
    """Share of rows that a rule, and all of them, may remove; robots and duplicates may take half."""

    def source(self, name: str) -> str:
        """Their name of one of our columns."""
        return self.columns.get(name, name)

    @property
    def ids(self) -> set[str]:
        """Their names of all columns of ids."""
        return {self.source(name) for name in (*IDS, "visit_id", "user_id")}

    def known(self) -> list[str]:
        """Their names of all columns that are read where they are there; serp_* come on top."""
        ours = (self.source(name) for name in (*OURS, *self.page))
        further = [*self.keep, *self.further(), self.events.column or "event"]
        return list(dict.fromkeys([*self.columns.values(), *ours, *further]))

    def further(self) -> list[str]:
        """Columns that are needed besides those that are named and kept."""
        mapped = self.columns.values()
        people = [name for name in self.pages.by if name not in OURS and name not in mapped]
        return people + ([] if self.positions.page_number is None else [self.positions.page_number])

    def wanted(self, present: list[str]) -> list[str]:
        """The columns of a file that are needed, in its order; pointers into JSON after them."""
        theirs = set(self.known())
        found = [name for name in dict.fromkeys(present) if name in theirs or name.startswith("serp_")]
        pointers = sorted(name for name in set(self.columns.values()) if name.startswith("/"))
        return found + [name for name in pointers if name not in found]
