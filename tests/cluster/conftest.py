"""A cluster for the tests of the chart, and namespaces that go with the tests.

`make cluster` runs them where KUBECONFIG leads to a cluster (tests/cluster/README.md).
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.kubernetes import kubectl, missing


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip everything without `--cluster`, and without a cluster."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    reason = missing() if config.getoption("--cluster") else "`make cluster` runs it"
    for item in here if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """Yield a namespace that enforces the restricted level; it is deleted afterwards."""
    name = f"tidegate-test-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    for mode in ("enforce", "warn"):
        kubectl("label", "namespace", name, f"pod-security.kubernetes.io/{mode}=restricted")
    yield name
    if not os.environ.get("KEEP"):
        kubectl("delete", "namespace", name, "--wait=false")
