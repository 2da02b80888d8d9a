"""Imports point downwards only, and foreign libraries stay in their homes."""

import subprocess
import sys

import pytest

from tests.house import homes, tree


def test_the_contracts_of_import_linter_hold() -> None:
    linter = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_foreign_libraries_stay_in_their_homes() -> None:
    names = [name for name in tree.python_files(tests=False) if name.startswith(tree.SOURCE_ROOTS)]
    result = {b for name in names for b in homes.breaches(name, tree.text(name))}
    assert not result, "\n".join(sorted(result))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (f"{homes.COMMITTER}loop/service.py", "import faust\n"),
        (f"{homes.PRODUCERS}options.py", "from pyspark.sql import Row\n"),
        (f"{homes.RUNTIME}storage/object_store.py", "import requests\n"),
        (f"{homes.DELTA}snapshots/snapshot.py", "import pyarrow.parquet as pq\n"),
        (f"{homes.DELTA}snapshots/snapshot.py", "from pyarrow import parquet\n"),
    ],
)
def test_a_library_away_from_home_is_found(path: str, text: str) -> None:
    assert list(homes.breaches(path, text))


def test_a_library_at_home_is_not_found() -> None:
    assert not list(
        homes.breaches(f"{homes.RUNTIME}storage/object_bucket.py", "import fsspec, os\n")
    )
    assert not list(homes.breaches(f"{homes.COMMITTER}__main__.py", "import typer\n"))


MACHINES = sorted(
    tree.module_of(name) for name in tree.python_files(tests=False) if name.endswith("/machine.py")
)


def closure(module: str) -> dict[str, str]:
    """Return each of our modules that `module` imports, directly or not, and its first importer."""
    by_module = {
        tree.module_of(name): name
        for name in tree.python_files(tests=False)
        if name.startswith(tree.SOURCE_ROOTS)
    }
    reached = {module: ""}
    frontier = [module]
    while frontier:
        current = frontier.pop()
        for name in homes.imported(tree.text(by_module[current])):
            if name in by_module and name not in reached:
                reached[name] = current
                frontier.append(name)
    return reached


OUTSIDE = {"time", "random", "os", "logging", "socket", "subprocess", "threading", "asyncio"} | {
    "concurrent",
    "fsspec",
    "confluent_kafka",
    "faust",
    "pyspark",
}
"""Modules for clocks, randomness, files, threads and other machines."""


@pytest.mark.parametrize("module", MACHINES)
def test_a_machine_and_what_it_imports_know_no_door(module: str) -> None:
    dependencies = {
        name: by for name, by in closure(module).items() if name.startswith("tidegate_runtime")
    }
    assert not dependencies


@pytest.mark.parametrize("module", MACHINES)
def test_a_machine_and_what_it_imports_do_no_io(module: str) -> None:
    by_module = {tree.module_of(name): name for name in tree.python_files(tests=False)}
    asking = {
        name: sorted(outside)
        for name in closure(module)
        if (outside := _roots(tree.text(by_module[name])) & OUTSIDE)
    }
    assert not asking


def test_imports_of_io_are_found() -> None:
    assert _roots("import os.path\n") & OUTSIDE == {"os"}
    assert _roots("from concurrent.futures import Future\n") & OUTSIDE == {"concurrent"}


def _roots(text: str) -> set[str]:
    return {name.partition(".")[0] for name in homes.imported(text)}


def test_a_service_leads_to_doors_so_the_search_finds_them() -> None:
    reached = closure("tidegate_runtime.service.runner")
    assert any(name.startswith("tidegate_runtime.") for name in reached)
