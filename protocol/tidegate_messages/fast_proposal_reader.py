"""Read proposals of the common shape without pydantic's validator, for a third of its cost.

Anything unusual, valid or not, goes to that validator, so it alone decides what is refused and with
which message.
"""

from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from tidegate_messages.codec import parse_json, validated
from tidegate_messages.proposal import (
    APP_TXNS_MAX,
    AppTxn,
    AppTxnAdvance,
    Operation,
    Proposal,
    TableRoot,
)
from tidegate_messages.read_set import ReadSet
from tidegate_messages.strict_types import UUID_CHARS

Fields = Mapping[str, Any]

SHAPES_MAX: Final = 256
"""Field orders that are cached. Each writer uses few."""

PLACES_MAX: Final = 4096
PLACE_CHARS_MAX: Final = 1024
"""How many tables' common fields are cached, and how many characters these fields may have."""

_PROPOSAL: Final[Fields] = {name: field.default for name, field in Proposal.model_fields.items()}
_OPERATION: Final[Fields] = {name: field.default for name, field in Operation.model_fields.items()}
_READS: Final[Fields] = {name: field.default for name, field in ReadSet.model_fields.items()}
_NUMBERS: Final = itemgetter("created_ms", "files_since_ms", "deadline_ms")
_PLACE: Final = itemgetter("table", "table_root", "table_id", "name", "isolation", "engine_info")
_LOOKED_AT: Final = frozenset(
    {
        *("proposal_id", "kind", "table", "table_root", "table_id", "name", "read_version"),
        *("operation", "actions", "reads", "isolation", "app_txn", "app_txns", "created_ms"),
        *("files_since_ms", "deadline_ms", "engine_info", "user_metadata"),
    }
)
"""Fields that are checked here. All others are empty in a proposal of the common shape."""


_ISOLATIONS: Final = ("default", "Serializable", "WriteSerializable", "SnapshotIsolation")
_LISTS: Final = (("predicates", dict), ("files", str), ("app_ids", str), ("domains", str))
_READ_FIELDS: Final = frozenset(
    {*("whole_table", "delete_insensitive"), *(name for name, _ in _LISTS)}
)
_OPERATION_FIELDS: Final = frozenset({"name", "parameters", "metrics"})
_NOTHING_READ: Final = ReadSet()
_UUID: Final = TypeAdapter(UUID)
_ROOT: Final = TypeAdapter(TableRoot)
_MAYBE_TEXT: Final = frozenset({str, type(None)})
_MAYBE_NUMBER: Final = frozenset({int, type(None)})


class _UnusualError(Exception):
    """The proposal does not have the common shape. It may be valid."""


class _Shape(NamedTuple):
    """What follows from a proposal's field names: the set of them, and those that must be empty."""

    given: set[str]
    silent: tuple[str, ...]


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
    shape = _shape(tuple(body))
    fields = {**_PROPOSAL, **body}
    version = fields["read_version"]
    if fields["kind"] != "commit" or type(version) is not int or version < -1:
        _leave()
    if type(fields["proposal_id"]) is not str or type(fields["user_metadata"]) not in _MAYBE_TEXT:
        _leave()
    if len(fields["proposal_id"]) != UUID_CHARS:
        _leave()
    if not _MAYBE_NUMBER.issuperset(map(type, _NUMBERS(fields))):
        _leave()
    for name in shape.silent:
        fields[name] = _empty_value(_PROPOSAL[name], body[name])
    fields["actions"] = _all_of(dict, fields["actions"])
    if "operation" in body:
        fields["operation"] = _operation(body["operation"])
    if fields["reads"] is not None:
        fields["reads"] = _reads(fields["reads"])
    if fields["app_txn"] is not None:
        fields["app_txn"] = AppTxn.model_validate(fields["app_txn"])
    if "app_txns" in body:
        app_txns = _all_of(dict, fields["app_txns"])
        if len(app_txns) > APP_TXNS_MAX:
            _leave()
        fields["app_txns"] = tuple(map(AppTxnAdvance.model_validate, app_txns))
    fields["proposal_id"] = _UUID.validator.validate_python(fields["proposal_id"])
    try:
        fields["table"], fields["table_root"] = _table_and_root(_PLACE(fields))
    except TypeError:
        _leave()
    return Proposal.trusted(fields, shape.given)


@lru_cache(SHAPES_MAX)
def _shape(names: tuple[str, ...]) -> _Shape:
    if not _PROPOSAL.keys() >= set(names):
        _leave()
    return _Shape(set(names), tuple(name for name in names if name not in _LOOKED_AT))


@lru_cache(SHAPES_MAX)
def _known_names(known: frozenset[str], names: tuple[str, ...]) -> set[str]:
    """Return the names as a set. Raises: _UnusualError, if one is unknown."""
    if not known.issuperset(names):
        _leave()
    return set(names)


@lru_cache(PLACES_MAX)
def _table_and_root(shared_fields: tuple[Any, ...]) -> tuple[UUID, str]:
    """Check the fields that all proposals of a table share, and return its id and root.

    Raises: _UnusualError.
    """
    table, root, _, _, isolation, _ = shared_fields
    if not (_MAYBE_TEXT.issuperset(map(type, shared_fields)) and table and root):
        _leave()
    if len(table) != UUID_CHARS:
        _leave()
    if isolation not in _ISOLATIONS or sum(map(len, filter(None, shared_fields))) > PLACE_CHARS_MAX:
        _leave()
    return _UUID.validate_python(table), _ROOT.validate_python(root)


def _operation(body: Any) -> Operation:
    if type(body) is not dict:
        _leave()
    names_given = _known_names(_OPERATION_FIELDS, tuple(body))
    fields = {**_OPERATION, **body}
    if not (type(fields["name"]) is str and type(fields["parameters"]) is dict):
        _leave()
    if type(fields["metrics"]) is not dict:
        _leave()
    return Operation.trusted(fields, names_given)


def _reads(body: Any) -> ReadSet:
    if type(body) is not dict:
        _leave()
    if not body:
        return _NOTHING_READ
    names_given = _known_names(_READ_FIELDS, tuple(body))
    fields = {**_READS, **body}
    if not (type(fields["whole_table"]) is type(fields["delete_insensitive"]) is bool):
        _leave()
    for name, kind in _LISTS:
        if name in body:
            fields[name] = _all_of(kind, body[name])
    return ReadSet.trusted(fields, names_given)


def _empty_value(default: Any, value: Any) -> Any:
    """Return the value of an empty field. Raises: _UnusualError, if it is not empty."""
    if value is None and default is None:
        return None
    if value != [] or default != ():
        _leave()
    return ()


def _all_of(kind: type, value: Any) -> tuple[Any, ...]:
    if value == ():
        return ()
    if type(value) is not list or not {kind}.issuperset(map(type, value)):
        _leave()
    return tuple(value)


def _leave() -> NoReturn:
    raise _UnusualError
