"""Check that a proposal's metaData and protocol are legal, and supported by this release."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate_committer.admission.file_checks import PROPERTY as VERIFY_FILES
from tidegate_committer.admission.file_checks import wrong_flag
from tidegate_committer.admission.group_limit_properties import wrong_limit
from tidegate_committer.admission.unsafe_writers import PROPERTY as UNSAFE_WRITERS
from tidegate_committer.admission.unsafe_writers import wrong_word
from tidegate_committer.intake.candidate import REPLACES_TABLE
from tidegate_committer.intake.proposal_actions import CheckedActions
from tidegate_committer.intake.refusals import (
    BAD_METADATA,
    BAD_PROTOCOL,
    FEATURE_NOT_LISTED,
    NOT_SUPPORTED,
    UNKNOWN_FEATURE,
    fault_in,
    flaw,
)
from tidegate_committer.policy import Policy
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.constraints.column_defaults import check_defaults
from tidegate_delta.constraints.generated_columns import check_generated
from tidegate_delta.constraints.identity_columns import check_identities
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.errors import BrokenLog, InvalidRequest, TidegateError, UnsupportedFeature
from tidegate_delta.features.supported_features import FEATURES, check_writable, unlisted_features
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import (
    reader_features,
    supported_features,
    writer_features,
)
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.types import (
    VARIANT,
    DecimalType,
    PrimitiveType,
    StructType,
    parse_schema,
    walk,
)
from tidegate_messages.outcome import Rejection

PREVIEW: Final = "-preview"
_RENEWS_ID = REPLACES_TABLE | {"RESTORE"}
"""Operations that may give the table another id. delta-spark's REPLACE TABLE does."""

_METADATA = "actions.metaData"
_PROTOCOL = "actions.protocol"


def wrong_table(
    content: CheckedActions,
    table_definition: TableDefinition | None,
    root: str,
    policy: Policy,
    named: str | None = None,
) -> Rejection | None:
    """Return why the table can't get the proposal's metadata and protocol, or None.

    `named` is the operation: some may give the table another id.
    """
    metadata = content.metadata or (table_definition.metadata if table_definition else None)
    protocol = content.protocol or (table_definition.protocol if table_definition else None)
    assert metadata is not None, "a table has metaData"
    assert protocol is not None, "a table has a protocol"
    if content.metadata is not None:
        rejection = None if named in _RENEWS_ID else _other_id(content.metadata, table_definition)
        rejection = rejection or _wrong_metadata(content.metadata, table_definition, policy)
        if rejection is not None:
            return rejection
    hidden = _hidden_from_readers(content.protocol) if content.protocol else None
    if hidden is not None:
        problem = f"lists the feature {hidden!r} for writers alone, and it binds readers"
        return flaw(BAD_PROTOCOL, _PROTOCOL, problem, "list it in readerFeatures, too")
    listed = {name.removesuffix(PREVIEW) for name in writer_features(protocol)}
    # A feature and its preview are read and written alike, so either name covers both.
    unlisted = [
        name
        for name in unlisted_features(protocol, metadata)
        if name.removesuffix(PREVIEW) not in listed
    ]
    if unlisted:
        problem = f"does not list the feature {unlisted[0]!r}, which the metadata uses"
        return flaw(FEATURE_NOT_LISTED, _PROTOCOL, problem, "list it, or leave its use out")
    try:
        check_writable(protocol, metadata, root)
    except UnsupportedFeature as error:
        known = error.feature in FEATURES
        rule = NOT_SUPPORTED if known else UNKNOWN_FEATURE
        return flaw(rule, _PROTOCOL, fault_in(error), "leave the feature out")
    except BrokenLog as error:
        return flaw(BAD_METADATA, _METADATA, fault_in(error), "write it as PROTOCOL.md spells it")
    if content.metadata is not None:
        rejection = _wrong_columns(content.metadata, protocol, table_definition)
        if rejection is not None:
            return rejection
    return _wrong_change(table_definition, Definition(metadata, protocol))


def _wrong_change(table_definition: TableDefinition | None, after: Definition) -> Rejection | None:
    """Return what is wrong with a change of the table and was not wrong before, or None.

    Dropped features are checked elsewhere.
    """
    if table_definition is not None and table_definition.features - supported_features(
        after.protocol
    ):
        return None
    flaws = check_change(table_definition.definition if table_definition else None, after)
    if not flaws:
        return None
    first = flaws[0]
    rule = BAD_PROTOCOL if first.field.startswith("protocol") else BAD_METADATA
    rejection = flaw(rule, f"actions.{first.field}", first.reason, first.remedy)
    return rejection.model_copy(update={"error_class": first.error_class or rejection.error_class})


def _hidden_from_readers(protocol: Protocol) -> str | None:
    """Return which reader-writer feature is missing from the reader features, or None."""
    listed = reader_features(protocol)
    return next(
        (
            name
            for name in sorted(protocol.writer_features or ())
            if name in FEATURES and FEATURES[name].reader_writer and name not in listed
        ),
        None,
    )


def _other_id(metadata: Metadata, table_definition: TableDefinition | None) -> Rejection | None:
    if table_definition is None or metadata.id == table_definition.metadata.id:
        return None
    return flaw(
        BAD_METADATA,
        f"{_METADATA}.id",
        f"is {metadata.id[:64]!r}, the table's is {table_definition.metadata.id!r}",
        "keep the id: only REPLACE TABLE gives a table another one",
    )


def _wrong_metadata(
    metadata: Metadata, table_definition: TableDefinition | None, policy: Policy
) -> Rejection | None:
    if metadata.format.provider != "parquet" or metadata.format.options:
        return flaw(
            BAD_METADATA,
            f"{_METADATA}.format",
            "is not plain parquet",
            "say parquet without options",
        )
    property_flaw = _wrong_property(metadata, table_definition)
    if property_flaw is not None:
        return property_flaw
    try:
        schema = parse_schema(metadata.schema_string)
        table_properties.validate(_changed_properties(metadata, table_definition))
    except InvalidRequest as error:
        return flaw(
            BAD_METADATA, f"{_METADATA}.configuration", fault_in(error), "correct the property"
        )
    except (TidegateError, ValueError, RecursionError) as error:
        return flaw(
            BAD_METADATA,
            f"{_METADATA}.schemaString",
            fault_in(error),
            "write a schema of known types",
        )
    return _wrong_schema(schema, metadata.partition_columns, policy)


def _wrong_property(
    metadata: Metadata, table_definition: TableDefinition | None
) -> Rejection | None:
    """Return what is wrong with the committer's own table properties, or None."""
    limit = wrong_limit(metadata.configuration)
    if limit is not None:
        problem = f"{limit} is {metadata.configuration[limit][:64]!r}, which limits nothing"
        remedy = "say a whole number from 1 on, or leave it out"
        return flaw(BAD_METADATA, f"{_METADATA}.configuration", problem, remedy)
    changed = _changed_properties(metadata, table_definition)
    for name, value, allowed in (
        (UNSAFE_WRITERS, wrong_word(changed), "`warn` or `halt`"),
        (VERIFY_FILES, wrong_flag(changed), "`true` or `false`"),
    ):
        if value is not None:
            problem, remedy = f"{name} is {value[:64]!r}", f"say {allowed}, or leave it out"
            return flaw(BAD_METADATA, f"{_METADATA}.configuration", problem, remedy)
    return None


def _changed_properties(
    metadata: Metadata, table_definition: TableDefinition | None
) -> Mapping[str, str]:
    """Return the properties that the proposal adds or changes: only these are checked."""
    before = (
        table_definition.metadata.configuration.items()
        if table_definition
        else frozenset[tuple[str, str]]()
    )
    return dict(metadata.configuration.items() - before)


def _wrong_columns(
    metadata: Metadata, protocol: Protocol, table_definition: TableDefinition | None
) -> Rejection | None:
    """Return which column of a new schema no writer could fill, or None."""
    if (
        table_definition is not None
        and metadata.schema_string == table_definition.metadata.schema_string
    ):
        return None
    schema, features = parse_schema(metadata.schema_string), writer_features(protocol)
    try:
        if "generatedColumns" in features:
            check_generated(schema)
        if "allowColumnDefaults" in features:
            check_defaults(schema, protocol)
        if "identityColumns" in features:
            check_identities(schema, metadata.partition_columns)
    except InvalidRequest as error:
        remedy = "define the column again"
        return flaw(BAD_METADATA, f"{_METADATA}.schemaString", fault_in(error), remedy)
    return None


def _wrong_schema(
    schema: StructType, partition_columns: Sequence[str], policy: Policy
) -> Rejection | None:
    count = sum(1 for _ in walk(schema))
    if count > policy.schema_fields_max:
        return flaw(
            BAD_METADATA,
            f"{_METADATA}.schemaString",
            f"has {count} fields, {policy.schema_fields_max} are allowed",
            "split the table",
        )
    names = [name.lower() for name in schema.names]
    if not names or len(set(names)) < len(names) or "" in names:
        return flaw(
            BAD_METADATA,
            f"{_METADATA}.schemaString",
            "has no columns, a nameless one, or two that differ in case only",
            "give each column a name of its own",
        )
    kinds = {column.name: column.kind for column in schema}
    for name in partition_columns:
        kind = kinds.get(name)
        if not isinstance(kind, PrimitiveType | DecimalType) or kind == VARIANT:
            return flaw(
                BAD_METADATA,
                f"{_METADATA}.partitionColumns",
                f"{name[:64]!r} is no column of a primitive type",
                "partition by columns of the schema",
            )
    if len(set(partition_columns)) < len(partition_columns) or len(partition_columns) == len(names):
        return flaw(
            BAD_METADATA,
            f"{_METADATA}.partitionColumns",
            "name a column twice, or every column",
            "leave at least one column for the data files",
        )
    return None
