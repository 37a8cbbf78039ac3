"""Two places of a file system exchanged in one step, where the system can."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2
CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)
"""What a system or a file system answers that has no such thing."""


def exchange(one: Path, other: Path) -> bool:
    """Give each of two things the other's name, in one step; False where that cannot be done here."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    sys.audit("os.rename", str(one), str(other), -1, -1)  # as os.rename says it
    if call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))
