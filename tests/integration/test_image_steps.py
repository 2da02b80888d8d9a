"""The Dockerfile's build steps make a service that starts; replayed without a container engine."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from tests.house import dockerfile
from tests.integration import environments
from tidegate_producers.ingest.spark_session import AVRO, KAFKA

SIZE_MAX = 270_000_000
"""What the three services may take above the base, in bytes."""

NO_REGISTRY = (
    "Max retries exceeded",
    "NewConnectionError",
    "name resolution",
    "Read timed out",
    "from versions: none",
)


def play(stage: dockerfile.Stage, folder: Path, arguments: dict[str, str]) -> None:
    """Run a stage's COPY and RUN lines in a folder that holds only what they copy."""
    environment = {**os.environ, **arguments}
    for step in stage.instructions:
        if step.verb == "ARG" and "=" in step.rest:
            name, _, default = step.rest.partition("=")
            environment.setdefault(name, default)
        elif step.verb == "COPY" and not step.rest.startswith("--from="):
            *sources, target = step.rest.split()
            for source in sources:
                copy(environments.ROOT / source, folder / target / Path(source).name, source)
        elif step.verb == "RUN":
            done = subprocess.run(
                ["sh", "-c", step.rest],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
            )
            if any(words in done.stderr for words in NO_REGISTRY):
                pytest.skip("the package registry does not answer, so no image can be built")
            assert done.returncode == 0, done.stdout + done.stderr


def copy(source: Path, named: Path, spelled: str) -> None:
    """Copy as COPY does: a folder's content into the target, a file under its own name."""
    if spelled.endswith("/"):
        ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(source, named.parent, ignore=ignored, dirs_exist_ok=True)
    else:
        named.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, named)


@pytest.mark.nightly
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_steps_make_the_services_and_they_start(tmp_path: Path, machine: str) -> None:
    stages = dockerfile.stages((environments.ROOT / "deploy/Dockerfile").read_text())
    named = {stage.name: stage for stage in stages}
    target = tmp_path / "opt"
    asked = {"TARGET": str(target), "STORES": "s3"}
    for name in ("source", "build", "build-services"):
        play(named[name], tmp_path / "build", {**asked, "MACHINE": machine})
    shutil.rmtree(tmp_path / "build")
    extensions = [*target.glob("lib/python*/site-packages/faust/**/*.so")]
    assert (machine == "aarch64") == (not extensions), "built in pure Python where it has no wheel"

    for service in ("committer", "checkpointer", "cdc_publisher"):
        done = subprocess.run(
            [str(target / "bin" / "python"), "-m", f"tidegate_{service}", "--help"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "--config" in done.stdout
    packages = list(target.glob("lib/python*/site-packages/*"))
    assert not [p for p in packages if p.name in {"pip", "gcsfs", "adlfs"}], "only what was asked"
    size = sum(file.lstat().st_size for file in target.rglob("*") if not file.is_symlink())
    assert size < SIZE_MAX


LOCKS = ("committer", "checkpointer", "cdc-publisher", "producers", "console")
EXTRAS = ("gcs", "adls", "registry", "otel", "spark-connect")
SOURCE_ONLY = {"pyspark", "faust-streaming"}
"""What has no wheel for arm64, and is built by the steps: PySpark has none at all."""


@pytest.mark.nightly
@pytest.mark.parametrize("lock", ["build", *LOCKS, *EXTRAS])
def test_a_lock_resolves_to_wheels_for_arm64_too(lock: str, tmp_path: Path) -> None:
    text = (environments.ROOT / "requirements" / f"{lock}.txt").read_text()
    blocks = re.split(r"\n(?=\S)", text.strip())
    kept = tmp_path / "requirements.txt"
    kept.write_text("\n".join(b for b in blocks if b.partition("==")[0] not in SOURCE_ONLY))
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("uv"), "pip", "install", "--dry-run", "--quiet"),
            *("--python-platform", "aarch64-unknown-linux-gnu", "--python-version", "3.11"),
            *("--only-binary", ":all:", "--require-hashes", "--target", tmp_path / "packages"),
            *("--requirement", kept),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if any(words in done.stderr for words in ("error sending request", "Failed to fetch")):
        pytest.skip("the package registry does not answer")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("asked", [("commiter", "s3"), ("committer", "s3 gcp")])
def test_an_unknown_service_or_store_is_refused_in_one_line(
    asked: tuple[str, str], tmp_path: Path
) -> None:
    script = environments.ROOT / "deploy" / "build-steps.sh"
    done = subprocess.run(
        ["sh", str(script), "dependencies", str(tmp_path / "opt"), *asked],
        cwd=environments.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "opt").exists()


PYSPARK = Path(pyspark.__file__).parent
SPARK_GROUP, KAFKA_GROUP = "org.apache.spark", "org.apache.kafka"
SOURCE, AVRO_SOURCE = (f"{name}-{pyspark.__version__}.jar" for name in (KAFKA, AVRO))
CLIENTS = "kafka-clients-3.9.2.jar"


def job_environment(folder: Path) -> Path:
    """Make an environment whose Spark is ours, with a folder of jars of its own."""
    spark = folder / "site" / "pyspark"
    (spark / "jars").mkdir(parents=True)
    for file in PYSPARK.iterdir():
        if file.name != "jars":
            (spark / file.name).symlink_to(file)
    for jar in (PYSPARK / "jars").iterdir():
        (spark / "jars" / jar.name).symlink_to(jar)
    program = folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{spark.parent}" exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return folder


def publish(repository: Path, group: str, jar: str, needs: str = "") -> str:
    """Put a jar into a Maven repository, and return its sha256."""
    name, _, version = jar.removesuffix(".jar").rpartition("-")
    folder = repository.joinpath(*group.split("."), name, version)
    folder.mkdir(parents=True)
    given = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    pom = f"<project><modelVersion>4.0.0</modelVersion>{given}{needs}</project>"
    (folder / f"{name}-{version}.pom").write_text(pom)
    with zipfile.ZipFile(folder / jar, "w") as archive:
        archive.writestr("name", jar)
    return hashlib.sha256((folder / jar).read_bytes()).hexdigest()


def served(repository: Path) -> dict[str, str]:
    """Fill a Maven repository with what a job needs: our two packages, and one that both lack."""
    needs = (
        f"<dependencies><dependency><groupId>{KAFKA_GROUP}</groupId><artifactId>kafka-clients"
        "</artifactId><version>3.9.2</version></dependency></dependencies>"
    )
    return {
        SOURCE: publish(repository, SPARK_GROUP, SOURCE, needs),
        AVRO_SOURCE: publish(repository, SPARK_GROUP, AVRO_SOURCE),
        CLIENTS: publish(repository, KAFKA_GROUP, CLIENTS),
    }


def fetch_jars(
    folder: Path, target: Path, pins: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the step in a folder with these pins."""
    (folder / "requirements").mkdir()
    (folder / "requirements" / "spark-jars.sha256").write_text(pins)
    script = environments.ROOT / "deploy" / "build-steps.sh"
    return subprocess.run(
        ["sh", str(script), "jars", str(target)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def taken(target: Path) -> set[str]:
    """Return the jars that Spark's folder has besides PySpark's own."""
    jars = {jar.name for jar in (target / "site" / "pyspark" / "jars").iterdir()}
    return jars - {jar.name for jar in (PYSPARK / "jars").iterdir()}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({CLIENTS: "0" * 64}, f"{CLIENTS} is not the file whose sha256 is in"),
        ({CLIENTS: None}, f"{CLIENTS} is not in requirements/spark-jars.sha256"),
    ],
)
def test_jars_come_from_the_mirror_that_spark_knows_and_only_as_they_are_pinned(
    change: dict[str, str | None], fault: str, tmp_path: Path
) -> None:
    target, repository = job_environment(tmp_path / "opt"), tmp_path / "mirror"
    digests = {**served(repository), **change}
    pins = "".join(f"{digest}  {jar}\n" for jar, digest in digests.items() if digest is not None)
    mirror = {"DEFAULT_ARTIFACT_REPOSITORY": repository.as_uri()}
    done = fetch_jars(tmp_path, target, f"# Jars.\n{pins}", **mirror)
    assert fault in done.stderr
    assert done.returncode == (1 if fault else 0), done.stderr
    assert taken(target) == (set() if fault else digests.keys())


READS = """
from tidegate_producers.ingest.spark_session import open_session
spark = open_session({"spark.jars.ivy": "/nonexistent"}, avro=True)
for name in ("kafka010.KafkaSourceProvider", "avro.functions"):
    name = f"org.apache.spark.sql.{name}"
    spark.sparkContext._jvm.java.lang.Class.forName(name)
print("loaded")
"""


@pytest.mark.nightly
def test_the_pinned_jars_are_mavens_and_ingest_starts_with_them_alone(tmp_path: Path) -> None:
    target = job_environment(tmp_path / "opt")
    pins = (environments.ROOT / "requirements" / "spark-jars.sha256").read_text()
    done = fetch_jars(tmp_path, target, pins)
    if "Spark can't fetch" in done.stderr:
        pytest.skip("Spark's packages can't be had: no Maven repository answers")
    assert done.returncode == 0, done.stderr
    assert taken(target) == {line.split("  ")[1] for line in pins.splitlines()[1:]}
    # PySpark follows links to find itself.
    environment = {**os.environ, "SPARK_HOME": str(target / "site" / "pyspark")}
    started = subprocess.run(
        [str(target / "bin" / "python"), "-c", READS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "loaded" in started.stdout, started.stderr
