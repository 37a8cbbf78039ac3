"""Starting a Spark session: beside this process, on a standalone master, or through Spark Connect."""

from __future__ import annotations

import os
import shutil
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from unskew.errors import ConfigError
from unskew.tables.engine.engine import first_line

WAIT = 60.0
"""Seconds to wait for workers of a cluster."""
ANSWER = 5.0
"""Seconds to wait for a master's port."""
CONNECT_PORT = 15002
LOOPBACK = ("127.0.0.1", "localhost")


def classic_session(
    master: str | None, memory: int | None, threads: int | None, scratch: Path
) -> tuple[Any, bool]:
    """A session with the JVM beside this process, and whether it was started here."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        at = running.sparkContext.master
        if master is not None and master != at:
            raise ConfigError(f'spark_master="{master}": a session on {at} is running; stop it first')
        return running.newSession(), False
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        raise ConfigError('engine="spark" needs Java 17 or later: install it, or set JAVA_HOME')
    cores = threads or os.cpu_count() or 1
    local = master is None or master.startswith("local")
    settings = {
        "spark.master": master or f"local[{cores}]",
        "spark.app.name": "unskew",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_settings(scratch)}",
    }
    if local or urlsplit(str(master)).hostname in LOOPBACK:
        settings |= {"spark.driver.host": LOOPBACK[0], "spark.driver.bindAddress": LOOPBACK[0]}
    if local:
        settings["spark.sql.shuffle.partitions"] = str(max(8, 4 * cores))
    elif threads is not None:
        settings["spark.cores.max"] = str(threads)
    if memory is not None:
        settings["spark.driver.memory" if local else "spark.executor.memory"] = f"{max(memory >> 20, 512)}m"
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate(), True
    except (PySparkException, RuntimeError, OSError) as error:
        raise ConfigError(f"Spark did not start ({first_line(error)})") from error
    except Exception as error:  # what the JVM throws arrives as an error of py4j
        raise ConfigError(f'spark_master="{master}": {first_line(error)}') from error


def remote_session(master: str) -> tuple[Any, bool]:
    """A session through Spark Connect."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.builder.remote(master).create(), True
    except PySparkException as error:
        raise ConfigError(f'spark_master="{master}": {first_line(error)}') from error


def wait_for_workers(session: Any, master: str | None) -> None:
    """A standalone master without a free worker would let every query wait for ever; so stop after a while."""
    if master is None or not master.startswith("spark://"):
        return
    context = session.sparkContext._jsc.sc()
    until = time.monotonic() + WAIT
    while context.getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if context.isStopped() or time.monotonic() > until:
            raise ConfigError(f'spark_master="{master}": no worker was free in {WAIT:.0f} s; start one')
        time.sleep(0.1)


def check_answers(master: str | None) -> None:
    """Whether the port of a master or of a Connect server takes connections, without Spark's long waits."""
    if master is None or not master.startswith(("spark://", "sc://")):
        return
    scheme, _, rest = master.partition("://")
    problem = "no host"
    for place in rest.split("/")[0].split(","):  # several masters stand by for each other
        try:
            at = urlsplit(f"//{place}")
            port = at.port or (CONNECT_PORT if scheme == "sc" else 7077)
            with socket.create_connection((at.hostname or "", port), timeout=ANSWER):
                return
        except (OSError, ValueError) as error:
            problem = str(error)
    raise ConfigError(f'spark_master="{master}": nothing answers ({problem}); check the address, or start it')


def _log_settings(scratch: Path) -> Path:
    """A log4j file that lets errors through and nothing else."""
    path = scratch / "log4j2.properties"
    lines = (
        "rootLogger.level = error",
        "rootLogger.appenderRef.stderr.ref = console",
        "appender.console.type = Console",
        "appender.console.name = console",
        "appender.console.target = SYSTEM_ERR",
        "appender.console.layout.type = PatternLayout",
        "appender.console.layout.pattern = spark: %m%n%ex{short}",
    )
    path.write_text("\n".join(lines) + "\n")
    return path


@contextmanager
def quiet_spark() -> Iterator[None]:
    """Without the warnings of pyspark about its own surroundings."""
    with warnings.catch_warnings():
        for module in ("pyspark", "ibis", "py4j"):
            warnings.filterwarnings("ignore", module=rf"{module}\..*")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        yield
