"""The rights in Kafka that each kind of client needs: data only.

The manual's table (`docs/operations.md`) says the same in prose; a test holds them equal.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["topic", "group", "transactional id"]
Role = Literal[
    "committer", "checkpointer", "change publisher", "lease holder", "writer", "operator"
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
    "operator": (
        *_on("topic", "admin cdc-signals", "Write"),
        *_on("topic", "outcomes table-state", "Read"),
        *_on("topic", "cdc-positions follower-state leases", "Read"),
    ),
}
"""What each role needs. A right to read or to write includes that to describe."""
