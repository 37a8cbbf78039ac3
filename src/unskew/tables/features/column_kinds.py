"""What the columns of a table are: numbers, days, vectors or categories, and which of them are no features.

A column of text that has a value of its own for most items is an id or a text, no category: it is left out, and a
note says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.errors import DataError, printable
from unskew.names import NOT_FEATURES
from unskew.tables.features.table_parts import FeatureTable
from unskew.tables.features.values import Feature, ValueKind, kind_of_type, text_values, vector_width

MOST_VALUES = 100_000
"""Distinct values past which text is no category."""
FEW_VALUES = 50
"""Distinct values up to which it always is."""
Notes = list[str]
Taken = Mapping[str, bool]
"""The features that a model takes, and whether each is a category."""


def surveyed(table: FeatureTable, notes: Notes, taken: Taken | None) -> FeatureTable:
    """The table with its features: what each column is, and the values of categories."""
    kinds: dict[str, ValueKind] = {}
    names = [name for name in table.parts[0].schema.names if name not in NOT_FEATURES and _is_taken(name, taken)]
    for name in names:
        found = [kind_of_type(name, part.schema.field(name).type, part.path) for part in table.parts]
        several = sorted({kind for kind in found if kind is not None})
        if taken is not None and name in taken and (taken[name] or not several):
            kinds[name] = "category" if taken[name] else "number"
        elif not several:
            notes.append(f"{printable(table.path)}: {name} has no values, and is left out")
        elif len(several) > 1 and "vector" in several:
            raise DataError(f"{name} has lists in one part alone", path=table.path, hint="write all parts alike")
        else:
            kinds[name] = several[0]  # category comes first: a part may have numbers alone
    values = _values(table, [name for name, kind in kinds.items() if kind == "category"], notes, taken or {})
    features = []
    for name, kind in kinds.items():
        if kind == "vector":
            features.append(Feature(name, kind, _width(table, name)))
        elif kind != "category" or name in values:
            features.append(Feature(name, kind, values=values.get(name, ())))
    return FeatureTable(table.kind, table.parts, tuple(features))


def _is_taken(name: str, taken: Taken | None) -> bool:
    """Whether a model takes a column, or the numbers of its lists."""
    return taken is None or name in taken or f"{name}[0]" in taken


def _width(table: FeatureTable, name: str) -> int:
    batches = (batch for part in table.parts for batch in part.blocks([name]))
    return next((width for batch in batches if (width := vector_width(batch[name]))), 0)


def _values(table: FeatureTable, names: Sequence[str], notes: Notes, taken: Taken) -> dict[str, tuple[str, ...]]:
    """The values of each category; those that are none, or have none, are noted and left out."""
    if not names:
        return {}
    found: dict[str, set[str]] = {name: set() for name in names}
    keys: set[str] = set()
    key = table.keys[-1]
    for part in table.parts:
        for batch in part.blocks([key, *names]):
            keys |= text_values([batch[key]])
            for name, seen in found.items():
                if len(seen) <= MOST_VALUES:
                    seen |= text_values([batch[name]])
    kept: dict[str, tuple[str, ...]] = {}
    for name, seen in found.items():
        if name in taken:
            kept[name] = tuple(sorted(seen))
        elif not seen:
            notes.append(f"{printable(table.path)}: {name} has no values, and is left out")
        elif len(seen) > MOST_VALUES or len(seen) > max(FEW_VALUES, len(keys) / 2):
            more = "more than " if len(seen) > MOST_VALUES else ""
            count = min(len(seen), MOST_VALUES)
            notes.append(
                f"{printable(table.path)}: {name} has {more}{count:,} values over {len(keys):,} "
                f"{'queries' if table.kind == 'query' else 'documents'}, an id or a text and no category; it is "
                "left out"
            )
        else:
            kept[name] = tuple(sorted(seen))
    return kept
