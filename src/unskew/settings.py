"""Settings checked strictly, in TOML as in Python, with errors that name the place and what may be meant."""

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from unskew.errors import Column, ConfigError, DataError, Key, Option, Words, parts_of

Table = dict[str, object]
"""A table of TOML that is checked once it is known what it is for."""
Made = TypeVar("Made", bound=BaseModel)
_Init = TypeVar("_Init", bound=Callable[..., None])
_Kind = TypeVar("_Kind")
BESIDE = "unskew_reproductions.methods."
"""How modules of the package beside this one begin that a saved model may name: its methods are ours too."""
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _called_in_python_only(init: _Init) -> _Init:
    """Pydantic does not call such an __init__ for models within models, whose place only the outermost knows."""
    init.__dict__["__pydantic_base_init__"] = True
    return init


class Config(BaseModel):
    """Base of all settings: frozen and strict, unknown keys forbidden; what is wrong is a ConfigError.

    >>> class Walk(Config):
    ...     steps: int = 3
    >>> Walk(stesp=4)
    Traceback (most recent call last):
    unskew.errors.ConfigError: Walk.stesp: unknown key. Did you mean steps? Known: steps.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @_called_in_python_only
    def __init__(self, **settings: object) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise _translated(error, type(self), type(self).__name__) from None


def says(config: type) -> str:
    """The first paragraph of the documentation of a config, in one line.

    >>> class Walk:
    ...     '''Go somewhere,
    ...     on foot.
    ...
    ...     More.'''
    >>> says(Walk)
    'Go somewhere, on foot.'
    """
    return " ".join(inspect.cleandoc(config.__doc__ or "").split("\n\n")[0].split())


def paper(config: type) -> str:
    """The paper that the module of a method names; empty where it names none.

    >>> from unskew.learning.methods.dla import DLA
    >>> paper(DLA)
    'Ai et al., "Unbiased Learning to Rank with Unbiased Propensity Estimation", SIGIR 2018.'
    """
    about = inspect.getdoc(inspect.getmodule(config)) or ""
    found = re.search(r"^Reference: (.+?)\n\n", about + "\n\n", re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        missing = no_such(path, "file")
        raise ConfigError(missing.message, path=path, hint=missing.hint) from error
    except OSError as error:
        raise ConfigError(error.strerror or str(error), path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not valid TOML: {error}", path=path) from error


# ---- names ----


def listed(names: Sequence[str], last: str = " and ") -> str:
    """Names as in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return last.join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint for a misspelt name, then the names there are.

    >>> did_you_mean("dlaa", ["naive", "dla"])
    'Did you mean dla? Known: dla, naive.'
    """
    names = sorted(names)
    close = difflib.get_close_matches(name, names, n=1)
    return (f"Did you mean {close[0]}? " if close else "") + f"Known: {', '.join(names)}."


def unknown_name(name: object, names: Iterable[str]) -> str:
    """The sentence of a name that is none of those there are."""
    return f"unknown name {name!r}. {did_you_mean(str(name), names)}"


def known(argument: str, name: object, names: Collection[str]) -> str:
    """The name, if it is one of the names that the argument, or the `Key` of a file, may have."""
    if not isinstance(name, str) or name not in names:
        raise ConfigError(unknown_name(name, names), argument=argument)
    return name


def kind_of(
    argument: str,
    name: object,
    kinds: Mapping[str, type[_Kind]],
    own: type[_Kind] | None = None,
    *,
    imports: bool = True,
) -> type[_Kind]:
    """The class of this name; a subclass of `own` also by `package.module:Class`.

    Without `imports`, which is for names that a saved file says, nothing is imported that is not ours.
    """
    if own is None or not isinstance(name, str) or name in kinds or ":" not in name:
        return kinds[known(argument, name, kinds)]
    module, _, kind = name.partition(":")
    if not (imports or module in sys.modules or module.startswith(BESIDE)):
        hint = f"import {module} first, where you trust it"
        raise ConfigError(f"{name} is not imported because a file names it", argument=argument, hint=hint)
    try:
        found = getattr(import_module(module), kind)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        how = "from a clone, pip install ./reproductions" if module.startswith(BESIDE) else None
        raise ConfigError(f"cannot be imported: {error}", argument=argument, value=name, hint=how) from None
    if not (isinstance(found, type) and issubclass(found, own)):
        raise ConfigError(f"no subclass of {own.__module__}.{own.__name__}", argument=argument, value=name)
    return found


def no_such(path: Path | str, what: str = "file or folder") -> DataError:
    """The error of a path that is not there, with the names beside it that may be meant."""
    place = Path(path)
    parent = next((folder for folder in place.parents if folder.is_dir()), Path())
    if parent != place.parent:
        missing = place.parent if place.parent.parent == parent else place.parts[len(parent.parts)]
        return DataError(f"there is no such {what}: no folder {missing}", path=path, hint="check the name")
    try:
        beside = sorted(each.name for each in parent.iterdir() if each.name[0] != ".")
    except OSError:
        beside = []
    lowered = {name.lower(): name for name in beside}
    close = difflib.get_close_matches(place.name.lower(), lowered, n=3, cutoff=0.6)
    close += [low for low, name in lowered.items() if Path(name).stem == place.stem and low not in close]
    meant = " or ".join(str(place.parent / lowered[name]) for name in close[:3])
    hint = f"did you mean {meant}?" if meant else "check the name"
    return DataError(f"there is no such {what}", path=path, hint=hint)


def require_columns(
    names: Iterable[str],
    present: Collection[str],
    *,
    path: Path | str | None = None,
    hint: Words = "rename or add them",
) -> None:
    """The columns that are needed are among those that there are."""
    missing = [name for name in names if name not in present]
    if missing:
        there = ", ".join(list(present)[:20])[:500] or "none"
        named = [part for name in missing for part in (", ", Column(name))][1:]
        raise DataError(("missing columns: ", *named, f"; there are {there}"), path=path, hint=hint)


# ---- settings ----


def named(argument: str, name: str, configs: Mapping[str, type[Made]], own: type[Made] | None = None) -> Made:
    """The default config of this name, which finds its class as `kind_of` does."""
    return checked(kind_of(argument, name, configs, own), {}, argument)


def table_of(
    key: str,
    content: Mapping[str, object],
    configs: Mapping[str, type[Made]],
    own: type[Made] | None = None,
    *,
    imports: bool = True,
) -> Made:
    """The config of a TOML table with a `name`, which finds its class as `kind_of` does."""
    if "name" not in content:
        raise ConfigError(f"missing. {did_you_mean('', configs)}", argument=Key(f"{key}.name"))
    name = content["name"]
    config = kind_of(Key(f"{key}.name"), name, configs, own, imports=imports)
    if ":" in str(name) or "name" not in config.model_fields:
        content = {part: value for part, value in content.items() if part != "name"}
    return checked(config, content, key)


def checked(model: type[Made], content: Mapping[str, object], key: str | None) -> Made:
    """Validate, with errors that name the key and what may have been meant; without a key it is an argument."""
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        raise _translated(error, model, key) from None


def _translated(error: ValidationError, model: type[BaseModel], key: str | None) -> ConfigError:
    """The first thing that is wrong, under its key; what else is wrong follows in the same sentence."""
    items = error.errors()
    first, message = _place(key, items[0]), parts_of(_sentence(model, items[0]))
    for item in items[1:]:
        message += ("; ", Option(_place(key, item)), ": ", *parts_of(_sentence(model, item)))
    return ConfigError(message, argument=first or None)


def _place(key: str | None, item: Any) -> str:
    # a value of several possible types has the type that it is not in its place: data.features.str
    parts = [str(part) for part in item["loc"] if not re.search(r"^(str|int|float|bool)$|\[", str(part))]
    if key is None:
        return parts[0] if parts else ""
    return Key(".".join([key, *parts] if key else parts))


def _sentence(model: type[BaseModel], item: Any) -> Words:
    if item["type"] == "extra_forbidden":
        fields = model.model_fields
        for part in item["loc"][:-1]:
            inner = fields[part].annotation if part in fields else None
            fields = inner.model_fields if isinstance(inner, type) and issubclass(inner, BaseModel) else {}
        return f"unknown key. {did_you_mean(str(item['loc'][-1]), fields)}"
    if item["type"] == "missing":
        return "missing"
    if item["type"] == "literal_error" and isinstance(item["input"], str):
        return unknown_name(item["input"], re.findall("'(.*?)'", item["ctx"]["expected"]))
    if item["type"] == "value_error":  # a validator of ours, which says all there is to say
        said: Words = item["ctx"]["error"].args[0]
        return said
    what = item["msg"].replace("a valid dictionary", "a table").replace("a valid tuple", "a list")
    given = "" if ", not " in what else f", not {item['input']!r}"
    return f"{what[0].lower()}{what[1:]}{given}"


# ---- amounts ----


def byte_count(key: str, size: str | int) -> int:
    """A size in bytes.

    >>> byte_count("memory", "4GB"), byte_count("memory", "0.5 m"), byte_count("memory", 1000)
    (4294967296, 524288, 1000)
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,3})?)\s*([KMGT]?)(?:i?B)?", str(size).strip(), re.IGNORECASE)
    if found is None or float(found[1]) == 0:
        raise ConfigError("write it like 4GB or 512MB", argument=key, value=size)
    return int(float(found[1]) * 2 ** (10 * " KMGT".index(found[2].upper() or " ")))


def second_count(key: str, time: str) -> int:
    """A length of time in seconds.

    >>> second_count("gap", "30m"), second_count("gap", "1h"), second_count("gap", "90")
    (1800, 3600, 90)
    """
    found = re.fullmatch(r"(\d{1,9})\s*([smhd]?)", time.strip())
    if found is None or int(found[1]) == 0:
        raise ConfigError("write it like 30m, 90s or 1h", argument=key, value=time)
    return int(found[1]) * SECONDS[found[2]]
