"""Writers that bring verbatim entries: they write a version's bytes and propose exactly these.

A writer whose version is taken writes the bytes again for the next version, with the same files and
the same transaction id. So work that is committed twice adds a file twice.
"""

from collections.abc import Iterator
from typing import Any

from tests import builders
from tests.simulation.row_writers import exchange, removal
from tests.simulation.run_state import Stage
from tests.simulation.tables import TABLES, Table
from tidegate_messages.proposal import Proposal

Row = dict[str, Any]


def write(stage: Stage) -> None:
    """A writer starts, or tries again, or its staged file is damaged."""
    stage.look()
    again = list(_refused(stage))
    if again and stage.dice.random() < 0.6:
        _try_again(stage, *stage.dice.choice(again))
    elif stage.dice.random() < 0.05:
        _spoil(stage)
    else:
        _begin(stage)


def _begin(stage: Stage) -> None:
    table = stage.dice.choice(TABLES)
    log = stage.log(table)
    if log.head < 0:
        return
    rows = [builders.add(stage.data_file(table, f"v{stage.next()}"))]
    if log.live and stage.dice.random() < 0.3:
        rows.append(removal(log.live, stage.dice.choice(list(log.live))))
    elif stage.dice.random() < 0.4:
        rows += exchange(stage.dice, stage.stores[table.root], log.live)
    result: Row = {"read_version": log.head, "files_since_ms": stage.clock.now_ms()}
    _propose(stage, table, rows, {**result, "txn_id": f"w{stage.next()}"})


def _try_again(stage: Stage, table: Table, one: Proposal) -> None:
    """Try again after reading the winning versions; give up if a file to remove is gone or changed.

    Careless writers compare only the paths of the files.
    """
    rows, live = stage.verbatim[one.claim.sha256], stage.log(table).live
    removed = [row["remove"] for row in rows if "remove" in row]
    if any(file["path"] not in live for file in removed):
        return
    vectors = [live[file["path"]].get("deletionVector") for file in removed]
    is_careless = stage.dice.random() < 0.3
    if not is_careless and vectors != [file.get("deletionVector") for file in removed]:
        return
    kept = {"read_version", "files_since_ms", "txn_id"}
    _propose(stage, table, rows, one.model_dump(include=kept))


def _propose(stage: Stage, table: Table, rows: list[Row], told: Row) -> None:
    version = stage.log(table).head + (2 if stage.dice.random() < 0.03 else 1)
    own = builders.info(txnId=told["txn_id"], userMetadata=str(stage.next()))
    content = builders.to_bytes([own, *rows])
    path = f"_delta_log/_staged_commits/{version:020d}.{stage.new_id()}.json"
    stage.stores[table.root].put(path, content)
    digest = builders.digest_of(content)
    claim = {"path": path, "size": len(content), "sha256": digest}
    stage.verbatim[digest] = rows
    place: Row = {"proposal_id": stage.new_id(), "table": table.id, "table_root": table.root}
    what: Row = {"kind": "verbatim", "exact_version": version, "claim_check": claim}
    stage.send(table, builders.proposal(**{**place, **what, **told}))


def _spoil(stage: Stage) -> None:
    """Delete a staged file, or replace its bytes."""
    sent = [(table, one) for table, one in stage.past if one.kind == "verbatim"]
    if not sent:
        return
    table, one = stage.dice.choice(sent)
    path = one.claim.path
    if stage.dice.random() < 0.5:
        stage.stores[table.root].delete(path)
    else:
        stage.stores[table.root].put(path, b"other bytes")


def _refused(stage: Stage) -> Iterator[tuple[Table, Proposal]]:
    """Yield the last attempt of each transaction whose version was taken."""
    last = {one.txn_id: (table, one) for table, one in stage.past if one.kind == "verbatim"}
    taken = {
        result.body["proposal_id"]
        for result in stage.history.outcomes
        if (result.body.get("rejection") or {}).get("rule") == "version_taken"
    }
    for table, one in last.values():
        if str(one.proposal_id) in taken:
            yield table, one
