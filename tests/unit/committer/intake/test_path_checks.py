import pytest

from tidegate_committer.intake.path_checks import (
    data_path_problem,
    existing_path_problem,
    new_path_problem,
)


@pytest.mark.parametrize(
    "path",
    [
        "part-00000-c000.snappy.parquet",
        "p=1/q=__HIVE_DEFAULT_PARTITION__/part.parquet",
        "_col=1/part.parquet",
        "name=US%252FEast/part.parquet",
        "time=2024-06-15%252019%253A30%253A45/part.parquet",
        "p=a%20b/part%3A1.parquet",
        "p=%25C3%25A9/part.parquet",
        "p=é/part.parquet",
        "p=../part.parquet",
        "p=.../part.parquet",
        "x0/f0.parquet",
    ],
)
def test_a_file_of_the_table_is_allowed(path: str) -> None:
    assert data_path_problem(path) is None
    assert new_path_problem(path) is None


NO_URIS = (
    *(f"a{character}b" for character in ' "#<>?[]^`{|}\x80\x85\xa0\u2003\u2028\u3000'),
    *("p=a b/x.parquet", "p=1:2/x.parquet", "p:/x"),
)


@pytest.mark.parametrize("path", NO_URIS)
def test_a_new_file_is_named_by_what_is_a_uri(path: str) -> None:
    assert new_path_problem(path) is not None
    assert new_path_problem(path, is_change_file=True) is not None


def test_a_file_that_others_named_otherwise_may_leave() -> None:
    assert data_path_problem("p=a b/x[1]#2?.parquet") is None
    assert data_path_problem("p=1:2/x.parquet") is None


@pytest.mark.parametrize("path", ["./a", "x//a", "x/../a", "x/./a", "_old/a", "p=1/.a", "x:y"])
def test_what_no_new_file_may_be_named_an_old_one_is(path: str) -> None:
    assert new_path_problem(path) is not None
    assert existing_path_problem(path) is None


@pytest.mark.parametrize(
    "path", ["../a", "x/../../a", "x/%2E%2E/%2E%2E/a", "%252E%252E/a", "..\\a", "a\n", "a" * 1_025]
)
def test_nothing_outside_is_of_the_table(path: str) -> None:
    assert existing_path_problem(path) is not None


def test_change_files_lie_in_their_folder_or_beside_the_data() -> None:
    assert data_path_problem("_change_data/p=1/cdc.parquet", is_change_file=True) is None
    assert data_path_problem("p=1/cdc.parquet", is_change_file=True) is None
    assert data_path_problem("_change_data/cdc.parquet") is not None
    assert data_path_problem("_change_data/_hidden/cdc.parquet", is_change_file=True) is not None
    assert data_path_problem("a/_change_data/cdc.parquet", is_change_file=True) is not None


@pytest.mark.parametrize(
    "path", ["a/..", "..", "p=1/../../x", "%2e%2e", "%252e%252e/x", "a//b", ""]
)
def test_what_leaves_the_table_is_not(path: str) -> None:
    assert data_path_problem(path) is not None
