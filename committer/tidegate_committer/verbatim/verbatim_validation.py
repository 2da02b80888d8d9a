"""Validate a verbatim entry: a file that becomes a version as it is.

Its writer read the table up to the version before, and has resolved conflicts itself. The checks
are those for another engine's version in the log, and those against what would break the table. A
check is a function of the table and the bytes; `CHECKS` holds all of them.

`line_problem` checks that each line is written as the protocol says. Our own reader is lenient.
Others are not: one value of the wrong type can keep them from the whole table. What other engines
do write is accepted.

Native groups pause for a writer whose verbatim entry came too late (verbatim priority). Such a
writer must list the log, read the winners, write its bytes again and propose again. A native group
takes a fraction of that time, so without priority the writer could lose forever. With it neither
side starves: a pause (a *hold*) has one deadline, and a native group is committed between two
holds.

    free ── refusal ──▶ held until a deadline ── every writer came again, or time is up ──▶ free
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from tidegate_committer.admission.admission_rules import partitioning_problem
from tidegate_committer.admission.feature_checks import (
    DROP_FEATURE,
    before_drop,
    in_use,
    left_in,
)
from tidegate_committer.admission.post_rebase_checks import (
    in_another_partition,
    removed_file_problem,
)
from tidegate_committer.admission.table_change_checks import files_left_behind
from tidegate_committer.intake.action_reader import (
    OUR_APPS,
    check_foreign_place,
    check_place,
    read_action,
)
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.path_checks import lies_under
from tidegate_committer.intake.proposal_actions import CheckedActions, canonical, content_of
from tidegate_committer.intake.refusals import (
    BAD_METADATA,
    BAD_PROTOCOL,
    FEATURE_IN_USE,
    MALFORMED,
    NOT_SUPPORTED,
    UNKNOWN_FEATURE,
    InvalidProposal,
    fault_in,
    flaw,
    refuse,
)
from tidegate_committer.state.log_entry import Entry, entry_of
from tidegate_committer.state.path_normal_form import path_spelling_problem
from tidegate_committer.state.table_definition import TableDefinition
from tidegate_committer.state.table_state import TableState, in_commit_timestamp
from tidegate_delta.data_skipping.column_bounds import count_problem
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.errors import BrokenLog, InvalidRequest, UnsupportedFeature
from tidegate_delta.features import in_commit_timestamps, row_tracking
from tidegate_delta.features.row_tracking import DOMAIN as ROW_TRACKING
from tidegate_delta.features.supported_features import FEATURES, check_writable
from tidegate_delta.log.actions import KINDS, Add, Cdc, CommitInfo
from tidegate_delta.log.commit import Commit, sha256
from tidegate_delta.log.file_paths import is_absolute
from tidegate_delta.properties.table_properties import append_only, in_commit_timestamps_enabled
from tidegate_delta.value_limits import AHEAD_MAX_MS, DEPTH_MAX, is_deeper, is_moment, may_be_deep
from tidegate_messages.outcome import Rejection, Status

FIELD: Final = "claim_check"

_VECTOR_FILE: Final = re.compile(r"(^|/)deletion_vector_[0-9a-f-]{36}\.bin$")
_SAID: Final = {"domainMetadata": "removed", "cdc": "dataChange"}
"""Fields that the protocol requires. Strict readers can't open the table without them."""


@dataclass(frozen=True)
class VerbatimEntry:
    """The bytes of a version, parsed: its actions, and the entry that the state will keep."""

    content: bytes
    commit: Commit
    actions: CheckedActions
    entry: Entry


@dataclass(frozen=True)
class VerbatimArrival:
    """A verbatim entry and the table that it follows. `before` and `after` are the table definition
    before and after it; there is none before a table's version 0. Under `roots` the files of a
    shallow clone may lie.

    Units: `now_ms` in ms since the Unix epoch.
    """

    candidate: Candidate
    ready: VerbatimEntry
    state: TableState
    before: TableDefinition | None
    after: TableDefinition
    now_ms: int
    roots: Sequence[str]


def parse_verbatim(version: int, content: bytes) -> VerbatimEntry | Rejection:
    """Return the parsed verbatim entry, or why its bytes are no version of a table."""
    deep = _deep_line(content)
    if deep is not None:
        problem = f"line {deep} is nested deeper than {DEPTH_MAX} levels"
        return flaw(MALFORMED, FIELD, problem, "write what is nested as text")
    try:
        commit = Commit.decode(version, content)
        actions = content_of(commit)
        entry = entry_of(commit, sha256(content), len(content))
    except BrokenLog as error:
        return flaw(
            MALFORMED, FIELD, fault_in(error), "write it as the format says, and stage it again"
        )
    except InvalidProposal as error:
        return error.rejection
    return VerbatimEntry(content, commit, actions, entry)


def _deep_line(content: bytes) -> int | None:
    """Return the number of the first line that is nested too deeply, or None."""
    for number, line in enumerate(content.split(b"\n"), 1):
        if may_be_deep(line):
            try:
                if is_deeper(orjson.loads(line), DEPTH_MAX):
                    return number
            except orjson.JSONDecodeError:
                # A torn line, or one too deep for the parser, is reported when the file is parsed.
                return None
    return None


def entry_problem(
    candidate: Candidate,
    validated: VerbatimEntry,
    state: TableState,
    now_ms: int,
    roots: Sequence[str],
) -> Rejection | None:
    """Return why a verbatim entry may not become the version after a table's head, or None."""
    metadata, protocol = validated.actions.metadata, validated.actions.protocol
    before = state.table_definition if state.version >= 0 else None
    if before is not None:
        after = before.after(metadata, protocol)
    elif metadata is not None and protocol is not None:
        after = TableDefinition(metadata, protocol)
    else:
        problem = "does not say both protocol and metaData, as a table's first version must"
        return flaw(MALFORMED, FIELD, problem, "write both into version 0")
    arrival = VerbatimArrival(candidate, validated, state, before, after, now_ms, roots)
    return next((rejection for check in CHECKS if (rejection := check(arrival))), None)


def commit_info_problem(arrival: VerbatimArrival) -> Rejection | None:
    """commitInfo comes first and once, and has the proposal's txnId."""
    actions = arrival.ready.commit.actions
    infos = arrival.ready.commit.of(CommitInfo)
    if not actions:
        return flaw(MALFORMED, FIELD, "the file is empty", "stage a commit")
    if infos and (len(infos) > 1 or actions[0] is not infos[0]):
        return flaw(MALFORMED, FIELD, "commitInfo is not its first line alone", "write it there")
    txn_id = arrival.candidate.proposal and arrival.candidate.proposal.txn_id
    written = infos[0].txn_id if infos else None
    if txn_id and written and txn_id != written:
        problem = f"is {txn_id!r}, the bytes say {written[:128]!r}"
        return flaw(MALFORMED, "txn_id", problem, "name the commitInfo's")
    return None


def is_well_spelt(arrival: VerbatimArrival) -> Rejection | None:
    """Each line is valid by the protocol, and new files lie where they may."""
    state, roots = arrival.state, arrival.roots
    return line_problem(
        arrival.ready.content,
        state.files.__contains__,
        lambda path: lies_under(path, roots) and not lies_under(path, (state.root,)),
    )


def line_problem(
    content: bytes, is_live: Callable[[str], bool], may_lie: Callable[[str], bool]
) -> Rejection | None:
    """Return the first line of a verbatim entry that is no valid action, as a refusal, or None.

    `is_live` says of a canonical path whether the file is in the table; such a file may lie
    anywhere. `may_lie` says of an absolute path whether a new file may lie there, as those of a
    shallow clone.
    Law: every line is a JSON object
    """
    try:
        for number, name, body in _bodies(content):
            _check(name, body, f"{FIELD}: line {number}: {name}", is_live, may_lie)
    except InvalidProposal as error:
        return error.rejection.model_copy(update={"field": FIELD})
    return None


def _bodies(content: bytes) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        row = orjson.loads(line)
        if all(body is None for body in row.values()):
            remedy = "leave the line out: not every reader passes over it"
            refuse(MALFORMED, f"{FIELD}: line {number}", "holds no action", remedy)
        for name, body in row.items():
            if body is not None and name in KINDS:
                yield number, name, body


def _check(
    name: str,
    body: Mapping[str, Any],
    location: str,
    is_live: Callable[[str], bool],
    may_lie: Callable[[str], bool],
) -> None:
    action = read_action(name, body, location)
    if isinstance(action, CommitInfo):
        _check_dates(body, location)
    field = _SAID.get(name)
    if field is not None and body.get(field) is None:
        remedy = "write it: not every reader takes its absence for false"
        refuse(MALFORMED, f"{location}.{field}", "is missing", remedy)
    if isinstance(action, Add):
        _check_stats(action, location)
    if isinstance(action, Add) and not is_live(canonical(action.path)):
        if action.data_change and is_absolute(action.path):
            check_foreign_place(action, location, may_lie)
        else:
            check_place(action, location)
    elif isinstance(action, Cdc):
        check_place(action, location)


def _check_dates(info: Mapping[str, Any], location: str) -> None:
    """Check only the times in commitInfo, because later versions depend on them."""
    for name in ("timestamp", "inCommitTimestamp"):
        value = info.get(name)
        if not is_moment(value):
            remedy = "give milliseconds since 1970, up to 2^53"
            refuse(MALFORMED, f"{location}.{name}", f"is {value}", remedy)


def _check_stats(add: Add, location: str) -> None:
    if not add.stats:
        return
    try:
        statistics = orjson.loads(add.stats)
    except orjson.JSONDecodeError:
        statistics = None
    problem = count_problem(statistics) if isinstance(statistics, dict) else "are no JSON object"
    if problem is not None:
        remedy = "write statistics as PROTOCOL.md spells them, or none"
        refuse(MALFORMED, f"{location}.stats", problem, remedy)


def is_not_ours(arrival: VerbatimArrival) -> Rejection | None:
    """The entry has no provenance and no application id that are reserved for the committer."""
    info = arrival.ready.commit.info
    is_ours = any(txn.app_id.startswith(OUR_APPS) for txn in arrival.ready.actions.txns)
    if not is_ours and (info is None or info.tidegate is None):
        return None
    problem = "the bytes speak of proposals in the committer's name"
    return flaw("reserved_provenance", FIELD, problem, "leave `tidegate` out of it")


def is_a_table(arrival: VerbatimArrival) -> Rejection | None:
    """The new metadata and protocol are supported, and the change is allowed."""
    before, after = arrival.before, arrival.after
    if after is before:
        return None
    known = before.definition if before is not None else None
    try:
        check_writable(after.protocol, after.metadata, arrival.state.root)
        flaws = check_change(known, after.definition, dropping=_dropped(arrival))
    except UnsupportedFeature as error:
        rule = NOT_SUPPORTED if error.feature in FEATURES else UNKNOWN_FEATURE
        return _illegal(rule, "protocol", fault_in(error), error.error_class)
    except (InvalidRequest, BrokenLog) as error:
        return _illegal(BAD_METADATA, "metaData", fault_in(error), error.error_class)
    if not flaws:
        return _still_in_use(arrival)
    first = flaws[0]
    rule = BAD_PROTOCOL if first.field.startswith("protocol") else BAD_METADATA
    return _illegal(rule, first.field, str(first), first.error_class)


def columns_keep_their_names(arrival: VerbatimArrival) -> Rejection | None:
    """Files that stay have each column by the name that the table looks for."""
    is_new = arrival.before is None
    return None if is_new else files_left_behind(arrival.ready.actions, arrival.state)


def _dropped(arrival: VerbatimArrival) -> str | None:
    """Return the single feature that a version with the operation DROP FEATURE drops, or None."""
    info = arrival.ready.commit.info
    before = arrival.before.features if arrival.before is not None else frozenset[str]()
    dropped = before - arrival.after.features
    is_drop = info is not None and info.operation == DROP_FEATURE and len(dropped) == 1
    return min(dropped) if is_drop else None


def _still_in_use(arrival: VerbatimArrival) -> Rejection | None:
    """Return what of a dropped feature is left. Its writer has checked each file."""
    dropped = _dropped(arrival)
    if dropped is None:
        return None
    left = left_in(arrival.state)
    removed_domains = {domain.domain for domain in arrival.ready.actions.domains if domain.removed}
    remains = replace(left, domains=left.domains - removed_domains)
    use = in_use({dropped}, arrival.after, remains)
    if use is None:
        return None
    remedy = before_drop({dropped})
    return flaw(FEATURE_IN_USE, f"{FIELD}.protocol", f"drops {dropped}: {use}", remedy)


def timestamp_problem(arrival: VerbatimArrival) -> Rejection | None:
    """With in-commit timestamps, the version has one, later than the last version's."""
    if not in_commit_timestamps_enabled(arrival.after.metadata):
        return None
    return _time_problem(arrival) or _enablement_problem(arrival)


def is_dated_near(arrival: VerbatimArrival) -> Rejection | None:
    """Its times are at most a day ahead of our clock: all later versions would be ahead too.

    If the table is that far ahead already, the next version may follow it.
    """
    info, last_ms = arrival.ready.commit.info, in_commit_timestamp(arrival.state)
    latest = max(arrival.now_ms + AHEAD_MAX_MS, (last_ms or 0) + 1)
    if info is None:
        return None
    for name, timestamp in (
        ("inCommitTimestamp", info.in_commit_timestamp),
        ("timestamp", info.timestamp),
    ):
        if timestamp is not None and timestamp > latest:
            problem = f"is {timestamp}, more than a day ahead of the committer's clock"
            field, remedy = f"{FIELD}: commitInfo.{name}", "set the writer's clock"
            return flaw("timestamp_ahead", field, problem, remedy)
    return None


def _time_problem(arrival: VerbatimArrival) -> Rejection | None:
    info = arrival.ready.commit.info
    timestamp = info.in_commit_timestamp if info else None
    last = arrival.state.entries.get(arrival.state.version)
    if timestamp is None:
        return flaw("no_timestamp", FIELD, "the table wants inCommitTimestamp", "write it")
    if last is not None and last.is_timed and timestamp <= (last.timestamp or 0):
        problem = f"inCommitTimestamp {timestamp} is not later than {last.timestamp}"
        return flaw(
            "timestamp_not_later", FIELD, problem, "take the greater of the clock and that + 1"
        )
    return None


def _enablement_problem(arrival: VerbatimArrival) -> Rejection | None:
    """A version that enables in-commit timestamps must state since when, or readers look for them
    in earlier versions.
    """
    if arrival.before is None:
        return None
    before, after, entry = arrival.before.metadata, arrival.after.metadata, arrival.ready.entry
    if not in_commit_timestamps.begins(before, after):
        return None
    expected = in_commit_timestamps.with_enablement(
        before, after, entry.version, entry.timestamp or 0
    )
    if expected.configuration == after.configuration:
        return None
    key, since = in_commit_timestamps.ENABLEMENT
    problem = f"turns in-commit timestamps on, and {key} and {since} do not say so"
    remedy = f"set them to {entry.version} and to its inCommitTimestamp"
    return flaw(BAD_METADATA, f"{FIELD}.metaData", problem, remedy)


def file_liveness(arrival: VerbatimArrival) -> Rejection | None:
    """Removed files are live with their vectors; added files are not live with another vector."""
    live = arrival.state.files
    actions = _without_vector_files(arrival.ready.actions, live)
    dead = removed_file_problem(actions, live)
    if dead is not None:
        return dead
    for path, _ in actions.added:
        if path in live and path not in actions.removed and live[path] != actions.vectors.get(path):
            problem = f"{path[:128]!r} is in the table with another deletion vector"
            return flaw("added_file_live", FIELD, problem, "remove the file with the one it has")
    return path_spelling_problem(actions, live, arrival.state.spelt)


def _without_vector_files(
    actions: CheckedActions, live: Mapping[str, str | None]
) -> CheckedActions:
    """Return the actions without removes of deletion vector files.

    delta-spark writes these when it drops the feature, for VACUUMs that know nothing of vectors.
    """
    kept = tuple(
        remove
        for remove in actions.removes
        if remove.data_change
        or not _VECTOR_FILE.search(remove.path)
        or canonical(remove.path) in live
    )
    if len(kept) == len(actions.removes):
        return actions
    return replace(
        actions, removes=kept, removed=frozenset(canonical(remove.path) for remove in kept)
    )


def takes_appends_only(arrival: VerbatimArrival) -> Rejection | None:
    """An append-only table loses no rows."""
    loses_rows = any(remove.data_change for remove in arrival.ready.actions.removes)
    if not loses_rows or arrival.before is None or not append_only(arrival.before.metadata):
        return None
    problem = "rows leave a table that only takes appends"
    return flaw("append_only", FIELD, problem, "unset delta.appendOnly first")


def partition_values_problem(arrival: VerbatimArrival) -> Rejection | None:
    """Each file has a value for each partition column and no other, the same when added again."""
    actions, info = arrival.ready.actions, arrival.ready.commit.info
    named = info.operation if info else None
    return partitioning_problem(actions, arrival.after, named) or in_another_partition(actions)


def rows_are_tracked(arrival: VerbatimArrival) -> Rejection | None:
    """With row tracking, new files have row ids: they are not assigned later."""
    if not arrival.after.tracks_rows:
        return None
    for add in arrival.ready.actions.adds:
        if add.base_row_id is None or add.default_row_commit_version is None:
            problem = f"{add.path[:128]!r} has no row ids, and the table tracks rows"
            return flaw("no_row_ids", FIELD, problem, "write baseRowId and defaultRowCommitVersion")
    return _mark_behind(arrival)


def _mark_behind(arrival: VerbatimArrival) -> Rejection | None:
    """The high-water mark covers all ids, because greater ids are assigned to others."""
    actions, before = arrival.ready.actions, row_tracking.high_water_mark(arrival.state.domains)
    marks = [
        row_tracking.mark_in(domain) for domain in actions.domains if domain.domain == ROW_TRACKING
    ]
    mark, greatest = marks[0] if marks else before, before
    for add in actions.adds:
        rows = row_tracking.physical_records(add.stats)
        greatest = max(greatest, (add.base_row_id or 0) + (1 if rows is None else rows) - 1)
    if mark >= greatest:
        return None
    problem = f"rows have ids up to {greatest}, and its high-water mark of row ids is {mark}"
    remedy = f"write the domain {ROW_TRACKING} with the greatest id that is given"
    return flaw("row_mark_behind", FIELD, problem, remedy)


def _illegal(rule: str, field: str, reason: str, error_class: str | None) -> Rejection:
    return Rejection(
        rule=rule,
        reason=reason,
        advice="fix",
        error_class=error_class,
        field=f"{FIELD}.{field}",
    )


VerbatimCheck = Callable[[VerbatimArrival], Rejection | None]


CHECKS: Final[tuple[VerbatimCheck, ...]] = (
    commit_info_problem,
    is_well_spelt,
    is_not_ours,
    is_a_table,
    columns_keep_their_names,
    is_dated_near,
    timestamp_problem,
    file_liveness,
    takes_appends_only,
    partition_values_problem,
    rows_are_tracked,
)
"""All must hold. The first that fails is the refusal."""


@dataclass(frozen=True)
class VerbatimPriority:
    """The writers for which native groups of a table pause; none after a takeover.

    `owed` maps each writer to the SHA-256 of its refused bytes. `is_due` says that a native group
    was committed since the last hold began, so that another hold may begin.
    Units: `until_s` by `Clock.boot_s`; `grace_s` in seconds.
    """

    grace_s: float
    owed: Mapping[str, str] = field(default_factory=dict)
    until_s: float = 0.0
    is_due: bool = True

    def holds(self, now_s: float) -> bool:
        """Return whether native groups wait."""
        return bool(self.owed) and now_s < self.until_s


@dataclass(frozen=True)
class AnsweredBytes:
    """The outcome of a verbatim entry, which is identified by its SHA-256."""

    writer: str
    sha256: str
    status: Status


def after_answer(
    priority: VerbatimPriority, answer: AnsweredBytes, now_s: float
) -> VerbatimPriority:
    """Return the priority after the outcome of a verbatim entry.

    Law: a hold's deadline never moves; the same bytes again neither end nor prolong it
    """
    if not priority.holds(now_s):
        priority = replace(priority, owed={})
    if answer.status == "rejected":
        return _after_refusal(priority, answer, now_s)
    if answer.status != "committed" and priority.owed.get(answer.writer) == answer.sha256:
        return priority
    owed = {writer: sha256 for writer, sha256 in priority.owed.items() if writer != answer.writer}
    return replace(priority, owed=owed)


def after_native_group(priority: VerbatimPriority) -> VerbatimPriority:
    """Return the priority after a native group was committed: the next refusal may begin a hold."""
    return replace(priority, is_due=True)


def _after_refusal(
    priority: VerbatimPriority, answer: AnsweredBytes, now_s: float
) -> VerbatimPriority:
    owed = {**priority.owed, answer.writer: answer.sha256}
    if priority.owed:
        return replace(priority, owed=owed)
    if priority.is_due and priority.grace_s > 0:
        return VerbatimPriority(priority.grace_s, owed, now_s + priority.grace_s, is_due=False)
    return priority
