"""What Spark and Kafka's client in Java say, as an error with its remedy; the texts are theirs."""

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidegate_delta.errors import InvalidRequest, Misconfigured, Unavailable
from tidegate_producers.ingest.spark_errors import (
    errors_of_spark,
    is_session_lost,
    translated,
)

KAFKA = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("said", "cause", "remedy"),
    [
        (
            f"java.util.concurrent.ExecutionException: {KAFKA}.SaslAuthenticationException: "
            "Authentication failed during authentication due to invalid credentials\n\tat java.A\n",
            "invalid credentials",
            "kafka.security: `mechanism`, `username`",
        ),
        (
            "Failed to create new KafkaAdminClient\n\tat org.A(A.java:1)\n"
            "Caused by: org.apache.kafka.common.KafkaException: Failed to create a NetworkClient\n"
            f"Caused by: {KAFKA}.InvalidConfigurationException: Invalid PEM keystore configs\n"
            "Caused by: java.security.NoSuchAlgorithmException: PBES2 SecretKeyFactory not here\n"
            "\t... 5 more\n",
            "route r: java.security.NoSuchAlgorithmException: PBES2 SecretKeyFactory not here",
            "openssl pkcs8",
        ),
        (
            "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException"
            ": Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times\n"
            f"Caused by: {KAFKA}.TopicAuthorizationException: Not authorized to access: [orders]\n",
            "Not authorized to access: [orders]",
            "allow this login Read",
        ),
    ],
)
def test_what_the_user_must_correct_is_named(said: str, cause: str, remedy: str) -> None:
    error = translated(Py4JError(said), "r", "file:///t")
    assert isinstance(error, Misconfigured)
    assert cause in str(error)
    assert remedy in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "said",
    [
        f"{KAFKA}.TimeoutException: Call(callName=describeTopics) timed out",
        "assertion failed: If startingOffsets contains specific offsets, you must specify all "
        "TopicPartitions.\nUse -1 for latest, -2 for earliest, if you don't care.",
        "org.apache.spark.SparkException: Job aborted: Task 0 in stage 9.0 failed "
        "4 times, most recent failure: Lost task 0.3 in stage 9.0: ExecutorLostFailure (executor 3 "
        "exited caused by one of the running tasks) Reason: Command exited with code 137",
        "java.lang.IllegalStateException: Partition orders-0's offset was changed; some data may "
        "have been lost",
    ],
)
def test_what_passes_by_itself_is_tried_again(said: str) -> None:
    assert isinstance(translated(Py4JError(said), "r", "file:///t"), Unavailable)


@pytest.mark.parametrize(
    ("said", "is_lost"),
    [
        ("[INVALID_HANDLE.SESSION_CLOSED] The handle x is invalid. Session was closed.", True),
        (
            "Received incorrect server side session identifier for request. Please create a new "
            "Spark Session to reconnect. (x != y)",
            True,
        ),
        ("<_MultiThreadedRendezvous of RPC: failed to connect to all addresses", False),
        ("[RETRIES_EXCEEDED] The maximum number of retries has been exceeded.", False),
    ],
)
def test_a_spark_connect_server_that_is_away_is_waited_for(said: str, is_lost: bool) -> None:
    assert is_session_lost(PySparkException(said)) == is_lost
    assert isinstance(translated(PySparkException(said), "r", "file:///t"), Unavailable)


def test_executors_without_this_package_are_named() -> None:
    said = "pyspark.serializers.Error\nModuleNotFoundError: No module named 'tidegate_producers'\n"
    error = translated(PySparkException(said), "r", "file:///t")
    assert isinstance(error, Misconfigured)
    assert "install this package where PYSPARK_PYTHON of the executors says" in str(error)


def test_a_fault_of_python_is_said_and_not_that_there_was_one() -> None:
    said = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call "
        'last):\n  File "a.py", line 1, in call\n    raise e\nTypeError: it is no sequence\n'
    )
    error = translated(Py4JError(said), "r", "file:///t")
    assert isinstance(error, InvalidRequest)
    assert "route r: TypeError: it is no sequence; nothing" in str(error)


def test_a_preview_and_a_replay_say_it_the_same_way() -> None:
    with (
        pytest.raises(Misconfigured, match="ca_location"),
        errors_of_spark("r", "file:///t"),
    ):
        raise Py4JError(f"{KAFKA}.SslAuthenticationException: SSL handshake failed")
