"""What a verb returns: a typed object, and the one way from it, or from anything else of ours, to JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Result:
    """Base of the frozen dataclasses that verbs return.

    >>> @dataclass(frozen=True)
    ... class Ratio(Result):
    ...     clicks: int
    ...     pages: int
    ...     told = ("rate",)
    ...
    ...     @property
    ...     def rate(self) -> float:
    ...         return self.clicks / self.pages if self.pages else math.nan
    >>> Ratio(1, 4).to_dict(), Ratio(0, 0).to_json()
    ({'clicks': 1, 'pages': 4, 'rate': 0.25}, '{"clicks": 0, "pages": 0, "rate": null}')
    """

    told: ClassVar[tuple[str, ...]] = ()
    """Properties that `to_dict` has after the fields."""
    untold: ClassVar[tuple[str, ...]] = ()
    """Fields that `to_dict` leaves out."""
    absent: ClassVar[tuple[str, ...]] = ()
    """Fields that it leaves out where they are None."""

    def to_dict(self) -> dict[str, Any]:
        """Fields and told properties by name, as JSON has them: lists, texts, numbers, None where one is NaN."""
        names = [each.name for each in fields(self) if each.name not in self.untold]
        found = {name: getattr(self, name) for name in (*names, *self.told)}
        return {name: plain(each) for name, each in found.items() if each is not None or name not in self.absent}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as a JSON document."""
        return json_text(self, indent)


def json_text(value: object, indent: int | None = None) -> str:
    """Any value as a JSON document."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def plain(value: object) -> Any:
    """A value as JSON has it: results are objects, arrays are lists, NaN is null, what has no form there is text.

    >>> plain({1: (1, math.nan), "b": ValueError("c")})
    {'1': [1, None], 'b': 'c'}
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(each) for each in value]
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "model_dump"):  # pydantic
        return plain(value.model_dump(mode="json"))
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy
        return plain(value.tolist())
    return str(value)
