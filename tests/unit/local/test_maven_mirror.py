"""The mirror in a user's Maven settings, as Ivy takes it."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tidegate_local.maven_mirror import Mirror, as_ivy_settings, maven_mirror

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
