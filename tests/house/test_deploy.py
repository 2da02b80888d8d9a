"""The image and Compose files match their schemas and our settings."""

import json
import re
import tomllib
from fnmatch import fnmatch
from typing import Any

import jsonschema
import pytest
import yaml

from tests.house import chart, dockerfile, tree
from tidegate_delta.errors import Misconfigured
from tidegate_producers.ingest.__main__ import settings_of
from tidegate_producers.ingest.spark_session import AVRO, KAFKA
from tidegate_runtime.service.settings import load

SERVICES = ("committer", "checkpointer", "cdc-publisher")
UID = "10001"
COMPOSE_SCHEMA = json.loads(tree.text("deploy/compose.schema.json"))


def compose() -> dict[str, Any]:
    """Return compose.yaml with its anchors resolved."""
    result = yaml.safe_load(tree.text("deploy/compose.yaml"))
    assert isinstance(result, dict)
    return result


# The image


def stages() -> dict[str, dockerfile.Stage]:
    """Return the stages of the Dockerfile by name."""
    return {stage.name or "": stage for stage in dockerfile.stages(tree.text("deploy/Dockerfile"))}


def lineage(name: str) -> list[dockerfile.Stage]:
    """Return a stage behind those that it is based on."""
    stage = stages()[name]
    return [*(lineage(stage.image) if stage.image in stages() else ()), stage]


def steps(name: str, verb: str) -> list[str]:
    """Return the arguments of a verb in an image, in order."""
    return [argument for stage in lineage(name) for argument in stage.of(verb)]


def builds() -> list[str]:
    """Return the stages that build an environment."""
    return [name for name in stages() if name.startswith("build-")]


@pytest.mark.parametrize("final", ["services", "producers", "console"])
def test_an_environment_is_built_in_stages_of_its_own_and_runs_as_nobody(final: str) -> None:
    copied = steps(final, "COPY")
    jobs = ["deploy/jobs/ /opt/tidegate/jobs/"] if final == "producers" else []
    assert copied == [
        "deploy/image-steps.sh deploy/sbom.py /opt/steps/",
        f"--from=build-{final} /opt/tidegate /opt/tidegate",
        *jobs,
    ]
    runs = steps(final, "RUN")
    assert all(run.startswith("sh /opt/steps/image-steps.sh ") for run in runs)
    assert runs[-1].endswith(" finish"), "the bill of materials counts all that is there"
    assert steps(final, "USER") == [f"{UID}:{UID}"]
    assert steps(final, "STOPSIGNAL") == ["SIGTERM"]
    labels = " ".join(steps(final, "LABEL"))
    for label in ("version", "revision", "created", "licenses", "base.name"):
        assert f"org.opencontainers.image.{label}=" in labels
    assert ("/healthz" in " ".join(steps(final, "HEALTHCHECK"))) == (final != "producers")
    assert "ADD" not in {step.verb for stage in lineage(final) for step in stage.instructions}


def test_the_three_services_share_every_layer_and_have_an_init() -> None:
    for service in SERVICES:
        stage = stages()[service]
        assert stage.image == "services"
        assert {step.verb for step in stage.instructions} == {"LABEL", "ENTRYPOINT"}
        module = f"tidegate_{service.replace('-', '_')}"
        assert stage.of("ENTRYPOINT") == [f'["tini", "--", "python", "-m", "{module}"]']


def test_the_image_for_jobs_starts_commands_and_what_spark_starts_by_its_own_entrypoint() -> None:
    assert stages()["producers"].of("ENTRYPOINT") == [
        '["tini", "--", "sh", "/opt/tidegate/jobs/entrypoint.sh"]'
    ]
    text = tree.text("deploy/jobs/entrypoint.sh")
    assert all(f"\n{case})\n" in text for case in ("driver", "executor"))


def test_the_base_is_named_by_its_digest_and_can_be_another() -> None:
    for name in ("deploy/Dockerfile", "deploy/kafka/Dockerfile"):
        text = tree.text(name)
        assert re.search(
            r"^ARG BASE=\S+/python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}$", text, re.M
        )
        result = dockerfile.stages(text)
        assert {s.image for s in result} - {s.name for s in result} - {"scratch"} == {"${BASE}"}


def test_the_builds_run_only_the_steps_that_a_test_runs() -> None:
    assert len(builds()) == 3
    for build in builds():
        assert steps(build, "RUN")
        java = ["sh deploy/image-steps.sh packages openjdk-17-jre-headless"]
        mine = [run for run in steps(build, "RUN") if [run] != java]
        assert all(run.startswith("sh deploy/build-steps.sh ") for run in mine)


def test_the_image_for_jobs_has_the_jars_that_ingest_would_fetch_for_its_pyspark() -> None:
    jars = [run for run in steps("build-producers", "RUN") if " jars " in run]
    assert jars == ['sh deploy/build-steps.sh jars "$TARGET"']
    lines = tree.text("requirements/spark-jars.sha256").splitlines()[1:]
    pinned = {line.split("  ")[1] for line in lines if re.match(r"[0-9a-f]{64}  \S+\.jar$", line)}
    assert len(pinned) == len(lines)
    (spark,) = re.findall(r"^pyspark==(\S+)", tree.text("requirements/producers.txt"), re.M)
    assert {f"{name}-{spark}.jar" for name in (KAFKA, AVRO)} <= pinned
    fetched = re.search(r"for name in (.*); do packages=", tree.text("deploy/build-steps.sh"))
    assert fetched is not None
    assert fetched[1].split() == [KAFKA, AVRO]


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    copies = [c for s in stages().values() for c in s.of("COPY") if not c.startswith("--from")]
    sources = {source for copy in copies for source in copy.split()[:-1]}
    assert [source for source in sources if not (tree.ROOT / source).exists()] == []
    ignored = tree.text("deploy/Dockerfile.dockerignore").splitlines()
    allowed = [line[1:].removesuffix("**") for line in ignored if line.startswith("!")]
    assert [s for s in sources if not any(fnmatch(s, pattern) for pattern in allowed)] == []


def test_every_package_of_the_wheel_is_copied_to_where_it_is_built() -> None:
    project = tomllib.loads(tree.text("pyproject.toml"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = [source for copy in steps("source", "COPY") for source in copy.split()[:-1]]
    assert [p for p in packages if not any(f"{p}/".startswith(c) for c in copied)] == []
    assert all("--from=source / ./" in steps(build, "COPY") for build in builds())


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
    ours = {n: s for n, s in compose()["services"].items() if "tidegate/" in s["image"]}
    assert ours.keys() == {*SERVICES, "bucket", "topics", "demo", "ingest", "maintain", "console"}
    for service in ours.values():
        assert service["user"] == f"{UID}:{UID}"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]


def test_an_image_of_ours_is_built_or_named_and_never_had_from_a_public_registry() -> None:
    for name, service in compose()["services"].items():
        if "build" in service:
            assert re.fullmatch(
                r"\$\{[A-Z_]+_IMAGE:-localhost/tidegate/[a-z-]+\}", service["image"]
            )
            assert service["build"]["target"] in stages()
        else:
            assert name in {"kafka", "store"}


def test_what_needs_kafka_or_the_store_once_is_started_again_while_they_start() -> None:
    services = compose()["services"]
    assert {services[name]["restart"] for name in ("topics", "bucket")} == {"on-failure"}
    for name in SERVICES:
        waits = {w: how["condition"] for w, how in services[name]["depends_on"].items()}
        assert set(waits.values()) == {"service_completed_successfully"}
        assert waits.keys() == {"topics", "bucket"}


def test_a_spark_job_may_load_its_native_libraries_from_its_tmpfs() -> None:
    services = compose()["services"]
    for name in ("demo", "ingest"):
        assert services[name]["tmpfs"] == ["/tmp:exec"], "snappy's, for one, are unpacked there"
    assert {tuple(services[name]["tmpfs"]) for name in SERVICES} == {("/tmp",)}


@pytest.mark.parametrize("service", [*SERVICES, "maintain"])
def test_compose_gives_settings_that_the_service_accepts(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = compose()["services"][service]["environment"]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = load(chart.settings_of(service), None, {})
    assert settings.kafka.bootstrap_servers == "kafka:9092"


def test_ingest_in_compose_copies_the_demos_changes_by_options_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = compose()["services"]
    service = services["ingest"]
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, value)
    ingest, run, topic, table, *more = service["command"]
    assert (ingest, run) == ("ingest", "run")
    pairs = dict(option.removeprefix("--").split("=", 1) for option in more)
    options = {name.replace("-", "_"): value for name, value in pairs.items()}
    settings = settings_of(None, (), (topic, table), options)
    (route,) = settings.ingest.routes.values()
    demo = tree.text("deploy/jobs/demo.py")
    (name,) = re.findall(r'^NAME = "(.*)"', demo, re.M)
    assert route.topics == (f"tidegate.cdc.{name}",)
    assert f'SCHEMA = "{route.value_schema}"' in demo
    assert [route.table] != services["demo"]["command"]
    assert settings.http.port == 8080
    assert f":{settings.http.port}/healthz" in service["healthcheck"]["test"][-1]
    resources = yaml.safe_load(tree.text("deploy/helm/tidegate/values.yaml"))["ingestDefaults"]
    assert service["mem_limit"] == resources["resources"]["limits"]["memory"].lower()[:-1]


def test_a_setting_that_no_service_knows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE__KAFKA__BOOTSTRAP", "kafka:9092")
    with pytest.raises(Misconfigured):
        load(chart.settings_of("committer"), None, {})
