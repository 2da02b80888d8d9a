"""Resolve a proposal's metaData: apply and remove feature directives, and list the features in use.

A writer that turns a feature on by a property need not compute the protocol. If it also writes a
protocol, nothing is changed.
"""

from dataclasses import replace

from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_delta.definitions.definition import Flaw
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import TidegateError
from tidegate_messages.outcome import Rejection


def settled(candidate: Candidate, read: TableDefinition) -> Candidate | Rejection:
    """Return the proposal with the definition that it asks for, or a refusal if it can't have that.

    Metadata that can't be parsed is left to admission, which says why.
    """
    content = candidate.content
    if content.metadata is None or content.protocol is not None:
        return candidate
    try:
        resolved = resolve_definition(read.definition, content.metadata)
    except (TidegateError, ValueError, RecursionError):
        return candidate
    if resolved.flaws:
        return _refusal(resolved.flaws[0])
    metadata, protocol = resolved.definition
    if metadata == content.metadata and protocol == read.protocol:
        return candidate
    listed = None if protocol == read.protocol else protocol
    return replace(candidate, content=replace(content, metadata=metadata, protocol=listed))


def _refusal(flaw: Flaw) -> Rejection:
    return Rejection(
        rule=flaw.rule,
        reason=f"actions.{flaw}",
        advice="fix",
        error_class=flaw.error_class,
        field=f"actions.{flaw.field}",
    )
