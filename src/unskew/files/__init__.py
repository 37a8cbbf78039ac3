"""Files and folders: written whole or not at all, never over what is not ours, and read under guard."""

from unskew.files.locks import Scratch, locked, scratch_folder
from unskew.files.reading import FREE, PACKED, WRITERS, PathLike, digest_of, read_json, unpacked
from unskew.files.writing import (
    CACHED,
    Ours,
    beside,
    complete_file,
    complete_folder,
    is_free,
    parts,
    publish,
    refuse_existing,
    remove,
    restore,
    told_of_disks,
    write_json,
    write_text,
)

__all__ = [
    "CACHED",
    "FREE",
    "PACKED",
    "WRITERS",
    "Ours",
    "PathLike",
    "Scratch",
    "beside",
    "complete_file",
    "complete_folder",
    "digest_of",
    "is_free",
    "locked",
    "parts",
    "publish",
    "read_json",
    "refuse_existing",
    "remove",
    "restore",
    "scratch_folder",
    "told_of_disks",
    "unpacked",
    "write_json",
    "write_text",
]
