"""Settings: precedence, one error for all problems, and no secrets shown."""

from pathlib import Path

import pytest
from pydantic import Field

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.settings import Section, ServiceSettings, load, redacted


class Gauge(Section):
    level: int = 3
    roots: list[str] = Field(default_factory=list)
    ports: dict[str, int] = Field(default_factory=dict)


class Named(Section):
    tables: dict[str, Gauge] = Field(default_factory=dict)


class GaugeSettings(ServiceSettings):
    committer: Gauge = Gauge()
    cdc: Named = Named()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_is_the_defaults() -> None:
    settings = load(GaugeSettings, None, {})
    assert settings == GaugeSettings()
    assert settings.kafka.bootstrap_servers == "127.0.0.1:9092"


def test_the_command_line_stands_above_the_environment_and_that_above_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = file(tmp_path, "committer: {level: 1}\nkafka: {partitions: 1, topic_prefix: file.}")
    assert load(GaugeSettings, config, {}).committer.level == 1
    monkeypatch.setenv("TIDEGATE__COMMITTER__LEVEL", "2")
    monkeypatch.setenv("TIDEGATE__KAFKA__PARTITIONS", "2")
    assert load(GaugeSettings, config, {}).committer.level == 2
    settings = load(GaugeSettings, config, {"committer.level": "4"})
    assert settings.committer.level == 4
    assert settings.kafka.partitions == 2
    assert settings.kafka.topic_prefix == "file."


def test_the_usual_variable_names_the_brokers_unless_something_of_ours_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "usual:1")
    assert load(ServiceSettings, None, {}).kafka.bootstrap_servers == "usual:1"
    config = file(tmp_path, "kafka: {bootstrap_servers: 'file:1'}")
    assert load(ServiceSettings, config, {}).kafka.bootstrap_servers == "file:1"


def test_one_error_lists_every_problem_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = file(tmp_path, "kafka: {session_timeout_ms: soon}\nlogs: {level: INFO}")
    monkeypatch.setenv("TIDEGATE__KAFKA__BOOTSTRAP_SERVER", "x")
    with pytest.raises(Misconfigured) as caught:
        load(GaugeSettings, config, {"committer.level": "high", "http.port": "70000"})
    text = str(caught.value)
    assert text.startswith("5 settings are wrong")
    assert f"kafka.session_timeout_ms ({config}): input should be a valid integer" in text
    assert f"logs ({config}): unknown; did you mean 'log'?" in text
    assert "(environment TIDEGATE__KAFKA__BOOTSTRAP_SERVER): unknown; did you mean" in text
    assert "committer.level (command line): input should be a valid integer" in text
    assert "http.port (command line): input should be less than or equal to 65535" in text


@pytest.mark.parametrize("text", ["kafka: 3", "storage: s3", "cdc: {tables: {t: id}}"])
def test_a_value_in_the_place_of_a_section_is_reported_in_yaml_terms(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(Misconfigured, match="should hold settings of its own") as raised:
        load(GaugeSettings, file(tmp_path, text), {})
    assert "dictionary" not in str(raised.value)


def test_a_neighbours_section_is_none_of_our_business_but_a_strangers_is(tmp_path: Path) -> None:
    config = file(tmp_path, "checkpointer: {whatever: 1}")
    assert load(GaugeSettings, config, {}) == GaugeSettings()
    with pytest.raises(Misconfigured, match="strangers"):
        load(GaugeSettings, file(tmp_path, "strangers: {whatever: 1}"), {})


@pytest.mark.parametrize("text", ["a,b", " a , b ,", '["a", "b"]'])
def test_a_list_is_written_with_commas_or_as_json(text: str) -> None:
    assert load(GaugeSettings, None, {"committer.roots": text}).committer.roots == ["a", "b"]


def test_names_with_dots_are_keys_of_a_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE__KAFKA__CLIENT__SOCKET__TIMEOUT__MS", "5")
    config = file(tmp_path, "kafka: {client: {linger.ms: 7}}\nstorage: {region: here}")
    settings = load(ServiceSettings, config, {"kafka.client.fetch.min.bytes": "9"})
    assert dict(settings.kafka.client) == {
        "socket.timeout.ms": "5",
        "linger.ms": "7",
        "fetch.min.bytes": "9",
    }
    assert settings.storage == {"region": "here"}


class Ledger(Section):
    level: int = 0
    properties: dict[str, str] = Field(default_factory=dict)


class Ledgers(Section):
    tables: dict[str, Ledger] = Field(default_factory=dict)


class LedgerSettings(ServiceSettings):
    cdc: Ledgers = Ledgers()


@pytest.mark.parametrize("table", ["orders", "main.sales.orders"])
def test_names_with_dots_are_keys_of_a_mapping_in_a_mapping_of_sections(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"cdc: {{tables: {{{table}: {{level: 1, properties: {{cleanup.policy: compact}}}}}}}}"
    variable = f"TIDEGATE__CDC__TABLES__{table.upper().replace('.', '__')}__PROPERTIES"
    monkeypatch.setenv(f"{variable}__RETENTION__MS", "-1")
    prefix = f"cdc.tables.{table}"
    given = {f"{prefix}.properties.segment.ms": "7", f"{prefix}.level": "2"}
    settings = load(LedgerSettings, file(tmp_path, text), given)
    properties = {"cleanup.policy": "compact", "retention.ms": "-1", "segment.ms": "7"}
    assert settings.cdc.tables == {table: Ledger(level=2, properties=properties)}
    whole = load(LedgerSettings, None, {f"{prefix}.properties": '{"segment.ms": 8}'})
    assert whole.cdc.tables[table].properties["segment.ms"] == "8"
    either = load(LedgerSettings, None, {prefix: '{"properties": {"segment.ms": "9"}}'})
    assert either.cdc.tables[table].properties["segment.ms"] == "9"


def test_numbers_and_switches_in_json_are_texts_where_texts_are_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEGATE__STORAGE", '{"path_style": true, "region": "eu", "retries": 3}')
    result = load(ServiceSettings, None, {"kafka.client": '{"linger.ms": 5}'})
    assert result.storage == {"path_style": "true", "region": "eu", "retries": "3"}
    assert result.kafka.client == {"linger.ms": "5"}


def test_a_mapping_of_sections_is_reached_by_name_and_its_keys_are_checked() -> None:
    settings = load(GaugeSettings, None, {"cdc.tables.flights.level": "8"})
    assert settings.cdc.tables == {"flights": Gauge(level=8)}
    with pytest.raises(Misconfigured, match="did you mean 'level'"):
        load(GaugeSettings, None, {"cdc.tables.flights.levels": "8"})


def test_a_variable_that_lacks_an_underscore_is_reported_and_others_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEGATE_COMMITTER_SERVICE_HOST", "10.0.0.1")  # as Kubernetes sets it
    load(ServiceSettings, None, {})
    monkeypatch.setenv("TIDEGATE_KAFKA__PARTITIONS", "3")
    with pytest.raises(Misconfigured, match="write TIDEGATE__KAFKA__PARTITIONS"):
        load(ServiceSettings, None, {})


def test_what_may_be_absent_is_switched_off_in_words() -> None:
    assert load(ServiceSettings, None, {"http.port": "off"}).http.port is None


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "is no YAML"), ("- a", "should hold sections"), ("kafka: 3", "kafka")],
)
def test_a_file_that_is_no_settings_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        load(ServiceSettings, file(tmp_path, text), {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"absent\.yaml: cannot be read"):
        load(ServiceSettings, tmp_path / "absent.yaml", {})


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    config = file(
        tmp_path,
        "kafka:\n"
        "  security: {protocol: SASL_SSL, mechanism: PLAIN, username: me, password: hush1}\n"
        "  client: {sasl.kerberos.secret: hush2, ssl.key.pem: hush5}\n"
        "storage: {secret_access_key: hush3, key: hush4, region: here,\n"
        "  endpoint_url: 'http://me:hush6@store:9000/a@b'}\n",
    )
    settings = load(ServiceSettings, config, {})
    shown = redacted(settings)
    assert "hush" not in repr(shown)
    assert "hush1" not in repr(settings)
    assert shown["kafka"]["security"]["username"] == "me"
    assert shown["storage"]["region"] == "here"
    assert shown["storage"]["endpoint_url"].endswith("@store:9000/a@b")


def test_an_invalid_secret_is_not_in_the_error() -> None:
    with pytest.raises(Misconfigured) as caught:
        load(ServiceSettings, None, {"kafka.security.password": "hush"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'kafka:\n  security:\n    password: "hush\n',
        "kafka:\n  security:\n    password: *hush\n",
        "kafka:\n  security:\n    password: !hush\n",
        "kafka:\n  security:\n    password: @hush\n",
        "- password: hush\n",
        "hush",
        "kafka: {security: hush}",
        "kafka: {security: {password: [hush]}}",
        "kafka: {security: {protocol: hush}}",
        "storage: [hush]",
    ],
)
def test_errors_about_a_file_do_not_show_its_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(ServiceSettings, file(tmp_path, text), {})
    assert "hush" not in str(caught.value)


def test_a_file_that_is_not_yaml_is_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="is no YAML at line 2, column 11: check quotes"):
        load(ServiceSettings, file(tmp_path, "kafka:\n  client: @x\n"), {})


def test_earlier_problems_are_listed_with_the_rest() -> None:
    with pytest.raises(Misconfigured) as caught:
        load(ServiceSettings, None, {"http.port": "70000"}, ["--set a: write section.key=value"])
    assert str(caught.value).startswith("2 settings are wrong")
    assert "--set a: write" in str(caught.value)
