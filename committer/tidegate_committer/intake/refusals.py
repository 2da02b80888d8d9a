"""Refusals as values: each names the field, the rule and the remedy."""

from typing import Final, NoReturn

from tidegate_delta.errors import TidegateError, message_for
from tidegate_messages.outcome import ClientAdvice, Rejection

MALFORMED: Final = "malformed"
TOO_LARGE: Final = "too_large"
BAD_PATH: Final = "bad_path"
PLACE: Final = "place_not_allowed"
DUPLICATE: Final = "duplicate_action"
NOT_SUPPORTED: Final = "not_supported"
BAD_PREDICATE: Final = "bad_predicate"
UNKNOWN_KIND: Final = "unknown_kind"
FAULT: Final = "fault"
PARTITION_VALUES: Final = "partition_values"
BAD_METADATA: Final = "bad_metadata"
FILE_MISSING: Final = "file_missing"
FILE_SIZE: Final = "wrong_file_size"

UNKNOWN_FEATURE: Final = "unknown_feature"
FEATURE_NOT_LISTED: Final = "feature_not_listed"
RESERVED_DOMAIN: Final = "reserved_domain"
VECTORS_NOT_ALLOWED: Final = "vectors_not_allowed"
VECTOR_WITHOUT_COUNT: Final = "vector_without_count"
VECTOR_WITH_TIGHT_BOUNDS: Final = "vector_with_tight_bounds"
ROW_IDS_WITHOUT_COUNT: Final = "row_ids_without_statistics"
ROWS_WITHOUT_IDS: Final = "rows_without_ids"
DOMAINS_NOT_SUPPORTED: Final = "domains_not_supported"
BAD_PROTOCOL: Final = "bad_protocol"
FEATURE_IN_USE: Final = "feature_in_use"

NOT_ENFORCED: Final = "constraints_not_enforced"
NOT_VALIDATED: Final = "constraint_not_validated"
NULL_IN_REQUIRED: Final = "null_in_required_column"
BOUNDS_OF_VARIANTS: Final = "bounds_of_variants"
CHANGE_FILES: Final = "change_files_missing"
CDC_MODE: Final = "wrong_cdc_mode"
COLUMNS_AND_ROWS: Final = "columns_change_with_rows"

_DELTA: Final = {
    UNKNOWN_FEATURE: "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE",
    FEATURE_NOT_LISTED: "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
    VECTORS_NOT_ALLOWED: "DELTA_ADDING_DELETION_VECTORS_DISALLOWED",
    VECTOR_WITHOUT_COUNT: "DELTA_DELETION_VECTOR_MISSING_NUM_RECORDS",
    VECTOR_WITH_TIGHT_BOUNDS: "DELTA_ADDING_DELETION_VECTORS_WITH_TIGHT_BOUNDS_DISALLOWED",
    ROW_IDS_WITHOUT_COUNT: "DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS",
    DOMAINS_NOT_SUPPORTED: "DELTA_DOMAIN_METADATA_NOT_SUPPORTED",
    BAD_PROTOCOL: "DELTA_INVALID_PROTOCOL_DOWNGRADE",
    FEATURE_IN_USE: "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL",
    NULL_IN_REQUIRED: "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    DUPLICATE: "DELTA_DUPLICATE_ACTIONS_FOUND",
    PARTITION_VALUES: "DELTA_INVALID_PARTITIONING_SCHEMA",
    COLUMNS_AND_ROWS: "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",
}
"""delta-spark's error class for each rule that has one."""


def flaw(
    rule: str,
    field: str,
    problem: str,
    remedy: str,
    *,
    advice: ClientAdvice = "fix",
    path: str | None = None,
) -> Rejection:
    """Return a refusal of a proposal: the field, the rule and what to do."""
    return Rejection(
        rule=rule,
        reason=f"{field}: {problem}; {remedy}",
        advice=advice,
        error_class=_DELTA.get(rule),
        field=field,
        path=path,
    )


def fault_in(error: Exception) -> str:
    """Return what is wrong with a proposed table, without advice for existing tables."""
    return error.fault if isinstance(error, TidegateError) else message_for(error)


class InvalidProposal(ValueError):
    """Carries a flaw from the check that found it to the reader of the proposal."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.reason)
        self.rejection = rejection

    def within(self, location: str) -> "InvalidProposal":
        """Return the refusal of the same field inside of what `location` names."""
        field, reason = self.rejection.field, self.rejection.reason
        joint = "." if field else ""
        outer = {
            "field": f"{location}{joint}{field or ''}",
            "reason": f"{location}{joint}{reason}",
        }
        return InvalidProposal(self.rejection.model_copy(update=outer))


def refuse(
    rule: str, field: str, problem: str, remedy: str, *, path: str | None = None
) -> NoReturn:
    """Raise `InvalidProposal`, which the reader of the proposal catches outside of all checks."""
    raise InvalidProposal(flaw(rule, field, problem, remedy, path=path))
