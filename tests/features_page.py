"""Writes `docs/features.md`, the page about features and properties, from the tables in code.

    python -m tests.features_page      # prints the page; `make docs` writes it

`tests/house/test_features_page.py` holds the page to the code.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from tidegate_cdc_publisher import key_columns
from tidegate_committer.admission.tidegate_properties import (
    GROUP_LIMITS,
    UNSAFE_WRITERS,
    VERIFY_FILES,
)
from tidegate_delta.features.feature import Feature
from tidegate_delta.features.supported_features import FEATURES
from tidegate_delta.properties.property import Property
from tidegate_delta.properties.table_properties import ALL

VERSIONS: Final = (("delta-spark", "4.4.0"), ("delta-kernel-rs", "b14c3fb"), ("delta-rs", "1.6.6"))
"""The clients that `PEERS` describes, each with its release or commit."""


class OtherClients(NamedTuple):
    """What each client does with tables that have a feature."""

    delta_spark: str
    kernel_rs: str
    delta_rs: str


NOT_EXAMINED: Final = OtherClients("not examined", "not examined", "not examined")

PEERS: Final[Mapping[str, OtherClients]] = {
    "appendOnly": OtherClients("yes", "yes", "yes"),
    "invariants": OtherClients("yes", "tables without any", "yes"),
    "checkConstraints": OtherClients("yes", "read", "yes"),
    "changeDataFeed": OtherClients("yes", "read; writes no rows that were there", "yes"),
    "generatedColumns": OtherClients("yes", "read", "yes"),
    "identityColumns": OtherClients("yes", "read", "read"),
    "allowColumnDefaults": OtherClients("yes", "yes", "read"),
    "inCommitTimestamp": OtherClients("yes", "yes", "read"),
    "rowTracking": OtherClients("yes", "yes, without removals", "read"),
    "domainMetadata": OtherClients("yes", "yes", "read"),
    "clustering": OtherClients("yes", "yes", "read"),
    "checkpointProtection": OtherClients("yes", "read", "read"),
    "materializePartitionColumns": OtherClients("yes", "yes", "read"),
    "icebergCompatV1": OtherClients("yes", "read", "read"),
    "icebergCompatV2": OtherClients("yes", "read", "read"),
    "icebergCompatV3": OtherClients("yes", "yes", "read"),
    "icebergWriterCompatV1": OtherClients("read", "read", "read"),
    "icebergWriterCompatV3": OtherClients("read", "read", "read"),
    "collations": OtherClients("read", "read", "read"),
    "collations-preview": OtherClients("read", "read", "read"),
    "columnMappingUsageTracking": OtherClients("read", "read", "read"),
    "redirectWriterOnly-preview": OtherClients("in its tests", "read", "read"),
    "coordinatedCommits-preview": OtherClients("yes", "no", "no"),
    "timestampNtz": OtherClients("yes", "yes", "yes"),
    "vacuumProtocolCheck": OtherClients("yes", "yes", "read"),
    "columnMapping": OtherClients("yes", "yes", "read; writes in part"),
    "typeWidening": OtherClients("yes", "read", "no"),
    "typeWidening-preview": OtherClients("yes", "read", "no"),
    "deletionVectors": OtherClients("yes", "yes", "read; rewrites files"),
    "v2Checkpoint": OtherClients("yes", "yes, classic names", "read"),
    "variantType": OtherClients("yes", "yes", "yes"),
    "variantType-preview": OtherClients("yes", "yes", "yes"),
    "variantShredding": OtherClients("yes", "yes", "no"),
    "variantShredding-preview": OtherClients("yes", "yes", "no"),
    "catalogManaged": OtherClients("yes", "yes, no change feed", "no"),
    "catalogOwned-preview": OtherClients("no", "not examined", "no"),
    "geospatial": OtherClients("behind a switch", "in development", "no"),
    "geospatial-dev": OtherClients("behind a switch", "in development", "no"),
    "timestampNanos": OtherClients("no", "no", "behind a build flag"),
    "redirectReaderWriter-preview": OtherClients("in its tests", "no", "no"),
    "adaptiveMetadata-preview": OtherClients("behind a switch", "in development", "no"),
}
"""Behaviour of other clients by the name of the feature."""


PAGE: Final = "docs/features.md"

_TITLE: Final = """\
# Features and properties

Made of `delta/features/supported_features.py`, `delta/properties/table_properties.py` and
`tests/features_page.py`; do not edit: change those and run `make docs`.
"""

_SUPPORT: Final = """\
## What is read and written

*While inactive*: the name in a protocol is no obstacle as long as the table does not use the
feature. What is not listed is refused by name, for writing, and for reading where readers must know
it. *read*, of another client, means that it reads such tables and does not write to them.
"""

_RULES: Final = """\
## What Delta asks

*versions*: the reader and writer version that imply the feature where a protocol has no lists.
*lists itself*: metadata that uses it brings it, and all that it needs, into the protocol; the
others are added by hand, with the property `delta.feature.NAME` = supported. *dropped*: whether
DROP FEATURE is possible; *with its history*: old versions still need it, so that they are cut off,
or protected by `checkpointProtection`. *stops others*: a transaction that read the table before the
feature was added must not be committed after it.
"""

_PROPERTIES: Final = """\
## Properties

Keys that begin with `delta.` are known without regard to case and kept as written here. What
is not listed is kept as it is. `delta.feature.NAME`, `delta.minReaderVersion`,
`delta.minWriterVersion` and `delta.ignoreProtocolDefaults` are instructions: they are obeyed, and
never kept.
"""

_OWN: Final = """\
## Tidegate's own properties

They are set like all others: `tidegate table alter NAME --property KEY=VALUE`.
"""

OWN_PROPERTIES: Final[Mapping[str, tuple[str, str]]] = {
    key_columns.PROPERTY: (
        "a list such as `carrier, flight`",
        "the key columns of the table's [changes](changes.md#keys); "
        "`cdc.tables.<name>.key_columns` overrides it",
    ),
    **{
        key: ("a positive whole number", f"lowers `committer.{limit}` for the table")
        for key, limit in GROUP_LIMITS.items()
    },
    UNSAFE_WRITERS: ("warn or halt", "overrides `committer.unsafe_writers` for the table"),
    VERIFY_FILES: (
        "true or false",
        "for every proposal to the table the committer checks that its new files are there and "
        "have their size ([more](stream-writers.md#what-nobody-checks-for-you))",
    ),
}
"""Key -> what its value is, what it does."""


def features_page() -> str:
    """Return the page about features and properties, as Markdown."""
    clients = [f"{name} {version}" for name, version in VERSIONS]
    support = _table(
        ["feature", "what it is", "read", "written", *clients],
        (
            [f"`{row.name}`", row.capability, *_ours(row), *PEERS.get(row.name, NOT_EXAMINED)]
            for row in _rows()
        ),
    )
    rules = _table(
        [
            "feature",
            "known to",
            "versions",
            "used where",
            "lists itself",
            "needs",
            "dropped",
            "stops others",
        ],
        (_rule_cells(row) for row in _rows()),
    )
    properties = _table(
        ["property", "is", "default", "counts", "turns on"],
        (_property_cells(prop) for prop in sorted(ALL, key=lambda prop: prop.key.lower())),
    )
    own = _table(
        ["property", "is", "does"], ([f"`{key}`", *cells] for key, cells in OWN_PROPERTIES.items())
    )
    parts = (_TITLE, _SUPPORT, support, _RULES, rules, _PROPERTIES, properties, _OWN, own)
    return "\n".join(parts)


def _rows() -> Iterable[Feature]:
    return FEATURES.values()


def _ours(row: Feature) -> tuple[str, str]:
    return row.reads.value, row.writes.value


def _rule_cells(row: Feature) -> list[str]:
    listed = "no"
    if row.enables_itself:
        listed = "yes" if row.enables_itself_later else "in new tables"
    drop = "no"
    if row.is_removable:
        drop = "with its history" if row.leaves_traces else "yes"
    return [
        f"`{row.name}`",
        row.kind.value,
        ", ".join(map(str, row.legacy)) if row.legacy else "",
        row.used_by,
        listed,
        ", ".join(f"`{name}`" for name in row.needs),
        drop,
        "yes" if row.fails_concurrent else "no",
    ]


def _property_cells(prop: Property[Any]) -> list[str]:
    enables = next((f"`{row.name}`" for row in _rows() if row.switch is prop), "")
    expected = prop.expected if prop.settable else f"{prop.expected}, set by engines alone"
    return [f"`{prop.key}`", expected, _value(prop.default), prop.unit, enables]


def _value(default: object) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    if default is None or (isinstance(default, tuple | Mapping) and not default):
        return ""
    return f"{default:,}".replace(",", " ") if isinstance(default, int) else str(default)


def _table(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(features_page())
