"""Check that the actions of a verbatim entry are written as the protocol says.

Our own reader is lenient. Others are not: one value of the wrong type can keep them from the whole
table. What other engines do write is accepted.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from tidegate_committer.intake.action_reader import (
    check_moments,
    check_numbers,
    check_place,
    read_action,
)
from tidegate_committer.intake.proposal_actions import canonical
from tidegate_committer.intake.refusals import MALFORMED, InvalidProposal, refuse
from tidegate_delta.data_skipping.column_bounds import wrong_count
from tidegate_delta.log.actions import KINDS, Add, Cdc, CommitInfo
from tidegate_delta.value_limits import is_moment
from tidegate_messages.outcome import Rejection

FIELD: Final = "claim_check"


def misspelt_line(content: bytes, is_live: Callable[[str], bool]) -> Rejection | None:
    """Return the first line of a verbatim entry that is no valid action, as a refusal, or None.

    `is_live` says of a canonical path whether the file is in the table; such a file may lie
    anywhere.
    Law: every line is a JSON object
    """
    try:
        for number, name, body in _bodies(content):
            _check(name, body, f"{FIELD}: line {number}: {name}", is_live)
    except InvalidProposal as error:
        return error.rejection.model_copy(update={"field": FIELD})
    return None


_SAID: Final = {"domainMetadata": "removed", "cdc": "dataChange"}
"""Fields that the protocol requires. Strict readers can't open the table without them."""


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


def _check(name: str, body: Mapping[str, Any], where: str, is_live: Callable[[str], bool]) -> None:
    action = read_action(KINDS[name], body, where)
    if isinstance(action, CommitInfo):
        _check_dates(body, where)
    said = _SAID.get(name)
    if said is not None and body.get(said) is None:
        remedy = "write it: not every reader takes its absence for false"
        refuse(MALFORMED, f"{where}.{said}", "is missing", remedy)
    check_moments(action, where)
    if isinstance(action, Add):
        check_numbers(action, where)
        _check_stats(action, where)
    if isinstance(action, Cdc) or (isinstance(action, Add) and not is_live(canonical(action.path))):
        check_place(action, where)


def _check_dates(info: Mapping[str, Any], where: str) -> None:
    """Check only the times in commitInfo, because later versions depend on them."""
    for name in ("timestamp", "inCommitTimestamp"):
        value = info.get(name)
        if not is_moment(value):
            remedy = "give milliseconds since 1970, up to 2^53"
            refuse(MALFORMED, f"{where}.{name}", f"is {value}", remedy)


def _check_stats(add: Add, where: str) -> None:
    if not add.stats:
        return
    try:
        stated = orjson.loads(add.stats)
    except orjson.JSONDecodeError:
        stated = None
    wrong = wrong_count(stated) if isinstance(stated, dict) else "are no JSON object"
    if wrong is not None:
        remedy = "write statistics as PROTOCOL.md spells them, or none"
        refuse(MALFORMED, f"{where}.stats", wrong, remedy)
