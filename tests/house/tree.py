"""The files of the repository, as the house tests see them."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = {
    "tidegate_delta": "protocol",
    "tidegate_messages": "protocol",
    "tidegate_runtime": "runtime",
    "tidegate": "producers",
    "tidegate_producers": "producers",
    "pyspark_tidegate": "producers",
    "tidegate_committer": "committer",
    "tidegate_checkpointer": "checkpointer",
    "tidegate_cdc_publisher": "cdc_publisher",
    "tidegate_local": "deploy",
    "tidegate_demo": "deploy",
    "tidegate_console": "deploy",
}
"""Package -> its top-level folder."""

SOURCE_ROOTS = tuple(f"{folder}/{package}/" for package, folder in PACKAGES.items())
TOP_FOLDERS = (*dict.fromkeys(PACKAGES.values()), "tests", "bench", "docs")
SKIPPED = frozenset({"__pycache__", ".git", ".venv", ".cache", "dist", "build"})


@cache
def files() -> tuple[str, ...]:
    """Return every file of the repository, tracked or untracked, relative to its root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        names = listed.stdout.decode().split("\0")
    else:  # an unpacked source distribution has no git
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    return tuple(sorted(name for name in names if name and _counts(name)))


@cache
def python_files(*, tests: bool = True) -> tuple[str, ...]:
    """Return every Python file, without those of `tests/` unless requested."""
    return tuple(name for name in files() if name.endswith(".py") and (tests or not _is_test(name)))


@cache
def text(name: str) -> str:
    """Return a file's content."""
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def parsed(content: str) -> ast.Module:
    """Return the syntax tree of Python source; several rules look at the same one."""
    return ast.parse(content)


@cache
def nodes(content: str) -> tuple[ast.AST, ...]:
    """Return all nodes of the syntax tree of Python source."""
    return tuple(ast.walk(parsed(content)))


def module_of(name: str) -> str:
    """Return the dotted name under which a file of a source root is imported."""
    parts = Path(name).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _counts(name: str) -> bool:
    return not SKIPPED.intersection(Path(name).parts) and (ROOT / name).is_file()


def _is_test(name: str) -> bool:
    return name.startswith("tests/")
