"""A day of the chart in a cluster, under load: install, evictions, kills, upgrade, rollback.

Afterwards every row whose commit was told is in the table once, by delta-rs, and in a copy made of
the change stream. Each part tells how many commits it saw and how long the slowest took.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from tests.cluster.kubernetes import CHART, ROOT, helm, items, kubectl, until

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not os.environ.get("IMAGES"),
        reason="IMAGES names no registry from which the cluster has our images",
    ),
]

RELEASE = "tidegate"
COMPONENTS = ("committer", "checkpointer", "cdc-publisher")
WRITERS = int(os.environ.get("WRITERS", "2"))
PATIENCE_S = 600.0
CREATED, TOO_MANY_REQUESTS = 201, 429
CHOSEN = f"app.kubernetes.io/instance={RELEASE}"
KEYS = {
    "TIDEGATE__STORAGE__ACCESS_KEY_ID": "tidegate",
    "TIDEGATE__STORAGE__SECRET_ACCESS_KEY": "tidegate-secret",
}


@dataclass
class Day:
    """A namespace with a broker, a store, the chart and a writer; `parts` are names and starts."""

    namespace: str
    values: Path
    broker: str
    store: str
    parts: list[tuple[str, float]] = field(default_factory=list)

    def kubectl(self, *argv: str, given: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return kubectl("-n", self.namespace, *argv, given=given)

    def begin(self, part: str) -> None:
        """Note that a part of the day begins."""
        self.parts.append((part, time.time()))

    def helm(self, *argv: str) -> float:
        """Run helm, wait until all is ready, and return how many seconds it took."""
        began_s = time.monotonic()
        helm(*argv, "-n", self.namespace, "--wait", "--timeout", f"{PATIENCE_S:.0f}s")
        return time.monotonic() - began_s

    def pods(self, component: str = "") -> list[dict[str, Any]]:
        """Return the services' pods that are not about to go."""
        chosen = f"app.kubernetes.io/component={component}" if component else ""
        label = (
            f"{CHOSEN},{chosen}" if component else f"{CHOSEN},app.kubernetes.io/component!=topics"
        )
        pods = items(self.namespace, "pods", label)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def is_whole(self) -> bool:
        """Return whether each Deployment has all its pods, and they are ready."""
        result = items(self.namespace, "deployments", CHOSEN)
        assert len(result) == len(COMPONENTS)
        return all(
            [is_ready(pod) for pod in self.pods(component_of(item))]
            == [True] * int(item["spec"]["replicas"])
            for item in result
        )

    def wait(self, what: str) -> None:
        """Wait until the release is whole again."""
        until(self.is_whole, what, PATIENCE_S)

    def evict(self, *pods: str) -> list[int]:
        """Ask for evictions, as `kubectl drain` does, one right after the other; return the status
        of each answer.
        """
        with listening("proxy", "--port=0") as port:
            return [answered(port, self.namespace, pod) for pod in pods]

    def written(self) -> list[dict[str, Any]]:
        """Return the lines of the writer about numbers that are in the table."""
        said = self.kubectl("logs", "writer").splitlines()
        lines = [json.loads(line) for line in said if line.startswith('{"writer"')]
        return [line for line in lines if "took_s" in line]

    def report(self) -> str:
        """Return a table: each part's length, commits, and the slowest that ran in it."""
        rows = ["part                       seconds  commits  slowest s"]
        written = self.written()
        ends = [began_s for _, began_s in self.parts[1:]]
        for (part, began_s), end_s in zip(self.parts, ends, strict=False):
            inside = [line for line in written if began_s <= line["began_s"] < end_s]
            slowest_s = max((line["took_s"] for line in inside), default=0.0)
            rows.append(f"{part:26} {end_s - began_s:7.1f} {len(inside):8} {slowest_s:10.2f}")
        return "\n".join(rows)


def name_of(pod: dict[str, Any]) -> str:
    """Return a pod's name."""
    return str(pod["metadata"]["name"])


def component_of(resource: dict[str, Any]) -> str:
    """Return the service that a resource belongs to."""
    return str(resource["metadata"]["labels"]["app.kubernetes.io/component"])


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod is ready."""
    return any(
        item["type"] == "Ready" and item["status"] == "True"
        for item in pod["status"].get("conditions", ())
    )


def restarts(pod: dict[str, Any]) -> int:
    """Return how often a pod's container was started again."""
    return sum(int(item["restartCount"]) for item in pod["status"].get("containerStatuses", ()))


def surroundings(day_namespace: str, *names: str) -> None:
    """Make the pods of surroundings.yaml that have these names."""
    text = (Path(__file__).parent / "surroundings.yaml").read_text()
    images = os.environ["IMAGES"]
    tag = os.environ.get("TAG", yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"])
    result = {
        "KAFKA_IMAGE": os.environ.get("KAFKA_IMAGE", f"{images}/kafka:4.1.1"),
        "STORE_IMAGE": os.environ.get("STORE_IMAGE", "minio/minio:RELEASE.2025-09-07T16-13-09Z"),
        "WRITER_IMAGE": f"{images}/committer:{tag}",
        "WRITERS": str(WRITERS),
    }
    for name, value in result.items():
        text = text.replace(f"@{name}@", value)
    for pod in yaml.safe_load_all(text):
        if pod["metadata"]["name"] in names:
            kubectl("-n", day_namespace, "apply", "-f", "-", given=yaml.safe_dump(pod))
    for name in names:
        kubectl("-n", day_namespace, "wait", "--for=condition=Ready", f"pod/{name}",
                f"--timeout={PATIENCE_S:.0f}s")  # fmt: skip


def address(namespace: str, pod: str) -> str:
    """Return a pod's address."""
    return kubectl("-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")


@pytest.fixture(scope="module")
def day(namespace: str, tmp_path_factory: pytest.TempPathFactory) -> Day:
    """Start a broker and a store, and write the values for the chart."""
    surroundings(namespace, "kafka", "store")
    broker, store = (address(namespace, name) for name in ("kafka", "store"))
    literals = [f"--from-literal={name}={value}" for name, value in KEYS.items()]
    kubectl("-n", namespace, "create", "secret", "generic", "store-keys", *literals)
    small = {"resources": {"requests": {"cpu": "20m", "memory": "128Mi"}}}
    storage = {"endpoint_url": f"http://{store}:9000", "region": "us-east-1", "path_style": "true"}
    values = {
        "image": {"registry": os.environ["IMAGES"], "tag": os.environ.get("TAG", "")},
        "environmentSecret": "store-keys",
        "settings": {
            "kafka": {"bootstrap_servers": f"{broker}:9092"},
            "storage": storage,
            "committer": {"roots": ["s3://lake/"]},
            "cdc": {"tables": {"load": {"key_columns": ["writer", "number"]}}},
        },
        "committer": small,
        "checkpointer": small,
        "cdcPublisher": small,
    }
    path = tmp_path_factory.mktemp("day") / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    settings = [f"--from-literal=TIDEGATE__STORAGE__{k.upper()}={v}" for k, v in storage.items()]
    kubectl("-n", namespace, "create", "secret", "generic", "surroundings", *literals, *settings,
            f"--from-literal=TIDEGATE__KAFKA__BOOTSTRAP_SERVERS={broker}:9092")  # fmt: skip
    kubectl("-n", namespace, "create", "configmap", "programs",
            f"--from-file={ROOT / 'deploy/jobs/make_bucket.py'}",
            f"--from-file={Path(__file__).parent / 'load_program.py'}")  # fmt: skip
    return Day(namespace, path, broker, store)


def test_the_chart_is_installed_and_a_table_is_written(day: Day) -> None:
    took_s = day.helm("install", RELEASE, str(CHART), "--values", str(day.values))
    sys.stdout.write(f"\nhelm install --wait: {took_s:.0f} s\n")
    surroundings(day.namespace, "writer")
    until(lambda: len(day.written()) > WRITERS, "the first commits", PATIENCE_S)
    day.begin("steady")
    time.sleep(20)
    assert {pod["spec"]["nodeName"] for pod in day.pods()}, "they run on a node"
    day.wait("all is well after the first commits")


def test_each_pod_is_evicted_and_a_budget_keeps_the_other_committer(day: Day) -> None:
    day.wait("all is well")
    for component in COMPONENTS:
        for pod in map(name_of, day.pods(component)):
            day.begin(f"evict {component}")
            others = [name_of(other) for other in day.pods(component) if name_of(other) != pod]
            first, *rest = day.evict(pod, *others)
            assert first == CREATED
            assert rest == [TOO_MANY_REQUESTS] * len(others), "while one is away the other stays"
            day.wait(f"{component} is back")
            assert pod not in map(name_of, day.pods(component))


def test_each_process_is_killed_and_its_pod_goes_on(day: Day) -> None:
    day.wait("all is well")
    for component in COMPONENTS:
        for pod in day.pods(component):
            day.begin(f"kill -9 {component}")
            before = restarts(pod)
            # All but the first process of the pod, which is its init and ends with them.
            day.kubectl("exec", name_of(pod), "--", "sh", "-c", "kill -9 -1; true")

            def again(name: str, before: int) -> bool:
                return any(name_of(now) == name and restarts(now) > before for now in day.pods())

            until(partial(again, name_of(pod), before), "it is started again", PATIENCE_S)
            day.wait(f"{component} is back")


def test_another_image_is_rolled_out_and_back(day: Day) -> None:
    upgraded = ("upgrade", RELEASE, str(CHART), "--values", str(day.values))
    other = os.environ.get("NEXT", "next")
    day.wait("all is well")
    day.begin("rolling upgrade")
    took_s = day.helm(*upgraded, "--set", f"image.tag={other}")
    images = {container["image"] for pod in day.pods() for container in pod["spec"]["containers"]}
    assert {image.rpartition(":")[2] for image in images} == {other}
    day.begin("rollback")
    back_s = day.helm("rollback", RELEASE, "1")
    images = {container["image"] for pod in day.pods() for container in pod["spec"]["containers"]}
    assert other not in {image.rpartition(":")[2] for image in images}
    day.begin("after it")
    sys.stdout.write(f"\nhelm upgrade --wait: {took_s:.0f} s, rollback {back_s:.0f} s\n")


def test_nothing_is_lost(day: Day) -> None:
    time.sleep(10)
    day.kubectl("exec", "writer", "--", "touch", "/tmp/stop")
    until(lambda: '"end":true' in day.kubectl("logs", "writer"), "the writers' end", PATIENCE_S)
    day.begin("end")
    sys.stdout.write(f"\n{day.report()}\n")
    result = {(line["writer"], line["number"]) for line in day.written()}
    assert len(result) > len(day.parts), "there was a load"
    with listening("-n", day.namespace, "port-forward", "pod/store", ":9000") as port:
        table = DeltaTable(
            "s3://lake/load",
            storage_options={
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": KEYS["TIDEGATE__STORAGE__ACCESS_KEY_ID"],
                "AWS_SECRET_ACCESS_KEY": KEYS["TIDEGATE__STORAGE__SECRET_ACCESS_KEY"],
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
            },
        )
        rows = table.to_pyarrow_table().to_pylist()
    found = [(row["writer"], row["number"]) for row in rows]
    assert len(found) == len(set(found)), "no row is there twice"
    assert set(found) == result
    copied = day.kubectl(
        "exec", "writer", "--", "python", "/programs/load_program.py", "changes", "load",
        str(len(result)),
    )  # fmt: skip
    assert json.loads(copied.splitlines()[-1])["rows"] == len(result)
    sys.stdout.write(f"{len(result)} commits: each row is in the table once, and in its changes\n")


def answered(port: int, namespace: str, pod: str) -> int:
    """Ask for a pod's eviction through `kubectl proxy`, and return the status of the answer."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    place = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    connection.request("POST", place, json.dumps(eviction), {"Content-Type": "application/json"})
    status = connection.getresponse().status
    connection.close()
    return status


@contextmanager
def listening(*command: str) -> Iterator[int]:
    """Yield the local port that a command of kubectl opens and tells."""
    argv = ["kubectl", *command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "127.0.0.1:" in line, f"{shlex.join(argv)}: {line}"
            yield int(line.split("127.0.0.1:")[1].split()[0])
        finally:
            process.terminate()
