"""The publisher's settings: the section `cdc` beside those of every service."""

from collections.abc import Collection
from importlib import import_module
from typing import Final, Literal, Self

from pydantic import AwareDatetime, Field, NonNegativeInt, model_validator

from tidegate_cdc_publisher.envelopes import ENVELOPES
from tidegate_cdc_publisher.large_rows import LargeRows
from tidegate_cdc_publisher.machine import OnGap, SnapshotMode
from tidegate_cdc_publisher.record_form import (
    ISO,
    ColumnRules,
    Decimals,
    Envelope,
    Format,
    PayloadEncoder,
    RecordForm,
    Structs,
    Types,
    ValueTypes,
)
from tidegate_cdc_publisher.schema_markers import OnSchemaChange
from tidegate_delta.errors import Misconfigured
from tidegate_messages.topics import Topics
from tidegate_runtime.service.settings import Section, ServiceSettings


class TableChanges(Section):
    """How one table's changes are published.

    `key_columns` overrides the table property `tidegate.cdc.keyColumns`. `key: none` publishes
    without keys and tombstones, on a topic with one partition. `start_version` or `start_timestamp`
    says from which version on changes are published, if nothing is yet. What is None is as for all
    tables.
    """

    key: Literal["columns", "none"] = "columns"
    key_columns: tuple[str, ...] = ()
    tombstones: bool = True
    snapshot_mode: SnapshotMode | None = None
    start_version: NonNegativeInt | None = None
    start_timestamp: AwareDatetime | None = None
    on_gap: OnGap | None = None
    value_format: Format | None = None
    key_format: Format | None = None
    envelope: Envelope | None = None
    cloud_events: bool | None = None
    types: Types | None = None
    decimal_handling_mode: Decimals | None = None
    struct_handling: Structs | None = None
    on_schema_change: OnSchemaChange | None = None
    provide_transaction_metadata: bool | None = None
    large_rows: LargeRows | None = None
    column_include_list: tuple[str, ...] = ()
    column_exclude_list: tuple[str, ...] = ()
    column_mask_list: tuple[str, ...] = ()
    column_hash_list: tuple[str, ...] = ()
    topic: str | None = Field(default=None, min_length=1)
    topic_properties: dict[str, str] = Field(default_factory=dict)
    partitions: int | None = Field(default=None, ge=1, le=10_000)

    @model_validator(mode="after")
    def _begins_once(self) -> Self:
        if self.start_version is not None and self.start_timestamp is not None:
            raise ValueError("give start_version or start_timestamp, not both")
        return self

    @model_validator(mode="after")
    def _includes_or_excludes(self) -> Self:
        if self.column_include_list and self.column_exclude_list:
            raise ValueError("give column_include_list or column_exclude_list, not both")
        return self


_AS_SET: Final = TableChanges()


class RegistrySection(Section):
    """The registry of schemas that formats such as `avro` need.

    `properties` are further settings of confluent-kafka's client for it, such as
    `basic.auth.user.info` and `ssl.ca.location`.
    """

    url: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)

    def opened(self) -> PayloadEncoder | None:
        """Return the schema registry, if the settings name one. Raises: Misconfigured."""
        if self.url is None:
            return None
        try:
            module = import_module("tidegate_cdc_publisher.schema_registry")
        except ImportError as error:
            raise Misconfigured(
                "cdc.registry needs the extra `registry`: pip install 'tidegate[registry]' "
                f"({error})"
            ) from error
        encoder: PayloadEncoder = module.Registry.at(self.url, self.properties)
        return encoder


class CdcSection(Section):
    """Settings for all tables, and for single tables by their registered names."""

    tables: dict[str, TableChanges] = Field(default_factory=dict)
    snapshot_mode: SnapshotMode = "initial"
    """`initial` publishes the existing rows first, `initial_only` nothing else; `no_data` begins
    with the next version. `when_needed` is `initial` with `on_gap` of `resnapshot`; `always`
    publishes all rows at each start.
    """
    on_gap: OnGap = "fail"
    """What to do where versions that are due can't be read any more: stop, publish all rows, or
    announce in the stream that they are missing.
    """
    value_format: Format = "json"
    """`json_schema` gives each value its Kafka Connect schema."""
    key_format: Format = "json"
    envelope: Envelope = "debezium"
    """`flat` and `delta` write rows instead of Debezium's envelope."""
    cloud_events: bool = False
    """Add the headers of CloudEvents, in Kafka's binary mode."""
    types: Types = "iso"
    """`debezium` writes dates, timestamps and decimals as Debezium's connectors do."""
    decimal_handling_mode: Decimals = "precise"
    """How decimals are written if `types` is `debezium`; ISO types write them as texts."""
    struct_handling: Structs = "struct"
    """Whether structs and maps are JSON in a text if `types` is `debezium`."""
    on_schema_change: OnSchemaChange = "marker"
    """How a version that adds, drops, renames or widens columns, or changes the key, is announced.
    """
    provide_transaction_metadata: bool = False
    """Say where each version ends: by a marker in every topic partition, and with the number of its
    records on the topic of transactions.
    """
    notifications: bool = False
    """Report the beginning, progress and end of snapshots on the topic of notifications."""
    heartbeat_interval_ms: NonNegativeInt = 0
    """How long after the last one, at the next pass, each table's stream says on the topic of
    heartbeats up to which version it has come; 0 is never.
    """
    large_rows: LargeRows = "fail"
    """What to do with a record that is larger than its topic takes."""
    column_hash_salt: str | None = Field(default=None, repr=False)
    """What is put before each value that `column_hash_list` of a table names."""
    topic: str = "{prefix}cdc.{table}"
    """The name of each table's topic: a template with {prefix}, {table} and the parts of a name,
    {catalog}, {schema}, {name}.
    """
    topic_properties: dict[str, str] = Field(default_factory=dict)
    """Kafka's settings of change topics that the publisher creates."""
    registry: RegistrySection = RegistrySection()
    """The registry of schemas for `avro`, `json_schema_registry` and `protobuf`."""
    chunk_rows: int = Field(default=20_000, ge=1, le=100_000)
    """Maximum number of changes in one Kafka transaction."""
    partitions: int = Field(default=1, ge=1, le=10_000)
    """Partitions of a change topic that the publisher creates."""
    transaction_timeout_ms: int = Field(default=30_000, ge=2_000, le=900_000)
    lease_s: float = Field(default=604_800.0, ge=60.0)
    """How long cleanup and vacuum keep what a stream needs after its publisher was last there."""
    look_s: float = Field(default=30.0, gt=0)
    """Seconds between two passes over the registry and the logs, in addition to notifications."""

    @model_validator(mode="after")
    def _modes_have_their_types(self) -> Self:
        """Refuse a mode that would have no effect."""
        for name, table in self.tables.items():
            _check_modes(f"cdc.tables.{name}.", table, [table.types or self.types])
        _check_modes(
            "cdc.",
            self,
            [self.types, *(table_settings.types for table_settings in self.tables.values())],
        )
        return self

    @model_validator(mode="after")
    def _registry_is_named(self) -> Self:
        """Refuse a format that needs a registry without one."""
        for name in (*self.tables, ""):
            if self.form(name).is_registered and self.registry.url is None:
                path = f"cdc.tables.{name}" if name in self.tables else "cdc"
                raise ValueError(
                    f"{path}: its format needs a schema registry: set cdc.registry.url, or choose "
                    "json or json_schema"
                )
        return self

    def mode(self, table: str) -> SnapshotMode:
        """Return how the stream of a table begins; its own settings have precedence."""
        return self.tables.get(table, _AS_SET).snapshot_mode or self.snapshot_mode

    def gaps(self, table: str) -> OnGap:
        """Return what to do where versions of a table can't be read any more."""
        on_gap = self.tables.get(table, _AS_SET).on_gap or self.on_gap
        is_needed = on_gap == "fail" and self.mode(table) == "when_needed"
        return "resnapshot" if is_needed else on_gap

    @model_validator(mode="after")
    def _topics_can_be_named(self) -> Self:
        """Refuse a template with an unknown part."""
        topic_name(self.topic, "prefix.", "a.b.c")
        for name, table in self.tables.items():
            topic_name(table.topic or self.topic, "prefix.", name)
        return self

    def topic_of(self, topics: Topics, table: str) -> str:
        """Return the topic of a table's changes.

        Raises: Misconfigured, when the name is too long for Kafka.
        """
        template = self.tables.get(table, _AS_SET).topic or self.topic
        return topics.checked(topic_name(template, topics.prefix, table), table)

    def large(self, table: str) -> LargeRows:
        """Return what to do with records that are larger than a table's topic takes."""
        return self.tables.get(table, _AS_SET).large_rows or self.large_rows

    @model_validator(mode="after")
    def _large_rows_can_be_made_small(self) -> Self:
        """Refuse to cut values that are no JSON, and to take rows out of values that are rows."""
        for name in (*self.tables, ""):
            form, policy = self.form(name), self.large(name)
            path = f"cdc.tables.{name}" if name in self.tables else "cdc"
            is_json = form.value_format in ("json", "json_schema")
            if policy in ("truncate", "claim_check") and not is_json:
                raise ValueError(
                    f"{path}.large_rows: {policy} needs value_format json or json_schema"
                )
            if policy == "claim_check" and not ENVELOPES[form.envelope].image_fields:
                raise ValueError(f"{path}.large_rows: claim_check needs envelope=debezium")
        return self

    def topic_settings(self, table: str) -> dict[str, str]:
        """Return Kafka's settings for the topic of a table, where they are not the publisher's."""
        return self.topic_properties | self.tables.get(table, _AS_SET).topic_properties

    def has_transactions(self, table: str) -> bool:
        """Return whether the stream of a table says where versions begin and end."""
        own = self.tables.get(table, _AS_SET).provide_transaction_metadata
        return self.provide_transaction_metadata if own is None else own

    def form(self, table: str) -> RecordForm:
        """Return how the records of a table are written; its own settings have precedence."""
        of_table = self.tables.get(table, _AS_SET)
        types = of_table.types or self.types
        debezium = ValueTypes(
            types,
            of_table.decimal_handling_mode or self.decimal_handling_mode,
            of_table.struct_handling or self.struct_handling,
        )
        return RecordForm(
            value_format=of_table.value_format or self.value_format,
            key_format=of_table.key_format or self.key_format,
            types=debezium if types == "debezium" else ISO,
            envelope=of_table.envelope or self.envelope,
            cloud_events=self.cloud_events
            if of_table.cloud_events is None
            else of_table.cloud_events,
            columns=ColumnRules(
                of_table.column_include_list,
                of_table.column_exclude_list,
                of_table.column_mask_list,
                of_table.column_hash_list,
                (self.column_hash_salt or "") if of_table.column_hash_list else "",
            ),
        )


def topic_name(template: str, prefix: str, table: str) -> str:
    """Return a table's topic by a template. Raises: ValueError, for an unknown part."""
    catalog, schema, name = ["", "", *table.split(".")][-3:]
    parts = {"prefix": prefix, "table": table, "catalog": catalog, "schema": schema, "name": name}
    try:
        return template.format_map(parts)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(
            f"topic: {template!r} is no template: it may have "
            f"{', '.join('{' + part + '}' for part in parts)} ({error})"
        ) from error


def _check_modes(path: str, section: Section, types: Collection[Types | None]) -> None:
    for mode in ("decimal_handling_mode", "struct_handling"):
        value = getattr(section, mode)
        if mode in section.model_fields_set and value is not None and "debezium" not in types:
            raise ValueError(
                f"{path}{mode} has an effect with Debezium's types only: set {path}types=debezium, "
                f"or leave {mode} out"
            )


class CdcSettings(ServiceSettings):
    """All settings of the publisher."""

    cdc: CdcSection = CdcSection()
