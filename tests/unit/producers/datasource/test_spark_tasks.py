"""A task tells a write to a path from one to a table of Spark's catalog by its local properties."""

from collections.abc import Mapping
from unittest import mock

import pytest
from pyspark import TaskContext

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.datasource.spark_tasks import (
    check_no_catalog_write,
    check_no_to_table,
    overwrite_mode,
    query_id,
    task_number,
)

EXECUTION, ROOT = "spark.sql.execution.id", "spark.sql.execution.root.id"
PATH = "file:///data/t"


class LocalProperties:
    """A task with local properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 (Spark's name)
        return self._properties.get(name)

    def partitionId(self) -> int:  # noqa: N802 (Spark's name)
        return 3


@pytest.mark.parametrize(
    "properties",
    [{}, {EXECUTION: "4", ROOT: "4"}, {EXECUTION: "5", ROOT: "4", "streaming.sql.batchId": "0"}],
    ids=["no query", "save", "a batch of a stream"],
)
def test_a_write_to_a_path_is_none_to_the_catalog(properties: dict[str, str]) -> None:
    with mock.patch.object(TaskContext, "get", return_value=LocalProperties(properties)):
        check_no_catalog_write(PATH)


def test_a_write_within_another_command_is_refused_with_the_way_to_write() -> None:
    task = LocalProperties({EXECUTION: "5", ROOT: "4"})
    with (
        mock.patch.object(TaskContext, "get", return_value=task),
        pytest.raises(InvalidRequest, match=r"saveAsTable.*partitionColumns.*save\(path\)"),
    ):
        check_no_catalog_write(PATH)


def test_a_stream_that_to_table_started_is_refused_with_the_way_to_start_it() -> None:
    with mock.patch.object(
        TaskContext, "get", return_value=LocalProperties({"callSite.short": "start at X"})
    ):
        check_no_to_table(PATH)
    task = LocalProperties({"callSite.short": "toTable at NativeMethodAccessorImpl.java:0"})
    with (
        mock.patch.object(TaskContext, "get", return_value=task),
        pytest.raises(InvalidRequest, match=r"start\(path\).*DROP TABLE"),
    ):
        check_no_to_table(PATH)


def test_outside_of_tasks_nothing_is_known_and_nothing_refused() -> None:
    check_no_catalog_write(PATH)
    check_no_to_table(PATH)
    assert (overwrite_mode(), query_id(), task_number()) == (None, None, 0)
