"""The broker's jars: downloaded once, always checked; a fake `java` stands in for Ivy."""

import hashlib
import stat
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_local import kafka_jars
from tidegate_local.kafka_jars import (
    Mirror,
    as_ivy_settings,
    ensure_jars,
    java_command,
    maven_mirror,
    pinned_jars,
)

IVY = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
echo run >> "{folder}/runs"
sleep 0.2
while [ $# -gt 0 ]; do if [ "$1" = -retrieve ]; then target=$(dirname "$2"); fi; shift; done
mkdir -p "$target"
{body}
"""


class FakeJava:
    """A `java` on PATH that answers `-version`, and runs the given script in place of Ivy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()

    def write(self, text: str) -> None:
        java = self.bin / "java"
        java.write_text(text, encoding="utf-8")
        java.chmod(java.stat().st_mode | stat.S_IXUSR)

    def ivy(self, body: str) -> None:
        self.write(IVY.format(folder=self.folder, body=body))

    def runs(self) -> int:
        file = self.folder / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJava:
    fake = FakeJava(tmp_path)
    pins = tmp_path / "pins"
    pins.write_text(f"# comment\na 1.0 {hashlib.sha256(b'a').hexdigest()}\n", encoding="utf-8")
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "ivy-2.5.3.jar").touch()
    monkeypatch.setattr(kafka_jars, "_PINS", pins)
    monkeypatch.setattr(kafka_jars, "pyspark_jars", lambda: tmp_path / "spark")
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return fake


def test_every_pin_is_a_jar_and_a_sha256() -> None:
    pins = pinned_jars()
    assert len(pins) == 45
    assert "kafka_2.13-4.1.1.jar" in pins
    assert all(len(bytes.fromhex(digest)) == 32 for digest in pins.values())


def test_jars_are_fetched_once(java: FakeJava) -> None:
    java.ivy('printf a > "$target/a-1.0.jar"')
    said: list[str] = []
    folder = ensure_jars(said.append)
    assert (folder / "a-1.0.jar").read_bytes() == b"a"
    assert "fetching 1 jars" in said[0]
    assert ensure_jars(said.append) == folder
    assert java.runs() == 1


def test_of_several_at_once_one_fetches_and_all_get_them(java: FakeJava) -> None:
    java.ivy('printf a > "$target/a-1.0.jar"')
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: ensure_jars(lambda _: None), range(4)))
    assert len(folders) == 1
    assert java.runs() == 1


def test_a_jar_that_is_not_the_pinned_one_is_refused_and_nothing_is_kept(java: FakeJava) -> None:
    java.ivy('printf b > "$target/a-1.0.jar"')
    with pytest.raises(Misconfigured, match=r"a-1\.0\.jar has the sha256"):
        ensure_jars(lambda _: None)
    assert [p.name for p in (java.folder / "cache" / "kafka").iterdir()] == ["4.1.1.lock"]


def test_a_registry_that_fails_is_one_line_with_its_answer(java: FakeJava) -> None:
    java.ivy('echo "  SERVER ERROR: connection refused url=x"')
    with pytest.raises(Unavailable, match="connection refused") as caught:
        ensure_jars(lambda _: None)
    assert "\n" not in str(caught.value)
    assert "ivysettings.xml" in str(caught.value)


def test_without_pyspark_the_error_names_what_to_install(
    java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    java.ivy("true")
    monkeypatch.setattr(kafka_jars, "pyspark_jars", lambda: None)
    with pytest.raises(Misconfigured, match="pip install"):
        ensure_jars(lambda _: None)


def test_too_little_space_is_an_error_before_anything_is_fetched(
    java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    java.ivy("true")
    monkeypatch.setattr(kafka_jars, "SPACE_MIN_BYTES", 2**62)
    with pytest.raises(Misconfigured, match="make room"):
        ensure_jars(lambda _: None)
    assert java.runs() == 0


def test_without_java_the_error_names_what_to_install(
    java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(java.folder))
    with pytest.raises(Misconfigured, match="install Java 17"):
        java_command()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_refused_by_its_version(java: FakeJava, version: str) -> None:
    java.write(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    with pytest.raises(Misconfigured, match="too old"):
        java_command()


def test_java_home_stands_above_the_path(java: FakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    java.ivy("true")
    assert java_command() == str(java.bin / "java")
    monkeypatch.setenv("JAVA_HOME", str(java.folder / "elsewhere"))
    with pytest.raises(Misconfigured, match="elsewhere"):
        java_command()


def test_the_users_own_ivy_settings_are_given_to_ivy(
    java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    java.ivy('printf a > "$target/a-1.0.jar"')
    monkeypatch.setenv("TIDEGATE_IVY_SETTINGS", str(java.folder / "absent.xml"))
    with pytest.raises(Misconfigured, match=r"absent\.xml"):
        ensure_jars(lambda _: None)


SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
  <servers><server><id>ours</id><username>me</username><password>${{env.SECRET}}</password></server>
  </servers>
  <mirrors>
    <mirror><id>other</id><url>https://other.example/m2</url><mirrorOf>spring</mirrorOf></mirror>
    <mirror><id>ours</id><url>https://ours.example/m2</url><mirrorOf>{of}</mirrorOf></mirror>
  </mirrors>
</settings>"""


def settings(tmp_path: Path, of: str) -> Path:
    file = tmp_path / "settings.xml"
    file.write_text(SETTINGS.format(of=of), encoding="utf-8")
    return file


@pytest.mark.parametrize("of", ["*", "central", "external:*", "*, !snapshots"])
def test_the_mirror_of_the_central_repository_is_taken_with_its_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    monkeypatch.setenv("SECRET", "hush")
    assert maven_mirror(settings(tmp_path, of)) == Mirror("https://ours.example/m2", "me", "hush")


@pytest.mark.parametrize("of", ["spring", "*,!central"])
def test_a_mirror_of_something_else_is_not(tmp_path: Path, of: str) -> None:
    assert maven_mirror(settings(tmp_path, of)) is None


def test_no_file_and_no_xml_are_no_mirror(tmp_path: Path) -> None:
    assert maven_mirror(tmp_path / "absent") is None
    broken = tmp_path / "broken"
    broken.write_text("<settings>", encoding="utf-8")
    assert maven_mirror(broken) is None


def test_ivys_settings_resolve_from_the_mirror_and_quote_what_they_are_given() -> None:
    root = ET.fromstring(as_ivy_settings(Mirror("https://ours.example/m2?a&b", "me", "'<hush>")))
    resolver = root.find("resolvers/ibiblio")
    credentials = root.find("credentials")
    assert resolver is not None
    assert credentials is not None
    assert resolver.get("root") == "https://ours.example/m2?a&b"
    assert (credentials.get("host"), credentials.get("passwd")) == ("ours.example", "'<hush>")
