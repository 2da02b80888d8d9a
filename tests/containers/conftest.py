"""Our images in an engine, and the line of `deploy/compose.yaml`.

`make containers` runs these tests where an engine answers (DOCKER_HOST, or Docker's own place).
Places without a registry set BASE, KAFKA_IMAGE, STORE_IMAGE and BUILD_OPTIONS
(tests/containers/README.md).
"""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.containers.engine import COMPOSE, base, call, docker, inspected, missing

IMAGES = ("committer", "checkpointer", "cdc-publisher", "producers", "console")
PREFIX = "localhost/tidegate/"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip everything without `--containers`, and without an engine."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    reason = missing() if config.getoption("--containers") else "`make containers` runs it"
    for item in here if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """Build the images, and return their names. PREBUILT=1 takes those that are there."""
    names = {image: f"{PREFIX}{image}" for image in IMAGES}
    if os.environ.get("PREBUILT"):
        for name in names.values():
            inspected("image", name)
        return names
    options = shlex.split(os.environ.get("BUILD_OPTIONS", ""))
    revision = call("git", "rev-parse", "HEAD").stdout.strip()
    arguments = {"BASE": base(), "REVISION": revision, "CREATED": time.strftime("%FT%TZ")}
    given = [word for pair in arguments.items() for word in ("--build-arg", "=".join(pair))]
    for image, name in names.items():
        where = ("-f", "deploy/Dockerfile", "--target", image, "-t", name)
        docker("build", *options, *where, *given, ".", timeout_s=3600)
    return names


@dataclass(frozen=True)
class Compose:
    """The line of `deploy/compose.yaml`, as it is shipped, under a project name of its own."""

    project: str
    command: tuple[str, ...]

    def __call__(self, *argv: str, timeout_s: float = 600) -> str:
        """Run a command of Compose, and return what it printed."""
        done = self.asked(*argv, check=True, timeout_s=timeout_s)
        return done.stdout + done.stderr

    def asked(
        self, *argv: str, check: bool = False, timeout_s: float = 600
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command of Compose that may fail, and return how it ended."""
        begin = (*self.command, "--project-name", self.project, "--file", str(COMPOSE))
        return call(*begin, *argv, check=check, timeout_s=timeout_s)

    def container(self, service: str) -> str:
        """Return the name of a service's container."""
        return f"{self.project}-{service}-1"

    def state(self, service: str) -> dict[str, Any]:
        """Return the state of a service's container: Status, ExitCode, Health."""
        result = inspected("container", self.container(service))["State"]
        assert isinstance(result, dict)
        return result

    def healthy(self, service: str) -> bool:
        """Return whether the engine calls a service healthy."""
        return bool(self.state(service).get("Health", {}).get("Status") == "healthy")


@pytest.fixture(scope="module")
def compose(images: dict[str, str]) -> Iterator[Compose]:
    """Yield the line, not started; it is taken down with its volumes."""
    command: tuple[str, ...] = ("docker", "compose")
    if call(*command, "version", check=False).returncode != 0:
        command = ("docker-compose",)
        if shutil.which("docker-compose") is None:
            pytest.skip("no `docker compose`: install Compose 2.24 or newer")
    line = Compose("tidegate-test", command)
    line("down", "--volumes", "--remove-orphans")
    yield line
    line("down", "--volumes", "--remove-orphans")
