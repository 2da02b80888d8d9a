"""Claim checks of tables on a file system: regular files below the root, all others refused."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.builders import (
    TABLE,
    Gate,
    Row,
    add,
    an_id,
    create,
    digest_of,
    metadata,
    proposal,
    protocol,
    remove,
)
from tests.support.feature_rows import WIDE
from tests.support.outcomes import rejection_of, rules_of
from tidegate_committer.settings import CommitterSection
from tidegate_messages.proposal import Operation, Proposal, ReadSet
from tidegate_runtime.storage.local_store import LocalStore

FEATURES = protocol(3, 7, readerFeatures=["deletionVectors"], writerFeatures=["deletionVectors"])
VECTOR = {"storageType": "u", "pathOrInlineDv": "0" * 19 + "1", "offset": 1, "sizeInBytes": 34}


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    (tmp_path / "roots").mkdir()
    return tmp_path / "roots"


def gate_over(roots: Path, *tables: str) -> Gate:
    section = CommitterSection(roots=(f"file://{roots}",), audit_s=1e9)
    gate = Gate(section)
    for name in tables:
        store = LocalStore(str(roots / name), within=section.roots)
        gate.stores[store.root] = store
    return gate


@pytest.fixture
def new_gate(roots: Path) -> Gate:
    """A committer on a file system."""
    return gate_over(roots, "t")


@pytest.fixture
def first_proposals(roots: Path) -> list[Proposal]:
    """A table with deletion vectors."""
    opened = [FEATURES, metadata(enableDeletionVectors="true"), add("old", stats=WIDE)]
    creation = Operation(name="CREATE TABLE")
    return [of_t(roots, *opened, read_version=-1, operation=creation)]


def of_t(roots: Path, *actions: Row, **fields: Any) -> Proposal:
    """Return a proposal for the table `t`, by default with read version 0."""
    return proposal(*actions, **{"table_root": f"file://{roots}/t", "read_version": 0, **fields})


ODDITIES: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a folder": lambda place: place.mkdir(),
    "a loop": lambda place: place.symlink_to(place),
    "a device": lambda place: place.symlink_to("/dev/zero"),
    "a foreign file": lambda place: place.symlink_to("/etc/passwd"),
}


def claim_check(roots: Path) -> tuple[Proposal, str]:
    own = an_id()
    path = f"_tidegate/proposals/{own}.ndjson"
    claim = {"path": path, "size": 1, "sha256": digest_of(b"x")}
    return of_t(roots, proposal_id=own, claim_check=claim), path


def staged_commit(roots: Path) -> tuple[Proposal, str]:
    path = f"_delta_log/_staged_commits/{1:020d}.{an_id()}.json"
    claim = {"path": path, "size": 1, "sha256": digest_of(b"x")}
    return of_t(roots, kind="verbatim", claim_check=claim, exact_version=1), path


def deletion_vector(roots: Path) -> tuple[Proposal, str]:
    new: Row = add("old", deletionVector={**VECTOR, "cardinality": 1}, stats=WIDE)
    reads = ReadSet(files=("old",))
    path = "deletion_vector_00000000-0000-0000-0000-000000000001.bin"
    return of_t(roots, remove("old"), new, reads=reads), path


@pytest.mark.parametrize("what", ODDITIES)
@pytest.mark.parametrize(
    ("referring", "answer", "field"),
    [
        (claim_check, ("rejected", "claim_check"), "claim_check"),
        (staged_commit, ("denied", "staged_file"), "claim_check"),
        (deletion_vector, ("rejected", "vector_unreadable"), None),
    ],
)
def test_what_is_no_file_of_the_table_is_not_read_and_the_table_goes_on(
    gate: Gate,
    roots: Path,
    referring: Callable[[Path], tuple[Proposal, str]],
    answer: tuple[str, str],
    field: str | None,
    what: str,
) -> None:
    one, path = referring(roots)
    (roots / "t" / path).parent.mkdir(parents=True, exist_ok=True)
    ODDITIES[what](roots / "t" / path)
    first, second = gate.ask(one, of_t(roots, add("b")))
    rejection = rejection_of(first)
    assert (first.status, rejection.rule) == answer
    assert field in (None, rejection.field)
    assert path in rejection.reason
    size = Path("/etc/passwd").stat().st_size
    assert str(size) not in rejection.reason, "nothing is said of a foreign file"
    assert second.status == "committed"


# Roots


def request(kind: str, root: str) -> Proposal:
    if kind == "register":
        return proposal(kind="register", table=TABLE, table_root=root)
    return create(table=TABLE, table_root=root)


@pytest.mark.parametrize("kind", ["register", "create"])
def test_a_root_that_leads_out_of_the_allowed_ones_is_denied(
    roots: Path, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    if kind == "register":
        before = gate_over(tmp_path, "outside")
        before.ask(create(table=UUID(int=7), table_root=f"file://{outside}"))
    there = sorted(outside.rglob("*"))
    (roots / "t").symlink_to(outside)
    gate = gate_over(roots, "t")
    [outcome] = gate.ask(request(kind, f"file://{roots}/t"))
    rejection = rejection_of(outcome)
    assert (outcome.status, rejection.rule) == ("denied", "root_not_allowed")
    assert rejection.field == "table_root"
    assert "committer.roots" in rejection.reason
    assert gate.tables() == {}
    assert sorted(outside.rglob("*")) == there


def test_the_roots_may_be_linked_by_the_operator(roots: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(roots)
    gate = gate_over(tmp_path / "data", "t")
    root = f"file://{tmp_path}/data/t"
    assert rules_of(gate.ask(create(table=TABLE, table_root=root))) == ["committed"]


def test_a_table_whose_folder_is_led_elsewhere_is_halted_until_it_is_back(
    gate: Gate, roots: Path, tmp_path: Path
) -> None:
    (roots / "t").rename(tmp_path / "elsewhere")
    (roots / "t").symlink_to(tmp_path / "elsewhere")
    [outcome] = gate.ask(of_t(roots, add("b")))
    assert (outcome.status, rejection_of(outcome).rule) == ("denied", "table_halted")
    assert "committer.roots" in rejection_of(outcome).reason
    (roots / "t").unlink()
    (tmp_path / "elsewhere").rename(roots / "t")
    gate.clock.boot += 60.0
    gate.settle()
    assert rules_of(gate.ask(of_t(roots, add("b")))) == ["committed"]
