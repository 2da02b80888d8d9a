"""What ended a query of Spark's, as an error of ours: it passes by itself, or names its remedy."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from tidegate_delta.errors import InvalidRequest, Misconfigured, TidegateError, Unavailable

_LOST: Final = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "data may have been lost")
"""What Spark's Kafka source says where offsets are gone that it was to read."""

_SESSION_LOST: Final = ("INVALID_HANDLE", "incorrect server side session identifier")
"""What Spark Connect says of a session that its server has forgotten: it was started again, or the
session was not used for long.
"""

_PASSING: Final = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "RetriableException",
    "NotLeaderOrFollower",
    "BrokerNotAvailable",
    # A topic or a partition came between our look at them and Spark's.
    "you must specify all TopicPartitions",
    "ExecutorLostFailure",
    # A Spark Connect server is away, or was.
    "failed to connect to all addresses",
    "RETRIES_EXCEEDED",
    *_SESSION_LOST,
)
"""What Kafka's Java client and Spark say of faults that pass by themselves."""

_REMEDIES: Final[Mapping[str, str]] = {
    "Invalid PEM keystore configs": (
        "Kafka's client in Java reads the key at kafka.security.key_location as PKCS #8 alone, and "
        "with a password as PBES1 alone: write it anew by `openssl pkcs8 -topk8 -nocrypt -in KEY "
        "-out NEW`, or with a password by `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES …`"
    ),
    "Invalid PEM truststore configs": (
        "correct kafka.security.ca_location: a file of certificates in PEM"
    ),
    "SaslAuthenticationException": (
        "correct kafka.security: `mechanism`, `username` and the password, or the token and where "
        "it comes from"
    ),
    "SslAuthenticationException": (
        "correct kafka.security: `ca_location` is of who signed the brokers' certificates, and "
        "`certificate_location` has one that the brokers accept"
    ),
    "TopicAuthorizationException": "allow this login Read and Describe on the topic",
    "GroupAuthorizationException": "allow this login Read on the group",
    "No module named 'tidegate": (
        "install this package where PYSPARK_PYTHON of the executors says, on Spark Connect of its "
        "server"
    ),
}
"""What Kafka's client in Java says where nobody but the user can help, and how."""

_CAUSE: Final = re.compile(
    r"^(?:Caused by: |: )?((?:[\w$]+\.)*[\w$]*(?:Exception|Error)\b.*)$", re.MULTILINE
)
"""A line of Java's stack, or Python's, that begins with an exception's class."""


@contextmanager
def errors_of_spark(name: str, root: str) -> Iterator[None]:
    """Raise our errors for Spark's, of what is done for a route."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise translated(error, name, root) from error


def translated(error: PySparkException | Py4JError, name: str, root: str) -> TidegateError:
    """Return our error for one of Spark's, which ended a route."""
    text = _with_stacks(error)
    if isinstance(error, AnalysisException):
        first = next((line for line in text.splitlines() if line.strip()), text)
        return InvalidRequest(
            f"{root}: Spark refuses an expression of route {name}: {first}; correct "
            "its where, select or value_schema; nothing was committed",
            error_class=error.getCondition() or "AnalysisException",
        )
    # The last is what the others come from.
    cause = next(reversed(_CAUSE.findall(text)), text.strip().partition("\n")[0])
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in text), None)
    if remedy is not None:
        return Misconfigured(
            f"{root}: Spark could not read the topics of route {name}: {cause}; {remedy}; nothing "
            "was committed"
        )
    if any(sign in text for sign in (*_LOST, *_PASSING)):
        # What is lost, if anything, the next beginning finds out, and says with offsets.
        return Unavailable(f"{root}: Spark could not run a batch of route {name}: {cause}")
    return InvalidRequest(
        f"{root}: Spark could not run a batch of route {name}: {cause}; nothing of "
        "it was committed",
        error_class="StreamingQueryException",
    )


def is_session_lost(error: Exception) -> bool:
    """Return whether an error of Spark's says that a new session is needed."""
    return any(sign in str(error) for sign in _SESSION_LOST)


def _with_stacks(error: PySparkException | Py4JError) -> str:
    """Return what an error says, and Java's stacks of it and of its causes."""
    parts = [str(error)]
    cause: object = error
    while cause is not None:
        parts.append(getattr(cause, "_stackTrace", ""))
        cause = getattr(cause, "_cause", None)
    return "\n".join(parts)
