"""Bombs (small to send, expensive to process) are refused with a reason, within bounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora import ROOT
from tests.unit.committer.bombs import BOMBS


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_bounded_time_and_memory(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.committer.bombs", name, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    answer = json.loads(done.stdout)
    status, rule, reason = answer["told"]
    assert (status, rule) == BOMBS[name][1:], reason
    assert reason
    assert answer["good"] == "committed"
