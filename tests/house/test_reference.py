"""The reference page is what the code says, and the site's navigation has every page."""

from typing import Any

import yaml

from tests import reference
from tests.house import tree

PAGE = "docs/reference.md"


def test_the_reference_is_made_from_the_code() -> None:
    assert tree.text(PAGE) == reference.page(), "run `make docs`"


def test_the_reference_names_what_it_should() -> None:
    text = reference.page()
    for name in (
        "`tidegate table vacuum`",
        "`TIDEGATE__KAFKA__BOOTSTRAP_SERVERS`",
        "`tidegate.proposals`",
        "`proposal/1`",
        "`tidegate_conflicts_total`",
        "| `Unavailable` | retry |",
    ):
        assert name in text, name


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for below in entries for page in _pages(below)]


def test_the_sites_navigation_has_every_page_once() -> None:
    named = _pages(yaml.safe_load(tree.text("mkdocs.yml"))["nav"])
    there = {
        name.removeprefix("docs/")
        for name in tree.files()
        if name.startswith("docs/") and name.endswith(".md") and not name.startswith("docs/adr/")
    }
    assert sorted(named) == sorted(there)
