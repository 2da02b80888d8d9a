"""Checks of Kafka: the way to the brokers, the login, the topics, and this principal's rights.

Rights stand beside what each role needs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tidegate_console.doctor.check import Check, CheckStatus
from tidegate_console.overview import CLIENT_ID
from tidegate_delta.errors import TidegateError, Unavailable
from tidegate_messages.topics import EVERYBODY, RIGHTS, Right, Role
from tidegate_runtime.kafka.cluster_state import (
    ClusterState,
    fault_of_server,
    login_error,
    speaks_tls,
)
from tidegate_runtime.kafka.confluent_bus import DURABLE_SETTINGS
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.kafka.topic_admin import SEVERAL, differing_topics, missing_topics


def connection(kafka: KafkaSettings) -> list[Check]:
    """Return whether the brokers can be reached and let us in; the last check decides."""
    servers = [item.strip() for item in kafka.bootstrap_servers.split(",") if item.strip()]
    result = [_server(server, kafka) for server in servers]
    if all(check.verdict == "wrong" for check in result):
        return [*result, Check("login", "skipped", "no broker can be reached")]
    error = login_error(kafka)
    if error is None:
        return [*result, Check("login", "ok", _as_whom(kafka))]
    verdict: CheckStatus = "away" if isinstance(error, Unavailable) else "wrong"
    if not kafka.security.uses_tls and any(speaks_tls(server) for server in servers):
        do = "the port speaks TLS: set `kafka.security.protocol` to SSL or SASL_SSL"
        return [*result, Check("login", "wrong", str(error), do)]
    do = "mend the way to the brokers above; or look at their logs for this client"
    return [*result, Check("login", verdict, str(error), do)]


def cluster(kafka: KafkaSettings) -> Iterator[Check]:
    """Yield checks of the cluster: how many brokers, and whether each can be reached from here."""
    size = ClusterState(kafka, CLIENT_ID).size()
    count = len(size.brokers)
    if count < SEVERAL:
        yield Check(
            "brokers",
            "note",
            f"{count} in cluster {size.cluster_id}: records have too few copies for production",
            "run three or more (docs/operations.md#brokers-in-production)",
        )
    else:
        yield Check("brokers", "ok", f"{count} in cluster {size.cluster_id}")
    for server in size.brokers:
        fault = fault_of_server(server, kafka.security)
        if fault is not None:
            yield Check(
                "brokers",
                "wrong",
                f"the broker advertises {server}, where this machine does not reach it: {fault}",
                "correct the broker's `advertised.listeners`, or the network",
            )


def topics(kafka: KafkaSettings) -> Iterator[Check]:
    """Yield whether the declared topics exist and are as declared, and what may lose records."""
    declared = kafka.topics.declared()
    missing = missing_topics(kafka, declared)
    if missing:
        yield Check(
            "topics",
            "wrong",
            f"missing, or hidden by ACLs: {', '.join(missing)}",
            "`tidegate topics apply` creates what is missing",
        )
    try:
        differing = differing_topics(kafka, declared)
    except Unavailable:
        raise
    except TidegateError as error:
        yield Check("topics", "skipped", f"their settings may not be read: {error}")
        return
    for item in differing:
        yield Check(
            "topics",
            "note" if item.setting == "partitions" else "wrong",
            f"{item.topic} has {item.setting} {item.found}, declared is {item.declared}"
            + (f": {item.risk}" if item.risk else ""),
            _remedy(item.topic, item.setting, item.declared),
        )
    if not missing and not differing:
        yield Check("topics", "ok", f"all {len(declared)} are there, as declared")


def producers(kafka: KafkaSettings) -> Iterator[Check]:
    """Yield the settings in `kafka.client` that would let acknowledged records be lost.

    They have no effect: our producers override them.
    """
    for setting in sorted(DURABLE_SETTINGS & kafka.client.keys()):
        yield Check(
            "producers",
            "note",
            f"kafka.client has {setting} {kafka.client[setting]}, which has no effect: producers "
            "wait for all replicas in sync (acks=all) and are idempotent",
            f"take {setting} out of `kafka.client`",
        )


def _remedy(topic: str, setting: str, declared: str) -> str:
    if setting == "partitions":
        return "set `kafka.partitions` to what is there, or add partitions, `proposals` last"
    if setting == "replicas":
        return (
            "`kafka-reassign-partitions --execute --reassignment-json-file FILE`, where FILE names "
            f"{declared} brokers for each partition of {topic}"
        )
    return f"`kafka-configs --alter --topic {topic} --add-config {setting}={_bare(declared)}`"


def _bare(declared: str) -> str:
    """Return a value alone, of a declaration such as `2 or more`; a list needs brackets."""
    value = declared.removesuffix(" or more")
    return f"[{value}]" if "," in value else value


def _server(server: str, kafka: KafkaSettings) -> Check:
    fault = fault_of_server(server, kafka.security)
    if fault is None:
        tls = ", by TLS" if kafka.security.uses_tls else ""
        return Check("bootstrap", "ok", f"{server} answers{tls}")
    return Check("bootstrap", "wrong", f"{server}: {fault}")


def _as_whom(kafka: KafkaSettings) -> str:
    security = kafka.security
    if security.uses_oauth:
        return f"by a token, {security.protocol}"
    if security.uses_sasl:
        return f"as {security.username} by {security.mechanism}, {security.protocol}"
    return f"{security.protocol}, without a user name"


def is_let_in(checks: Sequence[Check]) -> bool:
    """Return whether the last of the checks of the connection, the login, went well."""
    return checks[-1].verdict == "ok"


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
            yield Check(
                "rights", "wrong", _lack(role, right, operation), _right_remedy(right, operation)
            )
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


def _right_remedy(right: Right, operation: str) -> str:
    option = f"{_OPTIONS[right.kind]} {right.name}"
    return (
        f"`kafka-acls --add --allow-principal User:NAME --operation {operation} {option}`; all "
        "rights are in docs/operations.md#rights-in-kafka"
    )
