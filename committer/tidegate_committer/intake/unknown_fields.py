"""Refuse fields of a proposal that this release does not know: one may request a protection.

The actions are left out: PROTOCOL.md lets them have fields that a release does not know.
"""

from collections.abc import Mapping
from typing import Final

from tidegate_committer.intake.refusals import NOT_SUPPORTED, flaw
from tidegate_messages.codec import FORMATS
from tidegate_messages.message import Message
from tidegate_messages.metadata_patch import MetadataPatch
from tidegate_messages.outcome import Rejection
from tidegate_messages.proposal import Proposal
from tidegate_messages.read_set import ReadSet
from tidegate_messages.row_mapping import RowMapping

_NAME_CHARS: Final = 64
_OBJECTS: Final[Mapping[type[Message], tuple[str, ...]]] = {
    Proposal: ("operation", "reads", "claim_check", "app_txn", "metadata_patch"),
}
"""The fields of a message that hold one."""

_LISTS: Final[Mapping[type[Message], tuple[str, ...]]] = {
    Proposal: ("app_txns", "dv_intents", "identity_usage", "identity_leases", "row_mapping"),
    RowMapping: ("sources",),
    MetadataPatch: ("changes",),
}
"""The fields of a message that hold a list of them."""


def unknown_field(message: Message, location: str = "") -> Rejection | None:
    """Return the refusal of a message's first unknown field, or None. `location` is its place."""
    if message.model_extra:
        return _refused(message, f"{location}{min(message.model_extra)[:_NAME_CHARS]}")
    kind, fields = type(message), vars(message)
    for name in _OBJECTS.get(kind, ()):
        child = fields[name]
        if child is not None and (child.model_extra or type(child) in _LISTS):
            rejection = unknown_field(child, f"{location}{name}.")
            if rejection is not None:
                return rejection
    for name in _LISTS.get(kind, ()):
        if fields[name]:
            for index, child in enumerate(fields[name]):
                rejection = unknown_field(child, f"{location}{name}[{index}].")
                if rejection is not None:
                    return rejection
    return None


def _refused(message: Message, field: str) -> Rejection:
    kind = type(message)
    if kind is ReadSet:
        # It may say that more was read, and no conflict check would see that.
        problem = f"is not known: a read set has {', '.join(ReadSet.model_fields)}"
        remedy = "correct the name, say `whole_table`, or upgrade the committer"
        return flaw(NOT_SUPPORTED, field, problem, remedy)
    if kind is Proposal:
        problem = f"is not a field of {FORMATS[Proposal]}"
    else:
        problem = f"is not known: there are {', '.join(kind.model_fields)}"
    remedy = "correct the name (the schema lists all fields), or upgrade the committer"
    return flaw(NOT_SUPPORTED, field, problem, remedy)
