"""Parquet files: which are meant, their columns, one schema where they differ, and their rows in blocks."""

import os
import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.files import check_below, restore
from unskew.settings import no_such

Paths = Path | str | Sequence[Path | str]
EXACT = 2.0**53
"""Up to here every whole number is a float of its own."""
READ_AT_ONCE = 2**22
"""Values of a block; it has up to 65,536 rows."""


def parquet_files(paths: Paths) -> list[str]:
    """The Parquet files that are meant: files as they are, those inside folders by name, addresses as they are."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[str] = []
    for path in several:
        if isinstance(path, str) and "://" in path:
            found.append(path)
            continue
        place = restore(Path(path))
        if not place.exists():
            raise no_such(place)
        inside = [place] if place.is_file() else sorted(place.rglob("*.parquet"))
        # _temporary, .part and the like are not data
        hidden = {file for file in inside if any(part[0] in "._" for part in file.relative_to(place).parts)}
        visible = [file for file in inside if file.is_file() and file not in hidden]
        if not visible:
            raise DataError("the folder has no *.parquet files", path=place)
        check_below(place)
        found += [os.path.abspath(file) for file in visible]
    if not found:
        raise DataError("no Parquet files were named")
    return found


def impressions_in(path: Path | str) -> Path:
    """Where the impressions of a log are: where `unskew ingest` put them if the folder is its, else as named."""
    inside = restore(Path(path)) / "impressions"
    return inside if inside.is_dir() and (Path(path) / "summary.json").is_file() else Path(path)


def plain_name(path: str) -> str:
    """A name whose brackets and stars stand for themselves; an address is taken as a pattern."""
    return path if "://" in path else re.sub(r"([\[*?])", r"[\1]", path)


# ---- what is in them ----


@contextmanager
def damage_named(path: Path | str) -> Iterator[None]:
    """What Arrow and the system say about a file becomes an error of ours."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable Parquet file ({str(error)[:200]})", path=path) from error


def damaged_of(files: Sequence[str]) -> str | None:
    """The first of some files that cannot be read, or else the first."""
    for file in files:
        try:
            deque(blocks(file), 0)
        except DataError:
            return file
    return next(iter(files), None)


def count_values(about: Any) -> int:
    """Values in all columns, from the metadata of a Parquet file; lists count each of theirs."""
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    return int(sum(group.column(index).num_values for group in groups for index in range(group.num_columns)))


def blocks(path: Path | str, columns: list[str] | None = None) -> Iterator[Any]:
    """The rows of a Parquet file, block after block."""
    with damage_named(path), pq.ParquetFile(path, buffer_size=2**20) as file:
        rows = READ_AT_ONCE * file.metadata.num_rows // max(count_values(file.metadata), 1)
        size = min(max(rows, 16), 65_536)
        for group in range(file.num_row_groups):  # asked for all of them, Arrow reads ahead without bound
            for batch in file.iter_batches(batch_size=size, row_groups=[group], columns=columns):
                if len(batch):
                    yield batch


def schema_of(path: Path | str) -> Any:
    """The columns of a Parquet file; those of dictionaries as their values."""
    with damage_named(path):
        schema = pq.read_schema(path)
    return pa.schema([each.with_type(plain_type(each.type)) for each in schema])


def plain_type(kind: Any) -> Any:
    """An Arrow type, that of its values where it is a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def undone(column: Any) -> Any:
    """The column with plain values in the place of dictionary codes."""
    return column.cast(plain_type(column.type)) if pa.types.is_dictionary(column.type) else column


def alike(files: Sequence[Path | str]) -> list[list[Path | str]]:
    """The files in groups that have the same columns, of the same types; addresses are taken to be alike."""
    if len(files) < 2 or any("://" in str(file) for file in files):
        return [list(files)]
    groups: dict[frozenset[tuple[str, str]], list[Path | str]] = {}
    for file in files:
        groups.setdefault(frozenset((each.name, str(each.type)) for each in schema_of(file)), []).append(file)
    return list(groups.values())


def whole_ids(column: Any, name: str, place: Path | str) -> Any:
    """Ids that came as floats as whole numbers, as 7.0 is 7; refused where a float is no id, or several.

    >>> whole_ids(pa.array([7.0, None]), "doc_id", "log.parquet").to_pylist()
    [7, None]
    """
    if not pa.types.is_floating(column.type):
        return column
    column = pc.if_else(pc.is_nan(column), None, column)
    wrong = column.filter(pc.or_(pc.greater(pc.abs(column), EXACT), pc.not_equal(column, pc.floor(column))))
    if len(wrong):
        said = f"{name} is written as floats such as {wrong[0].as_py()!r}, which do not tell ids apart"
        hint = "write ids as text or whole numbers; pandas keeps these where one is missing with astype('Int64')"
        raise DataError(said, path=place, hint=hint)
    return column.cast(pa.int64())


def float_ids(files: Sequence[Path | str], ids: Collection[str]) -> list[str]:
    """Which of these columns of ids some file has as floats, each of them checked."""
    found = [
        (file, each.name)
        for file in files
        if "://" not in str(file)
        for each in schema_of(file)
        if each.name in ids and pa.types.is_floating(each.type)
    ]
    for file, name in found:
        whole_ids(pq.ParquetFile(file).read(columns=[name])[name], name, file)
    return sorted({name for _, name in found})


def unified(files: Sequence[Path | str], wanted: Collection[str] | None = None, ids: Collection[str] = ()) -> Any:
    """The columns of all files: numbers as wide as any, whole numbers and text as text; else the file is named.

    Where only some are `wanted`, the others may differ. Columns of `ids` are never floats.
    """
    kinds: dict[str, tuple[Any, Path | str]] = {}
    for file in files:
        for each in schema_of(file):
            if wanted is not None and each.name not in wanted:
                continue
            own = pa.int64() if each.name in ids and pa.types.is_floating(each.type) else each.type
            before, where = kinds.get(each.name, (own, file))
            kind = _common(before, own)
            if kind is None:
                hint = "write the column in one type in all files, or read them one by one"
                raise DataError(
                    f"{each.name} is of type {each.type}, and {before} in {where}", path=file, hint=hint
                )
            kinds[each.name] = kind, where
    return pa.schema([(name, kind) for name, (kind, _) in kinds.items()])


def read_unified(files: Sequence[Path | str], columns: Sequence[str], ids: Collection[str]) -> Any:
    """These columns of all files as one table; empty cells where a file lacks one."""
    schema, parts = unified(files, columns, ids), []
    for file in files:
        part = pq.ParquetFile(file).read(columns=[name for name in schema.names if name in schema_of(file).names])
        for at, name in enumerate(part.column_names):
            if name in ids:
                part = part.set_column(at, name, whole_ids(part.column(at), name, file))
        parts.append(part.cast(pa.schema([schema.field(name) for name in part.column_names])))
    return pa.concat_tables(parts, promote_options="default").select(list(columns))


def row_of(files: Sequence[Path | str], column: str, value: object) -> tuple[Path | str, int] | None:
    """The file and the row, from 1, that first have a value; None where it cannot be found again."""
    for file in files:
        if "://" not in str(file) and column in schema_of(file).names:
            cells = pq.ParquetFile(file).read(columns=[column])[column].to_pylist()
            for row, cell in enumerate(cells, 1):
                if cell == value:
                    return file, row
    return None


def _common(one: Any, other: Any) -> Any:
    texts = [pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in (one, other)]
    if all(texts) or (any(texts) and any(pa.types.is_integer(kind) for kind in (one, other))):
        return pa.string()
    try:
        fields = [pa.schema([("column", kind)]) for kind in (one, other)]
        return pa.unify_schemas(fields, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return None
