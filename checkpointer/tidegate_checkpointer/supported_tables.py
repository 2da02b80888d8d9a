"""Which tables we checkpoint: those whose features do not change what a checkpoint holds."""

from typing import Final

from tidegate_delta.errors import UnsupportedFeature
from tidegate_delta.features.supported_features import FEATURES, Support, check_readable
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.protocol_versions import reader_features, writer_features
from tidegate_delta.properties.table_properties import checkpoint_policy

V2_CHECKPOINT: Final = "v2Checkpoint"


def check_checkpointable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Refuse a table whose log we can't summarise.

    Raises: UnsupportedFeature, which names the first unsupported feature.
    """
    check_readable(protocol, metadata, table)
    for name in sorted(writer_features(protocol)):
        feature = FEATURES.get(name)
        if feature is None or feature.writes is Support.NO:
            raise _refusal(table, name)
    if wants_v2(metadata) and V2_CHECKPOINT not in reader_features(protocol):
        raise _refusal(table, V2_CHECKPOINT)


def wants_v2(metadata: Metadata) -> bool:
    """Return whether a table asks for V2 checkpoints."""
    return bool(checkpoint_policy(metadata) == "v2")


def _refusal(table: str, feature: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"table {table} uses the feature {feature!r}, under which this release writes no "
        "checkpoints, log compactions or checksums: let another engine write them, or drop the "
        "feature from the table",
        feature=feature,
    )
