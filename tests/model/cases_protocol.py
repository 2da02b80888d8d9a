"""Cases of the published copy-on-write model and of the committer's, with and without each rule."""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from tests.model.cases import Case
from tests.model.committer import CommitterModel
from tests.model.committer_state import Setting
from tests.model.copy_on_write import CopyOnWrite, CopyOnWriteSetting

CALM: Final[dict[str, Any]] = {"rebalances": 0, "repeats": 0, "drops": 0, "timeouts": 0}
"""No fault happens unless a case names it."""


def committer(**setting: Any) -> CommitterModel:
    """Return the committer's model with a setting."""
    return CommitterModel(Setting(**setting))


def calm(**setting: Any) -> CommitterModel:
    """Return the committer's model with only the named faults."""
    return committer(**{**CALM, **setting})


def seed() -> Iterator[Case]:
    """Yield the published configurations: what isolates writers, with partitions and without."""
    word = {True: "yes", False: "no"}
    for pia, lock, part in product((True, False), repeat=3):
        yield Case(
            f"seed.pia-{word[pia]}.lock-{word[lock]}.part-{word[part]}",
            f"put-if-absent: {word[pia]}, lock: {word[lock]}, partitions: {word[part]}",
            CopyOnWrite(CopyOnWriteSetting(pia, lock, part)),
            None if pia or lock else "ConsistentRead",
        )
    for pia, broken in ((False, "ConsistentRead"), (True, None)):
        yield Case(
            "seed.lease-expires" + (".pia" if pia else ""),
            "a lock that can expire under a living writer" + (", and put-if-absent" if pia else ""),
            CopyOnWrite(CopyOnWriteSetting(pia, True, True, lease_expires=True)),
            broken,
        )


PROTOCOL: Final = (
    Case(
        "rec.small",
        "the rules in force, every fault of the store",
        committer(drops=1),
        asks_progress=True,
    ),
    Case(
        "rec.external",
        "beside another engine",
        committer(repeats=0, external="AW"),
        asks_progress=True,
    ),
    Case(
        "rec.negatives",
        "refusals in the log; the admission rule changes twice",
        committer(kinds="AA", deniable="01", rule_changes=2, refusals="logged", timeouts=0),
        asks_progress=True,
    ),
    Case(
        "rec.negatives.no-kafka-txn",
        "the same without Kafka's transactions and without fencing",
        committer(
            kinds="AA",
            deniable="01",
            rule_changes=2,
            refusals="logged",
            timeouts=0,
            publishing="plain",
            is_fenced=False,
        ),
    ),
    Case(
        "rec.no-kafka-txn",
        "idempotent producers and consumers that ignore repeats suffice",
        committer(publishing="plain", is_fenced=False),
        asks_progress=True,
    ),
    Case(
        "rec.no-kafka-fencing",
        "no transactions, no fencing, and offsets that zombies rewind",
        committer(
            kinds="AWA",
            deniable="0",
            rule_changes=1,
            refusals="logged",
            publishing="plain",
            is_fenced=False,
            offsets_are_fenced=False,
            repeats=0,
            timeouts=0,
        ),
    ),
    Case(
        "rec.no-compare",
        "looking for the id makes comparing the bytes a matter of speed",
        committer(compares=False, drops=1),
    ),
    Case(
        "rec.torn",
        "a torn transaction is safe, and a repeat brings its outcome back",
        committer(
            publishing="torn", unchecked=("OffsetSafe",), asks_again=True, repeats=0, timeouts=0
        ),
        asks_progress=True,
    ),
    Case(
        "rec.cleanup",
        "the log is cleaned up: too old to decide is no rejection, and PUTs and views have an age",
        committer(cleanups=1, timeouts=0),
    ),
    Case(
        "rec.publish-behind",
        "publishing trails by one batch, beside another engine",
        committer(behind_max=1, timeouts=0, external="A"),
        asks_progress=True,
    ),
    Case(
        "rec.publish-behind.negatives",
        "publishing trails by two batches, with refusals in the log",
        committer(
            kinds="AAW",
            behind_max=2,
            deniable="0",
            rule_changes=1,
            refusals="logged",
            repeats=0,
            timeouts=0,
        ),
        asks_progress=True,
    ),
    Case("rec.group", "two proposals in an entry", committer(group_max=2, timeouts=0)),
    Case("rec.large", "every fault, beside another engine", committer(drops=1, external="AW")),
    Case("rec.large.group", "the same with groups", committer(group_max=2, drops=1, external="AW")),
    Case(
        "rec.large.group.negatives",
        "groups, refusals in the log, a rule that changes, another engine",
        committer(group_max=2, deniable="01", rule_changes=1, refusals="logged", external="A"),
    ),
    Case("rec.large.2-rebalances", "two rebalances", committer(rebalances=2)),
    Case("rec.large.3-proposals", "three proposals", committer(kinds="AWW", timeouts=0)),
    Case("rec.large.cleanup", "cleanup beside another engine", committer(cleanups=1, external="A")),
    Case(
        "rec.large.no-kafka-txn",
        "every fault, no transactions, no fencing, another engine",
        committer(publishing="plain", is_fenced=False, drops=1, external="AW"),
    ),
)
"""The protocol with all its rules: nothing may be violated."""

WITHOUT: Final = (
    Case(
        "bad.no-dedupe",
        "F7: nobody searches for the id, and a repeat is committed again",
        calm(kinds="A", dedupe="none", repeats=1),
        "ExactlyOnce",
    ),
    Case(
        "bad.412-is-a-loss",
        "F9: the library's own retry gets the answer that the name is taken",
        calm(kinds="A", dedupe="none", compares=False),
        "ExactlyOnce",
    ),
    Case(
        "bad.dedupe-in-memory",
        "F7: what was accepted is remembered by the committer, and lost at a takeover",
        calm(kinds="A", dedupe="memory", rebalances=1),
        "ExactlyOnce",
    ),
    Case(
        "bad.conflict-before-dedupe",
        "F6: a proposal conflicts with itself",
        calm(kinds="W", looks_for_id_first=False, rebalances=1),
        "OutcomeAgreement",
    ),
    Case(
        "bad.retry-rereads",
        "F8: a retry under the same id with a younger read version",
        calm(kinds="A", repeats_are_the_same=False, repeats=1),
        "ExactlyOnce",
    ),
    Case(
        "bad.negative-then-retry",
        "F2: refused for a reason that goes away, accepted when it is delivered again",
        calm(kinds="A", deniable="0", rule_changes=1, denies_first=True, repeats=1),
        "OutcomeAgreement",
    ),
    Case(
        "bad.negative-and-zombie",
        "F1: refused by the successor while the zombie's PUT travels",
        calm(kinds="AA", deniable="0", rule_changes=1, rebalances=1),
        "OutcomeAgreement",
    ),
    Case(
        "bad.claim-fence-late",
        "F3: an epoch claimed in the log, the offset read before the old producer is fenced",
        calm(
            kinds="AA",
            deniable="0",
            rule_changes=1,
            denies_first=True,
            refusals="claimed",
            fences_first=False,
            rebalances=1,
        ),
        "OutcomeAgreement",
    ),
    Case(
        "bad.claim-unfenced",
        "F3: an epoch in the log does not fence what is published",
        calm(
            kinds="AA",
            deniable="0",
            rule_changes=1,
            denies_first=True,
            refusals="claimed",
            is_fenced=False,
            publishing="plain",
            rebalances=1,
        ),
        "OutcomeAgreement",
    ),
    Case(
        "bad.claim-and-retry",
        "F3: an epoch does not remember a refusal",
        calm(
            kinds="A",
            deniable="0",
            rule_changes=1,
            denies_first=True,
            refusals="claimed",
            repeats=1,
        ),
        "OutcomeAgreement",
    ),
    Case(
        "bad.pipelined-put.gap",
        "F5: the version after the next one appears first",
        calm(kinds="AA", pipelines=True),
        "NoGap",
    ),
    Case(
        "bad.pipelined-put.twice",
        "F5: it was decided against a version that another engine took",
        calm(kinds="AA", pipelines=True, unchecked=("NoGap",), external="A"),
        "ExactlyOnce",
    ),
    Case(
        "bad.group-unchecked",
        "F13: members of an entry conflict with one another",
        calm(kinds="WW", group_max=2, group_is_checked=False),
        "ConsistentRead",
    ),
    Case(
        "bad.external-overwrites",
        "F12: another engine without put-if-absent",
        calm(kinds="A", external="A", external_puts_if_absent=False),
        "NoOverwrite",
    ),
    Case(
        "bad.no-pia-fenced",
        "F4: Kafka's fencing does not fence a store",
        calm(kinds="AA", puts_if_absent=False, rebalances=1),
        "NoOverwrite",
    ),
    Case(
        "bad.no-pia-restart",
        "F4: one committer, restarted, with its own PUT still on the way",
        calm(kinds="AA", puts_if_absent=False, committers=1, rebalances=1),
        "NoOverwrite",
    ),
    Case(
        "bad.publish-out-of-order",
        "F15: the offset passes what was not published",
        calm(kinds="AA", behind_max=1, publishes_in_order=False),
        "OffsetSafe",
    ),
    Case(
        "bad.torn",
        "F14: the offset of a torn transaction lands, its outcome does not",
        calm(kinds="A", publishing="torn"),
        "OffsetSafe",
    ),
    Case(
        "bad.too-old-is-rejected",
        "F10: a late repeat of what was committed is rejected",
        calm(kinds="A", cleanups=1, too_old="rejected", repeats=1),
        "OutcomeAgreement",
    ),
    Case(
        "bad.put-outlives-log",
        "F11: after cleanup an old PUT succeeds",
        calm(kinds="A", cleanups=1, puts_expire=False, views_expire=False, rebalances=1),
        "NoOverwrite",
    ),
    Case(
        "bad.stale-view",
        "F11: a committer that slept longer than the log is kept writes into the past",
        calm(kinds="A", external="A", cleanups=1, views_expire=False),
        "NoOverwrite",
    ),
)
"""The protocol without one of its rules: the named invariant must be violated."""
