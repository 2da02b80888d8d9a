"""Runs one case of the conflict vectors and returns what this committer decides.

For external test harnesses. It runs the same rules, admission checks and encoding as the service,
over a log given as lists.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import orjson

from tidegate_committer.admission.constraint_checks import new_files
from tidegate_committer.admission.identity_allocation import ends
from tidegate_committer.conflicts.conflict_rules import CONCURRENT
from tidegate_committer.decision.decision_types import Verdict
from tidegate_committer.decision.machine import DecisionTerms, VersionLanded, evolve, plan
from tidegate_committer.decision.steps import with_resolved_definition
from tidegate_committer.group_commit.entry_encoding import Attempt, EntryWriter, encode
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.identity_leases import LeasedBlocks
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.intake.refusals import NOT_SUPPORTED
from tidegate_committer.policy import Policy
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState, with_full_adds
from tidegate_delta.constraints.identity_columns import IdentityColumn
from tidegate_delta.errors import TidegateError, UnsupportedFeature
from tidegate_delta.features.supported_features import check_writable
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.schema.partition_values import lacks_zone
from tidegate_delta.schema.types import TIMESTAMP
from tidegate_messages.codec import encode as to_value
from tidegate_messages.proposal import IdentityBlock, IdentityUsage, Operation, Proposal, ReadSet

_ID: Final = UUID(int=1)
_ROOT: Final = "memory://judged/table"
_ORIGIN: Final = EntryWriter(_ID, "judged/proposals/0", "tidegate/proposals/0", "Tidegate")
_POLICY: Final = Policy(weakest_isolation="SnapshotIsolation")


def judge(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict on a case of the conflict vectors, in the vectors' own terms.

    Raises: UnsupportedFeature, naming a feature that the case's table needs.
    """
    case = _by_utc(case)
    state = _table(case)
    candidate = _candidate(case, state.table_definition)
    written = case.get("winner_mtimes_ms") or ()
    for place, actions in enumerate(case["winners"]):
        state = _after(state, actions, written[place] if place < len(written) else None)
    since = range(candidate.read_version + 1, state.version + 1)
    state = with_full_adds(state, (_commit(at, case["winners"][at - since.start]) for at in since))
    state = replace(state, leases=state.leases.changed(_leases(candidate)))
    decided = plan(state, [candidate], _POLICY, DecisionTerms(_now_ms(state), refusals_max=1))
    [verdict] = decided.verdicts
    if verdict.status != "committed":
        return _refused(verdict)
    encoded = encode(state, decided.group, _ORIGIN, Attempt(_ID, _now_ms(state)))
    rows = [orjson.loads(line) for line in encoded.content.splitlines()]
    own = [row for row in rows if row.get("txn", {}).get("appId") != _ORIGIN.app_id]
    return {
        "verdict": "committed",
        "error_class": None,
        "committed": list(map(_in_their_words, own)),
        "version": encoded.entry.version,
    }


def _by_utc(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a case with `Z` added to timestamp partition values that name no time zone.

    delta-spark's session ran in UTC. The service does not know the session's time zone and takes
    such a value as a moment in every zone.
    """
    definitions = [row["metaData"] for row in case["table"]["base"][0] if row.get("metaData")]
    moments = {name for definition in definitions for name in _moments(definition)}
    if not moments:
        return case

    def with_zones(row: Mapping[str, Any]) -> Mapping[str, Any]:
        if not row.get("add"):
            return row
        values = {
            name: f"{text}Z" if name in moments and lacks_zone(text, TIMESTAMP) else text
            for name, text in (row["add"].get("partitionValues") or {}).items()
        }
        return {"add": {**row["add"], "partitionValues": values}}

    base, winners = (
        [[with_zones(row) for row in version] for version in versions]
        for versions in (case["table"]["base"], case["winners"])
    )
    return {**case, "table": {**case["table"], "base": base}, "winners": winners}


def _moments(definition: Mapping[str, Any]) -> Iterator[str]:
    """Yield the timestamp partition columns of a definition, by logical and by physical name."""
    names = {name.lower() for name in definition.get("partitionColumns") or ()}
    for field in orjson.loads(definition["schemaString"]).get("fields", ()):
        if field["type"] == "timestamp" and field["name"].lower() in names:
            yield field["name"]
            about = field.get("metadata") or {}
            yield about.get("delta.columnMapping.physicalName", field["name"])


def _in_their_words(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an action as delta-spark writes it: without null partition values in a `remove`."""
    values = row.get("remove", {}).get("partitionValues")
    if not values:
        return row
    result = {name: value for name, value in values.items() if value is not None}
    return {"remove": {**row["remove"], "partitionValues": result}}


def _table(case: Mapping[str, Any]) -> TableState:
    state = TableState(_ID, _ROOT, _POLICY.window)
    for actions in case["table"]["base"]:
        state = _after(state, actions)
    check_writable(state.table_definition.protocol, state.table_definition.metadata, case["name"])
    return state


def _after(
    state: TableState, actions: Sequence[Mapping[str, Any]], written_ms: int | None = None
) -> TableState:
    content = _content(actions)
    commit = Commit.decode(state.version + 1, content)
    entry = entry_of(commit, sha256(content), len(content))
    return evolve(state, VersionLanded(entry, None if entry.is_timed else written_ms))


def _commit(version: int, actions: Sequence[Mapping[str, Any]]) -> Commit:
    return Commit.decode(version, _content(actions))


def _content(actions: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(action) + b"\n" for action in actions)


def _candidate(case: Mapping[str, Any], table_definition: TableDefinition) -> Candidate:
    reads = {name: result for name, result in case["reads"].items() if result is not None}
    operation = {name: result for name, result in case["operation"].items() if result is not None}
    proposal = Proposal(
        proposal_id=_ID,
        table=_ID,
        table_root=_ROOT,
        table_id=table_definition.metadata.id,
        read_version=case["read_version"],
        operation=Operation.model_validate(operation),
        actions=tuple(case["actions"]),
        reads=ReadSet(
            whole_table=reads.get("whole_table", False),
            predicates=tuple(item["ast"] for item in reads.get("predicates", ())),
            files=tuple(reads.get("files", ())),
            app_ids=tuple(reads.get("app_ids", ())),
            domains=tuple(reads.get("domains", ())),
        ),
    )
    candidate = _read(proposal)
    return (
        candidate if candidate.flaw else _read(_vouched_for(proposal, candidate, table_definition))
    )


def _vouched_for(
    proposal: Proposal, candidate: Candidate, table_definition: TableDefinition
) -> Proposal:
    """Return a proposal with the attestations that a transaction of delta-spark does not carry.

    They say that the writer enforced the table's constraints, that the row changes follow from its
    adds and removes if it writes no change files, and that identity values come from its lease.
    """
    content = candidate.content
    after = _left_by(candidate, table_definition)
    try:
        vouched: dict[str, Any] = {"constraints_enforced": tuple(sorted(after.expressions))}
        if after.feeds_changes and not content.changes:
            vouched["cdc_mode"] = "implicit"
        vouched["identity_usage"] = tuple(_used(candidate, after.numbered.values()))
    except (TidegateError, ValueError):
        # Admission refuses a schema that cannot be parsed.
        return proposal
    return proposal.model_copy(update=vouched)


def _left_by(candidate: Candidate, table_definition: TableDefinition) -> TableDefinition:
    """Return the table definition after a proposal, with the features that its metadata needs."""
    result = with_resolved_definition(candidate, table_definition)
    content = result.content if isinstance(result, Candidate) else candidate.content
    return table_definition.after(content.metadata, content.protocol)


def _used(candidate: Candidate, columns: Iterable[IdentityColumn]) -> Iterator[IdentityUsage]:
    """Yield each identity column's range in new files, by statistics, else its start value."""
    files = [orjson.loads(add.stats or "{}") for add in new_files(candidate)]
    for column in columns:
        values = [value for file in files for value in ends(file, column.physical)]
        if files and not column.allows_explicit:
            low, high = min(values, default=column.start), max(values, default=column.start)
            yield IdentityUsage(column=column.physical, low=low, high=high, lease=_ID)


def _leases(candidate: Candidate) -> Mapping[UUID, LeasedBlocks]:
    """Return the lease that the proposal's identity values are from, if it has any."""
    used = candidate.proposal.identity_usage if candidate.proposal else ()
    blocks = [
        IdentityBlock(column=item.column, first=item.low, step=1, count=item.high - item.low + 1)
        for item in used
    ]
    return {_ID: LeasedBlocks(tuple(blocks))} if blocks else {}


def _read(proposal: Proposal) -> Candidate:
    candidate = read_record(to_value(proposal), 0, _POLICY)
    assert isinstance(candidate, Candidate), "the case is a proposal"
    return candidate


def _refused(verdict: Verdict) -> dict[str, Any]:
    rejection = verdict.rejection
    assert rejection is not None, "what is not committed says why"
    if rejection.rule == NOT_SUPPORTED:
        raise UnsupportedFeature(rejection.reason, feature=rejection.field or "")
    return {
        "verdict": "conflict" if rejection.exception in CONCURRENT else "invalid",
        "error_class": rejection.error_class or rejection.rule,
        "committed": None,
        "winner_version": rejection.winner_version,
    }


def _now_ms(state: TableState) -> int:
    return state.timestamp + 1
