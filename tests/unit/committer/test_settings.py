from dataclasses import fields
from pathlib import Path

import pytest

from tidegate_committer.policy import Policy
from tidegate_committer.settings import CommitterSection, CommitterSettings
from tidegate_delta.errors import Misconfigured
from tidegate_runtime.service.settings import load


def test_no_root_is_allowed_unless_configured() -> None:
    assert CommitterSection().roots == ()


def test_the_defaults_of_settings_and_policy_agree() -> None:
    assert CommitterSection().policy == Policy()


def test_what_is_set_reaches_the_judgement() -> None:
    result = CommitterSection(group_members_max=3, id_window=9, weakest_isolation="Serializable")
    policy = result.policy
    assert (policy.group_members_max, policy.window) == (3, 9)
    assert policy.weakest_isolation == "Serializable"


def test_every_limit_that_can_be_set_reaches_the_judgement() -> None:
    shared = {field.name for field in fields(Policy)} & CommitterSection.model_fields.keys()
    limits = {name: 7 for name in shared if type(getattr(Policy, name)) is int}
    assert {"actions_max", "claim_bytes_max"} <= limits.keys()
    policy = CommitterSection.model_validate(limits).policy
    assert {name: getattr(policy, name) for name in limits} == limits


def test_roots_come_from_the_command_line() -> None:
    overrides = {"committer.roots": "file:///a,s3://b/c"}
    assert load(CommitterSettings, None, overrides).committer.roots == ("file:///a", "s3://b/c")


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("/data/lake/", "file:///data/lake"),
        ("/data/my lake", "file:///data/my%20lake"),
        ("file:///data/my%20lake", "file:///data/my%20lake"),
        ("s3a://lake/", "s3://lake/"),
        ("file:///", "file:///"),
    ],
)
def test_roots_are_spelled_as_those_of_tables(given: str, means: str) -> None:
    assert load(CommitterSettings, None, {"committer.roots": given}).committer.roots == (means,)


@pytest.mark.parametrize("given", ["lake", "hdfs://lake/tables", "file://lake"])
def test_a_root_under_which_no_table_can_lie_is_refused(given: str) -> None:
    with pytest.raises(Misconfigured, match=r"committer\.roots .*is no place for tables"):
        load(CommitterSettings, None, {"committer.roots": given})


def test_an_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Misconfigured, match="refusals_per_s"):
        load(CommitterSettings, None, {"committer.refusal_per_s": "1"})


def test_a_number_is_not_a_list_and_the_error_shows_how_to_write_one(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("committer: {roots: 7}")
    with pytest.raises(Misconfigured, match=r"committer\.roots .*a list, or text with commas"):
        load(CommitterSettings, file, {})
