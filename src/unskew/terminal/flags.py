"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ListFiles = Annotated[
    list[str], typer.Option("--lists", help="LETOR file; give it several times for several files.")
]
DocIds = Annotated[bool, typer.Option("--doc-ids", help="Take document ids from the comments of the files.")]
EngineName = Annotated[str, typer.Option("--engine", help="duckdb or spark.")]
SparkMaster = Annotated[
    str | None, typer.Option("--spark-master", help="local[N], spark://host:port, sc://host:port.")
]
Memory = Annotated[str | None, typer.Option("--memory", help="Memory for the engine, such as 4GB.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads of the engine.")]
Scratch = Annotated[Path | None, typer.Option("--scratch", help="Folder to spill to, instead of the system's.")]
