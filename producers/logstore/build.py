"""Compile the log store for delta-spark into a jar that lies in the package; `make env` calls this.

Delta's own classes are not downloaded for it: `stubs` declares what the log store uses of them, as
it has been since Delta Lake 1.2. Kafka's, Hadoop's and Jackson's classes are those of Kafka's jars
in the cache and of PySpark.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tidegate_delta.errors import Misconfigured, TidegateError
from tidegate_local.kafka_jars import ensure_jars, java_command, pyspark_jars
from tidegate_producers.log_store import JAR

HERE: Final = Path(__file__).parent
RELEASE: Final = "11"
"""The oldest Java that a supported Spark runs on."""

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_STAMP: Final = "META-INF/tidegate-sources.sha256"


def main() -> int:
    """Compile the jar if its sources have changed; return the exit status."""
    try:
        build(JAR)
    except TidegateError as error:
        sys.stderr.write(f"log store: {error}\n")
        return 2
    return 0


def build(jar: Path) -> None:
    """Compile the jar, unless it is of these sources. Raises: Misconfigured; Unavailable."""
    sources = sorted(HERE.rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if _stamp_of(jar) == digest:
        return
    spark = pyspark_jars()
    if spark is None:
        raise Misconfigured("PySpark is not installed: pip install 'tidegate[producers]'")
    kafka = ensure_jars(_say)
    path = ":".join(map(str, [*sorted(spark.glob("*.jar")), *kafka.glob("kafka-clients-*.jar")]))
    with tempfile.TemporaryDirectory() as folder:
        compiler = [
            java_command(),
            "-m",
            "jdk.compiler/com.sun.tools.javac.Main",
            "-Xlint:-options",
        ]
        options = ["--release", RELEASE, "-cp", path, "-d", folder]
        done = subprocess.run(
            [*compiler, *options, *map(str, sources)], capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if "jdk.compiler" in said and "not found" in said:
            # Whatever else is there works without it, as do tests, which skip.
            _say(
                f"log store: {java_command()} has no compiler, so there is none for delta-spark: "
                "install a JDK (Debian: openjdk-17-jdk-headless), then run make env again"
            )
            return
        if done.returncode:
            raise Misconfigured(f"javac refused it:\n{said}")
        _pack(Path(folder), jar, digest)
    _say(f"log store: {jar}")


def _pack(classes: Path, jar: Path, digest: str) -> None:
    """Write a jar whose bytes depend on the classes alone."""
    own = sorted((classes / "io" / "tidegate").rglob("*.class"))
    files = {str(file.relative_to(classes)): file.read_bytes() for file in own}
    part = jar.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {_STAMP: digest.encode(), **files}.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    part.replace(jar)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _stamp_of(jar: Path) -> str | None:
    if not jar.is_file():
        return None
    with zipfile.ZipFile(jar) as archive:
        return archive.read(_STAMP).decode()


if __name__ == "__main__":
    sys.exit(main())
