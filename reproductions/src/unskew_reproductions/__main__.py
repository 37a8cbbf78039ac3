"""`python -m unskew_reproductions NAME`: the same as `unskew reproduce NAME`."""

from __future__ import annotations

import sys

from unskew.terminal.main import main

if __name__ == "__main__":
    sys.argv.insert(1, "reproduce")
    main()
