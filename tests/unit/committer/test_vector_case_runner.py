"""The conflict vectors: delta-spark's decisions, and a digest against unnoticed changes of ours."""

import copy
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.vector_case_runner import judge
from tidegate_committer.conflicts.conflict_rules import RULES_VERSION
from tidegate_delta.errors import UnsupportedFeature

DIGESTS = {
    1: "d83f4686be56150e",
    2: "f1368923cd4a34e3",
    3: "d368d8c7ece675fe",
    4: "5b7484586067c4a7",
    5: "8c551b5c863f5173",
    6: "8c551b5c863f5173",
    7: "8c551b5c863f5173",
    8: "d938dbd09e3bd56b",
    9: "d938dbd09e3bd56b",
    10: "d938dbd09e3bd56b",
    11: "d938dbd09e3bd56b",
    12: "d938dbd09e3bd56b",
    13: "d938dbd09e3bd56b",
    14: "d938dbd09e3bd56b",
    15: "d938dbd09e3bd56b",
    16: "d938dbd09e3bd56b",
    17: "d938dbd09e3bd56b",
    18: "d938dbd09e3bd56b",
    19: "d938dbd09e3bd56b",
}
"""Rules version -> digest of all verdicts. Raise the version when you change a verdict.

A refusal that names a feature more exactly keeps its verdict but changes the digest.
"""

DECIDED_MIN = 511
Case = dict[str, Any]


@pytest.fixture(scope="module")
def cases(own_corpus: Path) -> list[Case]:
    """Return every case of the conflict vectors."""
    files = sorted((own_corpus / "conflicts").glob("*.json"))
    return [case for file in files for case in json.loads(file.read_text())["cases"]]


def verdict_on(case: Case) -> str:
    """Return verdict and error class, or the name of the missing capability."""
    hidden = ("expected", "finer_allowed", "stricter_allowed")
    question = copy.deepcopy({key: case[key] for key in case if key not in hidden})
    try:
        answer = judge(question)
    except UnsupportedFeature as error:
        return f"unsupported {error.feature}"
    return f"{answer['verdict']} {answer['error_class']}"


def test_nothing_is_committed_that_delta_spark_refuses(cases: list[Case]) -> None:
    for case in cases:
        said = verdict_on(case)
        if said.startswith("committed") and not case.get("finer_allowed"):
            assert case["expected"]["verdict"] == "committed", case["name"]


def test_conflicts_have_delta_sparks_names(cases: list[Case]) -> None:
    for case in cases:
        said, expected = verdict_on(case), case["expected"]
        if said.startswith("conflict") and not case.get("stricter_allowed"):
            assert said == f"conflict {expected['error_class'].partition('.')[0]}", case["name"]


def test_the_times_of_a_case_are_in_utc(cases: list[Case]) -> None:
    [case] = [case for case in cases if case["name"] == "partition_types/timestamp-eq-hit"]
    later = json.loads(json.dumps(case["winners"]).replace("00:00:00", "00:00:01"))
    assert verdict_on(case).startswith("conflict")
    assert verdict_on({**case, "winners": later}).startswith("committed")


def test_most_cases_of_plain_tables_are_decided(cases: list[Case]) -> None:
    said = Counter(verdict_on(case).split()[0] for case in cases)
    assert sum(said.values()) - said["unsupported"] >= DECIDED_MIN


def test_a_changed_verdict_raises_the_version_of_the_rules(cases: list[Case]) -> None:
    said = [(case["name"], verdict_on(case)) for case in cases]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    assert DIGESTS[RULES_VERSION] == digest[:16], "raise RULES_VERSION and note the new digest"


def test_who_adds_a_constraint_to_a_table_of_before_the_features_is_vouched_for(
    cases: list[Case],
) -> None:
    [case] = [case for case in cases if case["name"] == "metadata/only-loser-vs-delete"]
    case = copy.deepcopy(case)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    metadata = copy.deepcopy(case["table"]["metaData"])
    metadata["configuration"]["delta.constraints.positive"] = "x > 0"
    case["table"]["protocol"] = protocol
    for row in case["table"]["base"][0]:
        if "protocol" in row:
            row["protocol"] = protocol
    case.update(actions=[{"metaData": metadata}], winners=[])
    case["operation"] = {"name": "ADD CONSTRAINT", "parameters": {}}
    case["reads"].update(whole_table=True, predicates=[], files=[])
    answer = judge(case)
    assert answer["verdict"] == "committed"
    [written] = [row["protocol"] for row in answer["committed"] if "protocol" in row]
    assert written == {"minReaderVersion": 1, "minWriterVersion": 3}


def test_who_appends_to_an_identity_column_is_vouched_for(cases: list[Case]) -> None:
    """A delta-spark transaction need not state the identity values of its rows."""
    [case] = [case for case in cases if case["name"] == "metadata/identity-tagged"]
    [appending] = [case for case in cases if case["name"] == "metadata/only-loser-vs-delete"]
    case = copy.deepcopy(case)
    [body] = [row["add"] for row in appending["table"]["base"][0] if "add" in row][:1]
    case["actions"] = [{"add": {**body, "path": "p=1/part-q.parquet"}}]
    case["operation"] = {"name": "WRITE", "parameters": {"mode": "Append"}}
    case["reads"].update(predicates=[], files=[])
    answer = judge(case)
    assert (answer["verdict"], answer["error_class"]) == ("committed", None)
    assert not any("metaData" in row for row in answer["committed"])


def test_a_removal_is_published_without_partition_values_that_are_null(cases: list[Case]) -> None:
    """The judge answers in delta-spark's form; the log keeps them as they came."""
    [case] = [case for case in cases if case["name"] == "metadata/only-loser-vs-delete"]
    case = copy.deepcopy(case)
    for row in case["table"]["base"][0]:
        if "add" in row:
            row["add"]["partitionValues"] = {"p": None}
    [body] = [row["add"] for row in case["table"]["base"][0] if "add" in row][:1]
    gone = {name: body[name] for name in ("path", "size", "partitionValues")}
    case.update(actions=[{"remove": {**gone, "dataChange": True}}], winners=[])
    case["operation"] = {"name": "DELETE", "parameters": {}}
    removes = [row["remove"] for row in judge(case)["committed"] if "remove" in row]
    assert [remove["partitionValues"] for remove in removes] == [{}]


def test_what_a_case_leaves_out_is_nothing(cases: list[Case]) -> None:
    """Empty read lists and null actions mean the same as missing ones."""
    [case] = [case for case in cases if case["name"] == "delete_delete/same-file"]
    bare = copy.deepcopy(case)
    bare["reads"] = {key: result or None for key, result in case["reads"].items()}
    del bare["reads"]["app_ids"]
    for rows in (*bare["table"]["base"], *bare["winners"], bare["actions"]):
        for row in rows:
            row.update(dict.fromkeys({"add", "remove", "metaData", "txn"} - row.keys()))
    bare["operation"]["parameters"] = case["operation"]["parameters"] or None
    assert verdict_on(bare) == verdict_on(case)
