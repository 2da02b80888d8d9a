"""The Spark session of an ingest job: what `spark-submit` or the settings say, else `local[*]`.

On Spark Connect it is one of a server, which has the packages and the settings of its own.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    PySparkImportError,
    PySparkValueError,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from tidegate_delta.errors import Misconfigured, Unavailable

KAFKA: Final = "spark-sql-kafka-0-10_2.13"
AVRO: Final = "spark-avro_2.13"
_JARS: Final = ("spark.jars.packages", "spark.jars")
_REMOTE: Final = "SPARK_REMOTE"
_REMOTE_URL: Final = "spark.remote"
_MASTER: Final = "spark.master"
_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Where in our code a column was made: no user needs it, and each batch makes hundreds.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark notes a batch's offsets in a folder of this process, 0.3 s a batch by its default, which
    # starts a process for each link and mode that it looks at.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
}
"""Settings of a session that this job starts, unless others are given."""

_REMOTE_DEFAULTS: Final = (
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.sql.mapKeyDedupPolicy",
)
"""Those of DEFAULTS that a session of Spark Connect has; the others are its server's."""

_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings of a session in this process, which nobody outside the machine calls."""


def open_session(given: Mapping[str, str], *, avro: bool = False) -> SparkSession:
    """Return the Spark session, started with the packages that the sources need, `avro` among them.

    `given` are Spark's settings by name. Packages are fetched only where neither a setting names
    any, nor Spark's own folder has them. Where they have `spark.remote`, or SPARK_REMOTE is set,
    the session is one of Spark Connect.
    Raises: as `_remote_session`.
    """
    remote = given.get(_REMOTE_URL, os.environ.get(_REMOTE))
    if remote is not None:
        return _remote_session(remote, given, avro=avro)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # By default Spark takes the first python3 on PATH, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tidegate-ingest")
    settings = {**DEFAULTS, **given}
    if _MASTER not in given and not _is_submitted():
        settings = {_MASTER: "local[*]", **_LOCAL, **settings}
    if not any(name in given for name in _JARS) and not _is_submitted():
        packages = [name for name in (KAFKA, *((AVRO,) if avro else ())) if not _has_jars(name)]
        if packages:
            settings["spark.jars.packages"] = ",".join(
                f"org.apache.spark:{name}:{pyspark.__version__}" for name in packages
            )
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF" if sys.stderr.isatty() else "ERROR")
    return session


def _remote_session(url: str, given: Mapping[str, str], *, avro: bool) -> SparkSession:
    """Return the session of Spark Connect.

    Raises: Misconfigured, for a setting that is the server's, and for a source that it lacks;
    Unavailable.
    """
    if not url.startswith("sc://"):
        raise _no_address(url)
    for name in (_MASTER, *_JARS):
        if name in given:
            raise _of_server(name, url)
    try:
        session = SparkSession.builder.appName("tidegate-ingest").remote(url).getOrCreate()
        settings = {**{name: DEFAULTS[name] for name in _REMOTE_DEFAULTS}, **given}
        for name, value in settings.items():
            if name != _REMOTE_URL:
                _set(session, name, value, url)
        _check_sources(session, url, avro=avro)
    except PySparkImportError as error:
        raise Misconfigured(
            "Spark Connect needs the extra `spark-connect`: pip install 'tidegate[spark-connect]' "
            f"({error})"
        ) from error
    except PySparkValueError as error:
        raise _no_address(url) from error
    except PySparkException as error:
        raise Unavailable(f"{url}: Spark Connect does not answer: {_first_line(error)}") from error
    return session


def _set(session: SparkSession, name: str, value: str, url: str) -> None:
    try:
        session.conf.set(name, value)
    except AnalysisException as error:
        raise _of_server(name, url) from error
    except IllegalArgumentException as error:
        raise Misconfigured(f"ingest.spark.{name}: {_first_line(error)}; correct it") from error


def _no_address(url: str) -> Misconfigured:
    return Misconfigured(
        f"{url!r} is no address of a Spark Connect server, such as sc://host:15002: correct "
        f"ingest.spark.{_REMOTE_URL} or {_REMOTE}; without either Spark starts in this process"
    )


def _of_server(name: str, url: str) -> Misconfigured:
    return Misconfigured(
        f"ingest.spark.{name} is not a setting of a session of Spark Connect: leave it out, and "
        f"give it to the server at {url} when that is started"
    )


def _check_sources(session: SparkSession, url: str, *, avro: bool) -> None:
    """Check that the server has the packages that the sources need; no broker is called.

    Raises: Misconfigured, naming the package.
    """
    records = session.read.format("kafka").option("kafka.bootstrap.servers", "localhost:9092")
    needed = {KAFKA: records.option("subscribe", "none").load()}
    if avro:
        value = from_avro(F.lit(None).cast("binary"), '"string"')
        needed[AVRO] = session.range(0).select(value)
    for name, frame in needed.items():
        try:
            # Spark looks for the source when the columns are needed.
            _ = frame.columns
        except AnalysisException as error:
            raise Misconfigured(
                f"{url}: the Spark Connect server lacks {name} ({_first_line(error)}): start it "
                f"with --packages org.apache.spark:{name}:{session.version}"
            ) from error


def _first_line(error: PySparkException) -> str:
    return str(error).strip().partition("\n")[0]


def _is_submitted() -> bool:
    """Return whether `spark-submit` started this program, which then gives master and packages."""
    return "SPARK_SUBMIT" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _has_jars(package: str) -> bool:
    jars = Path(os.environ.get("SPARK_HOME", Path(pyspark.__file__).parent)) / "jars"
    return any(jars.glob(f"{package}-*.jar"))
