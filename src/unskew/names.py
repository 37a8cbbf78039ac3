"""What columns are called: our names and what they mean, and theirs where a user has others.

A table is opened with the names that its owner gave (`columns={"position": "rank"}`), and under ours from then on.
What goes wrong later is told with both names, "rank (position)".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError, DataError
from unskew.files import read_json
from unskew.settings import did_you_mean, read_toml

REQUIRED = {
    "page_id": "string or int, one list of results shown once",
    "query_id": "string or int, as in the lists",
    "doc_id": "string or int, as in the lists",
    "position": "int, the rank shown, from 1",
    "click": "0 or 1",
}
"""Columns that every log has."""
OPTIONAL = {
    "timestamp": "timestamp (UTC), for tracking and for splits by time",
    "display_time": "float, seconds in view",
    "dwell_time": "float, seconds on the document after a click",
    "randomized": "bool, true where the slot was filled at random",
    "propensity": "float, chance that this slot showed this result, known by design",
    "policy_id": "string, which ranker ordered the page",
    "team": "string, which of two interleaved rankings picked the result",
    "logging_score": "float, what it was ordered by",
    "query_text": "string, for text rankers",
    "title": "string, for text rankers",
    "abstract": "string, for text rankers",
    "label": "int, for evaluation only; never read into a log",
}
"""Columns that mean something where they are present; serp_* and any other column are carried along."""
OURS = {
    **REQUIRED,
    **OPTIONAL,
    "visit_id": "string or int, a visit that spans several pages",
    "user_id": "string or int, who saw the page",
}
"""Columns that have a meaning, besides serp_*."""
CLUSTERS = ("user_id", "visit_id")
"""Who clicks: clicks of one hang together, so the values of the first that a log has are what counts once."""
HEAVY = 4.0
"""Times the clicks of a cluster on average from which it has far more than others."""
KEYS = ("query_id", "doc_id")
"""What features, texts and labels go by."""
TEXT = ("query_text", "title", "abstract")
"""Columns of text. They say the same for every impression of a document, so they belong to the lists."""
NOT_FEATURES = (*KEYS, "label", *TEXT)
"""What a table of features may have besides features."""
USUAL: Mapping[str, str] = {
    "page_id": "page serp_id search_id request_id impression_id query_uuid page_view_id",
    "query_id": "query qid search_term search_query search term keyword keywords q query_string search_string "
    "search_phrase phrase",
    "doc_id": "doc document_id document did item_id item sku product_id product url asin article_id listing_id "
    "offer_id result_id object_id content_id video_id",
    "position": "pos rank slot ranking result_position result_rank display_position place",
    "click": "clicked is_click is_clicked has_click was_clicked clicks",
    "timestamp": "time ts datetime date_time event_time timestamp_ms time_ms ts_ms epoch_ms unix_time created_at "
    "date shown_at event_timestamp",
    "user_id": "user uid customer_id customer visitor_id visitor client_id person_id person cookie_id device_id "
    "account_id member_id",
    "visit_id": "visit session_id session",
}
"""What columns are often called, the likeliest first."""


class Names(dict[str, str]):
    """Our names of columns to theirs, where a user named them.

    >>> names = Names({"position": "rank"})
    >>> names.theirs("position"), names.theirs("click"), names.ours("rank")
    ('rank', 'click', 'position')
    """

    @classmethod
    def of(cls, columns: Mapping[str, str] | None, told: object = None) -> Names:
        """The names that were given; else those that a run, or the folder of a log or run, was made with."""
        folder = told if isinstance(told, str | Path) else getattr(told, "folder", None)
        return cls(columns or ({} if folder is None else _remembered(Path(folder))))

    def theirs(self, ours: str) -> str:
        """What a user calls one of our columns."""
        return self.get(ours, ours)

    def ours(self, theirs: str) -> str:
        """What we call a user's column."""
        return next((ours for ours, name in self.items() if name == theirs), theirs)

    def only(self, ours: Collection[str]) -> Names:
        """Those of these columns of ours."""
        return Names({name: theirs for name, theirs in self.items() if name in ours})

    def within(self, present: Collection[str]) -> Names:
        """Those of a table with these columns; several tables are opened with one set of names."""
        return Names({name: theirs for name, theirs in self.items() if theirs in present})

    def check(
        self, present: Sequence[str], path: Path | str | None = None, known: Collection[str] = OURS
    ) -> Names:
        """These names, after a check that ours are known and theirs are there."""
        for ours, theirs in self.items():
            if ours not in known and not ours.startswith("serp_"):
                raise ConfigError(f"unknown column {ours!r}. {did_you_mean(ours, known)}", argument="columns")
            if theirs not in present:
                raise DataError(_absent(ours, theirs, present), path=path)
        return self

    def check_some(self, tables: Iterable[Any]) -> None:
        """Every column that is named is there, in one of the tables of Arrow."""
        present = list(dict.fromkeys(name for table in tables for name in table.column_names))
        for ours, theirs in self.items():
            if theirs not in present:
                raise ConfigError(_absent(ours, theirs, present), argument="columns")

    def renamed(self, present: Iterable[str]) -> dict[str, str]:
        """Their columns to ours, of a table with these; one of theirs that has a name of ours gives way."""
        ours = {theirs: name for name, theirs in self.items()}
        return {name: ours.get(name, name) for name in present if name in ours or name not in self}

    @contextmanager
    def told(self) -> Iterator[None]:
        """Errors that speak of one of our columns name theirs with it.

        >>> from unskew.errors import Column
        >>> with Names({"position": "rank"}).told():
        ...     raise DataError((Column("position"), " is of type string"))
        Traceback (most recent call last):
        unskew.errors.DataError: rank (position) is of type string
        """
        try:
            yield
        except DataError as error:
            error.names = error.names or self
            raise


def _absent(ours: str, theirs: str, present: Sequence[str]) -> str:
    return f"there is no column {theirs!r} for {ours}. {did_you_mean(theirs, present[:50])}"


NO_NAMES = Names()
"""Where every column has our name."""


def _remembered(folder: Path) -> dict[str, str]:
    """What columns were called when a log was ingested (summary.json) or a run learned (run.toml)."""
    if (folder / "run.toml").is_file():
        return dict(read_toml(folder / "run.toml").get("data", {}).get("columns", {}))
    try:
        names: Any = read_json(folder / "summary.json").get("names")
    except (DataError, OSError, ValueError, AttributeError):
        return {}
    sound = isinstance(names, dict) and all(isinstance(each, str) for pair in names.items() for each in pair)
    return dict(names) if sound else {}


def guess_columns(present: Sequence[str]) -> dict[str, str]:
    """Which of these columns may be which of ours; those that are called so already are left out.

    >>> guess_columns(["searchTerm", "SKU", "rank", "click"])
    {'query_id': 'searchTerm', 'doc_id': 'SKU', 'position': 'rank'}
    """
    plain: dict[str, str] = {}
    for name in present:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip('\ufeff "'))
        plain.setdefault(re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_"), name)
    found: dict[str, str] = {}
    for ours, usual in USUAL.items():
        named = next((plain[word] for word in (ours, *usual.split()) if word in plain), None)
        if ours not in present and named is not None and named not in OURS:
            found[ours] = named
    return found
