"""A fast reader of add and remove actions in their usual shape, at half the cost of `read_row`.

Everything unusual, valid or not, is left to `action_reader`, so that refusals are decided there
only. Pydantic is not used here, because it would check every field again.
"""

from collections.abc import Collection
from operator import itemgetter
from typing import Any, Final, NoReturn

import orjson

from tidegate_committer.intake.action_reader import ENTRIES_MAX, ActionLine
from tidegate_committer.intake.path_checks import is_plain
from tidegate_committer.policy import Policy
from tidegate_delta.log.actions import Add, FileAction, Remove
from tidegate_delta.value_limits import LONG_MAX, TIMESTAMP_MAX
from tidegate_messages.unvalidated_models import trusted

Shapes = tuple[tuple[frozenset[str], set[str]], ...]
"""The sets of keys that a body may have, most frequent first, each with the model's field names."""

_ADD: Final = ("path", "partitionValues", "size", "dataChange", "modificationTime")
_REMOVE: Final = ("path", "partitionValues", "size", "dataChange", "extendedFileMetadata")
_values_of_add: Final = itemgetter(*_ADD)
_values_of_remove: Final = itemgetter(*_REMOVE)
_NOTHING_MORE: Final[dict[str, Any]] = {}
_NO_OBJECT: Final[dict[str, Any]] = {}


def _shapes(kind: type[FileAction], names: tuple[str, ...], *more: str) -> Shapes:
    fields = {str(field.alias): name for name, field in kind.model_fields.items()}
    shapes = (names, (*names, *more))
    return tuple((frozenset(shape), {fields[name] for name in shape}) for shape in shapes)


_ADDS: Final = _shapes(Add, _ADD, "stats")[::-1]
_REMOVES: Final = _shapes(Remove, _REMOVE, "deletionTimestamp")


class _UnusualError(Exception):
    """The row has another shape, whether valid or not."""


def read_plain(row: Any, policy: Policy) -> tuple[ActionLine, FileAction] | None:
    """Return the line and the action of a row, or None if `read_row` must read it.

    Law: read_plain(row, policy) in (None, read_row(row, where, policy))
    """
    if type(row) is not dict or len(row) != 1:
        return None
    try:
        if "remove" in row:
            return row["remove"], _remove(row["remove"], policy)
        add = _add(row.get("add"), policy)
        return orjson.dumps(row) + b"\n", add
    except _UnusualError:
        return None


def _remove(body: Any, policy: Policy) -> Remove:
    names_given = _names_of(body, _REMOVES)
    path, values, size, changes, extended = _values_of_remove(body)
    gone_ms = body.get("deletionTimestamp", 0)
    if not (
        is_plain(path)
        and type(size) is type(gone_ms) is int
        and 0 <= size <= LONG_MAX
        and 0 <= gone_ms <= TIMESTAMP_MAX
        and type(changes) is type(extended) is bool
    ):
        _leave()
    _check_values(values, policy)
    fields = {
        "path": path,
        "data_change": changes,
        "deletion_vector": None,
        "base_row_id": None,
        "default_row_commit_version": None,
        "tags": None,
        "deletion_timestamp": gone_ms if "deletion_timestamp" in names_given else None,
        "extended_file_metadata": extended,
        "partition_values": values,
        "size": size,
        "stats": None,
    }
    return trusted(Remove, fields, names_given, _NOTHING_MORE)


def _add(body: Any, policy: Policy) -> Add:
    names_given = _names_of(body, _ADDS)
    path, values, size, changes, written_ms = _values_of_add(body)
    if not (
        is_plain(path)
        and type(size) is type(written_ms) is int
        and 0 <= size <= LONG_MAX
        and 0 <= written_ms <= TIMESTAMP_MAX
        and type(changes) is bool
    ):
        _leave()
    _check_values(values, policy)
    stats = None
    if "stats" in names_given:
        stats = body["stats"]
        _check_stats(stats, policy)
    fields = {
        "path": path,
        "data_change": changes,
        "deletion_vector": None,
        "base_row_id": None,
        "default_row_commit_version": None,
        "tags": None,
        "partition_values": values,
        "size": size,
        "modification_time": written_ms,
        "stats": stats,
        "clustering_provider": None,
    }
    return trusted(Add, fields, names_given, _NOTHING_MORE)


def _names_of(body: Any, shapes: Shapes) -> set[str]:
    """Return the model's names of the fields that a body has."""
    if type(body) is dict:
        names = body.keys()
        for shape, names_given in shapes:
            if names == shape:
                return names_given
    return _leave()


def _check_values(values: Any, policy: Policy) -> None:
    if type(values) is not dict or len(values) > ENTRIES_MAX:
        _leave()
    for value in values.values():
        if value is not None and (
            type(value) is not str or len(value) > policy.partition_value_chars_max
        ):
            _leave()


def _check_stats(stats: Any, policy: Policy) -> None:
    if type(stats) is not str or len(stats) > policy.stats_chars_max:
        _leave()
    try:
        parsed = orjson.loads(stats)
    except orjson.JSONDecodeError:
        _leave()
    if type(parsed) is not dict:
        _leave()
    count, nulls = parsed.get("numRecords"), parsed.get("nullCount", _NO_OBJECT)
    low, high = parsed.get("minValues", _NO_OBJECT), parsed.get("maxValues", _NO_OBJECT)
    if not (type(count) is int and 0 <= count <= LONG_MAX):
        _leave()
    if not type(low) is type(high) is type(nulls) is dict:
        _leave()
    if nulls and not _are_counts(nulls.values()):
        _leave()


def _are_counts(values: Collection[Any]) -> bool:
    try:
        return bool(min(values) >= 0 and max(values) <= LONG_MAX)
    except TypeError:
        # The null counts of a struct are an object.
        return False


def _leave() -> NoReturn:
    raise _UnusualError
