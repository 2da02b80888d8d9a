"""Adds a CHECK constraint to a table whose rows all satisfy it."""

from collections.abc import Callable

from tidegate_delta.constraints.row_constraints import (
    PREFIX,
    add_check,
    checks,
    expressions,
    hashes,
    requirements,
)
from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import InvalidRequest
from tidegate_messages.metadata_patch import MetadataPatch
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Operation
from tidegate_producers.options import TableLocation
from tidegate_producers.writing.alter_table import change, opened
from tidegate_producers.writing.constraint_attestation import Attestation, with_attestation
from tidegate_producers.writing.table_write import WriteRequest, stamp_for
from tidegate_runtime.client import proposal_drafts
from tidegate_runtime.client.client import Client, result

CountViolations = Callable[[int], int]
"""Returns how many rows of a version do not satisfy the constraint."""


def add_constraint(
    client: Client,
    place: TableLocation,
    name: str,
    expression: str,
    violations: CountViolations,
    request: WriteRequest,
) -> Outcome:
    """Propose a CHECK constraint, after counting the rows that violate it, and return the outcome.

    Rows that others add meanwhile make it conflict, unless they were held to it.
    Raises: InvalidRequest, for a name that is taken, or rows that violate it; Rejected;
    OutcomeUnknown; UnsupportedFeature; Unavailable.
    """
    target, live_keys = opened(client, place, request)
    metadata = add_check(live_keys.metadata, name, expression)
    wrong = violations(target.read_version)
    if wrong:
        raise InvalidRequest(
            f"{wrong} rows of {place.root} violate the new CHECK constraint {name!r} "
            f"({expression}): correct or delete them first; nothing was proposed",
            error_class="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
        )
    old_definition = Definition(live_keys.metadata, live_keys.protocol)
    new_definition = resolve_definition(old_definition, metadata).definition
    constraint_hashes = hashes(
        expressions(requirements(new_definition.metadata, new_definition.protocol))
    )
    operation = Operation(name="ADD CONSTRAINT", parameters={"name": name, "expr": expression})
    key = f"{PREFIX}{name.lower()}"
    patch = MetadataPatch(changes=(change(op="set_property", key=key, value=expression),))
    body = proposal_drafts.Body(operation, reads=proposal_drafts.WHOLE_TABLE, patch=patch)
    proposal = proposal_drafts.of_body("commit", target, stamp_for(client, request), body)
    proposal = with_attestation(proposal, Attestation(tuple(constraint_hashes)))
    return result(client.propose(proposal, request.timeout_s))


def drop_constraint(
    client: Client, place: TableLocation, name: str, request: WriteRequest
) -> Outcome:
    """Propose to drop a CHECK constraint, and return the outcome. Raises: as `add_constraint`."""
    target, live_keys = opened(client, place, request)
    key = next(
        (
            key
            for key in live_keys.metadata.configuration
            if key.lower() == f"{PREFIX}{name}".lower()
        ),
        None,
    )
    if key is None:
        names = [constraint.name for constraint in checks(live_keys.metadata)]
        raise InvalidRequest(
            f"there is no CHECK constraint {name!r}; there are: {', '.join(names) or 'none'}; "
            "nothing was proposed",
            error_class="DELTA_CONSTRAINT_DOES_NOT_EXIST",
        )
    patch = MetadataPatch(changes=(change(op="unset_property", key=key),))
    parameters = {"name": name, "expr": live_keys.metadata.configuration[key]}
    operation = Operation(name="DROP CONSTRAINT", parameters=dict(parameters))
    body = proposal_drafts.Body(operation, reads=proposal_drafts.NOTHING, patch=patch)
    proposal = proposal_drafts.of_body("commit", target, stamp_for(client, request), body)
    return result(client.propose(proposal, request.timeout_s))
