"""Identity values: each is allocated once among all writers, and the high-water mark follows."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests.builders import (
    ROOT,
    TABLE,
    Gate,
    Row,
    add,
    an_id,
    commit,
    info,
    metadata,
    proposal,
    remove,
    rows_of,
)
from tests.support.decisions import (
    bodies,
    landed,
    planned,
    refusal_of,
    refused,
    rules,
    table,
    written,
)
from tests.support.feature_rows import TAGGED, listed
from tests.support.outcomes import rules_of
from tests.support.tables import creating
from tidegate_committer.decision.machine import VersionLanded, evolve
from tidegate_committer.intake.identity_leases import LeasedBlocks, leases_after
from tidegate_committer.persistent_map import PersistentMap
from tidegate_committer.state.log_entry import entry_of
from tidegate_committer.state.table_state import TableState
from tidegate_committer.store_reads import recovery
from tidegate_messages.commit_provenance import Accepted
from tidegate_messages.proposal import IdentityBlock, IdentityUsage, Operation, Proposal

PROTOCOL = listed("identityColumns", "appendOnly")
MARK = "delta.identity.highWaterMark"


def numbered(mark: int | None = None, *, step: int = 1, explicit: bool = False) -> Row:
    """Return metadata with an identity column `id` that starts at 1, and a column `x`."""
    own: Row = {
        "delta.identity.start": 1,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": explicit,
    }
    if mark is not None:
        own[MARK] = mark
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": own},
        {"name": "x", "type": "long", "nullable": True, "metadata": {}},
    ]
    text = json.dumps({"type": "struct", "fields": fields})
    return {"metaData": {**metadata()["metaData"], "schemaString": text}}


def of(*commits: list[Row], **about: Any) -> TableState:
    return table([info(), PROTOCOL, numbered(**about)], *commits)


def ids(path: str, low: int, high: int) -> Row:
    stats = {"numRecords": 10, "minValues": {"id": low}, "maxValues": {"id": high}}
    return add(path, stats=json.dumps(stats))


def used(low: int, high: int, lease: UUID | None = None, column: str = "id") -> Row:
    result = {"column": column, "low": low, "high": high}
    return result if lease is None else {**result, "lease": str(lease)}


def claim(
    path: str, low: int, high: int, lease: UUID | None = None, **more_fields: Any
) -> Proposal:
    return proposal(ids(path, low, high), identity_usage=[used(low, high, lease)], **more_fields)


def leasing(count: int, column: str = "id", **more_fields: Any) -> Proposal:
    return proposal(identity_leases=[{"column": column, "count": count}], **more_fields)


def mark_of(state: TableState) -> int | None:
    return state.table_definition.numbered["id"].mark


def rule(state: TableState, one: Proposal) -> str | None:
    wrong = refusal_of(state, one)
    return wrong.rule if wrong else None


def test_claims_of_a_group_move_the_mark_behind_them_all() -> None:
    state, rows = written(of(mark=10), claim("a", 11, 20), claim("b", 21, 25))
    assert mark_of(state) == 25
    [info_row] = bodies(rows, "commitInfo")
    assert info_row["tags"] == TAGGED["commitInfo"]["tags"]
    [result] = bodies(rows, "metaData")
    assert json.loads(result["schemaString"])["fields"][0]["metadata"][MARK] == 25


def test_claims_of_one_column_leave_the_mark_of_another_where_it_is() -> None:
    meta = numbered(10)
    schema = json.loads(meta["metaData"]["schemaString"])
    schema["fields"][1] = {**schema["fields"][0], "name": "other"}
    meta["metaData"]["schemaString"] = json.dumps(schema)
    state = table([info(), PROTOCOL, meta])
    result: dict[str, Any] = {"identity_usage": [used(11, 20), used(11, 12, column="other")]}
    state = landed(state, proposal(add("a"), **result))
    state = landed(state, leasing(5), leasing(7, column="other"), leasing(1))
    marks = {name: column.mark for name, column in state.table_definition.numbered.items()}
    assert marks == {"id": 26, "other": 19}


def test_values_that_somebody_has_are_taken() -> None:
    decided = planned(of(mark=10), claim("a", 11, 20), claim("b", 20, 25))
    assert rules(decided) == ["committed", "identity_values_taken"]
    wrong = decided.verdicts[1].rejection
    assert wrong is not None
    assert (wrong.field, wrong.advice) == ("identity_usage[0]", "rerun")
    assert "20 to 25 of 'id'" in wrong.reason
    assert "the next value is 21" in wrong.reason
    assert decided.verdicts[1].needs == "refusal"
    state = landed(of(mark=10), claim("a", 11, 20))
    assert rule(state, claim("b", 11, 20)) == "identity_values_taken"
    assert rule(state, claim("b", 5, 30)) == "identity_values_taken"
    assert rule(state, claim("b", 31, 40)) is None
    first_of_two = proposal(add("b"), identity_usage=[used(20, 21), used(22, 23)])
    assert rule(state, first_of_two) == "identity_values_taken"


def test_the_mark_of_another_engine_is_one() -> None:
    state = of([TAGGED, numbered(90), add("z")], mark=10)
    assert rule(state, claim("a", 11, 20)) == "identity_values_taken"
    assert rule(state, claim("a", 91, 95)) is None


def test_values_go_in_the_direction_of_the_step() -> None:
    state = of(mark=-9, step=-10)
    assert rule(state, claim("a", -29, -19)) is None
    assert rule(state, claim("a", -19, -9)) == "identity_values_taken"
    assert mark_of(landed(state, claim("a", -29, -19))) == -29
    assert rule(of(step=-1), claim("a", 2, 2)) == "identity_values_taken"
    assert rule(of(), claim("a", 0, 4)) == "identity_values_taken"
    assert rule(of(), claim("a", 1, 4)) is None


def test_values_are_those_of_the_column() -> None:
    wrong = refused(of(step=5), claim("a", 1, 12))
    assert (wrong.rule, wrong.field) == ("malformed", "identity_usage[0].high")
    other = proposal(ids("a", 1, 2), identity_usage=[used(1, 2), used(1, 2, column="x")])
    assert rule(of(), other) == "no_identity_column"
    plain = table([info(), listed("appendOnly"), metadata()])
    assert rule(plain, claim("a", 1, 2)) == "no_identity_column"
    assert rule(plain, leasing(2)) == "no_identity_column"


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (proposal(add("a")), "identity_values_not_told"),
        (proposal(ids("a", 11, 12), identity_usage=[used(11, 11)]), "identity_values_not_told"),
        (proposal(ids("a", 10, 12), identity_usage=[used(11, 12)]), "identity_values_not_told"),
        (proposal(add("a"), identity_usage=[used(11, 12)]), None),
        (proposal(add("a", stats=None), identity_usage=[used(11, 12)]), None),
        (proposal(remove("z"), ids("a", 3, 9), read_version=1), None),
        (proposal(remove("z"), ids("a", 3, 11), read_version=1), "identity_values_not_told"),
        (
            proposal(remove("z"), ids("a", 3, 11), read_version=1, identity_usage=[used(11, 11)]),
            None,
        ),
        (
            proposal(
                remove("z"),
                ids("a", 3, 9),
                ids("b", 11, 11),
                read_version=1,
                identity_usage=[used(11, 11)],
            ),
            None,
        ),
        (proposal(remove("z", dataChange=False), add("a", dataChange=False), read_version=1), None),
        (proposal(remove("z"), read_version=1), None),
        (proposal(numbered(12), ids("a", 11, 12), read_version=1), None),
        (proposal(numbered(10), ids("a", 11, 12), read_version=1), "identity_values_not_told"),
    ],
)
def test_new_values_are_published(one: Proposal, expected: str | None) -> None:
    state = of([info(), ids("z", 1, 10)], mark=10)
    if expected is None:
        assert rule(state, one) is None
    else:
        assert rule(state, one) == expected


def test_a_column_that_has_given_out_nothing_yet_is_no_exception() -> None:
    assert rule(of(), proposal(add("a"))) == "identity_values_not_told"
    assert rule(of(), proposal(ids("a", 1, 2), identity_usage=[used(1, 1)])) == (
        "identity_values_not_told"
    )


def test_who_creates_a_table_with_rows_may_write_the_mark_himself() -> None:
    gate = Gate()
    create = Operation(name="CREATE TABLE AS SELECT")
    [made] = gate.ask(
        proposal(PROTOCOL, numbered(12), ids("a", 1, 12), read_version=-1, operation=create)
    )
    assert made.status == "committed"
    [taken, free] = gate.ask(claim("b", 12, 13), claim("b", 13, 14))
    assert (taken.status, free.status) == ("rejected", "committed")


def test_each_of_several_columns_is_resolved_by_itself() -> None:
    """One column allows explicit values, the other does not."""
    meta = numbered(10)
    schema = json.loads(meta["metaData"]["schemaString"])
    open_to_all = {**schema["fields"][0]["metadata"], "delta.identity.allowExplicitInsert": True}
    for own, result in ((open_to_all, None), (schema["fields"][0]["metadata"], "other")):
        schema["fields"][1] = {**schema["fields"][0], "name": "other", "metadata": own}
        meta["metaData"]["schemaString"] = json.dumps(schema)
        state = table([info(), PROTOCOL, meta])
        assert rule(state, proposal(add("a"))) == "identity_values_not_told"
        wrong = refusal_of(state, proposal(add("a"), identity_usage=[used(11, 12)]))
        assert (result is None and wrong is None) or (
            wrong and f"{result!r} has new" in wrong.reason
        )


def test_what_is_published_in_parts_is_published_in_ascending_order() -> None:
    parts = [used(11, 12), used(15, 16)]
    assert rule(of(mark=10), proposal(ids("a", 11, 16), identity_usage=parts)) is None


def test_rows_that_are_rewritten_have_values_from_before_only_if_some_were_given_out() -> None:
    state = of([info(), ids("z", 1, 10)])
    rewritten = proposal(remove("z"), ids("a", 3, 9), read_version=1)
    assert rule(state, rewritten) == "identity_values_not_told"


def test_images_of_updated_rows_have_the_values_they_had() -> None:
    features = listed("identityColumns", "appendOnly", reader=("deletionVectors",))
    meta = numbered()
    meta["metaData"]["configuration"] = {"delta.enableDeletionVectors": "true"}
    gate = Gate()
    gate.ask(creating(features, meta), claim("z", 1, 10))
    update: dict[str, Any] = {"dv_intents": (rows_of("z", [1], op="update"),), "read_version": 1}
    result = gate.ask(proposal(ids("a", 3, 11), **update), proposal(ids("b", 3, 9), **update))
    assert rules_of(result) == [*("identity_values_not_told", "committed")]


def test_what_comes_back_has_the_values_it_had() -> None:
    state = of([info(), ids("z", 1, 10)], mark=10)
    restore = Operation(name="RESTORE")
    assert rule(state, proposal(ids("a", 1, 5), operation=restore, read_version=1)) is None
    beyond = proposal(ids("a", 1, 11), operation=restore, read_version=1)
    assert rule(state, beyond) == "identity_values_not_told"


def test_explicit_values_need_no_highest_value() -> None:
    state = of(mark=10, explicit=True)
    assert rule(state, proposal(ids("a", 500, 900))) is None
    assert mark_of(landed(state, claim("b", 11, 12))) == 12


def test_a_lease_gives_values_that_are_nobody_elses() -> None:
    lease = leasing(100)
    state, rows = written(of(mark=10), lease, claim("a", 111, 120))
    [result] = bodies(rows, "commitInfo")
    block = {"column": "id", "first": 11, "step": 1, "count": 100}
    assert result["tidegate"]["accepted"][0]["identity_blocks"] == [block]
    assert mark_of(state) == 120
    assert rule(state, claim("b", 50, 60)) == "identity_values_taken"
    state = landed(state, claim("b", 50, 60, lease.proposal_id))
    assert mark_of(state) == 120
    for low, high in ((60, 61), (50, 50), (11, 110)):
        taken = refused(state, claim("c", low, high, lease.proposal_id))
        assert taken.rule == "identity_values_taken"
        assert str(lease.proposal_id) in taken.reason
    assert rule(state, claim("c", 61, 70, lease.proposal_id)) is None
    assert rule(state, claim("c", 100, 111, lease.proposal_id)) == "outside_identity_lease"
    assert rule(state, claim("c", 11, 12, an_id())) == "identity_lease_unknown"


def test_members_of_one_group_use_a_lease_apart_from_each_other() -> None:
    lease = leasing(100)
    state = landed(of(mark=0), lease)
    one, two = (claim(name, 1, 10, lease.proposal_id) for name in "ab")
    three = claim("c", 11, 20, lease.proposal_id)
    assert rules(planned(state, one, two, three)) == [
        "committed",
        "identity_values_taken",
        "committed",
    ]
    state = landed(state, one, three)
    assert rule(state, claim("e", 5, 6, lease.proposal_id)) == "identity_values_taken"
    assert rule(state, claim("e", 21, 22, lease.proposal_id)) is None
    twice = proposal(
        add("d"), identity_usage=[used(1, 5, lease.proposal_id), used(5, 6, lease.proposal_id)]
    )
    assert rule(state, twice) == "identity_values_taken"


def test_a_lease_is_bounded() -> None:
    assert rule(of(), leasing(10**12 + 1)) == "too_large"
    assert rule(of(), leasing(10**12)) is None
    assert rule(of(mark=2**63 - 3), leasing(3)) == "no_identity_values_left"
    assert rule(of(mark=2**63 - 3), leasing(2)) is None


def test_what_was_used_of_a_lease_is_kept_as_ranges_by_its_step() -> None:
    block = IdentityBlock(column="id", first=1, step=5, count=10)
    usages = [IdentityUsage(column="id", low=low, high=low + 5) for low in (1, 21, 11)]
    lease: LeasedBlocks | None = LeasedBlocks((block,))
    for usage in usages:
        assert lease is not None
        lease = lease.after(usage)
    assert lease is not None
    assert lease.used == {"id": ((1, 26),)}
    assert lease.after(usages[0]) is None


def test_a_lease_lapses_when_the_mark_is_set_back() -> None:
    lease = leasing(100)
    state = landed(of(mark=10), lease)
    assert rule(state, claim("a", 11, 12, lease.proposal_id)) is None
    for back in (numbered(50), numbered(None)):
        lapsed = landed(state, proposal(back, read_version=1))
        assert rule(lapsed, claim("a", 11, 12, lease.proposal_id, read_version=2)) == (
            "identity_lease_unknown"
        )


def two_columns(mark: int, other: int) -> Row:
    meta = numbered(mark)
    schema = json.loads(meta["metaData"]["schemaString"])
    own = {**schema["fields"][0]["metadata"], MARK: other}
    schema["fields"][1] = {**schema["fields"][0], "name": "other", "metadata": own}
    meta["metaData"]["schemaString"] = json.dumps(schema)
    return meta


def test_a_lease_of_one_column_is_none_of_another() -> None:
    state = table([info(), PROTOCOL, two_columns(10, 10)])
    lease = leasing(100)
    state = landed(state, lease)
    result = [used(20, 21, lease.proposal_id, column="other"), used(11, 12)]
    wrong = refused(state, proposal(add("a"), identity_usage=result))
    assert wrong.rule == "outside_identity_lease"


def test_a_lease_lapses_with_one_of_its_columns() -> None:
    wanted = [{"column": name, "count": 5} for name in ("id", "other")]
    lease = proposal(identity_leases=wanted)
    state = landed(table([info(), PROTOCOL, two_columns(10, 10)]), lease)
    assert len(state.leases) == 1
    assert not lapse(state, two_columns(15, 10)).leases, "of the other's values one may be taken"
    assert not lapse(state, numbered(15)).leases, "the other gives out none any more"
    assert len(lapse(state, two_columns(15, 15)).leases) == 1


def lapse(state: TableState, row: Row) -> TableState:
    """Return the state after a commit of metadata by another engine."""
    entry = entry_of(commit(state.version + 1, info(), row), "0" * 64, 1)
    return evolve(state, VersionLanded(entry))


def test_the_use_of_a_lease_that_nobody_remembers_is_no_news_of_it() -> None:
    usage = IdentityUsage(column="id", low=1, high=2, lease=an_id())
    one = Accepted(id=an_id(), offset=0, sha256="0" * 64, identity_used=(usage,))
    assert not leases_after(PersistentMap(), [one])


def test_a_lease_is_in_the_log() -> None:
    gate = Gate()
    gate.ask(creating(PROTOCOL, numbered()))
    lease = leasing(100)
    [granted] = gate.ask(lease)
    block = {"column": "id", "first": 1, "step": 1, "count": 100}
    assert granted.assigned == {"identity": [block]}
    [repeat] = gate.ask(lease)
    assert (repeat.repeat, repeat.assigned) == (True, granted.assigned)
    assert rules_of(gate.ask(claim("a", 5, 9, lease.proposal_id, read_version=1))) == ["committed"]
    gate.restart()
    gate.settle()
    result = [gate.ask(claim("b", low, low + 5, lease.proposal_id))[0] for low in (9, 10)]
    assert rules_of(result) == ["identity_values_taken", "committed"]
    assert result[1].assigned == {}
    store = gate.stores[ROOT]
    fresh = recovery.load(store, TABLE, 1_000)
    assert not fresh.leases, "the lease lies before what was read"
    back = recovery.reach_back(store, fresh, 0)
    [known] = back.leases.values()
    assert known.used == {"id": ((5, 15),)}
    forgetful = recovery.reach_back(store, fresh, 1)
    assert not forgetful.leases
    assert rule(forgetful, claim("c", 20, 21, lease.proposal_id, read_version=2)) == (
        "identity_lease_unknown"
    )


def test_a_lease_is_forgotten_with_its_version() -> None:
    lease = leasing(5)
    state = TableState(TABLE, ROOT, 2)
    for rows in ([info(), PROTOCOL, numbered()],):
        state = landed_rows(state, rows)
    state = landed(state, lease)
    assert state.leases
    state = landed(state, claim("a", 6, 7, read_version=1))
    assert state.leases
    state = landed(state, claim("b", 8, 9, read_version=2))
    assert not state.leases


def landed_rows(state: TableState, rows: list[Row]) -> TableState:
    from_zero = table(rows)
    return TableState(
        TABLE,
        ROOT,
        state.window,
        version=0,
        table_definitions=from_zero.table_definitions,
        entries=from_zero.entries,
        rules=from_zero.rules,
    )


def test_row_deletes_and_appends_of_other_tables_know_nothing_of_it() -> None:
    state = table([info(), listed("appendOnly"), metadata()])
    _, rows = written(state, proposal(add("a")))
    assert "metaData" not in [next(iter(row)) for row in rows]
