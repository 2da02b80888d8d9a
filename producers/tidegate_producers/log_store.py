"""The door for unmodified delta-spark jobs: a log store whose commits go through the gate.

`producers/logstore` is its source, in Java. A job needs the jar, Kafka's client and the settings;
its paths, tables and SQL stay what they are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_runtime.kafka.settings import KafkaSettings
from tidegate_runtime.release import KAFKA_VERSION

JAR: Final = Path(__file__).with_name("tidegate-log-store.jar")
LOG_STORE: Final = "io.tidegate.TidegateLogStore"
LOG_STORE_PACKAGES: Final = (f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}",)
"""What Spark needs besides the jar, as Maven names: `configure_spark_with_delta_pip` takes them."""

SCHEMES: Final = ("file", "s3a", "gs", "abfss")


def log_store_jar() -> Path:
    """Return the path of the log store's jar.

    Raises: Misconfigured, where it was not built: a working tree without a Java compiler.
    """
    if not JAR.is_file():
        raise Misconfigured(
            f"{JAR.name} is not there: install Tidegate from a wheel, or install a JDK and run "
            "`make env`"
        )
    return JAR


def spark_config(
    kafka: KafkaSettings | str, schemes: Sequence[str] = SCHEMES, timeout_s: int = 300
) -> dict[str, str]:
    """Return the settings with which delta-spark commits through the gate, for
    `SparkSession.builder.config(map=…)`.

    `kafka` is the brokers, or the settings of their client. Tables of `schemes` go through the
    gate. A commit waits for its outcome for `timeout_s` seconds at most.
    Raises: InvalidRequest, for no scheme or one without a log store; Misconfigured, for settings
    that only librdkafka has, or without a jar.
    """
    settings = KafkaSettings(bootstrap_servers=kafka) if isinstance(kafka, str) else kafka
    # Whatever iterates once, or holds nothing, would let a job write past the gate.
    schemes = (schemes,) if isinstance(schemes, str) else tuple(schemes)
    unknown = sorted(set(schemes) - set(SCHEMES))
    if unknown or not schemes:
        given = repr(unknown[0]) if unknown else "nothing"
        raise InvalidRequest(f"schemes: {given} is none of {', '.join(SCHEMES)}")
    return {
        "spark.jars": str(log_store_jar()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        **{f"spark.delta.logStore.{scheme}.impl": LOG_STORE for scheme in schemes},
        # The checkpointer writes these files, and mostly first: delta-spark would warn each time.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
        "spark.tidegate.topic.prefix": settings.topic_prefix,
        "spark.tidegate.timeout.seconds": str(timeout_s),
        "spark.tidegate.kafka.bootstrap.servers": settings.bootstrap_servers,
        **{f"spark.tidegate.kafka.{name}": value for name, value in _client(settings).items()},
    }


def _client(settings: KafkaSettings) -> dict[str, str]:
    """Return the settings of Kafka's Java client besides its brokers; files keep the secrets."""
    if settings.client:
        names = ", ".join(sorted(settings.client))
        raise Misconfigured(
            f"kafka.client: {names} are librdkafka's; set spark.tidegate.kafka.<name> for Java's"
        )
    security = settings.security
    if security.uses_oauth:
        raise Misconfigured(
            "kafka.security.mechanism: OAUTHBEARER has no short form here; set Kafka's own "
            "names as spark.tidegate.kafka.sasl.…"
        )
    if security.protocol == "PLAINTEXT":
        return {}
    known = {
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password.location": security.password_location,
        "sasl.password": _plain(security.password),
        "ssl.ca.location": security.ca_location,
        "ssl.certificate.location": security.certificate_location,
        "ssl.key.location": security.key_location,
        "ssl.key.password.location": security.key_password_location,
        "ssl.key.password": _plain(security.key_password),
    }
    return {name: value for name, value in known.items() if value is not None}


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
