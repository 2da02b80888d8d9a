"""Checks of rights: what this principal may do in Kafka, beside what each role needs."""

from collections.abc import Iterator, Mapping
from typing import Final

from tidegate_console.doctor.check import Check
from tidegate_console.overview import CLIENT_ID
from tidegate_messages.rights import EVERYBODY, RIGHTS, Right, Role
from tidegate_runtime.kafka.cluster_state import ClusterState
from tidegate_runtime.kafka.settings import KafkaSettings

Held = Mapping[tuple[str, str], frozenset[str] | None]
"""The operations that are allowed on each resource, by kind and name; None if it is missing."""

_OPTIONS: Final = {"topic": "--topic", "group": "--group"}


def rights(kafka: KafkaSettings, role: Role | None) -> Iterator[Check]:
    """Yield what the given role lacks or, without one, which roles this principal can fill.

    Rights on names that begin with something (`cdc.*`) and on transactional ids are not visible
    before such a topic or id exists: they are not checked.
    """
    held_rights = _operations(kafka)
    if role is not None:
        lacking = list(lacks(held_rights, kafka.topic_prefix, role))
        for right, operation in lacking:
            yield Check("rights", "wrong", _lack(role, right, operation), _remedy(right, operation))
        if not lacking:
            yield Check("rights", "ok", f"all that a {role} needs, as far as brokers show it")
        return
    roles_held = [role for role in RIGHTS if not any(lacks(held_rights, kafka.topic_prefix, role))]
    roles_lacking = [role for role in RIGHTS if role not in roles_held]
    summary = f"enough for: {', '.join(roles_held) or 'no role'}"
    if roles_lacking:
        summary += f"; not for: {', '.join(roles_lacking)} (--role says what is lacking)"
    yield Check("rights", "ok" if roles_held else "note", summary)


def lacks(held_rights: Held, prefix: str, role: Role) -> Iterator[tuple[Right, str]]:
    """Yield each right of a role that is not held, with the operation that is missing.

    A topic that is missing is not counted here.
    """
    for right in (*RIGHTS[role], *EVERYBODY):
        operations = held_rights.get((right.kind, f"{prefix}{right.name}"))
        if operations is None:
            continue
        for operation in right.operations:
            if operation not in operations:
                yield Right(right.kind, f"{prefix}{right.name}", right.operations), operation


def _operations(kafka: KafkaSettings) -> Held:
    state = ClusterState(kafka, CLIENT_ID)
    needed = [right for every in (*RIGHTS.values(), EVERYBODY) for right in every]
    names = {
        kind: {f"{kafka.topic_prefix}{right.name}" for right in needed if _is_visible(right, kind)}
        for kind in _OPTIONS
    }
    topics = state.rights_on_topics(names["topic"])
    groups = state.rights_on_groups(names["group"])
    return {
        **{("topic", name): operations for name, operations in topics.items()},
        **{("group", name): operations for name, operations in groups.items()},
    }


def _is_visible(right: Right, kind: str) -> bool:
    return right.kind == kind and not right.name.endswith("*")


def _lack(role: Role, right: Right, operation: str) -> str:
    return f"a {role} needs {operation} on {right.kind} {right.name}"


def _remedy(right: Right, operation: str) -> str:
    option = f"{_OPTIONS[right.kind]} {right.name}"
    return (
        f"`kafka-acls --add --allow-principal User:NAME --operation {operation} {option}`; all "
        "rights are in docs/operations.md#running"
    )
