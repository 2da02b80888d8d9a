"""The `Spec:` lines of `tidegate_delta`: the PROTOCOL.md heading of each module or public name."""

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
    """Yield each public function or class without a heading, of its own or of its module, and each
    unknown heading, and each that is only its module's.
    """
    module = tree.parsed(text)
    of_module = _spec_of(module)
    yield from _unknown(path, "the module", of_module, known)
    for node in module.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        own = _spec_of(node)
        if not own and not of_module:
            yield f"{path}: neither {node.name} nor its module names a heading of PROTOCOL.md"
        if own and own == of_module:
            yield f"{path}: {node.name} repeats the headings of its module"
        yield from _unknown(path, node.name, own, known)


def _unknown(path: str, name: str, spec: str, known: frozenset[str]) -> Iterator[str]:
    for quoted in _QUOTED.findall(spec):
        heading = quoted.replace("`", "")
        if heading not in known:
            yield f"{path}: {name} cites {heading!r}, which is no heading of PROTOCOL.md"


def _spec_of(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """Return what stands behind `Spec:` in a docstring, on one line, or ""."""
    docstring = ast.get_docstring(node) or ""
    return " ".join(" ".join(found["text"] for found in _SPEC.finditer(docstring)).split())


def sources() -> list[str]:
    """Return the modules whose public functions and classes need a `Spec:` line, or one of their
    module.
    """
    return [
        name
        for name in tree.python_files(tests=False)
        if name.startswith(PACKAGE) and name not in OURS
    ]
