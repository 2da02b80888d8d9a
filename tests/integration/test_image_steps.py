"""The Dockerfile's build steps make a service that starts; replayed without a container engine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import dockerfile
from tests.integration import environments

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
SOURCE_ONLY = {"pyspark", "faust-streaming"}
"""What has no wheel for arm64, and is built by the steps: PySpark has none at all."""


@pytest.mark.nightly
@pytest.mark.parametrize("lock", ["build", *LOCKS, "gcs", "adls", "registry", "otel"])
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
