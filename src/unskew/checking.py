"""TOML and settings checked strictly, with errors that name the key and what may have been meant."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from unskew.errors import ConfigError, did_you_mean


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def known(key: str, name: str, names: Mapping[str, Any]) -> str:
    """The name, if it is one of the names."""
    if not isinstance(name, str) or name not in names:
        raise ConfigError(f"{key}: unknown name {name!r}. {did_you_mean(str(name), names)}")
    return name


def named(key: str, name: str, configs: Mapping[str, type[Any]]) -> Any:
    """The default config of this name."""
    return configs[known(key, name, configs)]()


def table_of(key: str, content: dict[str, Any], configs: Mapping[str, type[Any]]) -> Any:
    """The config of a TOML table with a `name`."""
    if "name" not in content:
        raise ConfigError(f"{key}.name: missing. {did_you_mean('', configs)}")
    name = content["name"]
    return checked(configs[known(f"{key}.name", name, configs)], content, key)


def checked(model: type[Any], content: Mapping[str, Any], key: str) -> Any:
    """Validate, with errors that name the key and what may have been meant."""
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(model, key, item) for item in error.errors())) from None


def _sentence(model: type[BaseModel], key: str, item: Any) -> str:
    # a value of several possible types has the type that it is not in its place: data.lists.str
    parts = [str(part) for part in item["loc"] if not re.search(r"^(str|int|float|bool)$|\[", str(part))]
    place = ".".join([key, *parts] if key else parts)
    if item["type"] == "extra_forbidden":
        fields = model.model_fields
        for part in item["loc"][:-1]:
            inner = fields[part].annotation if part in fields else None
            fields = inner.model_fields if isinstance(inner, type) and issubclass(inner, BaseModel) else {}
        return f"{place}: unknown key. {did_you_mean(str(item['loc'][-1]), fields)}"
    if item["type"] == "missing":
        return f"{place}: missing"
    if item["type"] == "value_error":  # a validator of ours, which says all there is to say
        return f"{place}: {str(item['msg']).removeprefix('Value error, ')}".removeprefix(": ")
    what = item["msg"].replace("a valid dictionary", "a table").replace("a valid tuple", "a list")
    return f"{place}: {what[0].lower()}{what[1:]}, not {item['input']!r}"
