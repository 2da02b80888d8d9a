from uuid import UUID

import pytest
from pydantic import ValidationError

from tidegate_messages.ratification import Ratification, Ratified, fold

ROOT = "s3://bucket/t"


def begun(version: int) -> Ratification:
    return Ratification(table_root=ROOT, version=version)


def claim(version: int, number: int) -> Ratification:
    staged = f"{version:020d}.{UUID(int=number)}.json"
    return Ratification(table_root=ROOT, version=version, staged=staged, sha256=f"{number:064x}")


def folded(*records: Ratification) -> Ratified | None:
    ratified = None
    for record in records:
        ratified = fold(ratified, record)
    return ratified


def test_the_first_claim_to_the_next_version_has_it() -> None:
    first, second = claim(0, 1), claim(0, 2)
    assert folded(begun(-1), first, second) == Ratified(0, first)
    assert folded(begun(-1), second, first) == Ratified(0, second)


def test_the_same_claim_twice_counts_once() -> None:
    assert folded(begun(-1), claim(0, 1), claim(0, 1), claim(1, 2)) == Ratified(1, claim(1, 2))


def test_a_claim_that_leaves_a_gap_is_void_for_ever() -> None:
    assert folded(begun(-1), claim(1, 1), claim(0, 2)) == Ratified(0, claim(0, 2))


def test_a_table_begins_where_the_first_record_says() -> None:
    assert folded(begun(7), begun(3), claim(4, 1), claim(8, 2)) == Ratified(8, claim(8, 2))


def test_no_claim_counts_before_the_table_has_begun() -> None:
    assert folded(claim(0, 1)) is None
    assert folded(claim(0, 1), begun(-1)) == Ratified(-1)


@pytest.mark.parametrize("staged", ["../x.json", "0.json", f"{0:020d}.json", f"{0:020d}.x.json"])
def test_what_is_staged_lies_in_its_folder(staged: str) -> None:
    with pytest.raises(ValidationError):
        Ratification(table_root=ROOT, version=0, staged=staged, sha256="0" * 64)
