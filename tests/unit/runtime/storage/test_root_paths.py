import os
from pathlib import Path

import pytest

from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_runtime.storage.root_paths import (
    canonical_root,
    checked,
    checked_folder,
    joined,
    root_prefix,
)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("/data/t", "file:///data/t"),
        ("/data/t/", "file:///data/t"),
        ("//data//t/./u/../", "file:///data/t"),
        ("file:/data/t", "file:///data/t"),
        ("file:///data/t///", "file:///data/t"),
        ("file://localhost/data/t", "file:///data/t"),
        ("/data/a b", "file:///data/a%20b"),
        ("file:/data/a b", "file:///data/a%20b"),
        ("file:///data/a%20b", "file:///data/a%20b"),
        ("/data/a%20b", "file:///data/a%2520b"),
        ("file:///data/a%2520b", "file:///data/a%2520b"),
        ("/data/ü#?+:=@~[", "file:///data/%C3%BC%23%3F+:=@~%5B"),
        ("file:///data/%c3%bc%23%3f%2B%3a%7E", "file:///data/%C3%BC%23%3F+:~"),
        ("file:///data/100%", "file:///data/100%25"),
        ("s3://bucket/a b/c%20d", "s3://bucket/a%20b/c%20d"),
        ("s3://bucket/key/t/", "s3://bucket/key/t"),
        ("s3a://bucket/t", "s3://bucket/t"),
        ("s3n://bucket", "s3://bucket"),
        ("gcs://bucket/t/", "gs://bucket/t"),
        (
            "abfs://files@account.dfs.core.windows.net/t/",
            "abfss://files@account.dfs.core.windows.net/t",
        ),
        (
            "abfss://files@Account.BLOB.core.windows.net.:443/t",
            "abfss://files@account.dfs.core.windows.net/t",
        ),
        (
            "abfss://Space@onelake.blob.fabric.microsoft.com/t",
            "abfss://Space@onelake.dfs.fabric.microsoft.com/t",
        ),
        ("memory://t", "memory://t"),
    ],
)
def test_a_root_has_one_spelling(given: str, canonical: str) -> None:
    assert canonical_root(given) == canonical
    assert canonical_root(canonical) == canonical


@pytest.mark.parametrize(
    "given",
    [
        "/data",
        "/data//x/",
        "file:/data",
        "file:///",
        "/",
        "file://localhost/data",
        "/lake/sp ace",
        "/lake/sp%20ace/",
        "file:///lake/sp%20ace",
        "s3a://b/k/",
        "s3://b/sp ace/",
        "s3://b/sp%20ace",
        "s3://b",
        "abfs://files@Account.blob.core.windows.net",
        "abfss://files@account.dfs.core.windows.net:443/k/",
    ],
)
def test_a_table_below_a_place_has_a_root_that_begins_with_it(given: str) -> None:
    prefix = root_prefix(given)
    assert canonical_root(f"{given.rstrip('/')}/t").startswith(f"{prefix.rstrip('/')}/")
    assert root_prefix(prefix) == prefix


def test_a_relative_path_begins_at_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("a/t", "a/b:/t", "./ab:/t"):
        assert canonical_root(given) == f"file://{os.getcwd()}/{given.removeprefix('./')}"


@pytest.mark.parametrize(
    "given",
    [
        *["", "  ", "/", "file:///", "/a\0b", "/a\nb"],
        *["s3://", "s3:///t", "s3://b//t", "s3://b/../c", "s3://b/./t"],
        *[
            "gs://",
            "abfss://files/t",
            "abfss://files@account/t",
            "abfss://@a.dfs.core.windows.net/t",
            "abfss://files@a.dfs.core.windows.net:8443/t",
        ],
        *["az://files/t", "wasbs://files@account.blob.core.windows.net/t", "hdfs://host/t"],
        *["hdfs:/t", "s3:/bucket/t", "dbfs:/tables/t"],
        *["file://", "file://localhost", "file://data/t", "file://localhosts/t"],
        *["file:///a%00b", "s3://b/a%0Ab", "file:///a%FF", "s3://b/%FF/t", "/a\ud800"],
        *["s3://b/%2e%2E/c", "s3://b/a%2F%2Fb", "s3://b/a%2F", "file:///%2F", "file:///%2E%2E"],
    ],
)
def test_what_is_no_place_of_its_own_is_refused(given: str) -> None:
    with pytest.raises(Misconfigured):
        canonical_root(given)


def test_a_root_with_a_missing_slash_is_refused_with_the_correct_one() -> None:
    with pytest.raises(Misconfigured, match=r"'data'.*file:///data/t "):
        canonical_root("file://data/t")


def test_a_path_stays_as_it_is() -> None:
    assert checked("a=1/part-0.parquet", "file:///t") == "a=1/part-0.parquet"
    assert checked_folder("_delta_log/", "file:///t") == "_delta_log"
    assert checked_folder("", "file:///t") == ""


def test_a_refusal_names_the_path_and_the_root() -> None:
    with pytest.raises(InvalidRequest, match=r"'a/\.\./b'.*file:///t"):
        checked("a/../b", "file:///t")


def test_the_empty_folder_is_the_root() -> None:
    assert joined("", "a") == "a"
    assert joined("f", "a") == "f/a"
