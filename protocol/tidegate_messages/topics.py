"""The topics (names, keys, partitions, retention), and the rights that clients need. Data only.

All records of one table go, explicitly, to the partition number recorded at its registration.

The table of rights in `docs/operations.md` says the same in prose; a test holds them equal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidegate_delta.errors import Misconfigured

_DAY_MS = 24 * 60 * 60 * 1000
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_LENGTH_MAX = 249

REQUEST_BYTES_MAX: Final = 64 * 1024
"""The largest operator's request, which holds ids, a root and a reason."""


@dataclass(frozen=True)
class Topic:
    """The declaration of a topic. Units: retention in ms; -1 keeps records for ever."""

    name: str
    key: str
    partitions: int
    cleanup: str
    retention_ms: int
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, str]:
        """Kafka's topic configuration."""
        return {
            "cleanup.policy": self.cleanup,
            "retention.ms": str(self.retention_ms),
            **self.config,
        }


@dataclass(frozen=True)
class Topics:
    """The topic names under one prefix, and the declaration of each topic."""

    prefix: str = "tidegate."
    partitions: int = 1

    def _name(self, base: str) -> str:
        return f"{self.prefix}{base}"

    @property
    def proposals(self) -> str:
        """Key: table id. Value: a proposal. Not compacted: all proposals of a table share a key."""
        return self._name("proposals")

    @property
    def admin(self) -> str:
        """Key: table id. Value: an operator's request about a table, in the form of a proposal."""
        return self._name("admin")

    @property
    def outcomes(self) -> str:
        """Key: proposal id. Value: an outcome."""
        return self._name("outcomes")

    @property
    def commits(self) -> str:
        """Key: table id. Value: one record for each version."""
        return self._name("commits")

    @property
    def table_state(self) -> str:
        """Key: table id. Value: the registry's record of the table."""
        return self._name("table-state")

    @property
    def dead_letters(self) -> str:
        """Raw bytes that could not be read, with the reason in headers."""
        return self._name("dead-letters")

    @property
    def ingest_dead_letters(self) -> str:
        """Records of sources that are no rows of their table, with the reason in headers."""
        return self._name("ingest-dead-letters")

    @property
    def cdc_positions(self) -> str:
        """Key: table id. Value: the last version whose changes are published."""
        return self._name("cdc-positions")

    @property
    def cdc_schema_changes(self) -> str:
        """Key: table id. Value: the schema of a table from a version on, and what changed."""
        return self._name("cdc-schema-changes")

    @property
    def cdc_transactions(self) -> str:
        """Key: a version. Value: where its changes begin and end, in Debezium's words."""
        return self._name("cdc-transactions")

    @property
    def cdc_signals(self) -> str:
        """Key: table id. Value: what operators want done with the table's change stream."""
        return self._name("cdc-signals")

    @property
    def cdc_notifications(self) -> str:
        """Key: table id. Value: what becomes of a table's snapshots, in Debezium's words."""
        return self._name("cdc-notifications")

    @property
    def cdc_heartbeats(self) -> str:
        """Key: table id. Value: up to which version all changes are published."""
        return self._name("cdc-heartbeats")

    @property
    def follower_state(self) -> str:
        """Key: service and table id. Value: why a follower skips the table."""
        return self._name("follower-state")

    @property
    def leases(self) -> str:
        """Key: holder and table id. Value: from which version on the holder needs the table."""
        return self._name("leases")

    @property
    def maintenance(self) -> str:
        """Key: `pause` or `report`, and table id. Value: what is wanted or done of maintenance."""
        return self._name("maintenance")

    @property
    def replies(self) -> str:
        """What the names of topics for replies begin with. Writers' operators create them."""
        return self._name("replies.")

    def is_for_replies(self, topic: str) -> bool:
        """Return whether the committer may copy outcomes to a topic, if it exists."""
        is_legal = len(topic) <= _LENGTH_MAX and not _ILLEGAL.search(topic)
        return is_legal and topic.startswith(self.replies) and topic != self.replies

    def changes(self, table_name: str) -> str:
        """Return the topic of a table's changes.

        Raises: Misconfigured, when the name is too long for Kafka.
        """
        return self.checked(self._name(f"cdc.{table_name}"), table_name)

    def checked(self, topic: str, table_name: str) -> str:
        """Return a name for the topic of a table's changes, with `_` for what Kafka does not allow.

        Raises: Misconfigured, when the name is too long for Kafka.
        """
        name = _ILLEGAL.sub("_", topic)
        if len(name) > _LENGTH_MAX:
            raise Misconfigured(
                f"the change topic {name!r} of table {table_name!r} is longer than {_LENGTH_MAX} "
                "characters; register the table under a shorter name"
            )
        return name

    def declared(self) -> tuple[Topic, ...]:
        """Return every topic that must exist before the services start."""
        n = self.partitions
        large = {"max.message.bytes": str(4 * 1024 * 1024)}
        # Timestamps are compared, so the broker sets them: the clocks of writers differ.
        dated = {"message.timestamp.type": "LogAppendTime"}
        # The broker decompresses records and checks their real size, so it stops a decompression
        # bomb.
        unpacked = {"compression.type": "uncompressed"}
        # Each version leaves a record, and followers read the topic to its end in every pass. The
        # newest segment is not compacted, and a gibibyte of it takes a minute to read.
        short = {"segment.bytes": str(16 * 1024 * 1024)}
        return (
            Topic(
                self.proposals, "table", n, "delete", 14 * _DAY_MS, {**large, **dated, **unpacked}
            ),
            Topic(
                self.admin,
                "table",
                n,
                "delete",
                14 * _DAY_MS,
                {"max.message.bytes": str(REQUEST_BYTES_MAX), **dated, **unpacked},
            ),
            Topic(self.outcomes, "proposal_id", n, "compact,delete", 7 * _DAY_MS, dated),
            Topic(self.commits, "table", n, "delete", 30 * _DAY_MS, dated),
            Topic(self.table_state, "table", n, "compact", -1, short),
            Topic(self.dead_letters, "", 1, "delete", 30 * _DAY_MS, large),
            Topic(self.ingest_dead_letters, "", 1, "delete", 30 * _DAY_MS, large),
            Topic(self.cdc_positions, "table", 1, "compact", -1, short),
            # All of it is read by copies that begin late, so it is kept for ever.
            Topic(self.cdc_schema_changes, "table", 1, "delete", -1, large),
            Topic(self.cdc_transactions, "version", 1, "delete", 14 * _DAY_MS),
            Topic(self.cdc_signals, "table", 1, "delete", 14 * _DAY_MS),
            Topic(self.cdc_notifications, "table", 1, "delete", 14 * _DAY_MS),
            Topic(self.cdc_heartbeats, "table", 1, "compact,delete", _DAY_MS, short),
            Topic(self.follower_state, "service/table", 1, "compact", -1, short),
            Topic(self.leases, "holder/table", 1, "compact", -1, short),
            Topic(self.maintenance, "about/table", 1, "compact", -1, short),
        )


Kind = Literal["topic", "group", "transactional id"]
Role = Literal[
    "committer",
    "checkpointer",
    "change publisher",
    "lease holder",
    "writer",
    "ingest",
    "maintainer",
    "operator",
]


@dataclass(frozen=True)
class Right:
    """Operations that a role needs on one resource.

    `name` follows the topic prefix; one that ends in `*` stands for all names that begin so.
    """

    kind: Kind
    name: str
    operations: tuple[str, ...]


def _on(kind: Kind, names: str, *operations: str) -> tuple[Right, ...]:
    return tuple(Right(kind, name, operations) for name in names.split())


EVERYBODY: Final = _on("group", "reader", "Describe")
"""What every client needs besides: librdkafka looks up the coordinator of a reader's group."""

RIGHTS: Final[dict[Role, tuple[Right, ...]]] = {
    "committer": (
        *_on("topic", "proposals admin", "Read"),
        *_on("topic", "outcomes commits dead-letters", "Write"),
        *_on("topic", "replies.*", "Write"),
        *_on("topic", "table-state", "Read", "Write"),
        *_on("group", "committer", "Read"),
    ),
    "checkpointer": (
        *_on("topic", "commits table-state cdc-positions leases", "Read"),
        *_on("topic", "follower-state", "Read", "Write"),
        *_on("group", "checkpointer", "Read"),
    ),
    "change publisher": (
        *_on("topic", "commits table-state cdc-signals", "Read"),
        *_on("topic", "cdc-positions follower-state", "Read", "Write"),
        *_on("topic", "dead-letters leases", "Write"),
        *_on(
            "topic",
            "cdc.* cdc-schema-changes cdc-transactions cdc-notifications cdc-heartbeats",
            "Create",
            "Write",
        ),
        *_on("group", "cdc-publisher", "Read"),
        *_on("transactional id", "cdc.*", "Write"),
        *_on("group", "cdc-positions-reader", "Describe"),
    ),
    "lease holder": _on("topic", "leases", "Write"),
    "writer": (
        *_on("topic", "proposals", "Write"),
        *_on("topic", "outcomes table-state replies.*", "Read"),
    ),
    "ingest": (
        *_on("topic", "proposals", "Write"),
        *_on("topic", "outcomes table-state", "Read"),
        *_on("topic", "ingest-dead-letters", "Read", "Write"),
        *_on("group", "ingest*", "Read"),
    ),
    "maintainer": (
        *_on("topic", "proposals maintenance", "Read", "Write"),
        *_on("topic", "outcomes table-state cdc-positions leases", "Read"),
    ),
    "operator": (
        *_on("topic", "admin cdc-signals", "Write"),
        *_on("topic", "maintenance", "Read", "Write"),
        *_on("topic", "outcomes table-state", "Read"),
        *_on("topic", "cdc-positions follower-state leases", "Read"),
    ),
}
"""What each role needs. A right to read or to write includes that to describe."""
