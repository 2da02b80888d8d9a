from dataclasses import fields

import orjson
import pytest

from tests.builders import Row, add, metadata, proposal, protocol, remove, value_of
from tidegate_committer.intake.action_reader import ENTRIES_MAX, dated
from tidegate_committer.intake.candidate import Candidate
from tidegate_committer.intake.proposal_actions import CheckedActions, make_fast, read_content
from tidegate_committer.intake.proposal_reader import read_record
from tidegate_committer.intake.refusals import InvalidProposal
from tidegate_committer.policy import Policy


def test_lines_keep_fields_that_nobody_knows() -> None:
    row = add("a", futureField={"x": [1]})
    content = read_content([row], Policy())
    [line] = content.lines
    assert orjson.loads(dated(line, 5)) == row


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"domainMetadata": {"domain": "app", "configuration": "{}"}}, "removed"),
        ({"domainMetadata": {"domain": "app", "configuration": "", "removed": None}}, "removed"),
        ({"cdc": {"path": "_change_data/a", "partitionValues": {}, "size": 1}}, "dataChange"),
    ],
)
def test_the_log_says_false_where_a_proposal_leaves_it_out(row: Row, field: str) -> None:
    [line] = read_content([row], Policy()).lines
    [body] = orjson.loads(dated(line, 5)).values()
    assert body[field] is False


def test_nulls_are_left_out_but_for_partition_values() -> None:
    content = read_content([add("p=1/a", partitionValues={"p": None}, tags=None)], Policy())
    [line] = content.lines
    body = orjson.loads(dated(line, 5))["add"]
    assert "tags" not in body
    assert body["partitionValues"] == {"p": None}


def test_a_removal_gets_its_time_when_it_is_written() -> None:
    content = read_content([remove("a", deletionTimestamp=1)], Policy())
    [line] = content.lines
    assert orjson.loads(dated(line, 77))["remove"]["deletionTimestamp"] == 77


def test_a_removal_is_dated_once_and_keeps_the_partition_values_that_it_says() -> None:
    row = remove("p=1/a", deletionTimestamp=1, partitionValues={"p": "1"})
    [line] = read_content([row], Policy()).lines
    text = dated(line, 77)
    assert orjson.loads(text) == remove("p=1/a", deletionTimestamp=77, partitionValues={"p": "1"})
    assert text.count(b"deletionTimestamp") == 1


def test_a_removal_without_partition_values_states_that() -> None:
    """delta-spark writes it so, for readers whose map must not be null."""
    bare = {"path": "a", "dataChange": True, "deletionTimestamp": 5}
    content = read_content([{"remove": bare}], Policy())
    [line] = content.lines
    assert orjson.loads(dated(line, 5))["remove"] == {**bare, "partitionValues": {}}


MANY = {f"{number:x}": "" for number in range(ENTRIES_MAX + 1)}
LONG = {"p": "1" * (Policy().partition_value_chars_max + 1)}
CHANGE_FILE: Row = {"path": "_change_data/c", "size": 1, "dataChange": False}


@pytest.mark.parametrize(
    ("rule", "row"),
    [
        ("too_large", add("a", tags=MANY)),
        ("too_large", add("a", partitionValues=MANY)),
        ("too_large", remove("a", partitionValues=MANY)),
        ("too_large", {"cdc": {**CHANGE_FILE, "partitionValues": MANY}}),
        ("partition_values", add("a", partitionValues=LONG)),
        ("partition_values", remove("a", partitionValues=LONG)),
        ("partition_values", {"cdc": {**CHANGE_FILE, "partitionValues": LONG}}),
    ],
)
def test_fields_of_a_file_are_bounded(rule: str, row: Row) -> None:
    with pytest.raises(InvalidProposal) as raised:
        read_content([row], Policy())
    assert raised.value.rejection.rule == rule


def test_a_file_that_lies_elsewhere_takes_no_vector_from_there() -> None:
    vector = {"storageType": "p", "pathOrInlineDv": "file:///b", "sizeInBytes": 34, "offset": 1}
    stays = {"dataChange": False, "deletionVector": {**vector, "cardinality": 1}}
    with pytest.raises(InvalidProposal) as raised:
        read_content([add("file:///a", **stays)], Policy())
    assert raised.value.rejection.field == "actions[0].add.deletionVector"


def test_files_are_known_by_their_canonical_path() -> None:
    content = read_content([add("a%20b"), remove("c%64")], Policy())
    assert [path for path, _ in content.added] == ["a b"]
    assert content.removed == {"cd"}


def test_metadata_and_protocol_are_kept_apart_from_the_lines() -> None:
    content = read_content([protocol(), metadata(), add("a")], Policy())
    assert content.protocol is not None
    assert content.metadata is not None
    assert len(content.lines) == 1


def test_the_same_app_transaction_twice_counts_once() -> None:
    txn: Row = {"txn": {"appId": "a", "version": 1}}
    assert len(read_content([txn, txn], Policy()).txns) == 1
    later: Row = {"txn": {"appId": "a", "version": 1, "lastUpdated": 5}}
    [kept] = read_content([txn, later], Policy()).txns
    assert kept.last_updated is None


def test_a_flaw_names_field_rule_and_remedy() -> None:
    with pytest.raises(InvalidProposal) as raised:
        read_content([add("fine"), add("a", size=-1)], Policy())
    rejection = raised.value.rejection
    assert rejection.field == "actions[1].add.size"
    assert rejection.rule == "malformed"
    assert "should be greater than or equal to 0; write the action" in rejection.reason


def test_a_value_is_what_its_class_would_have_made() -> None:
    wanted = CheckedActions(lines=(b"{}\n",), removed=frozenset({"a"}))
    result = make_fast(CheckedActions, dict(vars(wanted)))
    assert result == wanted
    assert vars(result) == vars(wanted)


def test_what_is_read_has_every_field_in_its_order() -> None:
    read = read_record(value_of(proposal(add("a"), remove("b"))), 0, Policy())
    assert isinstance(read, Candidate)
    for item in (read, read.content):
        assert list(vars(item)) == [field.name for field in fields(item)]
