"""Read one row of a record into a checked action.

Types and limits are those of the models in `tidegate_messages.proposed_actions`. Checked here are
paths, statistics, and what an operator limits.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from tidegate_committer.intake import path_checks
from tidegate_committer.intake.refusals import (
    BAD_PATH,
    MALFORMED,
    NOT_SUPPORTED,
    PARTITION_VALUES,
    PLACE,
    RESERVED_DOMAIN,
    TOO_LARGE,
    refuse,
)
from tidegate_committer.policy import Policy
from tidegate_delta.data_skipping.column_bounds import count_problem
from tidegate_delta.deletion_vectors.descriptors import (
    ABSOLUTE,
    INLINE,
    RELATIVE,
    frame_of,
    inline_rows,
    is_inline,
    path_of,
)
from tidegate_delta.log.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from tidegate_delta.log.file_paths import is_absolute
from tidegate_delta.value_limits import LONG_MAX
from tidegate_messages.proposed_actions import PROPOSED

OUR_APPS: Final = "tidegate/"
DELTA_DOMAINS: Final = "delta."
OPEN_DOMAINS: Final = frozenset({"delta.clustering", "delta.rowTracking"})
"""Domains of table features that a proposal may write. Each has rules of its own."""
NAME_CHARS_MAX: Final = 1_024
ENTRIES_MAX: Final = 128
"""Most partition values or tags of a file. Each takes many times its bytes in memory."""
_WITH_LISTS: Final = frozenset({Metadata.wire_name, Protocol.wire_name})

ActionLine = bytes | Mapping[str, Any]
"""A line of the log as it will be written, or the body of a remove, whose time is set later."""

_ADD: Final = b'{"add":'
_DEFAULTS: Final = {"domainMetadata": {"removed": False}, "cdc": {"dataChange": False}}
"""Fields that default to false in a proposal. The log must state them: strict readers fail without.
"""
_SPELLING: Final = "write the action as PROTOCOL.md spells it"


def read_row(row: Any, policy: Policy) -> tuple[ActionLine, Action, bool]:
    """Return the log line for a row, the action that it holds, and whether it is of the usual form.

    That is a data file without a deletion vector or row ids whose path is its own canonical form.
    Raises: InvalidProposal, which names the field within the row.
    """
    name, body = _named(row)
    action = read_action(name, body, name)
    line = body if name == "remove" else _line({name: body}, name)
    check = _CHECKS.get(name)
    return line, action, check is not None and check(action, name, policy)


def dated(line: ActionLine, now_ms: int) -> bytes:
    """Return a line of the log. A remove gets its deletion time when its entry is written.

    A remove without partition values is written with an empty map, as delta-spark writes it.
    """
    if isinstance(line, bytes):
        return line
    if line and "partitionValues" not in line:
        line = {**line, "partitionValues": {}}
    if not line or "deletionTimestamp" in line:
        return orjson.dumps({"remove": {**line, "deletionTimestamp": now_ms}}) + b"\n"
    return b'{"remove":%b,"deletionTimestamp":%d}}\n' % (orjson.dumps(line)[:-1], now_ms)


def is_add(line: ActionLine) -> bool:
    """Return whether a line adds a file."""
    return isinstance(line, bytes) and line.startswith(_ADD)


def add_line(add: Add) -> bytes:
    """Return the line that adds a file."""
    return orjson.dumps(add.to_row()) + b"\n"


def body_of(remove: Remove) -> ActionLine:
    """Return the body of a remove, whose deletion time is set later."""
    body = remove.to_row()["remove"]
    assert isinstance(body, dict), "a row holds an object"
    return body


def domain_line(domain: DomainMetadata) -> bytes:
    """Return the line that writes a metadata domain."""
    return orjson.dumps(domain.to_row()) + b"\n"


def tracked(line: bytes, base_row_id: int, commit_version: int) -> bytes:
    """Return an add line that has no row ids, with its base row id and commit version added."""
    ids = b',"baseRowId":%d,"defaultRowCommitVersion":%d}}\n' % (base_row_id, commit_version)
    return line.removesuffix(b"}}\n") + ids


def _line(row: Mapping[str, Any], location: str) -> bytes:
    try:
        # The concatenation copies: orjson's result may reserve ten times its size in memory.
        return orjson.dumps(row) + b"\n"
    except TypeError as error:
        refuse(MALFORMED, location, f"cannot be written as JSON: {error}", _SPELLING)


def _named(row: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the body of a row's action; the body has no field without a value."""
    if not isinstance(row, dict):
        refuse(MALFORMED, "", "is no object", "give one action a row")
    named = [name for name in row if row[name] is not None]
    if len(named) != 1:
        refuse(MALFORMED, "", f"holds {len(named)} actions", "give exactly one action a row")
    name = named[0]
    body = row[name]
    if name not in PROPOSED:
        refuse(
            NOT_SUPPORTED,
            name[:64],
            "is no action that a proposal may hold",
            f"leave it out: a proposal holds {', '.join(PROPOSED)}",
        )
    if not isinstance(body, dict):
        refuse(MALFORMED, name, "is no object", _SPELLING)
    if None in body.values():
        body = {key: value for key, value in body.items() if value is not None}
    return name, {**_DEFAULTS[name], **body} if name in _DEFAULTS else body


def read_action(name: str, body: Mapping[str, Any], location: str) -> Action:
    """Return the action that a body holds, with every field named and typed as in the log.

    Raises: InvalidProposal.
    """
    kind = PROPOSED.get(name, CommitInfo)
    try:
        if name in _WITH_LISTS:
            # Only JSON mode turns lists into tuples; strict mode is needed either way.
            return kind.model_validate_json(
                orjson.dumps(body), strict=True, by_alias=True, by_name=False
            )
        validator = kind.__pydantic_validator__
        action: Action = validator.validate_python(body, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "".join(f".{str(part)[:64]}" for part in first["loc"])
        refuse(MALFORMED, f"{location}{field}", first["msg"], _SPELLING)
    return action


def _check_add(add: Add, location: str, policy: Policy) -> bool:
    """Refuse an add by its path, its values or its statistics. Return whether it is plain."""
    is_plain = path_checks.is_plain(add.path) and add.deletion_vector is None
    if not is_plain:
        _check_place_of(add, location, policy)
    if add.partition_values:
        _check_entries(add, location, policy)
    if add.tags:
        _check_few(add.tags, f"{location}.tags")
    if add.stats is not None:
        _check_stats(add.stats, location, policy)
    return is_plain and add.base_row_id is None and add.default_row_commit_version is None


def _check_place_of(add: Add, location: str, policy: Policy) -> None:
    """Refuse an add whose path no file may have.

    A file that is already in the table may lie anywhere and be encoded as its writer chose. A new
    one may have the URI of an allowed place, as those of a shallow clone. Whether it is in the
    table, or its place is allowed, is checked at the head; the place of a vector, which may be read
    before that, is checked here.
    """
    if add.data_change and is_absolute(add.path):
        _check_path(add.path, path_checks.foreign_uri_problem(add.path), location)
        if add.deletion_vector is not None:
            if add.deletion_vector.storage_type == ABSOLUTE:
                _check_vector_place(add.deletion_vector.path_or_inline_dv, location, policy)
            _check_vector(add.deletion_vector, f"{location}.deletionVector", is_foreign=True)
        return
    if path_checks.is_plain(add.path) or (add.data_change and add.deletion_vector is None):
        check_place(add, location)
        return
    _check_path(add.path, path_checks.existing_path_problem(add.path), location)
    if add.deletion_vector is not None:
        _check_vector(add.deletion_vector, f"{location}.deletionVector")


def _check_vector_place(path: str, location: str, policy: Policy) -> None:
    """Refuse a URI that is malformed, or leads to a place that the operator does not allow."""
    _check_path(path, path_checks.foreign_uri_problem(path), location)
    if not path_checks.lies_under(path, policy.roots):
        field = f"{location}.deletionVector.pathOrInlineDv"
        refuse(
            PLACE, field, f"{path[:128]!r} {path_checks.ELSEWHERE}", path_checks.NEARER, path=path
        )


def check_place(action: Add | Cdc, location: str) -> None:
    """Refuse a new file or deletion vector at a path where none may be. Raises: InvalidProposal."""
    is_change_file = isinstance(action, Cdc)
    problem = path_checks.new_path_problem(action.path, is_change_file=is_change_file)
    _check_path(action.path, problem, location)
    if isinstance(action, Add) and action.deletion_vector is not None:
        _check_vector(action.deletion_vector, f"{location}.deletionVector")


def check_foreign_place(add: Add, location: str, may_lie: Callable[[str], bool]) -> None:
    """Refuse a new file at an absolute path, as a shallow clone of delta-spark has, if it, or the
    file of its deletion vector, may not lie there.

    delta-spark writes `file:/…` and the names of its stores. Raises: InvalidProposal.
    """
    paths = {f"{location}.path": add.path}
    vector = add.deletion_vector
    if vector is not None and vector.storage_type == ABSOLUTE:
        paths[f"{location}.deletionVector.pathOrInlineDv"] = vector.path_or_inline_dv
    for field, path in paths.items():
        uri = path_checks.with_two_slashes(path)
        _check_path(path, path_checks.foreign_uri_problem(uri), location)
        if not may_lie(path):
            problem = f"{path[:128]!r} {path_checks.ELSEWHERE}"
            refuse(PLACE, field, problem, path_checks.NEARER, path=path)
    if vector is not None:
        _check_vector(vector, f"{location}.deletionVector", is_foreign=True)


def _check_vector(vector: DeletionVector, location: str, *, is_foreign: bool = False) -> None:
    """Refuse a new vector that is malformed, or neither inline nor in a file of the table.

    `is_foreign` says that its data file lies elsewhere, and so may the vector.
    """
    allowed = (INLINE, RELATIVE, ABSOLUTE) if is_foreign else (INLINE, RELATIVE)
    if vector.storage_type not in allowed:
        problem = f"has the storage type {vector.storage_type[:8]!r}"
        refuse(BAD_PATH, location, problem, "write the vector inline or into a file of the table")
    try:
        frame_of(vector)
        if is_inline(vector):
            inline_rows(vector)
        folder = path_of(vector).rpartition("/")[0] if vector.storage_type == RELATIVE else ""
    except ValueError as error:
        refuse(MALFORMED, location, str(error), "write the vector as PROTOCOL.md spells it")
    # Readers put the folder into a URI unescaped, so only plain characters are allowed.
    if folder and not path_checks.is_plain(folder):
        problem = f"lies in the folder {folder[:128]!r}"
        refuse(
            BAD_PATH,
            location,
            problem,
            "name a folder of letters and digits below the root, or none",
        )


def _check_remove(action: Remove, location: str, policy: Policy) -> bool:
    """Refuse a remove by its path or its values. Return whether it is plain."""
    is_plain = path_checks.is_plain(action.path)
    if not is_plain:
        _check_path(action.path, path_checks.existing_path_problem(action.path), location)
    if action.partition_values:
        _check_entries(action, location, policy)
    if action.extended_file_metadata and (action.size is None or action.partition_values is None):
        refuse(
            MALFORMED,
            f"{location}.extendedFileMetadata",
            "is true without size and partitionValues",
            "copy them from the file's add action",
        )
    return is_plain and action.deletion_vector is None


def _check_change_file(action: Cdc, location: str, policy: Policy) -> bool:
    check_place(action, location)
    _check_entries(action, location, policy)
    return False


def _check_txn(action: Txn, location: str, _: Policy) -> bool:
    if len(action.app_id) > NAME_CHARS_MAX:
        problem = f"is longer than {NAME_CHARS_MAX} characters"
        refuse(TOO_LARGE, f"{location}.appId", problem, "shorten it")
    if action.app_id.startswith(OUR_APPS):
        refuse(
            NOT_SUPPORTED,
            f"{location}.appId",
            f"app ids that begin with {OUR_APPS!r} are the committer's own",
            "use another app id",
        )
    return False


def _check_domain(action: DomainMetadata, location: str, _: Policy) -> bool:
    if len(action.domain) > NAME_CHARS_MAX:
        problem = f"is longer than {NAME_CHARS_MAX} characters"
        refuse(TOO_LARGE, f"{location}.domain", problem, "shorten it")
    if action.domain.startswith(DELTA_DOMAINS) and action.domain not in OPEN_DOMAINS:
        refuse(
            RESERVED_DOMAIN,
            f"{location}.domain",
            f"domains that begin with {DELTA_DOMAINS!r} belong to table features",
            "use a domain of your own",
        )
    return False


_CHECKS: Final[Mapping[str, Callable[[Any, str, Policy], bool]]] = {
    Add.wire_name: _check_add,
    Remove.wire_name: _check_remove,
    Cdc.wire_name: _check_change_file,
    Txn.wire_name: _check_txn,
    DomainMetadata.wire_name: _check_domain,
}
"""The checks of an action by its name. Each returns whether the action is of the usual form."""


def _check_path(path: str, problem: str | None, location: str) -> None:
    if problem:
        refuse(
            BAD_PATH,
            f"{location}.path",
            f"{path[:128]!r} {problem}",
            "name a file below the table root, percent-encoded once",
            path=path[:1024],
        )


def _check_entries(action: Add | Remove | Cdc, location: str, policy: Policy) -> None:
    """Refuse too many partition values or tags, and values that are too long."""
    values = action.partition_values or {}
    _check_few(values, f"{location}.partitionValues")
    chars_max = policy.partition_value_chars_max
    for name, value in values.items():
        if value is not None and len(value) > chars_max:
            refuse(
                PARTITION_VALUES,
                f"{location}.partitionValues.{name[:64]}",
                f"is longer than {chars_max} characters",
                "partition by something shorter",
            )


def _check_few(entries: Mapping[str, str | None], location: str) -> None:
    if len(entries) > ENTRIES_MAX:
        problem = f"has {len(entries)} entries, {ENTRIES_MAX} are allowed"
        refuse(TOO_LARGE, location, problem, "leave some out")


def _check_stats(stats: str, location: str, policy: Policy) -> None:
    if len(stats) > policy.stats_chars_max:
        problem = f"are longer than {policy.stats_chars_max} characters"
        refuse(
            TOO_LARGE, f"{location}.stats", problem, "write statistics of fewer columns, or none"
        )
    try:
        mistake = _stats_problem(orjson.loads(stats))
    except orjson.JSONDecodeError as error:
        mistake = f"are no JSON: {error}"
    if mistake:
        refuse(
            MALFORMED,
            f"{location}.stats",
            mistake,
            "write statistics as PROTOCOL.md spells them, or none",
        )


def _stats_problem(parsed: Any) -> str | None:
    if not isinstance(parsed, dict):
        return "are no object"
    count = parsed.get("numRecords")
    if type(count) is not int or not 0 <= count <= LONG_MAX:
        return "have no numRecords, a whole number from 0 to 2^63 - 1"
    for name in ("minValues", "maxValues", "nullCount"):
        if not isinstance(parsed.get(name, {}), dict):
            return f"have a {name} that is no object"
    return count_problem(parsed)
