"""The house rules hold: names, banned calls, paths, folders."""

import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from tests.house import blocking_store_calls, rules, tree
from tests.house.homes import COMMITTER

Rule = Callable[[str, str], Iterator[str]]

PURE = ("protocol/tidegate_delta/", "protocol/tidegate_messages/")

EVERYWHERE: tuple[Rule, ...] = (
    rules.bad_name,
    rules.misplaced_imports,
    rules.bare_ignores,
    rules.unfinished,
    rules.foreign_headings,
)
"""Rules for every Python file."""

IN_CODE: tuple[Rule, ...] = (rules.long_functions,)
"""Rules for Python files outside tests."""

CONTAINS = "runtime/tidegate_runtime/containment.py"
"""Where errors of a single table or record are contained; all three services use it."""

CATCHES_EVERYTHING = frozenset(
    {
        CONTAINS,
        "runtime/tidegate_runtime/service/runner.py",
        "tests/conformance/scoring.py",
        "tests/fuzz/__main__.py",
        "tests/judge/comparison.py",
    }
)
"""Files that may catch any exception: for an exit status, a case's result, a fuzzer's finding."""

TEXT_SUFFIXES = (".py", ".md", ".txt", ".toml", ".yaml", ".yml", ".json", ".sh", ".cfg")
SHOWS_BREACHES = "tests/house/test_rules.py"
"""The file that holds, as text, the notes and comments that two rules look for."""


LARGE_BYTES = 1_000_000


def breaches(rule: Rule, names: Iterable[str]) -> list[str]:
    """Return a rule's breaches in these files."""
    return [breach for name in names for breach in rule(name, tree.text(name))]


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_every_python_file_keeps_the_rule(rule: Rule) -> None:
    shown = rule in (rules.bare_ignores, rules.unfinished)
    names = [n for n in tree.python_files() if not (shown and n == SHOWS_BREACHES)]
    result = breaches(rule, names)
    assert not result, "\n".join(result)


@pytest.mark.parametrize("rule", IN_CODE, ids=lambda rule: rule.__name__)
def test_every_source_file_keeps_the_rule(rule: Rule) -> None:
    result = breaches(rule, tree.python_files(tests=False))
    assert not result, "\n".join(result)


def test_no_file_swallows_an_error() -> None:
    names = [n for n in tree.python_files() if n not in CATCHES_EVERYTHING]
    result = breaches(rules.swallowed, names)
    assert not result, "\n".join(result)


def test_where_everything_is_caught_it_is_caught_once() -> None:
    for name in sorted(CATCHES_EVERYTHING):
        assert len(list(rules.swallowed(name, tree.text(name)))) == 1, name


@pytest.mark.parametrize("service", ["committer", "checkpointer", "cdc_publisher"])
def test_every_service_contains_what_goes_wrong_with_one_table(service: str) -> None:
    edges = {
        "committer": "loop/partition_worker.py",
        "checkpointer": "service.py",
        "cdc_publisher": "service.py",
    }
    edge = tree.text(f"{service}/tidegate_{service}/{edges[service]}")
    assert re.search(r"from tidegate_runtime\.(containment|followers\.quarantine) import ", edge)
    quarantine = tree.text("runtime/tidegate_runtime/followers/quarantine.py")
    assert "from tidegate_runtime.containment import" in quarantine


def test_pure_code_opens_no_file_and_prints_nothing() -> None:
    banned = frozenset({"open", "print", "input", "exec", "eval"})
    pure = [name for name in tree.python_files(tests=False) if name.startswith(PURE)]
    assert pure
    result = breaches(lambda name, text: rules.calls(name, text, banned), pure)
    assert not result, "\n".join(result)


def test_the_loop_of_the_committer_calls_no_store() -> None:
    result = breaches(blocking_store_calls.store_calls_in_the_loop, tree.python_files(tests=False))
    assert not result, "\n".join(result)


@pytest.mark.parametrize(
    "line",
    [
        "        self.state, news = recovery.refresh(self.store, self.state)",
        "        content = read_claim(self.store, candidate.claim)",
        "        with whole_table(self.store, 3) as table:",
        "        there = self.store.read(path)",
        "from tidegate_runtime.table_io.open_table import open_snapshot",
        "        self.dependencies.vet(table_committer.store)",
        "        fetch.run()",
    ],
)
def test_store_calls_in_the_loop_are_found(line: str) -> None:
    assert list(
        blocking_store_calls.store_calls_in_the_loop(f"{COMMITTER}loop/partition_worker.py", line)
    )
    assert not list(
        blocking_store_calls.store_calls_in_the_loop(
            f"{COMMITTER}store_reads/decision_reads.py", line
        )
    )
    kept = "recovery.lacks(state, batch) and candidate.reads.whole_table"
    assert not list(
        blocking_store_calls.store_calls_in_the_loop(f"{COMMITTER}loop/partition_worker.py", kept)
    )


def test_no_file_names_a_path_of_one_machine() -> None:
    result = breaches(rules.machine_paths, _texts())
    assert not result, "\n".join(result)


def test_no_file_names_a_package_registry() -> None:
    result = breaches(rules.index_addresses, _texts())
    assert not result, "\n".join(result)


def test_no_file_is_large() -> None:
    """What a program leaves behind, such as jars, is committed by mistake, and stays in history."""
    assert [name for name in tree.files() if (tree.ROOT / name).stat().st_size > LARGE_BYTES] == []


def test_every_package_is_one_folder_of_its_own() -> None:
    result = {
        (path.parent.name, path.parent.parent.name)
        for folder in set(tree.PACKAGES.values())
        for path in (tree.ROOT / folder).glob("*/__init__.py")
    }
    assert result == set(tree.PACKAGES.items())


def test_every_package_is_marked_as_typed() -> None:
    packages = [tree.ROOT / folder / package for package, folder in tree.PACKAGES.items()]
    assert [folder for folder in packages if not (folder / "py.typed").is_file()] == []


def test_every_folder_with_python_in_a_source_root_is_a_package() -> None:
    folders = {
        (tree.ROOT / name).parent
        for name in tree.python_files(tests=False)
        if name.startswith(tree.SOURCE_ROOTS)
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_tests_are_not_packages() -> None:
    assert [n for n in tree.files() if n.startswith("tests/") and n.endswith("__init__.py")] == []


def test_every_top_level_folder_has_a_readme() -> None:
    missing = [
        folder for folder in tree.TOP_FOLDERS if not (tree.ROOT / folder / "README.md").is_file()
    ]
    assert not missing


def _texts() -> list[str]:
    return [
        name
        for name in tree.files()
        if name.endswith(TEXT_SUFFIXES) or "." not in name.rsplit("/", 1)[-1]
    ]
