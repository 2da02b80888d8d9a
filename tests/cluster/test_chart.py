"""The chart before a real API server: linted, rendered anew, accepted with all its definitions."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.kubernetes import CHART, ROOT, VALUES, call, helm, kubectl

RENDERED = ROOT / "deploy" / "helm" / "rendered"
every_values = pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.stem))


@every_values
def test_the_chart_passes_lint(values: Path) -> None:
    helm("lint", "--strict", str(CHART), "--values", str(values))


def test_what_is_committed_is_what_the_chart_renders(tmp_path: Path) -> None:
    done = call("sh", "deploy/helm/render", str(tmp_path))
    assert done.returncode == 0
    for fresh in sorted(tmp_path.iterdir()):
        assert fresh.read_text() == (RENDERED / fresh.name).read_text(), fresh.name


@pytest.fixture(scope="module")
def definitions() -> set[str]:
    """Load the operators' definitions from the folder CRDS, and return the kinds that exist."""
    if folder := os.environ.get("CRDS"):
        kubectl("apply", "--server-side", "--filename", folder)
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return set(kubectl("api-resources", "--output=name").split())


@every_values
def test_a_server_takes_every_resource_strictly(
    values: Path, namespace: str, definitions: set[str]
) -> None:
    rendered = helm("template", "tidegate", str(CHART), "-n", namespace, "-f", str(values))
    kinds = {
        item["apiVersion"] + "/" + item["kind"] for item in yaml.safe_load_all(rendered) if item
    }
    foreign = {"keda.sh/v1alpha1/ScaledObject": "scaledobjects.keda.sh",
               "kafka.strimzi.io/v1/KafkaUser": "kafkausers.kafka.strimzi.io",
               "monitoring.coreos.com/v1/PodMonitor": "podmonitors.monitoring.coreos.com",
               "sparkoperator.k8s.io/v1beta2/SparkApplication":
                   "sparkapplications.sparkoperator.k8s.io"}  # fmt: skip
    absent = [name for kind, name in foreign.items() if kind in kinds and name not in definitions]
    if absent:
        pytest.skip(f"CRDS names no folder with the definitions of {', '.join(absent)}")
    taken = call(
        "kubectl", "apply", "--server-side", "--dry-run=server", "--validate=strict",
        "--namespace", namespace, "--filename", "-", given=rendered,
    )  # fmt: skip
    assert "Warning" not in taken.stderr, "the restricted level, and strict fields"


def test_an_earlier_chart_is_upgraded(namespace: str, tmp_path: Path) -> None:
    earlier = os.environ.get("EARLIER") or first_commit()
    archive = subprocess.run(
        ["git", "archive", earlier, "deploy/helm"], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=archive.stdout, check=True)
    options = ("-n", namespace, "--set", "topics.create=none", "--set", "committer.replicas=1")
    plain = str(ROOT / "deploy/helm/values/plain.yaml")
    helm("install", "earlier", str(tmp_path / "deploy/helm/tidegate"), "-f", plain, *options)
    helm("upgrade", "earlier", str(CHART), "-f", plain, *options)
    helm("rollback", "earlier", "1", "-n", namespace)
    helm("uninstall", "earlier", "-n", namespace)


def first_commit() -> str:
    """Return the commit that brought the chart."""
    done = call(
        "git", "log", "--diff-filter=A", "--format=%H", "--", "deploy/helm/tidegate/Chart.yaml"
    )
    return done.stdout.split()[-1]
