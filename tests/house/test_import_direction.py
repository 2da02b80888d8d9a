"""Imports point downwards, between packages and within each, without cycles.

A room is a sub-package, or a module directly in the package.
"""

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final

import pytest

from tests.house import homes, tree

PACKAGES: Final = (
    "tidegate_delta",
    "tidegate_messages",
    "tidegate_runtime",
    "tidegate_producers tidegate_committer tidegate_checkpointer tidegate_cdc_publisher "
    "tidegate_local",
    "tidegate pyspark_tidegate",
    "tidegate_demo tidegate_console",
)
"""Packages from the bottom up; those on one line never import one another."""

ROOMS: Final = {
    "tidegate_delta": (
        "errors value_limits",
        "log",
        "properties snapshots deletion_vectors",
        "schema",
        "constraints data_skipping change_feed",
        "features schema_evolution checkpoints",
        "definitions",
    ),
    "tidegate_runtime": (
        "release",
        "clock failpoints gc_control containment observability conditions",
        "kafka",
        "storage service",
        "table_registry table_io",
        "client followers cli",
    ),
    "tidegate_producers": (
        "options history parquet log_store",
        "cached_clients",
        "writing explanation_search",
        "vacuum",
        "client datasource cli",
        "table",
        "ingest maintenance",
    ),
    "tidegate_committer": (
        "cached_property persistent_map policy",
        "intake",
        "state",
        "row_level",
        "admission",
        "verbatim conflicts",
        "group_commit",
        "decision",
        "store_executor settings",
        "dependencies",
        "store_reads",
        "loop",
        "__main__",
    ),
    "tidegate_console": ("overview", "doctor", "status_command doctor_command", "web"),
}
"""The rooms of each package, from the bottom up."""

MODULES: Final = {
    tree.module_of(name): name
    for name in tree.python_files(tests=False)
    if name.startswith(tree.SOURCE_ROOTS)
}


def arrows() -> Iterator[tuple[str, str]]:
    """Yield each module with each of our modules that it imports."""
    for module, name in MODULES.items():
        for imported in homes.imported(tree.text(name)):
            if imported in MODULES and imported != module:
                yield module, imported


def upward(
    order: tuple[str, ...], pairs: Iterator[tuple[str, str]] | list[tuple[str, str]]
) -> list[str]:
    """Return each pair whose first element is not above the second."""
    level = {name: number for number, line in enumerate(order) for name in line.split()}
    return sorted({f"{a} imports {b}" for a, b in pairs if a != b and level[a] <= level[b]})


def rooms_of(package: str) -> list[tuple[str, str]]:
    """Return the imports between the rooms of a package; the package itself is not a room."""
    inside = [
        (a.split(".")[1], b.split(".")[1])
        for a, b in arrows()
        if "." in a and "." in b and {a.split(".")[0], b.split(".")[0]} == {package}
    ]
    return sorted(set(inside))


def test_no_package_imports_one_above_it() -> None:
    assert {name for line in PACKAGES for name in line.split()} == tree.PACKAGES.keys()
    assert upward(PACKAGES, [(a.split(".")[0], b.split(".")[0]) for a, b in arrows()]) == []


@pytest.mark.parametrize("package", ROOMS)
def test_no_room_imports_one_above_it(package: str) -> None:
    known = {name for line in ROOMS[package] for name in line.split()}
    rooms = {module.split(".")[1] for module in MODULES if module.startswith(f"{package}.")}
    assert rooms == known, "write new rooms into ROOMS, and gone ones out of it"
    assert upward(ROOMS[package], rooms_of(package)) == []


def test_no_modules_import_one_another_in_a_circle() -> None:
    below: dict[str, set[str]] = {}
    for module, imported in arrows():
        below.setdefault(module, set()).add(imported)
    assert len(list(TopologicalSorter(below).static_order())) > 300


def test_an_arrow_upwards_and_a_circle_are_found() -> None:
    assert upward(("low", "high"), [("low", "high"), ("high", "low")]) == ["low imports high"]
    assert upward(("one other",), [("one", "other")]) == ["one imports other"]
    with pytest.raises(CycleError):
        list(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())
