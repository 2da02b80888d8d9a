"""Cases of verbatim proposals, with all rules and without each of them."""

from typing import Any, Final

from tests.model.cases import Case
from tests.model.cases_protocol import CALM
from tests.model.committer_state import Setting
from tests.model.verbatim import VerbatimModel
from tests.model.verbatim_setting import VerbatimSetting

NATIVE: Final = frozenset(Setting.__dataclass_fields__)


def verbatim(**setting: Any) -> VerbatimModel:
    """Return the model of verbatim proposals with only the named faults."""
    native = {**CALM, **{name: one for name, one in setting.items() if name in NATIVE}}
    own = {name: one for name, one in setting.items() if name not in NATIVE}
    return VerbatimModel(VerbatimSetting(native=Setting(**native), **own))


VERBATIM: Final = (
    Case(
        "verbatim.faults",
        "one foreign and one native writer, every fault of the store",
        verbatim(kinds="A", rebalances=1, drops=1, timeouts=1),
        asks_progress=True,
    ),
    Case(
        "verbatim.external",
        "beside another engine",
        verbatim(kinds="W", rebalances=1, external="A", attempts=4),
    ),
    Case(
        "verbatim.no-kafka-txn",
        "no transactions, no fencing: a zombie publishes freely",
        verbatim(kinds="A", rebalances=1, publishing="plain", is_fenced=False),
        asks_progress=True,
    ),
    Case(
        "verbatim.no-compare",
        "a PUT in doubt is decided again: knowing replays makes comparing a matter of speed",
        verbatim(kinds="A", compares=False, rebalances=1, timeouts=1),
        asks_progress=True,
    ),
    Case(
        "verbatim.two-foreign",
        "two foreign writers, one of which may conflict",
        verbatim(kinds="A", writers="AW", attempts=4),
        asks_progress=True,
    ),
    Case(
        "verbatim.refusals",
        "beside native refusals in the log",
        verbatim(
            kinds="A", writers="W", deniable="0", rule_changes=1, refusals="logged", rebalances=1
        ),
    ),
    Case(
        "verbatim.cleanup",
        "a version below the log is expired, not taken",
        verbatim(kinds="A", cleanups=1, rebalances=1),
    ),
    Case(
        "verbatim.publish-behind",
        "publishing trails by one batch",
        verbatim(kinds="AA", behind_max=1),
        asks_progress=True,
    ),
    Case(
        "verbatim.gap",
        "one version too far is denied",
        verbatim(kinds="A", gaps=1),
        asks_progress=True,
    ),
    Case(
        "verbatim.staged-file-lost",
        "the staged file is rewritten or cleaned away",
        verbatim(kinds="A", spoils=1, rebalances=1),
    ),
    Case(
        "verbatim.guard",
        "a writer that stages again without a refusal, and a search for its transaction",
        verbatim(kinds="A", impatient=1, guards=True, rebalances=1),
    ),
    Case(
        "verbatim.guard.no-replay-rule",
        "that search alone keeps the work from being committed twice, though answers are wrong",
        verbatim(kinds="A", guards=True, knows_replays=False, only="ExactlyOnce"),
    ),
    Case(
        "verbatim.right-of-way",
        "one refusal for native groups at most, whatever their number",
        verbatim(kinds="AAA"),
        asks_progress=True,
    ),
    Case(
        "verbatim.right-of-way.runs-out",
        "one more for a hold that runs out",
        verbatim(kinds="AAA", replays=0, expiries=1, attempts=4),
    ),
    Case(
        "verbatim.right-of-way.takeover",
        "a takeover during a hold costs one refusal and nothing else",
        verbatim(kinds="AA", replays=0, rebalances=1, attempts=4),
        asks_progress=True,
    ),
    Case(
        "verbatim.right-of-way.two-foreign",
        "held for each refused writer",
        verbatim(kinds="AA", writers="AA", replays=0, attempts=4),
    ),
    Case(
        "verbatim.right-of-way.turn",
        "between two holds a native group is committed",
        verbatim(kinds="AA", writers="AA", replays=0, attempts=4, begins="turn"),
        asks_progress=True,
    ),
    Case(
        "verbatim.large",
        "every fault, beside another engine",
        verbatim(kinds="A", rebalances=1, drops=1, timeouts=1, external="A", attempts=4),
    ),
    Case(
        "verbatim.large.group",
        "beside native groups",
        verbatim(kinds="AA", group_max=2, writers="W", rebalances=1, timeouts=1, attempts=4),
    ),
    Case(
        "verbatim.large.2-proposals",
        "beside two native proposals",
        verbatim(kinds="AW", rebalances=1, attempts=4),
    ),
    Case(
        "verbatim.large.turn",
        "turns, a takeover and a hold that runs out",
        verbatim(kinds="AA", begins="turn", rebalances=1, expiries=1, attempts=5),
    ),
    Case(
        "verbatim.large.takeover",
        "a takeover beside three native proposals",
        verbatim(kinds="AAA", replays=0, rebalances=1, attempts=4),
    ),
)
"""Verbatim proposals with all rules."""

WITHOUT: Final = (
    Case(
        "bad.verbatim-no-replay-rule",
        "a lost answer, and the writer loses to its own bytes",
        verbatim(kinds="", knows_replays=False, only="ExactlyOnce"),
        "ExactlyOnce",
    ),
    Case(
        "bad.verbatim-no-replay-rule.outcome",
        "the same, at the moment of the answer",
        verbatim(kinds="", knows_replays=False),
        "OutcomeAgreement",
    ),
    Case(
        "bad.verbatim-no-replay-rule.conflict",
        "the writer conflicts with itself and gives up what is committed",
        verbatim(kinds="", writers="W", knows_replays=False, only="ClientAgreement"),
        "ClientAgreement",
    ),
    Case(
        "bad.verbatim-rebased",
        "the bytes are written at another version than theirs",
        verbatim(kinds="A", at="head"),
        "ExactVersion",
    ),
    Case(
        "bad.verbatim-rebased.read",
        "the same: what it removes is of a table that is no more",
        verbatim(kinds="W", writers="W", at="head", only="ConsistentRead"),
        "ConsistentRead",
    ),
    Case(
        "bad.verbatim-rebased.twice",
        "the same: a repeat is not known again",
        verbatim(kinds="A", at="head", only="ExactlyOnce"),
        "ExactlyOnce",
    ),
    Case(
        "bad.verbatim-changed",
        "a commitInfo of the committer's around the actions: a repeat is not known again",
        verbatim(kinds="", keeps_bytes=False, only="ExactlyOnce"),
        "ExactlyOnce",
    ),
    Case(
        "bad.verbatim-no-refresh",
        "denied because the committer's view was old",
        verbatim(kinds="A", external="A", refreshes=False),
        "DeniedOnlyGap",
    ),
    Case(
        "bad.verbatim-denied-is-a-promise",
        "denied for a gap, committed when it is delivered again",
        verbatim(kinds="A", gaps=1, only="DeniedStays"),
        "DeniedStays",
    ),
    Case(
        "bad.verbatim-gap-rewrites",
        "a rewrite one version too far follows a version that its writer never saw",
        verbatim(kinds="W", writers="W", gaps=1, gap_kinds="W"),
        "ConsistentRead",
    ),
    Case(
        "bad.verbatim-cleaned-is-taken",
        "a late repeat whose version is cleaned away gets the answer that it lost",
        verbatim(kinds="", cleanups=1, cleaned="taken", only="ExactlyOnce"),
        "ExactlyOnce",
    ),
    Case(
        "bad.verbatim-claim-by-path",
        "a repeat is compared with a staged file that is no more",
        verbatim(kinds="", spoils=1, claims="path", only="ExactlyOnce"),
        "ExactlyOnce",
    ),
    Case(
        "bad.verbatim-impatient",
        "new bytes without a refusal: bytes alone do not identify the work",
        verbatim(kinds="", impatient=1, replays=0, only="ExactlyOnce"),
        "ExactlyOnce",
    ),
    Case(
        "bad.verbatim-no-right-of-way",
        "refused as often as native groups are committed",
        verbatim(kinds="AA", hold="none"),
        "RightOfWay",
    ),
    Case(
        "bad.verbatim-no-overtaking",
        "the hold waits for a proposal that waits behind what is held",
        verbatim(kinds="AA", replays=0, overtakes=False),
        "Trapped",
    ),
    Case(
        "bad.verbatim-offset-overtakes",
        "the offset passes native proposals that are held",
        verbatim(kinds="AA", keeps_low_water=False),
        "OffsetSafe",
    ),
    Case(
        "bad.verbatim-hold-for-ever",
        "the refused writer gave up, and native groups wait",
        verbatim(kinds="AA", writers="W", replays=0, holds_end=False),
        "Trapped",
    ),
    Case(
        "bad.verbatim-hold-for-last",
        "two refused writers, and the first is forgotten",
        verbatim(kinds="AA", writers="AA", replays=0, attempts=4, hold="last"),
        "RightOfWay",
    ),
    Case(
        "bad.verbatim-repeat-ends-hold",
        "a late repeat of the refused proposal ends the hold",
        verbatim(kinds="AA", ends_on="replay"),
        "RightOfWay",
    ),
    Case(
        "bad.verbatim-takeover-is-free",
        "a takeover loses the hold",
        verbatim(kinds="AA", replays=0, rebalances=1, refusals_per_takeover=0),
        "RightOfWay",
    ),
)
"""Verbatim proposals without one of their rules."""
