"""Every record on the proposals topic, with any headers, is answered."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.builders import Gate, add, delete, metadata, proposal, row_delete, rows_of
from tests.fuzz.mutations import mutate
from tidegate_committer.settings import CommitterSection
from tidegate_messages.codec import encode
from tidegate_runtime.kafka.client_protocols import Headers, TopicPartition

RECORDS = 8
SAMPLES = tuple(
    map(
        encode,
        (
            proposal(add("a"), add("b")),
            delete("old", read_version=1),
            row_delete(rows_of("old", [1]), read_version=1),
            proposal(metadata(appendOnly="true"), read_version=1),
            builders.batch_of("app", 1, add("c")),
            builders.create(),
        ),
    )
)

_names = st.sampled_from(["producer", "traceparent", "format", "table", "proposal_id"]) | st.text()
_headers = st.lists(st.tuples(_names, st.binary(max_size=80)), max_size=6).map(tuple)
_arbitrary = st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode())
_seeds = st.integers(0, 2**32)


def mutated(seed: int) -> bytes:
    dice = Random(seed)
    return mutate(dice, dice.choice(SAMPLES))


_values = _seeds.map(mutated) | _arbitrary


@given(st.lists(st.tuples(_values, _headers), min_size=1, max_size=RECORDS))
def test_every_record_is_answered_or_a_dead_letter_and_valid_ones_are_committed(
    sent: list[tuple[bytes, Headers]],
) -> None:
    gate = Gate(CommitterSection(roots=("memory://tables",), refusals_burst=10_000))
    gate.ask(builders.create(), proposal(add("old")))
    at = TopicPartition(gate.topics.proposals, 0)
    start = len(gate.records(gate.topics.proposals))
    for value, headers in sent:
        gate.bus.append(at, b"key", value, headers)
    gate.settle(4 + 2 * len(sent))

    answered = {outcome.offset for outcome in gate.outcomes()}
    sources = [dict(letter.headers)["source"].decode() for letter in gate.letters()]
    answered |= {int(source.rpartition("@")[2]) for source in sources}
    missing = set(range(start, start + len(sent))) - answered
    assert not missing, [sent[offset - start] for offset in missing]
    [good] = gate.ask(proposal(add("good"), read_version=len(gate.entries()) - 1))
    assert good.status == "committed", good
    assert gate.loop.pending == 0
