"""The lock files are complete, hashed and without addresses, and agree with each other."""

import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.house import tree

ALL = "requirements/all.txt"
SERVICES = ("committer", "checkpointer", "cdc-publisher", "producers", "console")
EXTRAS = ("registry", "otel", "spark-connect", "gcs", "adls")
PINNED = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;\\]+)(?P<marker> ;[^\\]*)?")


def pins(text: str) -> set[tuple[str, str]]:
    """Return names and versions; a name has several if platforms or Python versions differ."""
    result = (PINNED.match(line) for line in text.splitlines())
    return {(match["name"], match["version"]) for match in result if match}


def names(service: str) -> set[str]:
    """Return the names of the packages that a service installs."""
    return {name for name, _ in pins(tree.text(f"requirements/{service}.txt"))}


def unhashed(text: str) -> Iterator[str]:
    """Yield each requirement without a hash."""
    for block in re.split(r"\n(?=\S)", text.strip()):
        if not block.startswith("#") and "--hash=sha256:" not in block:
            yield block.splitlines()[0]


@pytest.mark.parametrize("service", ["all", "build", *SERVICES, *EXTRAS])
def test_every_requirement_has_a_version_and_a_hash(service: str) -> None:
    text = tree.text(f"requirements/{service}.txt")
    assert pins(text)
    assert not list(unhashed(text))
    assert len(pins(text)) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE))


def test_a_requirement_without_a_hash_is_found() -> None:
    assert list(unhashed("a==1 \\\n    --hash=sha256:00\nb==2\n")) == ["b==2"]


@pytest.mark.parametrize("service", [*SERVICES, *EXTRAS])
def test_a_service_has_the_versions_that_were_tested(service: str) -> None:
    assert pins(tree.text(f"requirements/{service}.txt")) <= pins(tree.text(ALL))


def test_wheels_are_built_with_what_pyproject_requires_and_was_tested() -> None:
    build = pins(tree.text("requirements/build.txt"))
    assert build <= pins(tree.text(ALL))
    asked = tomllib.loads(tree.text("pyproject.toml"))["build-system"]["requires"]
    assert {re.split(r"[\[<>=!~ ]", item)[0].lower() for item in asked} <= {
        name for name, _ in build
    }
    assert "requirements/build.txt" in tree.text("Makefile").partition("\nlock:")[2]


def test_no_service_carries_what_is_for_another() -> None:
    assert not {"pyspark", "faust-streaming", "pytest"} & names("committer")
    assert not {"pyspark", "pytest"} & (names("checkpointer") | names("cdc-publisher"))
    assert not {"faust-streaming", "pytest"} & names("producers")


def test_the_locks_hold_what_pyproject_requires() -> None:
    project = tomllib.loads(tree.text("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]
    for service in SERVICES:
        asked = {
            re.split(r"[\[<>=!~ ]", requirement)[0].lower()
            for requirement in (*project["dependencies"], *extras[service], *extras["s3"])
        }
        assert asked <= names(service)
