"""Columns under the names that a user gave them: taken for ours, guessed at, and named in what goes wrong."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from unskew.errors import ConfigError, DataError
from unskew.files import read_json
from unskew.settings import did_you_mean
from unskew.tables.schema import OURS

Columns = Mapping[str, str]
"""Our names of columns to theirs: {"position": "rank"}."""
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


def their_columns(
    columns: Columns | None,
    present: Sequence[str],
    path: Path | str | None = None,
    known: Collection[str] = OURS,
) -> dict[str, str]:
    """What `columns` names, after a check that ours are known and theirs are there."""
    for ours, theirs in (columns or {}).items():
        if ours not in known and not ours.startswith("serp_"):
            raise ConfigError(f"columns=: unknown column {ours!r}. {did_you_mean(ours, known)}")
        if theirs not in present:
            what = f"there is no column {theirs!r} for {ours}. {did_you_mean(theirs, present[:50])}"
            raise DataError(what, path=path)
    return dict(columns or {})


def names_of(log: Path) -> dict[str, str]:
    """What the columns of a log were called before it was ingested, {ours: theirs}; none where nobody wrote it."""
    try:
        names = read_json(log / "summary.json").get("names")
    except (DataError, OSError, ValueError, AttributeError):
        return {}
    known = isinstance(names, dict) and all(isinstance(each, str) for pair in names.items() for each in pair)
    return dict(names) if known and isinstance(names, dict) else {}


@contextmanager
def told_by_their_names(columns: Columns | None) -> Iterator[None]:
    """Errors that name one of our columns name theirs with it.

    >>> with told_by_their_names({"position": "rank"}):
    ...     raise DataError("position is of type string")
    Traceback (most recent call last):
    unskew.errors.DataError: rank (position) is of type string
    """
    try:
        yield
    except DataError as error:
        said = str(error)
        for ours, theirs in (columns or {}).items():
            if ours != theirs and not re.search(rf"(?<![\w]){re.escape(theirs)}(?![\w])", said):
                both = f"{theirs} ({ours})".replace("\\", r"\\")
                said = re.sub(rf"(?<![\w./-]){ours}(?![\w./=-])", both, said, count=1)
        error.args = (said,)
        raise
