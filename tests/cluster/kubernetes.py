"""kubectl and helm, their answers, and what of them the tests need."""

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
CHART = ROOT / "deploy" / "helm" / "tidegate"
VALUES = sorted((ROOT / "deploy" / "helm" / "values").glob("*.yaml"))
HELM = os.environ.get("HELM", "helm")
ABSENT = "no cluster answers: set KUBECONFIG to one that these tests may use (kind, k3s, minikube)"


@cache
def missing() -> str:
    """Return why no cluster can be used, or nothing if one can."""
    for program in ("kubectl", HELM):
        if shutil.which(program) is None:
            return f"no command `{program}`: install it"
    answer = call("kubectl", "version", "--request-timeout=5s", check=False)
    return "" if answer.returncode == 0 else ABSENT


def call(
    *argv: str, check: bool = True, given: str | None = None, timeout_s: float = 600
) -> "subprocess.CompletedProcess[str]":
    """Run a command; with `check`, fail the test with all that it printed."""
    done = subprocess.run(
        argv, capture_output=True, text=True, input=given, timeout=timeout_s, check=False, cwd=ROOT
    )
    if check and done.returncode != 0:
        pytest.fail(f"{shlex.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def kubectl(*argv: str, given: str | None = None, timeout_s: float = 600) -> str:
    """Run kubectl, and return what it printed."""
    return call("kubectl", *argv, given=given, timeout_s=timeout_s).stdout


def helm(*argv: str, timeout_s: float = 900) -> str:
    """Run helm, and return what it printed."""
    return call(HELM, *argv, timeout_s=timeout_s).stdout


def items(namespace: str, kind: str, selector: str = "") -> list[dict[str, Any]]:
    """Return the resources of a kind."""
    chosen = ("--selector", selector) if selector else ()
    result = json.loads(kubectl("-n", namespace, "get", kind, *chosen, "--output", "json"))["items"]
    assert isinstance(result, list)
    return result


def until(holds: Callable[[], object], what: str, timeout_s: float) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end_s:
            pytest.fail(f"{what}: not within {timeout_s:g} s")
        time.sleep(1)
