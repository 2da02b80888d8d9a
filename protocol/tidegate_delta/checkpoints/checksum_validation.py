"""Compare a snapshot with its version checksum file, field by field, using cheap column totals."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegate_delta.checkpoints import deletion_vector_totals, version_checksum
from tidegate_delta.errors import BrokenLog
from tidegate_delta.snapshots.checksum_verdict import AGREES, UNREADABLE, Checked, ChecksumVerdict
from tidegate_delta.snapshots.snapshot import Snapshot

_WIRE: Final[Mapping[str, str]] = {
    "table_size_bytes": "tableSizeBytes",
    "num_files": "numFiles",
    "protocol": "protocol",
    "metadata": "metadata",
    "app_transactions": "setTransactions",
    "domains": "domainMetadata",
    "in_commit_timestamp": "inCommitTimestampOpt",
}
"""The file's name for each field of a VersionChecksum."""


def validate(content: bytes, snapshot: Snapshot) -> ChecksumVerdict:
    """Return the result of comparing a version checksum file with the snapshot of its version.

    Fields that the file lacks are not compared. A file of an old writer, which states totals only,
    is compared by these.
    Law: validate(encode(of(s)), s) is AGREES
    Spec: "State Validation"
    """
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        return UNREADABLE
    if not isinstance(body, dict):
        return UNREADABLE
    body = {name: value for name, value in body.items() if value is not None}
    singles = [name for name in ("numMetadata", "numProtocol") if body.get(name, 1) != 1]
    if "protocol" not in body and "metadata" not in body:
        return _of_fields([*_differing_totals(body, snapshot), *singles])
    try:
        stated = version_checksum.decode(content)
    except BrokenLog:
        return UNREADABLE
    computed = version_checksum.of(snapshot)
    names = [
        _WIRE[name] for name in version_checksum.differences(stated, computed) if name in _WIRE
    ]
    vectors = deletion_vector_totals.to_body(computed.deletions)
    names += [] if stated.sizes in (None, computed.sizes) else ["fileSizeHistogram"]
    names += [name for name, value in vectors.items() if body.get(name, value) != value]
    return _of_fields([*names, *singles])


def _differing_totals(body: Mapping[str, Any], snapshot: Snapshot) -> list[str]:
    computed = {
        "tableSizeBytes": version_checksum.size_of(snapshot),
        "numFiles": snapshot.files.num_rows,
    }
    return [name for name, value in computed.items() if body.get(name, value) != value]


def _of_fields(names: list[str]) -> ChecksumVerdict:
    return ChecksumVerdict(Checked.CONTRADICTS, tuple(names)) if names else AGREES
