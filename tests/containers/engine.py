"""The engine's client, its answers, and what of them the tests need."""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
ABSENT = "no container engine answers: start Docker or Podman's service, or set DOCKER_HOST"
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@cache
def missing() -> str:
    """Return why no engine can be used, or nothing if one can."""
    if shutil.which("docker") is None:
        return "no command `docker`: install a container engine's client"
    return "" if call("docker", "version", check=False).returncode == 0 else ABSENT


def call(
    *argv: str, check: bool = True, timeout_s: float = 600
) -> "subprocess.CompletedProcess[str]":
    """Run a command; with `check`, fail the test with all that it printed."""
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=ROOT
    )
    if check and done.returncode != 0:
        pytest.fail(f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def docker(*argv: str, timeout_s: float = 600) -> str:
    """Run the engine's client, and return what it printed."""
    return call("docker", *argv, timeout_s=timeout_s).stdout.strip()


def inspected(kind: str, name: str) -> dict[str, Any]:
    """Return what the engine knows of an image or a container."""
    (result,) = json.loads(docker(kind, "inspect", name))
    assert isinstance(result, dict)
    return result


def until(holds: Callable[[], object], what: str, timeout_s: float) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end_s:
            pytest.fail(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.5)


def base() -> str:
    """Return the base that the images are built on."""
    asked = os.environ.get("BASE")
    if asked:
        return asked
    line = (ROOT / "deploy/Dockerfile").read_text().partition("\nARG BASE=")[2]
    return line.splitlines()[0]
