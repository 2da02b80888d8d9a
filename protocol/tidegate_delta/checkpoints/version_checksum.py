"""Version checksum files: totals of a version by which a reader can detect a broken log.

`validate_checksum` compares a snapshot with its file, field by field, using cheap column totals.

Spec: "Version Checksum File Schema"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from tidegate_delta.checkpoints import file_totals
from tidegate_delta.checkpoints.file_totals import Deletions, FileSizes, FileTotals
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Add, DomainMetadata, Metadata, Protocol, Remove, Txn
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_paths import canonical_path
from tidegate_delta.log.protocol_versions import reader_features
from tidegate_delta.properties import table_properties
from tidegate_delta.snapshots.chunked_arrays import total
from tidegate_delta.snapshots.snapshot import AGREES, UNREADABLE, Checked, ChecksumVerdict, Snapshot
from tidegate_delta.value_limits import LONG_MAX

TXNS_MAX: Final = 100
"""With more app transactions than this, a checksum file leaves them out."""

DOMAINS_MAX: Final = 10
"""With more domains than this, a checksum file leaves them out."""

ALL_FILES_BYTES_MAX: Final = 8 << 10
"""With live files that take more bytes than this, a checksum file leaves them out: there is one for
each version.
"""

_BY_HAND: Final = "Manual Update"
"""The operation by which delta-spark marks a commit of actions that it did not choose: files that
such a commit removes need not have existed.
"""


@dataclass(frozen=True)
class VersionChecksum:
    """The totals of a version.

    `app_transactions`, `domains`, `deletions` and `sizes` are None where the file lacks them, the
    last one also where its bins are not ours. A total size
    past a long is written as the greatest long.
    Units: `table_size_bytes` in bytes; `in_commit_timestamp` in ms since the Unix epoch.
    """

    table_size_bytes: int
    num_files: int
    protocol: Protocol
    metadata: Metadata
    app_transactions: Mapping[str, Txn] | None
    domains: Mapping[str, DomainMetadata] | None
    in_commit_timestamp: int | None = None
    txn_id: str | None = None
    deletions: Deletions | None = None
    sizes: FileSizes | None = None


def of(snapshot: Snapshot, txn_id: str | None = None) -> VersionChecksum:
    """Return the checksum of a snapshot; `txn_id` is that of the version's own commit.

    Spec: "Version Checksum File"
    """
    return of_totals(snapshot, file_totals.totals_of(snapshot.files), txn_id)


def of_totals(
    definition: Snapshot, totals: FileTotals, txn_id: str | None = None
) -> VersionChecksum:
    """Return the checksum of a version whose files are known by their totals alone.

    Spec: "Version Checksum File"
    """
    live = {name: domain for name, domain in definition.domains.items() if not domain.removed}
    return VersionChecksum(
        min(totals.size_bytes, LONG_MAX),
        totals.files,
        definition.protocol,
        definition.metadata,
        dict(definition.app_transactions),
        live,
        _timestamp(definition.metadata, definition.in_commit_timestamp),
        txn_id,
        totals.deletions,
        totals.sizes if totals.sizes.is_possible else None,
    )


def size_of(snapshot: Snapshot) -> int:
    """Return the size of a table's live files in bytes, as a checksum file states it."""
    size = total(snapshot.files.column("size"))
    return LONG_MAX if size is None else size


def evolve(checksum: VersionChecksum, commit: Commit) -> VersionChecksum | None:
    """Return the checksum of the next version, or None where the commit alone is not enough.

    It is not enough where a remove states no size; where adds may repeat live files (no add changes
    data and nothing is removed); where the commit is a manual update or removes more than there
    was; where a number is no count or a total exceeds a long; or where the deletion vectors of a
    table that may have some are unknown. The caller then uses `of` on the snapshot.
    Law: evolve(of(snapshot(v - 1)), commit(v)) == of(snapshot(v)), or None
    Spec: "Version Checksum File"
    """
    size, files = _totals(commit)
    if size is None or checksum.deletions is None or checksum.sizes is None:
        return None
    if min(checksum.table_size_bytes + size, checksum.num_files + files) < 0:
        return None
    vectors = checksum.deletions.moved(commit.adds, commit.removes)
    totals = (checksum.table_size_bytes, checksum.table_size_bytes + size, vectors.records)
    if max(totals) >= LONG_MAX or min(vectors.records, vectors.vectors, *vectors.counts) < 0:
        return None
    sizes = checksum.sizes + _sizes_of(commit.adds) - _sizes_of(commit.removes)
    if not sizes.is_possible:
        return None
    metadata = commit.metadata or checksum.metadata
    stamp = commit.info.in_commit_timestamp if commit.info else None
    return replace(
        checksum,
        table_size_bytes=checksum.table_size_bytes + size,
        num_files=checksum.num_files + files,
        protocol=commit.protocol or checksum.protocol,
        metadata=metadata,
        app_transactions=_with_txns(checksum.app_transactions, commit),
        domains=_with_domains(checksum.domains, commit),
        in_commit_timestamp=_timestamp(metadata, stamp),
        txn_id=commit.info.txn_id if commit.info else None,
        deletions=vectors,
        sizes=sizes,
    )


def encode(checksum: VersionChecksum, files: Sequence[Add] | None = None) -> bytes:
    """Return the bytes of the version checksum file; with `files`, all live ones, if they are
    few.
    """
    body: dict[str, Any] = {
        "txnId": checksum.txn_id,
        "tableSizeBytes": checksum.table_size_bytes,
        "numFiles": checksum.num_files,
        "numMetadata": 1,
        "numProtocol": 1,
        "inCommitTimestampOpt": checksum.in_commit_timestamp,
        "setTransactions": _txn_bodies(checksum),
        "domainMetadata": _domain_bodies(checksum),
        **file_totals.deletions_to_body(
            checksum.deletions if _has_vectors(checksum.protocol) else None
        ),
        **file_totals.histogram_to_body(checksum.sizes),
        "metadata": checksum.metadata.to_row()["metaData"],
        "protocol": checksum.protocol.to_row()["protocol"],
        "allFiles": None if files is None else _file_bodies(files),
    }
    return orjson.dumps({name: value for name, value in body.items() if value is not None}) + b"\n"


def decode(content: bytes) -> VersionChecksum:
    """Return the checksum in the bytes of a version checksum file.

    Raises: BrokenLog (`CorruptChecksum`), where it is torn or lacks a required field.
    """
    try:
        body = orjson.loads(content)
        txns, domains = body.get("setTransactions"), body.get("domainMetadata")
        protocol = Protocol.model_validate(body["protocol"])
        deletions = file_totals.deletions_of_body(body)
        if deletions is None and not _has_vectors(protocol):
            deletions = file_totals.no_deletions_in(file_totals.count(body["numFiles"]))
        stamp, txn_id = body.get("inCommitTimestampOpt"), body.get("txnId")
        return VersionChecksum(
            file_totals.count(body["tableSizeBytes"]),
            file_totals.count(body["numFiles"]),
            protocol,
            Metadata.model_validate(body["metadata"]),
            None if txns is None else {txn["appId"]: Txn.model_validate(txn) for txn in txns},
            None
            if domains is None
            else {domain["domain"]: DomainMetadata.model_validate(domain) for domain in domains},
            None if stamp is None else file_totals.count(stamp),
            None if txn_id is None else str(txn_id),
            deletions,
            file_totals.histogram_of_body(body),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokenLog(
            f"a version checksum file can't be read ({error!r}); it is only a check, so it may be "
            "deleted, and is written again for later versions",
            error_class="CorruptChecksum",
        ) from error


def differences(stated: VersionChecksum, computed: VersionChecksum) -> tuple[str, ...]:
    """Return the names of the fields in which a stated checksum contradicts a computed one.

    Law: differences(of(s), of(s)) == ()
    Spec: "State Validation"
    """
    names = ["table_size_bytes", "num_files", "protocol", "metadata"]
    names += [
        name
        for name in ("app_transactions", "domains", "in_commit_timestamp", "deletions", "sizes")
        if getattr(stated, name) is not None
    ]
    return tuple(
        name
        for name in names
        if _comparable(getattr(stated, name)) != _comparable(getattr(computed, name))
    )


def _comparable(value: Any) -> Any:
    """Return a value in comparable form: the features of a protocol have no order."""
    if not isinstance(value, Protocol):
        return value
    lists = (value.reader_features, value.writer_features)
    versions = (value.min_reader_version, value.min_writer_version)
    return (*versions, *(frozenset(names or ()) for names in lists))


def _totals(commit: Commit) -> tuple[int | None, int]:
    """Return by how many bytes and files the table grows; None bytes where that is unknown."""
    adds = {(canonical_path(add.path), add.key.dv_id): add.size for add in commit.adds}
    removes = {
        (canonical_path(remove.path), remove.key.dv_id): remove.size for remove in commit.removes
    }
    if adds and not removes and not any(add.data_change for add in commit.adds):
        return None, 0
    if commit.info is not None and commit.info.operation == _BY_HAND:
        return None, 0
    if adds.keys() & removes.keys() or len(adds) != len(commit.adds):
        return None, 0
    removed_sizes = [size for size in removes.values() if size is not None and size >= 0]
    if len(removed_sizes) != len(removes) or min(adds.values(), default=0) < 0:
        return None, 0
    return sum(adds.values()) - sum(removed_sizes), len(adds) - len(removes)


def _sizes_of(files: Sequence[Add | Remove]) -> FileSizes:
    return file_totals.histogram_of_sizes(
        {(canonical_path(file.path), file.key.dv_id): file.size or 0 for file in files}.values()
    )


def _with_txns(known: Mapping[str, Txn] | None, commit: Commit) -> Mapping[str, Txn] | None:
    if known is None:
        return None
    return {**known, **{txn.app_id: txn for txn in commit.txns}}


def _with_domains(
    known: Mapping[str, DomainMetadata] | None, commit: Commit
) -> Mapping[str, DomainMetadata] | None:
    if known is None:
        return None
    merged = {**known, **{domain.domain: domain for domain in commit.domains}}
    return {name: domain for name, domain in merged.items() if not domain.removed}


def _timestamp(metadata: Metadata, stamp: int | None) -> int | None:
    return stamp if table_properties.in_commit_timestamps_enabled(metadata) else None


def _has_vectors(protocol: Protocol) -> bool:
    return "deletionVectors" in reader_features(protocol)


def _file_bodies(files: Sequence[Add]) -> list[Any] | None:
    """Return files as a checksum file lists them, or None if they would outweigh the rest."""
    kept = [file.model_copy(update={"data_change": False}) for file in files]
    bodies = [file.to_row()["add"] for file in kept]
    return bodies if len(orjson.dumps(bodies)) <= ALL_FILES_BYTES_MAX else None


def _txn_bodies(checksum: VersionChecksum) -> list[Any] | None:
    txns = checksum.app_transactions
    if txns is None or len(txns) > TXNS_MAX:
        return None
    if table_properties.txn_retention_ms(checksum.metadata) is not None:
        return None
    return [txn.to_row()["txn"] for txn in txns.values()]


def _domain_bodies(checksum: VersionChecksum) -> list[Any] | None:
    domains = checksum.domains
    if domains is None or len(domains) > DOMAINS_MAX:
        return None
    return [domain.to_row()["domainMetadata"] for domain in domains.values()]


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


def validate_checksum(content: bytes, snapshot: Snapshot) -> ChecksumVerdict:
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
        stated = decode(content)
    except BrokenLog:
        return UNREADABLE
    computed = of(snapshot)
    names = [_WIRE[name] for name in differences(stated, computed) if name in _WIRE]
    vectors = file_totals.deletions_to_body(computed.deletions)
    names += [] if stated.sizes in (None, computed.sizes) else ["fileSizeHistogram"]
    names += [name for name, value in vectors.items() if body.get(name, value) != value]
    return _of_fields([*names, *singles])


def _differing_totals(body: Mapping[str, Any], snapshot: Snapshot) -> list[str]:
    computed = {
        "tableSizeBytes": size_of(snapshot),
        "numFiles": snapshot.files.num_rows,
    }
    return [name for name, value in computed.items() if body.get(name, value) != value]


def _of_fields(names: list[str]) -> ChecksumVerdict:
    return ChecksumVerdict(Checked.CONTRADICTS, tuple(names)) if names else AGREES
