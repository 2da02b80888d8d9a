from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from tidegate_messages.proposal import ClaimCheck, Proposal, ReadSet

ID = UUID(int=1)


def proposal(**more: Any) -> Proposal:
    known = {"proposal_id": ID, "table": UUID(int=2), "table_root": "file:///t", "read_version": 0}
    return Proposal(**{**known, **more})


def test_only_a_commit_on_nothing_is_a_create() -> None:
    assert proposal(read_version=-1).is_create
    assert not proposal(read_version=0).is_create
    assert not proposal(read_version=-1, kind="register").is_create


def test_a_proposal_does_not_change() -> None:
    with pytest.raises(ValidationError):
        proposal().read_version = 4  # type: ignore[misc]  # that is the test


def test_a_cancel_names_what_it_cancels() -> None:
    assert proposal(kind="cancel", cancels=UUID(int=9)).cancels == UUID(int=9)
    with pytest.raises(ValidationError, match="cancels"):
        proposal(kind="cancel")


def test_a_verbatim_proposal_names_its_version_and_its_bytes() -> None:
    check = ClaimCheck(path="_tidegate/proposals/x.ndjson", size=1, sha256="a" * 64)
    assert proposal(kind="verbatim", exact_version=4, claim_check=check).exact_version == 4
    with pytest.raises(ValidationError, match="exact_version"):
        proposal(kind="verbatim", claim_check=check)


@pytest.mark.parametrize("sha256", ["", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_a_hash_is_64_lower_hexadecimal_digits(sha256: str) -> None:
    with pytest.raises(ValidationError):
        ClaimCheck(path="p", size=1, sha256=sha256)


def test_an_absent_read_set_is_not_an_empty_one() -> None:
    assert proposal().reads is None
    assert ReadSet().is_empty


@pytest.mark.parametrize(
    "looked_at", [{"whole_table": True}, {"files": ("a",)}, {"predicates": ({"op": "true"},)}]
)
def test_a_read_set_that_names_rows_is_not_empty(looked_at: dict[str, Any]) -> None:
    assert not ReadSet(**looked_at).is_empty
    assert ReadSet(app_ids=("app",), domains=("d",)).is_empty
