"""Invariants of the tables and the topics, whatever faults happened: named predicates.

They see what anyone can see, bytes in the stores and records on the topics, and share no code with
the committer. A predicate returns a sentence when it is violated, None when it holds.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from tests.linearizability.checker import Unexplained, explain
from tests.simulation.history import (
    History,
    Log,
    PublishedOutcome,
    Rows,
    Sent,
    commit_path,
    info_of,
    paths_of,
)
from tests.simulation.identity_invariants import changes_are_declared, values_apart
from tests.simulation.row_writers import rows_of


def exactly_once(history: History) -> str | None:
    """I1: an id is in at most one entry, once; no other entry adds a file that it added."""
    seen: dict[str, tuple[str, int]] = {}
    for root, version, _, one in history.accepted():
        if one["id"] in seen:
            return f"{one['id']} is in {seen[one['id']]} and in {(root, version)}"
        seen[one["id"]] = (root, version)
    for root, log in history.logs.items():
        joined: dict[str, int] = {}
        for version, rows in enumerate(log.entries):
            gone, accepted = paths_of(rows, "remove"), log.provenance(version).get("accepted", ())
            back = {path for member in accepted for path in member.get("returned", ())}
            for spelt in paths_of(rows, "add"):
                # A file that is removed and added again with another deletion vector is not a
                # second add, nor one that a compaction had replaced.
                if spelt in gone or spelt in back:
                    continue
                path = unquote(spelt)
                if path in joined:
                    return f"{path} joined {root} in {joined[path]} and in {version}"
                joined[path] = version
    return None


def no_overwrite(history: History) -> str | None:
    """I2: a visible version does not change; a version that cleanup deleted does not come back."""
    for root, log in history.logs.items():
        for version, content in log.files.items():
            there = log.store.files.get(commit_path(version))
            if version < log.floor and there is not None:
                return f"version {version} of {root} was written again after cleanup"
            if version >= log.floor and there != content:
                return f"version {version} of {root} changed"
    return None


def no_gap(history: History) -> str | None:
    """I3: versions are contiguous at every observation."""
    for root, log in history.logs.items():
        versions = sorted(log.names())
        if versions != list(range(log.floor, log.floor + len(versions))):
            return f"{root} has versions {versions}, from {log.floor} on"
    return None


def consistent_read(history: History) -> str | None:
    """I4: every remove names a live file, and no live file is added again.

    The remove has the file's exact path and its present deletion vector, so that versions add up.
    """
    for root, log in history.logs.items():
        live: dict[str, Any] = {}
        for version, rows in enumerate(log.entries):
            for row in rows:
                gone = row.get("remove")
                if gone is not None and live.pop(gone["path"], _NOT_LIVE) != _vector(gone):
                    return f"version {version} of {root} removes {gone['path']}, not live so"
            live |= {row["add"]["path"]: _vector(row["add"]) for row in rows if "add" in row}
    return None


def outcome_agreement(history: History) -> str | None:
    """I5: committed(v) means that v holds the proposal; rejected, that no version ever does."""
    held = {f"{one['id']}/{one['sha256']}": version for _, version, _, one in history.accepted()}
    by_id = {key.partition("/")[0]: version for key, version in held.items()}
    for result in history.outcomes:
        sent = history.sent.get(result.key)
        if sent is None:
            return f"{result.key} has an outcome and was not sent"
        if sent.kind in ("register", "halt", "reopen", "drop", "move"):
            continue
        version = held.get(result.key)
        if sent.kind == "verbatim":
            version = _version_of_bytes(history, sent)
        if sent.kind == "cancel":
            version = by_id.get(str(sent.body["cancels"]))
        wrong = _disagreement(result, version)
        if wrong is not None:
            return f"{sent.id} {wrong}"
    return None


def offset_safe(history: History) -> str | None:
    """I6: the group's offset passes a delivery only when its outcome is published."""
    offsets = history.bus.committed(f"{history.topics.prefix}committer")
    for at, deliveries in history.spots().items():
        passed = offsets.get(at, 0)
        for offset, one in enumerate(deliveries[:passed]):
            if one is not None and one.key not in history.answered:
                return f"offset {passed} was recorded, {one.id} at {offset} has no outcome"
    return None


def no_conflict(history: History) -> str | None:
    """I8: nothing that an accepted proposal read changed after its read version."""
    for root, version, place, one in history.accepted():
        body = history.sent[f"{one['id']}/{one['sha256']}"].body
        log = history.logs[root]
        mates = log.provenance(version)["accepted"][:place]
        earlier = [history.sent[f"{mate['id']}/{mate['sha256']}"].body["actions"] for mate in mates]
        since = range(body["read_version"] + 1, version)
        for rows in (*(log.entries[other] for other in since), *earlier):
            if _changes_what_was_read(log, rows, body):
                return f"{one['id']} in {version} of {root} read what changed after it looked"
    return None


def monotone_time(history: History) -> str | None:
    """I9: the timestamp of our version is greater than that of the version before it."""
    for root, log in history.logs.items():
        latest = -1
        for version, rows in enumerate(log.entries):
            info = info_of(rows)
            result = int(info.get("inCommitTimestamp", info.get("timestamp", 0)))
            if log.provenance(version) and result <= latest:
                return f"version {version} of {root} is not later than the one before it"
            latest = result
    return None


def dense_events(history: History) -> str | None:
    """I10: versions are published in order and without gaps; a repeated record is identical."""
    result: dict[str, dict[int, dict[str, Any]]] = {}
    for _, event in history.commits:
        mine = result.setdefault(event["table_root"], {})
        log, version = history.logs[event["table_root"]], event["version"]
        if version in mine:
            # A table whose registration was lost may be registered again under another id.
            if {**mine[version], "table": None} != {**event, "table": None}:
                return f"version {version} of {event['table_root']} was told in two ways"
        elif version > max(mine, default=-1) + 1 and not _is_first(log, version):
            return f"version {version} of {log.store.root} was told after {max(mine, default=-1)}"
        mine[version] = event
        content = log.files.get(version)
        if content is None or hashlib.sha256(content).hexdigest() != event["sha256"]:
            return f"version {version} of {event['table_root']} was told and is another"
    return None


def referential(history: History) -> str | None:
    """I11: every file that a live add names exists, whatever vacuum has done."""
    for root, log in history.logs.items():
        for path in log.live:
            if unquote(path) not in log.store.files:
                return f"{path} is live in {root} and does not exist"
    return None


def exact_versions(history: History) -> str | None:
    """A verbatim entry is committed at exactly its version, or not at all."""
    for sent in history.sent.values():
        if sent.kind != "verbatim":
            continue
        version = _version_of_bytes(history, sent)
        if version not in (None, sent.body["exact_version"]):
            return f"{sent.id} was made for {sent.body['exact_version']} and is {version}"
    return None


def tables_apart(history: History) -> str | None:
    """I12: an entry of a table holds proposals for that table only, and only files inside it."""
    for root, version, _, one in history.accepted():
        meant = history.sent[f"{one['id']}/{one['sha256']}"].body.get("table_root")
        if meant != root:
            return f"version {version} of {root} holds {one['id']}, for {meant}"
    for root, log in history.logs.items():
        for version, rows in enumerate(log.entries):
            for path in (*paths_of(rows, "add"), *paths_of(rows, "remove"), *paths_of(rows, "cdc")):
                if ".." in path.split("/") or ":" in path or path.startswith("/"):
                    return f"version {version} of {root} names {path}, outside"
    return None


def legal_entry(history: History) -> str | None:
    """An entry has no duplicate action, and states of all members only what is true of all."""
    for root, log in history.logs.items():
        for version, rows in enumerate(log.entries):
            wrong = _illegal(rows)
            if wrong is None and log.provenance(version):
                accepted = log.provenance(version).get("accepted", [])
                sent = [history.sent[f"{item['id']}/{item['sha256']}"] for item in accepted]
                wrong = _unlike(rows, [_member(one, rows) for one in sent])
            if wrong is not None:
                return f"version {version} of {root} {wrong}"
    return None


def applications_advance(history: History) -> str | None:
    """Versions of a streaming application are unique in the table and increase."""
    for root, log in history.logs.items():
        seen: dict[str, int] = {}
        for version, rows in enumerate(log.entries):
            for row in rows:
                txn = row.get("txn")
                if txn is None or txn["appId"].startswith("tidegate/"):
                    continue
                if txn["version"] <= seen.get(txn["appId"], -1):
                    return f"version {version} of {root} takes {txn['appId']} back"
                seen[txn["appId"]] = txn["version"]
    return None


def positions_are_compared(history: History) -> str | None:
    """An entry moves each application from the version that its proposal expected."""
    for root, version, _, one in history.accepted():
        sent = history.sent.get(f"{one['id']}/{one['sha256']}")
        for txn in sent.body.get("app_txns") or () if sent else ():
            result = history.logs[root].positions[version - 1].get(txn["app_id"], -1)
            if result != txn["expected"]:
                return f"version {version} of {root} moves {txn['app_id']} from {result}: {txn}"
    return None


def questions_have_the_answer_of_the_log(history: History) -> str | None:
    """A question is answered with the positions of the version that its answer names."""
    for result in history.outcomes:
        if result.body["status"] != "answered":
            continue
        log = history.logs[history.sent[result.key].body["table_root"]]
        found = log.positions[result.body["version"]]
        expected = {name: found.get(name, -1) for name in result.body["app_versions"]}
        if result.body["app_versions"] != expected:
            return (
                f"{result.key} was answered {result.body['app_versions']}, the log has {expected}"
            )
    return None


def published_at_home(history: History) -> str | None:
    """A table's commit records are on a topic partition that has registered the table."""
    for number, event in history.commits:
        homes = history.homes.get(event["table_root"], set())
        if number not in homes:
            return f"version {event['version']} of {event['table_root']} was told on {number}"
    return None


def one_home(history: History) -> str | None:
    """A table is registered on one topic partition, under one id."""
    for root, said in history.registered.items():
        alive = [by for by, one in said.items() if one["status"] not in ("staged", "dropped")]
        if len(alive) > 1:
            return f"{root} is registered as {sorted(alive)}"
    return None


def one_home_after_moves(history: History) -> str | None:
    """Of the records of a table that has moved, one home counts: that of the last request."""
    for root, said in history.registered.items():
        alive = [one for one in said.values() if one["status"] not in ("staged", "dropped")]
        numbers = [int((one.get("ruling") or {}).get("number", 0)) for one in alive]
        newest = [one for one, number in zip(alive, numbers, strict=True) if number == max(numbers)]
        if len({(one["table"], one["topic_partition"]) for one in newest}) > 1:
            return f"{root} is registered as {newest}"
    return None


def logs_not_missed(history: History) -> str | None:
    """No outcome says that versions are missing which exist."""
    for result in history.outcomes:
        reason = str((result.body.get("rejection") or {}).get("reason", ""))
        if any(f"log of {root} ends at version" in reason for root in history.logs):
            return f"{result.key} was told: {reason}"
    return None


Predicate = Callable[[History], str | None]

ALWAYS: tuple[Predicate, ...] = (
    exactly_once,
    no_overwrite,
    no_gap,
    consistent_read,
    outcome_agreement,
    offset_safe,
    no_conflict,
    monotone_time,
    dense_events,
    referential,
    tables_apart,
    legal_entry,
    applications_advance,
    positions_are_compared,
    questions_have_the_answer_of_the_log,
    published_at_home,
    exact_versions,
    values_apart,
    changes_are_declared,
    logs_not_missed,
)
"""Predicates that hold at every moment."""


def all_answered(history: History) -> str | None:
    """Every delivery has its outcome, and the committed offsets are past it."""
    offsets = history.bus.committed(f"{history.topics.prefix}committer")
    for at, deliveries in history.spots().items():
        for offset, one in enumerate(deliveries):
            if one is not None and one.key not in history.answered:
                return f"{one.id} at offset {offset} of {at.partition} has no outcome"
        if deliveries and offsets.get(at) != len(deliveries):
            return f"the offset of {at.partition} stays at {offsets.get(at)}"
    return None


def progress(history: History) -> str | None:
    """I7: once faults stop, every delivery gets its outcome and every version is published."""
    if owing := all_answered(history):
        return owing
    for record in history.registry.values():
        if record["status"] == "dropped":
            continue
        head, through = history.logs[record["table_root"]].head, record["published_through"]
        if through != head:
            return f"{record['table_root']} was told up to {through}, not {head}"
        if record["status"] != "open":
            return f"{record['table_root']} stays {record['status']}: {record['reason']}"
    return None


def linearizable(history: History) -> str | None:
    """One serial order explains all outcomes: see `tests/linearizability`."""
    try:
        explain(history.account())
    except Unexplained as error:
        return str(error)
    return None


AT_REST: tuple[Predicate, ...] = (progress, linearizable)
"""Predicates that hold once the faults have stopped and all work had time to finish."""


_NOT_LIVE: Final = ""


def _vector(file: dict[str, Any]) -> Any:
    return file.get("deletionVector")


def _version_of_bytes(history: History, sent: Sent) -> int | None:
    """Return the version whose file holds the verbatim entry, or None."""
    files = history.logs[sent.body["table_root"]].files
    wanted = sent.body["claim_check"]["sha256"]
    result = (v for v, one in files.items() if hashlib.sha256(one).hexdigest() == wanted)
    return next(result, None)


def _is_first(log: Log, version: int) -> bool:
    """Whether publication of a table may begin at this version.

    It may for a table that other engines created and the committer never wrote to: each
    registration starts again.
    """
    return log.is_found and not any(log.provenance(earlier) for earlier in range(version))


def _disagreement(told: PublishedOutcome, version: int | None) -> str | None:
    status = told.body["status"]
    if status == "committed" and version != told.body["version"]:
        return f"was told committed at {told.body['version']}, the log has {version}"
    if status == "rejected" and version is not None:
        return f"was told rejected ({told.body['rejection']['rule']}), but is in {version}"
    return None


def _changes_what_was_read(log: Log, rows: Rows, body: dict[str, Any]) -> bool:
    reads: dict[str, Any] = body.get("reads", {})
    gone, (moved, kept) = set(paths_of(rows, "remove")), _moved(rows)
    gone -= {path for path in gone if unquote(path) in moved}
    if reads.get("delete_insensitive") or body.get("row_mapping"):
        gone -= _only_lost_rows(log, rows)
    added = [row["add"] for row in rows if "add" in row]
    came = [add["partitionValues"] for add in added if unquote(add["path"]) not in kept]
    if gone & set(reads.get("files", ())):
        return True
    if reads.get("whole_table") and (gone or came):
        return True
    asked = [str(item["value"]) for item in reads.get("predicates", ())]
    return any(values.get("p") in asked for values in came)


def _moved(rows: Rows) -> tuple[set[str], set[str]]:
    """Return the keys of the files whose rows the version's row mappings relocate, and of its new
    files without new rows: those with relocated rows, and those that came back.
    """
    members = (info_of(rows).get("tidegate") or {}).get("accepted", ())
    result = [item for member in members for item in member.get("row_mapping", ())]
    back = {unquote(path) for member in members for path in member.get("returned", ())}
    moved = {unquote(source["path"]) for one in result for source in one["sources"]}
    return moved, back | {unquote(one["path"]) for one in result}


def _only_lost_rows(log: Log, rows: Rows) -> set[str]:
    """Return the files added again with a deletion vector that holds all of the one before."""
    before = {row["remove"]["path"]: row["remove"] for row in rows if "remove" in row}
    after = {row["add"]["path"]: row["add"] for row in rows if "add" in row}
    return {
        path
        for path in before.keys() & after.keys()
        if rows_of(log.store, before[path].get("deletionVector"))
        <= rows_of(log.store, after[path].get("deletionVector"))
    }


def _illegal(rows: Rows) -> str | None:
    for kind in ("add", "remove", "cdc"):
        twice = [path for path, times in Counter(paths_of(rows, kind)).items() if times > 1]
        if twice:
            return f"has {twice[0]} twice among its {kind}s"
    for kind in ("metaData", "protocol", "commitInfo"):
        if sum(kind in row for row in rows) > 1:
            return f"has several {kind}s"
    apps = Counter(row["txn"]["appId"] for row in rows if "txn" in row)
    if any(times > 1 for times in apps.values()):
        return "moves an application twice"
    return None


def _unlike(rows: Rows, members: list[Rows]) -> str | None:
    """Return how a reader would misread members that share an entry, or None."""
    with_files = [
        member for member in members if paths_of(member, "add") or paths_of(member, "remove")
    ]
    for kind, what in (("cdc", "change files"), ("remove", "removals")):
        if len({bool(paths_of(with_file, kind)) for with_file in with_files}) > 1:
            return f"has members with {what} and without"
    flags = {row[kind]["dataChange"] for row in rows for kind in ("add", "remove") if kind in row}
    if len(with_files) > 1 and len(flags) > 1:
        return "moves rows and changes them"
    if info_of(rows).get("isBlindAppend") and paths_of(rows, "remove"):
        return "calls itself a blind append and removes files"
    alone = any("metaData" in row or "protocol" in row for member in members for row in member)
    return "changes the table and is not alone" if alone and len(members) > 1 else None


def _member(sent: Sent, entry: Rows) -> Rows:
    """Return the actions of a proposal; deleted rows count as a remove for a reader.

    If the entry removes nothing, all these rows were gone before.
    """
    rows: Rows = sent.body.get("actions", [])
    intents = sent.body.get("dv_intents") or () if paths_of(entry, "remove") else ()
    files = [intent["path"] for intent in intents]
    return [*rows, *({"remove": {"path": path, "dataChange": True}} for path in files)]
