"""The options for a login that Spark's Kafka source gets."""

import json
from pathlib import Path

import pytest

from tidegate_delta.errors import Misconfigured
from tidegate_producers.ingest.positions import SourcePartition
from tidegate_producers.ingest.settings import Route
from tidegate_producers.ingest.topic_source import jvm_security, range_options, reading_options
from tidegate_runtime.kafka.settings import KafkaSecurity, KafkaSettings


def test_certificates_are_given_as_texts_because_executors_may_lack_the_files(
    tmp_path: Path,
) -> None:
    for name in ("ca", "crt", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----\n")
    files = {
        "ca_location": str(tmp_path / "ca"),
        "certificate_location": str(tmp_path / "crt"),
        "key_location": str(tmp_path / "key"),
    }
    given = jvm_security(KafkaSecurity.model_validate({"protocol": "SSL", **files}))
    assert given["ssl.truststore.certificates"] == "-----BEGIN ca-----\n"
    assert given["ssl.keystore.certificate.chain"] == "-----BEGIN crt-----\n"
    assert given["ssl.keystore.key"] == "-----BEGIN key-----\n"
    assert not any(str(tmp_path) in value for value in given.values())
    (tmp_path / "ca").unlink()
    with pytest.raises(Misconfigured, match=r"kafka\.security\.ca_location: .* cannot be read"):
        jvm_security(KafkaSecurity.model_validate({"protocol": "SSL", **files}))


def test_the_secret_for_tokens_may_be_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('a "quoted" one\n')
    security = KafkaSecurity(
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        oauth_token_url="https://tokens/",
        oauth_client_id="ingest",
        oauth_client_secret_location=str(secret),
    )
    login = jvm_security(security)["sasl.jaas.config"]
    assert 'clientId="ingest" clientSecret="a \\"quoted\\" one";' in login


@pytest.mark.parametrize("which", [{"topics": ["a", "b"]}, {"topic_pattern": "[ab]"}])
def test_a_range_of_offsets_names_its_partitions_and_no_others(which: dict[str, object]) -> None:
    route = Route.model_validate({**which, "table": "/t"})
    kafka = KafkaSettings(bootstrap_servers="broker:9092")
    a, b = SourcePartition("a", "x", 1), SourcePartition("b", "y", 0)
    options = range_options(kafka, route, {b: 5, a: 0}, {b: 6, a: 9})
    assert json.loads(options.pop("assign")) == {"a": [1], "b": [0]}
    assert json.loads(options.pop("startingOffsets")) == {"a": {"1": 0}, "b": {"0": 5}}
    assert json.loads(options.pop("endingOffsets")) == {"a": {"1": 9}, "b": {"0": 6}}
    whole = reading_options(kafka, route)
    assert options == {name: value for name, value in whole.items() if "subscribe" not in name}
