"""Each service starts in an environment that has only its own extra."""

import zipfile
from pathlib import Path

import pytest

from tests.integration import environments
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import EXAMPLES, FOLDER, examples_of, schema_name

SERVICES = ("committer", "checkpointer", "cdc-publisher")
NEIGHBOURS = {
    "committer": ("tidegate_producers.table", "tidegate_runtime.followers.commit_follower"),
    "checkpointer": ("tidegate_producers.table",),
    "cdc-publisher": ("tidegate_producers.table",),
    "producers": ("tidegate_runtime.followers.commit_follower",),
}
"""Modules whose libraries a service does not install; their import must fail there."""

COMMAND = "from tidegate_runtime.cli.main import main; main()"
"""The code of the command `tidegate`."""

OF_A_REGISTRY = (
    "avro_encoding",
    "protobuf_encoding",
    "protobuf_records",
    "protobuf_texts",
    "schema_registry",
)
"""Modules whose libraries come with the extra `registry`."""

IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
names = [n for n in names if ".demo" not in n and n.rpartition(".")[2] not in sys.argv[2:]]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this tree."""
    return environments.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=[*SERVICES, "producers"])
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return a service and the interpreter of its own environment."""
    service = str(request.param)
    return service, environments.make(tmp_path_factory.mktemp(service), service, wheel)


def test_the_wheel_holds_the_schemas_and_examples(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        shipped = set(content.namelist())
    for kind in FORMATS:
        assert f"tidegate_messages/{FOLDER}/{schema_name(kind)}" in shipped
        stem = schema_name(kind).removesuffix(".json")
        names = {f"tidegate_messages/{EXAMPLES}/{stem}.{name}.json" for name in examples_of(kind)}
        assert names
        assert names <= shipped


def test_every_module_of_the_service_imports_there(environment: tuple[str, Path]) -> None:
    service, python = environment
    package = f"tidegate_{service.replace('-', '_')}"
    done = environments.run(python, "-c", IMPORT_ALL, package, *OF_A_REGISTRY)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


def test_the_service_prints_its_options(environment: tuple[str, Path]) -> None:
    service, python = environment
    program, option = ["-m", f"tidegate_{service.replace('-', '_')}"], "--config"
    if service == "producers":  # a library and a command, not a process
        program, option = ["-c", COMMAND, "table"], "register"
    done = environments.run(python, *program, "--help")
    assert done.returncode == 0, done.stderr
    assert option in done.stdout


def test_the_command_shows_the_service_and_hides_its_neighbours(
    environment: tuple[str, Path],
) -> None:
    service, python = environment
    done = environments.run(python, "-c", COMMAND, "--help")
    assert done.returncode == 0, done.stderr
    shown = {word for line in done.stdout.splitlines() for word in line.split()[:2]}
    commands = {"committer", "checkpointer", "cdc-publisher", "demo"}
    runs = {"checkpointer", "cdc-publisher"} if service in SERVICES[1:] else {service}
    # Both followers have the same libraries; the committer needs none that the others lack.
    assert shown & commands <= runs | {"committer"}


def test_a_neighbour_with_other_libraries_does_not_import_there(
    environment: tuple[str, Path],
) -> None:
    service, python = environment
    for module in NEIGHBOURS[service]:
        done = environments.run(python, "-c", f"import {module}")
        assert done.returncode != 0
        assert "ModuleNotFoundError" in done.stderr
