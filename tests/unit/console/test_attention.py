"""What of an overview needs attention, and what stands on the screen of `tidegate status`."""

from dataclasses import replace
from uuid import UUID

import pytest

from tidegate_console.overview import (
    DAY_MS,
    WAITS_MAX_MS,
    Attention,
    Overview,
    ServiceState,
    attention,
)
from tidegate_console.status_command import as_data, lines
from tidegate_messages.published_records import FollowerRecord, TableRecord
from tidegate_messages.topics import Topics
from tidegate_producers.history.outcome_log import DeadLetter, DeadLetters
from tidegate_runtime.followers.stream_status import StreamStatus
from tidegate_runtime.kafka.client_protocols import TopicPartition
from tidegate_runtime.kafka.cluster_state import ClusterSize, Member

NOW_MS = 1_800_000_000_000
TABLE = UUID(int=1)
TOPICS = Topics("tidegate.", 2)


def member(topic: str, *partitions: int) -> Member:
    return Member("tidegate", "10.0.0.1", tuple(TopicPartition(topic, n) for n in partitions))


def state(service: str, topic: str, *members: Member, waiting: int = 0) -> ServiceState:
    return ServiceState(service, topic, members, 2, waiting)


def well() -> Overview:
    """Return an overview of an installation in which nothing needs attention."""
    proposals, commits = TOPICS.proposals, TOPICS.commits
    active = member(commits, 0, 1)
    record = TableRecord(
        table=TABLE, table_root="s3://b/t", name="t", proposals_topic=proposals, topic_partition=0
    )
    return Overview(
        at_ms=NOW_MS,
        bootstrap_servers="kafka:9092",
        topics=TOPICS,
        cluster=ClusterSize("abc", ("k1:9092", "k2:9092")),
        services={
            "committer": state("committer", proposals, member(proposals, 0, 1), member(proposals)),
            "checkpointer": state("checkpointer", commits, active),
            "cdc-publisher": state("cdc-publisher", commits, active),
        },
        tables={TABLE: record},
        quarantined={},
        streams=(StreamStatus("t", "up to date", 4, 4),),
        letters=DeadLetters(0, ()),
        unread={},
    )


def of_committer(overview: Overview, *members: Member, **changed: int) -> Overview:
    former = overview.services["committer"]
    return replace(
        overview,
        services={
            **overview.services,
            "committer": replace(former, members=members, **changed),  # type: ignore[arg-type]  # ints
        },
    )


def with_table(**changed: object) -> Overview:
    overview = well()
    return replace(overview, tables={TABLE: overview.tables[TABLE].model_copy(update=changed)})


def found(overview: Overview) -> list[tuple[str, str]]:
    return [(item.level, item.about) for item in attention(overview)]


def test_an_installation_that_works_needs_no_attention() -> None:
    assert attention(well()) == []
    assert list(lines(well(), []))[-1] == "all is well"


def test_a_service_without_a_member_is_a_problem() -> None:
    [result] = attention(of_committer(well()))
    assert (result.level, result.about) == ("problem", "committer")
    assert result.do == "start one: `tidegate committer`"


def test_a_partition_without_an_owner_is_a_problem() -> None:
    half = of_committer(well(), member(TOPICS.proposals, 0), member(TOPICS.proposals))
    [result] = attention(half)
    assert result.what.startswith("1 of 2 partitions of tidegate.proposals have no owner")


def test_one_committer_alone_is_worth_a_note() -> None:
    assert found(of_committer(well(), member(TOPICS.proposals, 0, 1))) == [("note", "committer")]


@pytest.mark.parametrize(("oldest_ms", "count"), [(WAITS_MAX_MS, 0), (WAITS_MAX_MS + 1, 1)])
def test_proposals_that_wait_for_more_than_a_minute_are_a_problem(
    oldest_ms: int, count: int
) -> None:
    members = well().services["committer"].members
    waiting = of_committer(well(), *members, waiting=7, oldest_ms=oldest_ms)
    assert len(attention(waiting)) == count


def test_a_halted_table_is_a_problem_and_one_halted_by_hand_a_note() -> None:
    assert found(with_table(status="halted", reason="LogGap: version 3")) == [("problem", "t")]
    by_hand = with_table(status="halted", reason="by hand: move", halted_by_hand="move")
    [result] = attention(by_hand)
    assert (result.level, result.do) == ("note", "when it is over: `tidegate table reopen t`")


def test_a_table_that_a_follower_quarantined_is_one_problem_not_two() -> None:
    record = FollowerRecord(
        service="cdc-publisher",
        table=TABLE,
        name="t",
        reason="no key",
        error_class="Misconfigured",
        since_ms=NOW_MS,
        attempts=3,
    )
    stopped = StreamStatus("t", "stopped", 4, 2, reason="no key")
    overview = replace(well(), quarantined={TABLE: [record]}, streams=(stopped,))
    assert found(overview) == [("problem", "t")]
    assert found(replace(overview, quarantined={})) == [("problem", "t")]


def dead_letter(age_ms: int) -> DeadLetter:
    return DeadLetter(
        5, NOW_MS - age_ms, "malformed", "no JSON", "tidegate.proposals/0@9", None, None, 3
    )


def test_dead_letters_of_the_last_day_are_worth_a_note() -> None:
    old = replace(well(), letters=DeadLetters(9, (dead_letter(DAY_MS),)))
    assert attention(old) == []
    new = replace(well(), letters=DeadLetters(9, (dead_letter(5), dead_letter(DAY_MS))))
    [result] = attention(new)
    assert result.what == "1 in the last day; the newest, of tidegate.proposals/0@9: no JSON"


def test_problems_come_before_notes_and_have_a_remedy() -> None:
    alone = of_committer(well(), member(TOPICS.proposals, 0, 1))
    overview = replace(alone, unread={"dead letters": "TOPIC_AUTHORIZATION_FAILED"})
    result = attention(overview)
    assert [item.level for item in result] == ["problem", "note"]
    screen = list(lines(overview, result))
    assert "! dead letters: could not be read: TOPIC_AUTHORIZATION_FAILED" in screen
    said = "  do: `tidegate doctor` says what is missing (docs/operations.md#rights-in-kafka)"
    assert said in screen


def test_the_screen_counts_what_there_is() -> None:
    screen = {line.split()[0]: line for line in lines(well(), []) if line}
    assert screen["kafka"].endswith("kafka:9092: cluster abc, 2 brokers, topics tidegate.*")
    assert screen["committer"].endswith("1 active, 1 standby, nothing waits")
    assert screen["tables"].endswith("1: 1 open")
    waiting = of_committer(well(), member(TOPICS.proposals, 0, 1), waiting=3, oldest_ms=1500)
    result = next(line for line in lines(waiting, []) if line.startswith("committer"))
    assert result.endswith("1 active, 0 standby, 3 records waiting, the oldest for 1.5 s")


def test_the_json_form_has_the_same_facts() -> None:
    data = as_data(well(), [Attention("note", "t", "what", "do", "reading.md")])
    assert data["services"]["committer"]["standby"] == 1
    assert data["tables"] == {"open": 1}
    assert data["attention"][0]["about"] == "t"
