"""A proposal of the frequent shape, read without the general validator: a third of its cost.

What is unusual in any way, right or wrong, is left to that validator: so it alone says what is
refused, and how.
"""

from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NoReturn
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from tidegate.pipeline.codec import parse_json, validated
from tidegate.pipeline.proposal import AppTxn, Operation, Proposal, TableRoot
from tidegate.pipeline.read_set import ReadSet

Fields = Mapping[str, Any]

_PROPOSAL: Final[Fields] = {name: one.default for name, one in Proposal.model_fields.items()}
_OPERATION: Final[Fields] = {name: one.default for name, one in Operation.model_fields.items()}
_READS: Final[Fields] = {name: one.default for name, one in ReadSet.model_fields.items()}
_NUMBERS: Final = itemgetter("created_ms", "files_since_ms", "deadline_ms")
_TEXTS: Final = itemgetter("table_id", "name", "engine_info", "user_metadata")
_LOOKED_AT: Final = frozenset(
    {
        *("proposal_id", "kind", "table", "table_root", "table_id", "name", "read_version"),
        *("operation", "actions", "reads", "isolation", "app_txn", "created_ms"),
        *("files_since_ms", "deadline_ms", "engine_info", "user_metadata"),
    }
)
"""Fields that are looked at here. Of the others a proposal of the frequent shape says nothing."""


_ISOLATIONS: Final = ("default", "Serializable", "WriteSerializable", "SnapshotIsolation")
_LISTS: Final = (("predicates", dict), ("files", str), ("app_ids", str), ("domains", str))
_READ_HERE: Final = frozenset(
    {*("whole_table", "delete_insensitive"), *(name for name, _ in _LISTS)}
)
_SAID_HERE: Final = frozenset({"name", "parameters", "metrics"})
_NOTHING_READ: Final = ReadSet()
_UUID: Final = TypeAdapter(UUID)
_ROOT: Final = TypeAdapter(TableRoot)
_MAYBE_TEXT: Final = frozenset({str, type(None)})
_MAYBE_NUMBER: Final = frozenset({int, type(None)})


class _UnusualError(Exception):
    """The shape is another one, be it right or wrong."""


def read_proposal(value: bytes | None) -> Proposal:
    """Return the proposal that a record's value holds.

    Law: read_proposal(value) == decode(Proposal, value), or both raise the same
    Raises: MalformedRecord, naming the first field that is wrong.
    """
    body = parse_json(value)
    try:
        return _frequent(body)
    except (_UnusualError, ValidationError):
        return validated(Proposal, body)


def _frequent(body: Fields) -> Proposal:
    fields = _filled(_PROPOSAL, body)
    table, root = fields["table"], fields["table_root"]
    version, actions = fields["read_version"], fields["actions"]
    if not (type(table) is type(root) is type(fields["proposal_id"]) is str):
        _leave()
    if fields["kind"] != "commit" or fields["isolation"] not in _ISOLATIONS:
        _leave()
    if type(version) is not int or version < -1:
        _leave()
    for name in body.keys() - _LOOKED_AT:
        fields[name] = _silent(_PROPOSAL[name], body[name])
    if not _MAYBE_NUMBER.issuperset(map(type, _NUMBERS(fields))):
        _leave()
    if not _MAYBE_TEXT.issuperset(map(type, _TEXTS(fields))):
        _leave()
    fields["actions"] = _all_of(dict, actions)
    if "operation" in body:
        fields["operation"] = _operation(body["operation"])
    if fields["reads"] is not None:
        fields["reads"] = _reads(fields["reads"])
    if fields["app_txn"] is not None:
        fields["app_txn"] = AppTxn.model_validate(fields["app_txn"])
    fields["proposal_id"] = _UUID.validator.validate_python(fields["proposal_id"])
    fields["table"], fields["table_root"] = _place(table, root)
    return Proposal.trusted(fields, body)


@lru_cache(maxsize=4096)
def _place(table: str, root: str) -> tuple[UUID, str]:
    """Return a table's id and root: the same two come again with each of its proposals."""
    return _UUID.validate_python(table), _ROOT.validate_python(root)


def _operation(body: Any) -> Operation:
    if type(body) is not dict:
        _leave()
    fields = _filled(_OPERATION, body)
    if not _SAID_HERE.issuperset(body):
        _leave()
    if type(fields["name"]) is not str:
        _leave()
    if not (type(fields["parameters"]) is type(fields["metrics"]) is dict):
        _leave()
    return Operation.trusted(fields, body)


def _reads(body: Any) -> ReadSet:
    if type(body) is not dict:
        _leave()
    if not body:
        return _NOTHING_READ
    fields = _filled(_READS, body)
    if not _READ_HERE.issuperset(body):
        _leave()
    if not (type(fields["whole_table"]) is type(fields["delete_insensitive"]) is bool):
        _leave()
    for name, kind in _LISTS:
        fields[name] = _all_of(kind, fields[name])
    return ReadSet.trusted(fields, body)


def _filled(template: Fields, body: Fields) -> dict[str, Any]:
    """Return all fields of a message, in their order; it leaves where one is not known."""
    fields = {**template, **body}
    if len(fields) > len(template):
        _leave()
    return fields


def _silent(default: Any, said: Any) -> Any:
    """Return what a field holds of which nothing is said; it leaves where something is."""
    if said is None and default is None:
        return None
    if said != [] or default != ():
        _leave()
    return ()


def _all_of(kind: type, found: Any) -> tuple[Any, ...]:
    if found == ():
        return ()
    if type(found) is not list or not {kind}.issuperset(map(type, found)):
        _leave()
    return tuple(found)


def _leave() -> NoReturn:
    raise _UnusualError
