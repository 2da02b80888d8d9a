"""The settings of a Spark session whose commits go through the gate."""

from pathlib import Path
from typing import Any

import pytest

import tidegate
from tidegate_delta.errors import InvalidRequest, Misconfigured
from tidegate_producers import log_store
from tidegate_producers.log_store import LOG_STORE, log_store_jar, spark_config
from tidegate_runtime.kafka.settings import KafkaSettings


@pytest.fixture(autouse=True)
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tidegate-log-store.jar"
    path.touch()
    monkeypatch.setattr(log_store, "JAR", path)
    return path


def test_the_brokers_are_enough(jar: Path) -> None:
    config = tidegate.spark_config("b:9092")
    assert config["spark.jars"] == str(jar) == str(tidegate.log_store_jar())
    assert config["spark.tidegate.kafka.bootstrap.servers"] == "b:9092"
    assert config["spark.tidegate.topic.prefix"] == "tidegate."
    for scheme in ("file", "s3a", "gs", "abfss"):
        assert config[f"spark.delta.logStore.{scheme}.impl"] == LOG_STORE
    assert config["spark.databricks.delta.writeChecksumFile.enabled"] == "false"
    assert not [name for name in config if "security" in name or "sasl" in name]


def test_secrets_stay_in_their_files_and_have_kafkas_names() -> None:
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "SCRAM-SHA-512",
        "username": "me",
        "password_location": "/run/secrets/password",
        "ca_location": "/run/ca.pem",
    }
    kafka = KafkaSettings.model_validate({"security": security, "topic_prefix": "team."})
    config = spark_config(kafka, ["s3a"], timeout_s=60)
    given = {
        name.removeprefix("spark.tidegate."): value
        for name, value in config.items()
        if name.startswith("spark.tidegate.")
    }
    assert given == {
        "topic.prefix": "team.",
        "timeout.seconds": "60",
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "me",
        "kafka.sasl.password.location": "/run/secrets/password",
        "kafka.ssl.ca.location": "/run/ca.pem",
    }
    assert "spark.delta.logStore.file.impl" not in config


def test_a_scheme_without_a_log_store_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"'hdfs' is none of file, s3a, gs, abfss"):
        spark_config("b:9092", ["file", "hdfs"])


def test_schemes_are_taken_in_whatever_holds_them() -> None:
    once: Any = (name for name in ["s3a"])
    for schemes in (once, "s3a"):
        assert spark_config("b:9092", schemes)["spark.delta.logStore.s3a.impl"] == LOG_STORE
    with pytest.raises(InvalidRequest, match=r"schemes: nothing is none of"):
        spark_config("b:9092", [])


def test_what_only_librdkafka_has_is_refused_by_name() -> None:
    with pytest.raises(Misconfigured, match=r"kafka.client: linger.ms"):
        spark_config(KafkaSettings(client={"linger.ms": "5"}))
    oauth = {
        "protocol": "SASL_SSL",
        "mechanism": "OAUTHBEARER",
        "oauth_token_location": "/run/token",
    }
    with pytest.raises(Misconfigured, match="OAUTHBEARER"):
        spark_config(KafkaSettings.model_validate({"security": oauth}))


def test_where_it_was_not_built_the_remedy_is_named(jar: Path) -> None:
    jar.unlink()
    with pytest.raises(Misconfigured, match="install a JDK"):
        log_store_jar()
