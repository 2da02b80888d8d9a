"""Check that a proposal's metaData and protocol are legal, and supported by this release.

Enabling or disabling row tracking or column mapping requires something of existing files. With row
tracking every file has row ids; once it is dropped, none has. The log says of each file whether it
has some, but the state does not, so the version read is scanned once. Each file has its columns
under the names by which they were mapped when it was written. A proposal that maps them otherwise
must rewrite all files in the same version.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate_committer.admission.feature_checks import DROP_FEATURE
from tidegate_committer.admission.tidegate_properties import UNSAFE_WRITERS as UNSAFE_WRITERS
from tidegate_committer.admission.tidegate_properties import VERIFY_FILES as VERIFY_FILES
from tidegate_committer.admission.tidegate_properties import (
    group_limit_problem,
    unsafe_writers_problem,
    verify_files_problem,
)
from tidegate_committer.intake.candidate import REPLACES_TABLE, Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions
from tidegate_committer.intake.refusals import (
    BAD_METADATA,
    BAD_PROTOCOL,
    FEATURE_NOT_LISTED,
    NOT_SUPPORTED,
    ROWS_WITHOUT_IDS,
    UNKNOWN_FEATURE,
    fault_in,
    flaw,
)
from tidegate_committer.policy import Policy
from tidegate_committer.state.metadata_diff import columns_by_physical
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState
from tidegate_delta.constraints.column_defaults import check_defaults
from tidegate_delta.constraints.generated_columns import check_generated
from tidegate_delta.constraints.identity_columns import check_identities
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.errors import BrokenLog, InvalidRequest, TidegateError, UnsupportedFeature
from tidegate_delta.features import row_tracking
from tidegate_delta.features.supported_features import FEATURES, check_writable, unlisted_features
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import (
    reader_features,
    supported_features,
    writer_features,
)
from tidegate_delta.properties import table_properties
from tidegate_delta.schema.column_mapping import mode_of
from tidegate_delta.schema.field_paths import FieldPath, dotted
from tidegate_delta.schema.types import (
    VARIANT,
    DecimalType,
    PrimitiveType,
    StructType,
    parse_schema,
    walk,
)
from tidegate_messages.metadata_patch import SetProperty
from tidegate_messages.outcome import Rejection

PREVIEW: Final = "-preview"
_RENEWS_ID = REPLACES_TABLE | {"RESTORE"}
"""Operations that may give the table another id. delta-spark's REPLACE TABLE does."""

_METADATA = "actions.metaData"
_PROTOCOL = "actions.protocol"


def table_change_problem(
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
        rejection = rejection or _metadata_problem(content.metadata, table_definition, policy)
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
        rejection = _columns_problem(content.metadata, protocol, table_definition)
        if rejection is not None:
            return rejection
    return _change_problem(table_definition, Definition(metadata, protocol))


def _change_problem(
    table_definition: TableDefinition | None, after: Definition
) -> Rejection | None:
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


def _metadata_problem(
    metadata: Metadata, table_definition: TableDefinition | None, policy: Policy
) -> Rejection | None:
    if metadata.format.provider != "parquet" or metadata.format.options:
        return flaw(
            BAD_METADATA,
            f"{_METADATA}.format",
            "is not plain parquet",
            "say parquet without options",
        )
    property_flaw = _property_problem(metadata, table_definition)
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
    return _schema_problem(schema, metadata.partition_columns, policy)


def _property_problem(
    metadata: Metadata, table_definition: TableDefinition | None
) -> Rejection | None:
    """Return what is wrong with the committer's own table properties, or None."""
    limit = group_limit_problem(metadata.configuration)
    if limit is not None:
        problem = f"{limit} is {metadata.configuration[limit][:64]!r}, which limits nothing"
        remedy = "say a whole number from 1 on, or leave it out"
        return flaw(BAD_METADATA, f"{_METADATA}.configuration", problem, remedy)
    changed = _changed_properties(metadata, table_definition)
    for name, value, allowed in (
        (UNSAFE_WRITERS, unsafe_writers_problem(changed), "`warn` or `halt`"),
        (VERIFY_FILES, verify_files_problem(changed), "`true` or `false`"),
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


def _columns_problem(
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


def _schema_problem(
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


_WRITE_ANEW: Final = "remove every file in the same version, and write its rows again"
_OTHER_MODE: Final = "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE"


def depends_on_row_ids(candidate: Candidate, state: TableState) -> bool:
    """Return whether a proposal depends on which files have row ids."""
    if not (candidate.changes_definition and state.remembers(candidate.read_version)):
        return False
    return drops_row_ids(candidate, state) or _turns_on(candidate, state)


def drops_row_ids(candidate: Candidate, state: TableState) -> bool:
    """Return whether a proposal would drop row tracking from the table that it read."""
    protocol = candidate.content.protocol
    if candidate.operation != DROP_FEATURE or protocol is None or row_tracking.supports(protocol):
        return False
    if not state.remembers(candidate.read_version):
        return False
    return row_tracking.FEATURE in state.table_definition_at(candidate.read_version).features


def _turns_on(candidate: Candidate, state: TableState) -> bool:
    """Return whether a proposal enables row tracking on a table where it is disabled."""
    if row_tracking.is_enabled(state.table_definition_at(candidate.read_version).metadata):
        return False
    metadata, patch = candidate.content.metadata, candidate.patch
    keys = list(metadata.configuration) if metadata else []
    if patch is not None:
        keys += [change.key for change in patch.changes if isinstance(change, SetProperty)]
    # Property names get their canonical case later.
    return row_tracking.ENABLED.lower() in map(str.lower, keys)


def rows_without_ids(candidate: Candidate, state: TableState) -> Rejection | None:
    """Return why row tracking can't be enabled, or None: some existing rows have no ids.

    Readers fail at a file without row ids if the table says that each row has one.
    """
    metadata = candidate.content.metadata
    if metadata is None or not row_tracking.is_enabled(metadata):
        return None
    if row_tracking.is_enabled(state.table_definition.metadata):
        return None
    row_ids = state.row_ids.get(candidate.read_version)
    if row_ids is None or len(state.files) == len(candidate.content.removed):
        return None
    lacked = row_ids.lacked or _added_without_ids(candidate, state)
    if not lacked:
        return None
    problem = f"turns on {row_tracking.ENABLED}: {lacked}"
    remedy = (
        "give every file row ids first (list the feature rowTracking, then add the files again as "
        "`ROW TRACKING BACKFILL`), or copy the rows into a new table"
    )
    return flaw(ROWS_WITHOUT_IDS, "metaData.configuration", problem, remedy)


def files_left_behind(content: CheckedActions, state: TableState) -> Rejection | None:
    """Return why files that stay could no longer be read, or None."""
    after, before = content.metadata, state.table_definition.metadata
    if after is None or mode_of(after) is mode_of(before):
        return None
    if len(state.files) == sum(path in state.files for path in content.removed):
        return None
    names, known = _names_in_files(after), _names_in_files(before)
    moved = [path for path in sorted(names.keys() & known.keys()) if names[path] != known[path]]
    if not moved:
        return None
    change = f"{mode_of(before).value} to {mode_of(after).value}"
    problem = (
        f"maps columns otherwise ({change}), and files have {dotted(moved[0])!r} by another name"
    )
    rejection = flaw(BAD_METADATA, "actions.metaData.configuration", problem, _WRITE_ANEW)
    return rejection.model_copy(update={"error_class": _OTHER_MODE})


def _names_in_files(metadata: Metadata) -> Mapping[FieldPath, FieldPath]:
    """Return the path of each column in the data files, by its logical path."""
    return {column.path: physical for physical, column in columns_by_physical(metadata).items()}


def _added_without_ids(candidate: Candidate, state: TableState) -> str:
    """Return which version after the read version added files without row ids, in words."""
    for entry in state.since(candidate.read_version):
        if entry.added and not state.table_definition_at(entry.version).tracks_rows:
            return f"version {entry.version} added files without row ids"
    return ""
