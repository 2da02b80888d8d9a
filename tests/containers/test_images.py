"""Our images in a real engine: what they hold, as whom they run, how they end."""

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.containers.engine import HARDENED, ROOT, base, docker, inspected, until

SERVICES = ("committer", "checkpointer", "cdc-publisher")
SIZE_MAX = 270_000_000
"""What the three services may take above the base, in bytes, all layers together."""

PINNED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)


def layers(image: str) -> list[str]:
    """Return the digests of an image's layers."""
    result = inspected("image", image)["RootFS"]["Layers"]
    assert isinstance(result, list)
    return result


def in_image(image: str, *program: str) -> str:
    """Run a program in a hardened container without a network."""
    return docker(
        "run", "--rm", *HARDENED, "--tmpfs", "/tmp", "--network", "none",
        "--entrypoint", program[0], image, *program[1:],
    )  # fmt: skip


@pytest.fixture
def waiting_committer(images: dict[str, str]) -> Iterator[str]:
    """Yield a committer whose Kafka does not answer."""
    name = "tidegate-test-waiting"
    docker("rm", "--force", name)
    docker("run", "--detach", "--name", name, *HARDENED, "--tmpfs", "/tmp", "--network", "none",
        "--health-interval", "1s", "--health-start-period", "1s",
        images["committer"], "--set", "committer.roots=file:///tables/",
        "--set", "kafka.bootstrap_servers=127.0.0.1:9")  # fmt: skip
    yield name
    docker("rm", "--force", name)


def test_the_services_share_every_layer_and_keep_to_their_budget(images: dict[str, str]) -> None:
    result = [layers(images[service]) for service in SERVICES]
    assert result[0] == result[1] == result[2]
    above = inspected("image", images["committer"])["Size"] - inspected("image", base())["Size"]
    assert 0 < above <= SIZE_MAX


@pytest.mark.parametrize("image", [*SERVICES, "producers", "console"])
def test_an_image_runs_as_nobody_with_an_init_and_has_labels(
    images: dict[str, str], image: str
) -> None:
    config = inspected("image", images[image])["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][:2] == ["tini", "--"]
    labels = config["Labels"]
    for name in ("title", "description", "version", "revision", "created", "licenses"):
        assert labels[f"org.opencontainers.image.{name}"]
    assert labels["org.opencontainers.image.base.name"] == base()
    if image != "producers":
        assert "/healthz" in " ".join(config["Healthcheck"]["Test"])
    assert in_image(images[image], "id", "-u") == "10001"


@pytest.mark.parametrize(
    ("image", "locks"),
    [
        ("committer", (*SERVICES, "registry", "otel")),
        ("producers", ("producers", "registry", "otel", "spark-connect")),
        ("console", ("console", "otel")),
    ],
)
def test_the_bill_of_materials_is_what_the_locks_say_and_no_more(
    images: dict[str, str], image: str, locks: tuple[str, ...]
) -> None:
    bill = json.loads(in_image(images[image], "cat", "/opt/tidegate/sbom.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX"
    purls = [component["purl"] for component in bill["components"]]
    python = {p.removeprefix("pkg:pypi/") for p in purls if p.startswith("pkg:pypi/")}
    texts = [(ROOT / "requirements" / f"{lock}.txt").read_text() for lock in locks]
    pinned = {f"{name}@{version}" for text in texts for name, version in PINNED.findall(text)}
    ours = {p for p in python if p.startswith("tidegate@")}
    assert len(ours) == 1
    assert python - ours <= pinned
    markers = {"colorama", "async-timeout", "tzdata", "pywin32", "exceptiongroup", "httpx2-jsfetch"}
    absent, there = ({p.partition("@")[0] for p in pins} for pins in (pinned - python, python))
    assert absent - there <= markers, "for other platforms; some have a pin for each Python"
    assert any(purl.startswith("pkg:deb/debian/libc6@") for purl in purls)


@pytest.mark.parametrize("image", [*SERVICES, "producers"])
def test_images_have_what_spans_and_a_registry_of_schemas_need(
    images: dict[str, str], image: str
) -> None:
    registry = "confluent_kafka.schema_registry"
    modules = f"opentelemetry.exporter.otlp.proto.http, {registry}.avro, {registry}.protobuf"
    assert in_image(images[image], "python", "-c", f"import {modules}; print('there')") == "there"


@pytest.mark.parametrize("image", SERVICES)
def test_a_service_starts_on_a_read_only_root_without_capabilities(
    images: dict[str, str], image: str
) -> None:
    module = f"tidegate_{image.replace('-', '_')}"
    assert "--config" in in_image(images[image], "python", "-m", module, "--help")


def test_sigterm_arrives_and_the_health_check_needs_progress(waiting_committer: str) -> None:
    def health() -> str:
        return str(inspected("container", waiting_committer)["State"]["Health"]["Status"])

    # It waits for brokers, which is no stall: nothing is there to make progress with.
    until(lambda: health() == "healthy", "the health check", 300)
    began_s = time.monotonic()
    docker("stop", "--time", "20", waiting_committer)
    took_s = time.monotonic() - began_s
    state = inspected("container", waiting_committer)["State"]
    assert state["ExitCode"] == 0
    assert took_s < 15


def test_spark_and_java_are_among_the_producers(images: dict[str, str]) -> None:
    said = in_image(
        images["producers"], "python", "-c", "import pyspark; print(pyspark.__version__)"
    )
    assert said == "4.2.0"
    assert in_image(images["producers"], "java", "-version") == ""
    assert "append.py" in in_image(images["producers"], "ls", "/opt/tidegate/jobs")
    connect = "import grpc, pyspark.sql.connect.session; print('there')"
    assert in_image(images["producers"], "python", "-c", connect) == "there"


def test_the_producers_start_commands_and_what_spark_starts_in_a_pod(
    images: dict[str, str],
) -> None:
    def started(*arguments: str, **environ: str) -> str:
        given = [part for pair in environ.items() for part in ("--env", "=".join(pair))]
        contained = [*HARDENED, "--tmpfs", "/tmp", "--network", "none"]
        return docker("run", "--rm", *contained, *given, images["producers"], *arguments)

    assert "ingest" in started("--help")
    job = ["--master", "local[1]", "/opt/tidegate/jobs/ingest.py", "--help"]
    # Without a network the container's own name does not resolve, as a pod's does.
    environ = dict.fromkeys(("SPARK_DRIVER_BIND_ADDRESS", "SPARK_LOCAL_IP"), "127.0.0.1")
    assert "dead-letters" in started("driver", *job, **environ)


def test_the_producers_have_the_pinned_jars_for_ingest(images: dict[str, str]) -> None:
    folder = "import pyspark, os; print(*os.listdir(pyspark.__path__[0] + '/jars'))"
    there = in_image(images["producers"], "python", "-c", folder).split()
    pins = (ROOT / "requirements" / "spark-jars.sha256").read_text().splitlines()[1:]
    assert {line.split("  ")[1] for line in pins} <= set(there)
