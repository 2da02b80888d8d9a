"""A snapshot: the state of a table at a version, and how a commit moves it on.

The file set stays in Arrow columns; everything else is a handful of objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.delta.actions import DomainMetadata, Metadata, Protocol, Txn
from tidegate.delta.names import Version


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at `version`.

    Shape: `files` has ADD_SCHEMA, a row a live file; `tombstones` has REMOVE_SCHEMA, a row a
    removed file that the log still names (expiry is applied where there is a clock).
    Units: `in_commit_timestamp` in ms since the Unix epoch: that of the version's own commit.
    Spec: "Action Reconciliation"
    """

    version: Version
    protocol: Protocol
    metadata: Metadata
    files: pa.Table
    tombstones: pa.Table
    app_transactions: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    in_commit_timestamp: int | None = None
