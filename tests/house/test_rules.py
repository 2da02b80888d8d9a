"""Show that each house rule finds what it is for: a rule that cannot fail is useless."""

import pytest

from tests.house import rules

PATH = "committer/tidegate_committer/sample.py"


def test_a_long_file_is_reported() -> None:
    assert not list(rules.too_long(PATH, "x = 1\n" * rules.LINES_MAX))
    assert list(rules.too_long(PATH, "x = 1\n" * (rules.LINES_MAX + 1)))


def test_a_function_of_one_line_too_many_is_too_long() -> None:
    fits = "def f():\n" + "    x = 1\n" * (rules.FUNCTION_LINES_MAX - 1)
    assert not list(rules.long_functions(PATH, fits))
    assert list(rules.long_functions(PATH, fits + "    x = 1\n"))


@pytest.mark.parametrize("name", ["utils.py", "helpers.py", "common.py", "base.py", "types.py"])
def test_a_file_named_after_nothing_is_found(name: str) -> None:
    assert list(rules.bad_name(f"runtime/tidegate_runtime/{name}", ""))


def test_the_schema_types_may_be_called_types() -> None:
    assert not list(rules.bad_name(rules.TYPES_HOME, ""))


@pytest.mark.parametrize(
    "name", ["TableManager", "RecordHandler", "FileInfo", "BusBase", "RowData"]
)
def test_a_class_named_after_a_role_is_found(name: str) -> None:
    assert list(rules.bad_name(PATH, f"class {name}:\n    x = 1\n"))


def test_commit_info_is_a_word_of_delta() -> None:
    assert not list(rules.bad_name(PATH, "class CommitInfo:\n    x = 1\n"))


def test_a_call_of_open_is_found_and_a_method_of_that_name_is_not() -> None:
    banned = frozenset({"open"})
    assert list(rules.calls(PATH, "text = open('a').read()\n", banned))
    assert not list(rules.calls(PATH, "text = store.open('a').read()\n", banned))


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    import os\n",
        "def f():\n    from os import path\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os\n",
    ],
)
def test_an_import_out_of_place_is_found(text: str) -> None:
    assert list(rules.misplaced_imports(PATH, text))


@pytest.mark.parametrize(
    "body",
    [
        "except ValueError:\n    pass\n",
        "except ValueError:\n    ...\n",
        "except Exception:\n    x = 1\n",
        "except:\n    x = 1\n",
        "except (OSError, Exception):\n    x = 1\n",
        "except Exception as error:\n    if rare(error):\n        raise\n    x = 1\n",
    ],
)
def test_a_swallowed_error_is_found(body: str) -> None:
    assert list(rules.swallowed(PATH, "try:\n    f()\n" + body))


@pytest.mark.parametrize(
    "body",
    [
        "except ValueError as error:\n    raise Misconfigured('x') from error\n",
        "except ValueError:\n    x = None\n",
        "except Exception:\n    close()\n    raise\n",
    ],
)
def test_an_error_that_means_something_is_not_found(body: str) -> None:
    assert not list(rules.swallowed(PATH, "try:\n    f()\n" + body))


@pytest.mark.parametrize(
    "line", ["x = f()  # type: ignore", "x = f()  # type: ignore[no-any-return]"]
)
def test_an_ignored_type_error_without_a_reason_is_found(line: str) -> None:
    assert list(rules.bare_ignores(PATH, line))


def test_an_ignored_type_error_with_code_and_reason_is_not_found() -> None:
    line = "x = f()  # type: ignore[misc]  # faust ships no types"
    assert not list(rules.bare_ignores(PATH, line))


def test_a_note_to_finish_later_is_found() -> None:
    assert list(rules.unfinished(PATH, "# TODO: the rest\n"))


@pytest.mark.parametrize(
    "docstring",
    ["Return x.\n\n    Args:\n        a: b\n", "Return x.\n\n    Spec: a\n    Law: b\n"],
)
def test_a_foreign_or_misplaced_heading_is_found(docstring: str) -> None:
    assert list(rules.foreign_headings(PATH, f'def f():\n    """{docstring}    """\n'))


def test_headings_in_their_order_are_not_found() -> None:
    text = 'def f():\n    """Return x.\n\n    Law: a\n    Raises: b\n    Spec: c\n    """\n'
    assert not list(rules.foreign_headings(PATH, text))


@pytest.mark.parametrize("folder", rules.FOLDERS_OF_ONE_MACHINE)
@pytest.mark.parametrize("line", ["see /{}/ann/project", "cd /{}/x", "open('/{}/main/a')"])
def test_a_path_of_one_machine_is_found(folder: str, line: str) -> None:
    assert list(rules.machine_paths("README.md", line.format(folder)))


def test_a_home_folder_of_windows_is_found() -> None:
    line = chr(92).join(("cd C:", "Users", "ann"))
    assert list(rules.machine_paths("README.md", line))


@pytest.mark.parametrize("line", ["~/{}/x", "$HOME/{}/x", "the {}coming", "s3://b/{}/x", "/{}"])
def test_a_path_of_every_machine_is_not_found(line: str) -> None:
    for folder in rules.FOLDERS_OF_ONE_MACHINE:
        assert not list(rules.machine_paths("README.md", line.format(folder)))


@pytest.mark.parametrize("option", rules.INDEX_OPTIONS)
@pytest.mark.parametrize("line", ["pip install --{} x", "{} = x", "{}=x"])
def test_an_option_that_takes_a_registry_is_found(option: str, line: str) -> None:
    assert list(rules.index_addresses("requirements/all.txt", line.format(option)))


@pytest.mark.parametrize("host", [*rules.INDEX_HOSTS, "any.example/simple"])
def test_an_address_of_a_registry_is_found(host: str) -> None:
    line = f"https://mirror.{host}/x"
    assert list(rules.index_addresses("requirements/all.txt", line))


def test_to_emit_no_registry_is_no_option_that_takes_one() -> None:
    line = "".join(f"--no-emit-{option} " for option in rules.INDEX_OPTIONS)
    assert not list(rules.index_addresses("Makefile", line))


def test_a_word_without_a_paragraph_is_found() -> None:
    text = "### `Fenced`\n\nleave\n"
    assert not list(rules.undocumented(text, frozenset({"Fenced"}), "operations.md"))
    assert list(rules.undocumented(text, frozenset({"Fenced", "Contended"}), "operations.md"))
