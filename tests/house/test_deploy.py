"""The image, Compose and Kubernetes files match their schemas and our settings."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.house import dockerfile, tree
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.settings import ServiceSettings, load

SERVICES = ("committer", "checkpointer", "cdc-publisher")
UID = "10001"
COMPOSE_SCHEMA = json.loads(tree.text("deploy/compose.schema.json"))
MANIFESTS = sorted(name for name in tree.files() if name.startswith("deploy/kubernetes/"))
KUBERNETES = ("1.31", "1.37")
"""The oldest and the newest release whose schemas are checked."""


def compose() -> dict[str, Any]:
    """Return compose.yaml with its anchors resolved."""
    found = yaml.safe_load(tree.text("deploy/compose.yaml"))
    assert isinstance(found, dict)
    return found


def resources() -> Iterator[dict[str, Any]]:
    """Yield every Kubernetes resource."""
    for name in MANIFESTS:
        yield from filter(None, yaml.safe_load_all(tree.text(name)))


def of_kind(kind: str) -> list[dict[str, Any]]:
    """Return the resources of one kind."""
    return [resource for resource in resources() if resource["kind"] == kind]


def pod_specs() -> list[dict[str, Any]]:
    """Return the pods' specifications."""
    return [r["spec"]["template"]["spec"] for r in (*of_kind("Deployment"), *of_kind("Job"))]


def settings_of(service: str) -> type[ServiceSettings]:
    """Return the class of a service's settings."""
    module = importlib.import_module(f"tidegate_{service.replace('-', '_')}.settings")
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, ServiceSettings)
        and kind is not ServiceSettings
    ]
    assert len(kinds) == 1
    return kinds[0]


# The image


def test_the_image_is_built_in_one_stage_and_runs_in_another() -> None:
    build, image = dockerfile.stages(tree.text("deploy/Dockerfile"))
    assert build.name == "build"
    assert [copy for copy in image.of("COPY") if not copy.startswith("--from=build ")] == []
    assert image.of("USER") == [f"{UID}:{UID}"]
    assert image.of("ENTRYPOINT") == ['["/opt/tidegate/bin/service"]']
    assert "ADD" not in {step.verb for stage in (build, image) for step in stage.instructions}


def test_the_build_runs_only_the_steps_that_a_test_runs() -> None:
    build = dockerfile.stages(tree.text("deploy/Dockerfile"))[0]
    assert build.of("RUN")
    assert all(run.startswith("sh deploy/build-steps.sh ") for run in build.of("RUN"))


def test_what_the_build_copies_exists_and_is_not_ignored() -> None:
    build = dockerfile.stages(tree.text("deploy/Dockerfile"))[0]
    sources = [source for copy in build.of("COPY") for source in copy.split()[:-1]]
    assert [source for source in sources if not (tree.ROOT / source).exists()] == []
    allowed = tree.text("deploy/Dockerfile.dockerignore")
    assert [s for s in sources if f"!{s.rstrip('/')}" not in allowed] == []


def test_continued_lines_are_one_instruction() -> None:
    stage = dockerfile.stages("FROM a AS b\nENV X=1 \\\n    Y=2\n# c\nUSER 1\n")[0]
    assert (stage.image, stage.name) == ("a", "b")
    assert stage.of("ENV") == ["X=1 Y=2"]


# Compose


def test_compose_keeps_to_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(COMPOSE_SCHEMA)
    jsonschema.validate(compose(), COMPOSE_SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "t", "services": {"a": {"image": "x", "enviroment": {}}}},
        {"name": "t", "services": {"a": {"image": "x", "ports": ["80"]}}},
        {"name": "t", "services": {"a": {"image": "x", "environment": {"A": 1}}}},
        {"name": "t", "services": {"a": {"image": "x", "depends_on": {"b": {"condition": "up"}}}}},
        {"name": "t", "services": {"a": {}}},
    ],
)
def test_the_compose_schema_finds_mistakes(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, COMPOSE_SCHEMA)


def test_compose_waits_for_services_that_exist() -> None:
    services = compose()["services"]
    waited = {name for service in services.values() for name in service.get("depends_on", {})}
    assert waited <= services.keys()
    named = {v.split(":")[0] for s in services.values() for v in s.get("volumes", ())}
    assert {name for name in named if not name.startswith(".")} == compose()["volumes"].keys()


def test_our_containers_in_compose_are_hardened() -> None:
    ours = {n: s for n, s in compose()["services"].items() if s["image"].startswith("tidegate/")}
    assert set(SERVICES) < ours.keys()
    for service in ours.values():
        assert service["user"] == f"{UID}:{UID}"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_a_spark_job_may_load_its_native_libraries_from_its_tmpfs() -> None:
    services = compose()["services"]
    assert services["append"]["tmpfs"] == ["/tmp:exec"], "snappy's, for one, are unpacked there"
    assert {tuple(services[name]["tmpfs"]) for name in SERVICES} == {("/tmp",)}


@pytest.mark.parametrize("service", SERVICES)
def test_compose_gives_settings_that_the_service_accepts(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = compose()["services"][service]["environment"]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = load(settings_of(service), None, {})
    assert settings.kafka.bootstrap_servers == "kafka:9092"


def test_a_setting_that_no_service_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE__KAFKA__BOOTSTRAP", "kafka:9092")
    with pytest.raises(Misconfigured):
        load(settings_of("committer"), None, {})


# Kubernetes


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_keep_to_the_strict_schemas(version: str) -> None:
    assert MANIFESTS
    for resource in resources():
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_misspelt_key_is_found() -> None:
    wrong = of_kind("Deployment")[0]
    wrong["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)


def test_the_committer_has_one_active_and_one_standby_replica() -> None:
    replicas = {d["metadata"]["name"]: d["spec"]["replicas"] for d in of_kind("Deployment")}
    assert replicas == {"committer": 2, "checkpointer": 1, "cdc-publisher": 1}


def test_no_service_is_the_first_process_of_its_namespace_which_is_deaf_to_signals() -> None:
    shares = [one["spec"]["template"]["spec"] for one in of_kind("Deployment")]
    assert [share["shareProcessNamespace"] for share in shares] == [True] * 3
    services = compose()["services"]
    names = ("committer", "checkpointer", "cdc-publisher")
    assert [services[name]["init"] for name in names] == [True] * 3


def test_every_service_has_probes_that_ask_for_progress_and_a_budget() -> None:
    for deployment in of_kind("Deployment"):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert {"requests", "limits"} <= container["resources"].keys()
    budgets = {b["metadata"]["name"] for b in of_kind("PodDisruptionBudget")}
    assert budgets == {d["metadata"]["name"] for d in of_kind("Deployment")}


def test_only_the_scraper_is_let_in_from_outside_of_the_node() -> None:
    (policy,) = of_kind("NetworkPolicy")
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [8080]
    (scraper,) = rule["from"]
    assert scraper["namespaceSelector"]["matchLabels"]
    assert scraper["podSelector"]["matchLabels"]


def test_every_pod_passes_the_restricted_level() -> None:
    assert len(pod_specs()) == len(SERVICES) + 1
    for pod in pod_specs():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert str(pod["securityContext"]["runAsUser"]) == UID
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
    (namespace,) = of_kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_everything_is_in_the_namespace_and_named_accounts_exist() -> None:
    accounts = {account["metadata"]["name"] for account in of_kind("ServiceAccount")}
    assert {pod["serviceAccountName"] for pod in pod_specs()} <= accounts
    outside = [r for r in resources() if r["metadata"].get("namespace") != "tidegate"]
    assert [r["kind"] for r in outside] == ["Namespace"]


@pytest.mark.parametrize("service", SERVICES)
def test_the_config_map_holds_settings_that_the_service_accepts(
    service: str, tmp_path: Path
) -> None:
    (config_map,) = of_kind("ConfigMap")
    config = tmp_path / "tidegate.yaml"
    config.write_text(config_map["data"]["tidegate.yaml"], encoding="utf-8")
    settings = load(settings_of(service), config, {})
    assert settings.kafka.bootstrap_servers.endswith(":9092")
