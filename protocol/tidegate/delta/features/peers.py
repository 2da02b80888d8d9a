"""How far other clients go with each feature, for the page that sets us beside them.

`read` means that the client reads such tables and does not write to them. A feature that binds
writers alone is read by every client that has never heard of it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

VERSIONS: Final = (
    ("delta-spark", "4.4.0"),
    ("delta-kernel-rs", "b14c3fb"),
    ("delta-rs", "1.6.6"),
)
"""The clients, and the release or commit of each of which `PEERS` tells."""


class Peers(NamedTuple):
    """What each client does with tables that have a feature.

    Spec: "Supported Features"
    """

    delta_spark: str
    kernel_rs: str
    delta_rs: str


PEERS: Final[Mapping[str, Peers]] = {
    "appendOnly": Peers("yes", "yes", "yes"),
    "invariants": Peers("yes", "tables without any", "yes"),
    "checkConstraints": Peers("yes", "read", "yes"),
    "changeDataFeed": Peers("yes", "read; writes no rows that were there", "yes"),
    "generatedColumns": Peers("yes", "read", "yes"),
    "identityColumns": Peers("yes", "read", "read"),
    "allowColumnDefaults": Peers("yes", "yes", "read"),
    "inCommitTimestamp": Peers("yes", "yes", "read"),
    "rowTracking": Peers("yes", "yes, without removals", "read"),
    "domainMetadata": Peers("yes", "yes", "read"),
    "clustering": Peers("yes", "yes", "read"),
    "checkpointProtection": Peers("yes", "read", "read"),
    "materializePartitionColumns": Peers("yes", "yes", "read"),
    "icebergCompatV1": Peers("yes", "read", "read"),
    "icebergCompatV2": Peers("yes", "read", "read"),
    "icebergCompatV3": Peers("yes", "yes", "read"),
    "icebergWriterCompatV1": Peers("read", "read", "read"),
    "icebergWriterCompatV3": Peers("read", "read", "read"),
    "collations": Peers("read", "read", "read"),
    "collations-preview": Peers("read", "read", "read"),
    "columnMappingUsageTracking": Peers("read", "read", "read"),
    "redirectWriterOnly-preview": Peers("in its tests", "read", "read"),
    "coordinatedCommits-preview": Peers("yes", "no", "no"),
    "timestampNtz": Peers("yes", "yes", "yes"),
    "vacuumProtocolCheck": Peers("yes", "yes", "read"),
    "columnMapping": Peers("yes", "yes", "read; writes in part"),
    "typeWidening": Peers("yes", "read", "no"),
    "typeWidening-preview": Peers("yes", "read", "no"),
    "deletionVectors": Peers("yes", "yes", "read; rewrites files"),
    "v2Checkpoint": Peers("yes", "yes, classic names", "read"),
    "variantType": Peers("yes", "yes", "yes"),
    "variantType-preview": Peers("yes", "yes", "yes"),
    "variantShredding": Peers("yes", "yes", "no"),
    "variantShredding-preview": Peers("yes", "yes", "no"),
    "catalogManaged": Peers("yes", "yes, no change feed", "no"),
    "catalogOwned-preview": Peers("no", "not looked at", "no"),
    "geospatial": Peers("behind a switch", "in development", "no"),
    "geospatial-dev": Peers("behind a switch", "in development", "no"),
    "timestampNanos": Peers("no", "no", "behind a build flag"),
    "redirectReaderWriter-preview": Peers("in its tests", "no", "no"),
    "adaptiveMetadata-preview": Peers("behind a switch", "in development", "no"),
}
"""By the name of the feature."""
