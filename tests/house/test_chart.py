"""The chart's renderings match Kubernetes' and operators' schemas, policies, and our code."""

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.house import chart, tree
from tests.house.chart import of_kind, resources
from tidegate_messages.topics import Topics
from tidegate_producers.ingest.settings import IngestSettings
from tidegate_runtime.service.settings import ServiceSettings, load

SERVICES = ("committer", "checkpointer", "cdc-publisher")
JOBS = {"managed": ("ingest-lake",), "strimzi": ("ingest-lake",)}
"""The jobs of `ingest` of each rendering."""
MAINTAINED = frozenset({"strimzi"})
"""The renderings with a maintainer."""
UID = 10001
KUBERNETES = ("1.31", "1.37")
"""The oldest and the newest release whose schemas are checked."""
SCHEMA = "deploy/helm/tidegate/values.schema.json"

STALE = "run `make charts`, or `HELM=/where/it/is/helm make charts`"


def components(name: str) -> list[str]:
    """Return the components of a rendering that have pods, in their order."""
    maintain = ("maintain",) if name in MAINTAINED else ()
    return [*SERVICES, *maintain, *JOBS.get(name, ())]


every_rendering = pytest.mark.parametrize("name", chart.RENDERED)


# The renderings


def test_each_file_of_values_was_rendered_from_the_chart_as_it_is() -> None:
    folder = f"{chart.FOLDER}/"
    sums = [line.split("  ") for line in tree.text(f"{folder}rendered/SHA256SUMS").splitlines()]
    noted = {name: digest for digest, name in sums}
    sources = {
        name.removeprefix(folder)
        for name in tree.files()
        if name.startswith((f"{folder}tidegate/", f"{folder}values/"))
        and not name.endswith(("values.schema.json", "NOTES.txt"))
    }
    outputs = {f"{name}.yaml" for name in chart.RENDERED}
    assert {f"{name}.yaml" for name in chart.RENDERED} == {
        name.removeprefix("values/") for name in sources if name.startswith("values/")
    }
    assert noted.keys() == sources | outputs, STALE
    for name, digest in noted.items():
        path = name if name in sources else f"rendered/{name}"
        result = hashlib.sha256((tree.ROOT / folder / path).read_bytes()).hexdigest()
        assert result == digest, f"{name} changed: {STALE}"


@pytest.fixture(scope="module", autouse=True)
def schemas_are_read_once() -> Iterator[None]:
    """Cache what the validator reads anew for each resource: a second of parsing."""
    with pytest.MonkeyPatch.context() as patch:
        read = kubernetes_validate.utils.schema_contents
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(read))
        yield


@every_rendering
@pytest.mark.parametrize("version", KUBERNETES)
def test_resources_keep_to_the_strict_schemas(name: str, version: str) -> None:
    for resource in resources(name):
        if resource["kind"] in chart.CUSTOM:
            schema = {"$defs": chart.CUSTOM, "$ref": f"#/$defs/{resource['kind']}"}
            jsonschema.validate(resource, schema, jsonschema.Draft202012Validator)
        else:
            kubernetes_validate.validate(resource, version, strict=True)


def test_the_manual_s_application_of_spark_keeps_to_the_schema() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", tree.text("docs/ingest.md"), re.DOTALL)
    [shown] = [block for block in map(yaml.safe_load, blocks) if "kind" in block]
    assert shown["kind"] == "SparkApplication"
    spec = chart.CUSTOM["SparkApplication"]["properties"]["spec"]
    jsonschema.validate(shown["spec"], {"$defs": chart.CUSTOM, **spec})
    program = shown["spec"]["mainApplicationFile"]
    assert program.removeprefix("local:///opt/tidegate/jobs/") == "ingest.py"
    assert (tree.ROOT / "deploy/jobs/ingest.py").exists()


def test_an_unknown_key_is_found() -> None:
    wrong = of_kind("plain", "Deployment")[0]
    wrong["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[-1], strict=True)
    for kind in ("KafkaTopic", "KafkaUser", "ScaledObject", "SparkApplication", "PodMonitor"):
        custom = of_kind("strimzi", kind)[0]
        custom["spec"]["partition"] = 2
        schema = {"$defs": chart.CUSTOM, "$ref": f"#/$defs/{kind}"}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(custom, schema, jsonschema.Draft202012Validator)


def test_the_matrix_has_every_kind_of_resource() -> None:
    kinds = {resource["kind"] for name in chart.RENDERED for resource in resources(name)}
    assert chart.CUSTOM.keys() - {"metadata", "selector", "acl"} <= kinds
    assert {"Deployment", "Job", "ConfigMap", "Service", "NetworkPolicy"} <= kinds
    assert {"ServiceAccount", "PodDisruptionBudget"} <= kinds


@every_rendering
def test_names_are_unique_and_everything_is_in_the_namespace(name: str) -> None:
    named = [(r["kind"], r["metadata"]["name"]) for r in resources(name)]
    assert len(named) == len(set(named))
    assert {r["metadata"]["namespace"] for r in resources(name)} == {"tidegate"}


# Policies


@every_rendering
def test_every_pod_passes_the_restricted_level(name: str) -> None:
    pods = chart.pods(name)
    assert len(pods) >= len(SERVICES)
    for pod in pods:
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True
        assert (security["runAsUser"], security["runAsGroup"]) == (UID, UID)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "shareProcessNamespace"} & pod.keys()
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@every_rendering
def test_containers_have_limits_and_a_fixed_image_of_a_named_registry(name: str) -> None:
    images = [c["image"] for pod in chart.pods(name) for c in pod["containers"]]
    images += [app["spec"]["image"] for app in of_kind(name, "SparkApplication")]
    for image in images:
        assert re.fullmatch(
            r"[\w-]+(\.[\w-]+)+(:\d+)?/[\w./-]+(:\d[\w.]*|@sha256:[0-9a-f]{64})", image
        )
        assert not image.endswith(":latest")
    for pod in chart.pods(name):
        for container in pod["containers"]:
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys()


@every_rendering
def test_a_budget_is_there_only_where_another_replica_serves_meanwhile(name: str) -> None:
    scaled = {
        s["spec"]["scaleTargetRef"]["name"]: s["spec"]["minReplicaCount"]
        for s in of_kind(name, "ScaledObject")
    }
    several = {
        d["metadata"]["name"]
        for d in of_kind(name, "Deployment")
        if d["spec"].get("replicas", scaled.get(d["metadata"]["name"], 1)) > 1
    }
    budgets = of_kind(name, "PodDisruptionBudget")
    assert {budget["metadata"]["name"] for budget in budgets} == several
    assert {budget["spec"]["maxUnavailable"] for budget in budgets} == {1}


@every_rendering
def test_services_have_accounts_of_their_own_and_probes_of_progress(name: str) -> None:
    deployments = of_kind(name, "Deployment")
    assert [chart.component(d) for d in deployments] == components(name)
    accounts = {account["metadata"]["name"] for account in of_kind(name, "ServiceAccount")}
    used = [d["spec"]["template"]["spec"]["serviceAccountName"] for d in deployments]
    assert set(used) == accounts
    assert len(accounts) == len(components(name))
    assert deployments[0]["spec"]["replicas"] == 2, "a committer that serves, and a standby"
    for deployment in deployments:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["startupProbe"]["httpGet"]["path"] == "/healthz"
        assert container["startupProbe"]["timeoutSeconds"] >= 5
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@every_rendering
def test_a_job_has_the_digest_of_what_it_runs_in_its_name_as_it_cannot_be_changed(
    name: str,
) -> None:
    for job in of_kind(name, "Job"):
        assert re.search(r"-[0-9a-f]{8}$", job["metadata"]["name"])
        assert job["spec"]["ttlSecondsAfterFinished"]


def test_topics_are_created_before_the_services_and_survive_them() -> None:
    (job,) = of_kind("plain", "Job")
    hooks = job["metadata"]["annotations"]
    assert hooks["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert hooks["helm.sh/hook-delete-policy"] == "before-hook-creation"
    for topic in of_kind("strimzi", "KafkaTopic"):
        kept = topic["metadata"]["annotations"]
        assert kept["helm.sh/resource-policy"] == "keep"
        assert "Prune=false" in kept["argocd.argoproj.io/sync-options"]


# The network


def ways(name: str) -> list[dict[str, Any]]:
    """Return the egress rules: names, brokers, stores, and others."""
    (policy,) = of_kind(name, "NetworkPolicy")
    assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    return list(policy["spec"]["egress"])


@every_rendering
def test_only_the_scraper_is_let_in_from_outside_of_the_node(name: str) -> None:
    (policy,) = of_kind(name, "NetworkPolicy")
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [8080]
    (scraper,) = rule["from"]
    assert scraper["namespaceSelector"]["matchLabels"]
    assert scraper["podSelector"]["matchLabels"]


def test_the_ports_of_brokers_stores_and_endpoints_are_those_of_the_settings() -> None:
    """The managed one names two registries, one without a port, a third for a job of `ingest`, and
    a collector of spans.
    """
    result = {
        name: [[p["port"] for p in way["ports"]] for way in ways(name)] for name in chart.RENDERED
    }
    assert result["plain"] == [[53, 53], [9092], [443]]
    assert result["strimzi"] == [[53, 53], [9093], [9000]]
    assert result["managed"] == [[53, 53], [9096], [443], [8081, 443, 4318, 8443], [80, 988]]


def test_what_goes_out_can_be_narrowed_to_addresses() -> None:
    assert all("to" in way for way in ways("strimzi"))
    assert [way["to"] for way in ways("managed")[1:3]] == [
        [{"ipBlock": {"cidr": "10.20.0.0/16"}}],
        [{"ipBlock": {"cidr": "10.30.0.0/16"}}],
    ]


# Settings and files


def settings_file(name: str, component: str) -> str:
    """Return the file of settings of a service or a job."""
    found = [c for c in of_kind(name, "ConfigMap") if "tidegate.yaml" in c["data"]]
    files = {chart.component(c): str(c["data"]["tidegate.yaml"]) for c in found}
    return files.get(component, files["settings"])


@pytest.mark.parametrize(
    ("name", "service"),
    [(name, component) for name in chart.RENDERED for component in components(name)],
)
def test_the_config_map_and_the_environment_are_settings_that_the_service_accepts(
    name: str, service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tidegate.yaml"
    config.write_text(settings_file(name, service), encoding="utf-8")
    (deployment,) = [d for d in of_kind(name, "Deployment") if chart.component(d) == service]
    for variable in deployment["spec"]["template"]["spec"]["containers"][0].get("env", ()):
        monkeypatch.setenv(variable["name"], variable.get("value", "secret"))
    settings = load(chart.settings_of(service), config, {})
    if isinstance(settings, IngestSettings):
        [job] = chart.values(name)["ingest"]
        assert settings.ingest.routes.keys() == job["routes"].keys()
        assert settings.http.host == "0.0.0.0"  # probes come from the node
    given = chart.values(name)["settings"]
    assert settings.kafka.bootstrap_servers == given["kafka"]["bootstrap_servers"]
    assert settings.kafka.partitions == given["kafka"].get("partitions", 1)
    assert settings.storage == given["storage"]
    assert settings.kafka.security.protocol == given["kafka"].get("security", {}).get(
        "protocol", "PLAINTEXT"
    )


@pytest.mark.parametrize("name", ["plain", "managed"])
def test_the_job_of_the_topics_names_the_same_brokers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = [j for j in of_kind(name, "Job") if chart.component(j) == "topics"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    for variable in container.get("env", ()):
        monkeypatch.setenv(variable["name"], variable.get("value", "secret"))
    given = dict(a.removeprefix("--set=").split("=", 1) for a in container["args"])
    settings = load(ServiceSettings, None, given)
    assert (
        settings.kafka.bootstrap_servers
        == chart.values(name)["settings"]["kafka"]["bootstrap_servers"]
    )
    assert settings.kafka.partitions == chart.values(name)["settings"]["kafka"].get("partitions", 1)


@every_rendering
def test_every_file_that_the_settings_name_is_mounted(name: str) -> None:
    content = settings_file(name, "settings")
    named = set(re.findall(r"_location: (\S+)", content))
    assert bool(named) == (name in ("strimzi", "managed"))
    for pod in chart.pods(name):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        (container,) = pod["containers"]
        mounted = set()
        for mount in container["volumeMounts"]:
            secret = volumes[mount["name"]].get("secret")
            if secret:
                mounted |= {f"{mount['mountPath']}/{item['path']}" for item in secret["items"]}
                assert mount["readOnly"] is True
        assert named == mounted


def test_other_settings_make_other_pods() -> None:
    digests = {
        name: {
            d["spec"]["template"]["metadata"]["annotations"]["tidegate/settings-sha256"]
            for d in of_kind(name, "Deployment")
        }
        for name in chart.RENDERED
    }
    assert all(len(digests[name]) == 1 + len(JOBS.get(name, ())) for name in digests)
    assert len(set.union(*digests.values())) == sum(map(len, digests.values()))


# Values


def merged(name: str, over: dict[str, Any]) -> dict[str, Any]:
    """Return a file of values with some changed, by dotted path."""
    result = chart.values(name)
    for path, value in over.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return result


def check(values: dict[str, Any]) -> None:
    """Check values as helm does."""
    jsonschema.validate(values, json.loads(tree.text(SCHEMA)), jsonschema.Draft7Validator)


@every_rendering
def test_values_keep_to_their_schema(name: str) -> None:
    check(chart.values(name))


@pytest.mark.parametrize(
    "wrong",
    [
        {"image.registry": ""},
        {"image.registry": None},
        {"image.tag": "latest"},
        {"settings.kafka.bootstrap_servers": "kafka"},
        {"settings.kafk": {"bootstrap_servers": "kafka:9092"}},
        {"settings.committer.roots": []},
        {"settings.kafka.security": {"password": "in the open"}},
        {"settings.storage.secret_access_key": "in the open"},
        {"committer.replicas": 0},
        {"committer.resources": {"requests": {}, "limits": {"cpu": 1}}},
        {"committer.image": {"name": "committer", "digest": "sha256:12"}},
        {"topics.create": "hook"},
        {"commiter": {}},
        {"ingest": [{"name": "lake", "routes": {}}]},
        {"ingest": [{"name": "lake", "routes": {"orders": {"topics": ["orders"]}}}]},
        {"ingestDefaults": {"registry_properties": {"basic.auth.user.info": "in the open"}}},
    ],
)
def test_invalid_values_are_refused_before_anything_is_installed(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(merged("plain", wrong))


def test_the_schema_of_values_knows_the_sections_that_the_services_have() -> None:
    # What is in a section, a service itself checks at its start, and names the nearest.
    sections = json.loads(tree.text(SCHEMA))["properties"]["settings"]["properties"]
    services = (*SERVICES, "maintain")
    models: list[type[ServiceSettings]] = [ServiceSettings, *map(chart.settings_of, services)]
    assert sections.keys() == {name for model in models for name in model.model_fields}


# Kafka


def test_strimzi_gets_the_topics_that_the_code_declares() -> None:
    given = chart.values("strimzi")["settings"]["kafka"]
    result = {t["spec"]["topicName"]: t["spec"] for t in of_kind("strimzi", "KafkaTopic")}
    declared = Topics("tidegate.", given["partitions"]).declared()
    assert result.keys() == {topic.name for topic in declared}
    for topic in declared:
        spec = result[topic.name]
        assert spec["partitions"] == topic.partitions
        assert spec["config"] == {**topic.properties, "min.insync.replicas": 2}


RIGHT = re.compile(
    r"^\| (?P<who>[\w ]+) \| (?P<kind>topic|group|transactional id) (?P<names>.+) "
    r"\| (?P<rights>[\w, ]+) \|$",
    re.MULTILINE,
)


def manual_rights() -> dict[str, set[tuple[str, str, str]]]:
    """Return the rights that the manual lists: by service, (kind, name, right)."""
    result: dict[str, set[tuple[str, str, str]]] = {}
    for row in RIGHT.finditer(tree.text("docs/operations.md")):
        who = row["who"].replace("change publisher", "cdc-publisher")
        kind = row["kind"].replace("transactional id", "transactionalId")
        for name in re.findall(r"`([\w.*-]+)`", row["names"]):
            result.setdefault(who, set()).update((kind, name, r) for r in row["rights"].split(", "))
    return result


def test_each_service_is_a_user_of_kafka_with_the_rights_of_the_manual_and_no_other() -> None:
    manual = manual_rights()
    users = of_kind("strimzi", "KafkaUser")
    assert [chart.component(user) for user in users] == components("strimzi")
    [job] = chart.values("strimzi")["ingest"]
    sources = {topic for route in job["routes"].values() for topic in route["topics"]}
    for user in users:
        rights = set()
        for acl in user["spec"]["authorization"]["acls"]:
            resource = acl["resource"]
            if resource["name"] in sources:
                assert (chart.component(user), acl["operations"]) == ("ingest-lake", ["Read"])
                continue
            assert resource["name"].startswith("tidegate.")
            star = "*" if resource["patternType"] == "prefix" else ""
            name = resource["name"].removeprefix("tidegate.") + star
            rights |= {(resource["type"], name, operation) for operation in acl["operations"]}
        component = chart.component(user).replace("ingest-lake", "ingest")
        who = "maintainer" if component == "maintain" else component
        assert rights == manual[who] | manual["everybody"]
        assert user["spec"]["authentication"] == {"type": "tls"}


# Monitoring


def test_monitors_find_the_pods_of_the_services() -> None:
    (monitor,) = of_kind("strimzi", "PodMonitor")
    (only,) = monitor["spec"]["selector"]["matchExpressions"]
    assert only["values"] == components("strimzi")
    ports = {
        port["name"]
        for d in of_kind("strimzi", "Deployment")
        for port in d["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    assert ports == {monitor["spec"]["podMetricsEndpoints"][0]["port"]}
    (of_services,) = of_kind("managed", "ServiceMonitor")
    wanted = of_services["spec"]["selector"]["matchLabels"].items()
    services = of_kind("managed", "Service")
    assert [chart.component(service) for service in services] == components("managed")
    assert all(wanted <= service["metadata"]["labels"].items() for service in services)


def test_the_reference_shows_each_expression_as_the_chart_has_it() -> None:
    rows = re.findall(
        r"^\| \[`(Tidegate\w+)`\]\(\S+\) \| `(.+)` \| (\d+m) \| \w+ \|$",
        tree.text("docs/reference.md"),
        re.MULTILINE,
    )
    shown = [(name, expression.replace(r"\|", "|"), held) for name, expression, held in rows]
    assert shown == [(alert["alert"], alert["expr"], alert["for"]) for alert in chart.alerts()]


def test_no_alert_is_silent_where_nothing_was_counted_before() -> None:
    # A new process counts a poison record from nothing to one, which `increase` does not see; and
    # an empty sum raises no alert.
    expressions = [alert["expr"] for alert in chart.alerts()]
    assert len(expressions) > 10
    assert not [e for e in expressions if "increase" in e and '"poison"' in e]
    assert not [e for e in expressions if "< 1" in e and "or vector(0)" not in e]


@pytest.mark.parametrize("alert", chart.alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_queries_exposed_metrics_and_links_to_a_heading_that_exists(
    alert: dict[str, str],
) -> None:
    assert chart.misread(alert["expr"]) == []
    assert alert["severity"] in {"page", "ticket"}
    file, _, place = alert["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", tree.text(f"docs/{file}"), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in headings}
    assert place in slugs


def test_rules_carry_every_alert_with_its_link() -> None:
    (rules,) = of_kind("strimzi", "PrometheusRule")
    result = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in result] == [alert["alert"] for alert in chart.alerts()]
    for rule in result:
        assert rule["annotations"]["runbook_url"].startswith("https://docs.example.com/tidegate/")
        assert rule["annotations"]["summary"]


def queries(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each panel's title and expression, with Grafana's variables filled in."""
    return [
        (
            panel["title"],
            re.sub(
                r"\$__rate_interval", "5m", re.sub(r"\$(namespace|table|route)", "x", t["expr"])
            ),
        )
        for panel in dashboard["panels"]
        for t in panel.get("targets", ())
    ]


def test_every_query_of_the_dashboards_uses_exposed_metrics() -> None:
    dashboards = chart.dashboards()
    names = {"gate.json", "tables.json", "change-streams.json", "ingest.json"}
    assert dashboards.keys() == names
    for name, dashboard in dashboards.items():
        assert len(queries(dashboard)) >= 8
        wrong = {title: chart.misread(q) for title, q in queries(dashboard) if chart.misread(q)}
        assert wrong == {}, name
        for variable in dashboard["templating"]["list"]:
            for series in re.findall(r"tidegate_\w+", variable.get("definition", "")):
                assert series in chart.exposed()
    (scaled,) = of_kind("strimzi", "ScaledObject")
    assert chart.misread(scaled["spec"]["triggers"][0]["metadata"]["query"]) == []


def test_a_query_for_what_nobody_exposes_is_found() -> None:
    assert chart.misread("rate(tidegate_proposals[5m])") == [
        "no service exposes tidegate_proposals"
    ]
    assert chart.misread("sum by (kind) (tidegate_tables)") == ["nothing has the label kind"]
    assert chart.misread('tidegate_tables{table="t"}') == ["tidegate_tables has no label table"]
    with pytest.raises(ValueError, match=r"."):
        chart.misread("sum(")


def test_the_dashboards_come_as_config_maps_that_the_sidecar_finds() -> None:
    maps = [
        c for c in of_kind("strimzi", "ConfigMap") if "grafana_dashboard" in c["metadata"]["labels"]
    ]
    assert len(maps) == len(chart.dashboards())


def test_only_the_publisher_is_scaled_by_load() -> None:
    (scaled,) = of_kind("strimzi", "ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] == "tidegate-cdc-publisher"
    assert (
        scaled["spec"]["maxReplicaCount"]
        <= chart.values("strimzi")["settings"]["kafka"]["partitions"]
    )
    without = [d for d in of_kind("strimzi", "Deployment") if "replicas" not in d["spec"]]
    assert [chart.component(d) for d in without] == ["cdc-publisher"]
