"""Environments with exactly one service's dependencies, made from installed packages, offline.

The files of each distribution in `requirements/<service>.txt` are linked into an empty environment,
so a dependency that a service does not declare is missing.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+))?")


def pinned(service: str) -> dict[str, str]:
    """Return name -> version of the packages that a service installs on this machine."""
    lines = (ROOT / "requirements" / f"{service}.txt").read_text(encoding="utf-8").splitlines()
    result = filter(None, map(PINNED.match, lines))
    return {
        canonicalize_name(match["name"]): match["version"]
        for match in result
        if match["marker"] is None or Marker(match["marker"].strip()).evaluate()
    }


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this tree."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("tidegate-*.whl")
    return wheel


def make(folder: Path, service: str, wheel: Path) -> Path:
    """Return the interpreter of a new environment with one service's dependencies and the wheel."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name, version in pinned(service).items():
        distribution = metadata.distribution(name)
        assert distribution.version == version, f"{name}: .venv is not what the lock says"
        _link(distribution, packages)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter without access to this tree or its environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "TIDEGATE", "KAFKA", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        [str(python), *arguments],
        cwd=python.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if file.parts[0] == ".." or "__pycache__" in file.parts or not source.is_file():
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copyfile(source, target)
