"""The `Spec:` lines of `tidegate_delta`: the PROTOCOL.md heading of each public name."""

import ast
import re
from collections.abc import Iterator

from tests.house import tree

HEADINGS_FILE = "docs/spec/headings.txt"
PACKAGE = "protocol/tidegate_delta/"
OURS = frozenset({f"{PACKAGE}errors.py"})
"""Modules of the package that the specification does not cover."""

_SPEC = re.compile(r"^\s*Spec:(?P<text>.*(?:\n(?!\s*(?:\w+:|$)).*)*)", re.MULTILINE)
_QUOTED = re.compile(r'"([^"]+)"')


def headings(text: str) -> frozenset[str]:
    """Return the headings in the file; its first line names their commit."""
    return frozenset(text.splitlines()[1:])


def breaches(path: str, text: str, known: frozenset[str]) -> Iterator[str]:
    """Yield each public function or class without a `Spec:` line, and each unknown heading."""
    for node in tree.parsed(text).body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        cited = [
            " ".join(quoted.split()).replace("`", "")
            for result in _SPEC.finditer(ast.get_docstring(node) or "")
            for quoted in _QUOTED.findall(result["text"])
        ]
        if not cited:
            yield f"{path}: {node.name} names no heading of PROTOCOL.md"
        for heading in cited:
            if heading not in known:
                yield f"{path}: {node.name} cites {heading!r}, which is no heading of PROTOCOL.md"


def sources() -> list[str]:
    """Return the modules whose public functions and classes need a `Spec:` line."""
    return [
        name
        for name in tree.python_files(tests=False)
        if name.startswith(PACKAGE) and name not in OURS
    ]
