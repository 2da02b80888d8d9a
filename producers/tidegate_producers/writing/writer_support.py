"""Rows that a Python data source cannot write, because only Spark computes what they lack.

`Table.append` writes them: there Spark evaluates what the table asks for.
"""

from collections.abc import Collection

from tidegate_delta.constraints.row_constraints import expressions, requirements, unenforced
from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.properties.table_properties import change_feed_enabled
from tidegate_delta.schema.field_paths import same_name


def check_new_rows(
    protocol: Protocol,
    metadata: Metadata,
    root: str,
    enforced: Collection[str] = (),
    given_columns: Collection[str] = (),
) -> None:
    """Refuse rows that lack defaults, constraints or identity values, which a data source cannot
    compute.

    `enforced` are the hashes of constraints that the caller has evaluated, `given_columns`
    its columns.
    Raises: UnsupportedFeature, naming the column or constraint.
    """
    required = requirements(metadata, protocol)
    numbered = [
        identity.column
        for identity in required.identities
        if not (
            identity.allows_explicit
            and any(same_name(identity.column, name) for name in given_columns)
        )
    ]
    if numbered:
        raise UnsupportedFeature(
            f"{root} has the identity column {numbered[0]!r}, whose values this writer does not "
            "give out: write with Table.append, which does; nothing was proposed",
            feature="identityColumns",
        )
    lacks = [
        column_default
        for column_default in required.defaults
        if not any(same_name(column_default.column, name) for name in given_columns)
    ]
    if lacks:
        raise UnsupportedFeature(
            f"{root} has the default {lacks[0].expression} for column {lacks[0].column!r}, which "
            "the rows lack and this writer does not compute (feature allowColumnDefaults): write "
            "with Table.append, which does, or add the column; nothing was proposed",
            feature="allowColumnDefaults",
        )
    unevaluated = unenforced(expressions(required), enforced)
    if unevaluated:
        raise UnsupportedFeature(
            f"{root} requires {unevaluated[0]} of new rows, which this writer does not evaluate: "
            "write with Table.append, which does; nothing was proposed",
            feature="checkConstraints",
        )


def check_copies(metadata: Metadata, root: str) -> None:
    """Refuse to copy rows beside new ones if readers of the change feed would take them for new.

    Raises: UnsupportedFeature.
    """
    if change_feed_enabled(metadata):
        raise UnsupportedFeature(
            f"{root} has a change feed, which would show the rows that stay in the rewritten files "
            "as new: set delta.enableDeletionVectors, or delete the rows first and append the "
            "others; nothing was proposed",
            feature="changeDataFeed",
        )
