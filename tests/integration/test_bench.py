"""The bench of tables, small: its figures are made and mean what they say; no time is asserted."""

from pathlib import Path

import pytest

from bench import committer_cpu, committer_state, open_table, read_table, restart

FILES = 1_000
ROWS = 1_000


@pytest.mark.timeout(300)
def test_opening_is_measured_for_every_shape_of_log(tmp_path: Path) -> None:
    found = open_table.figures(tmp_path, 1, FILES)

    assert [one.goal[:2] for one in found if one.goal != "-"] == [
        "S3",
        "S1",
        "S2",
        "S4",
        "S1",
        "S2",
    ]
    assert all(one.ratio > 0 for one in found)


@pytest.mark.timeout(300)
def test_what_is_asked_of_an_open_table_is_measured(tmp_path: Path) -> None:
    found = read_table.figures(tmp_path, 1, FILES, ROWS)

    assert [one.goal[:2] for one in found] == ["S6", "R2", "R2", "F1", "F1"]
    assert all(one.ratio > 0 for one in found)
    assert [one.measure for one in found[1:3]] == [
        "plan a scan of 10 of 1,000 files, by partition and statistics",
        "plan a scan of 10 of 1,000 files, by statistics alone",
    ]


@pytest.mark.timeout(300)
def test_what_a_committer_costs_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_cpu, "ENTRIES", 2)
    monkeypatch.setattr(committer_state, "LONG_LOG", 50)
    found = [
        *committer_cpu.figures(1),
        *committer_state.figures(tmp_path, 1, FILES),
        *restart.figures(tmp_path, 1, FILES),
    ]

    named = [one.goal.partition(":")[0] for one in found]
    assert named == [*["C11"] * 4, "S6", "<= 10 ms", "C10", "C10", "S5", "S5"]
    assert all(one.ratio > 0 for one in found)
