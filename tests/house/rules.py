"""House rules that no linter has, as functions from a source file to its breaches.

Each rule takes a path relative to the repository and the file's text, and yields one sentence for
each breach; `test_house.py` applies them to the tree, `test_rules.py` shows that each can fail.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tests.house.tree import nodes

LINES_MAX = 600
"""Longer files are reported, so that a reader can decide whether they hold one thing."""

FUNCTION_LINES_MAX = 60

NOWHERE = frozenset({"utils.py", "util.py", "common.py", "helpers.py", "base.py", "misc.py"})
"""File names that say nothing about the content."""

TYPES_HOME = "protocol/tidegate_delta/schema/types.py"

CLASS_WORDS = re.compile(
    r"(Manager|Handler|Processor|Helper|Util|Utils|Base|Impl|Context|Worker|Task|Job|Data|Info"
    r"|Payload)$"
)
CLASSES_ALLOWED = frozenset({"CommitInfo", "PartitionWorker"})
"""Delta's own word, and the one class that is a worker: of one topic partition."""

HEADINGS = ("Law", "Shape", "Units", "Raises", "Spec")
OTHER_HEADINGS = re.compile(r"^\s*(Args|Arguments|Returns|Yields|Parameters|Note|Notes|Example)s?:")

FOLDERS_OF_ONE_MACHINE = ("work", "root", "home", "Users", "mnt", "media", "srv")
MACHINE_PATHS = re.compile(
    rf"(?<![\w.~$}}])/(?:{'|'.join(FOLDERS_OF_ONE_MACHINE)})/[\w.]|\b[A-Z]:\\Users\b"
)

INDEX_OPTIONS = ("index-url", "extra-index-url", "find-links", "trusted-host")
INDEX_HOSTS = (
    "pypi.org",
    "pythonhosted.org",
    "npmjs.org",
    "maven.org",
    "proxy.golang.org",
    "artifactory",
    "nexus",
)
INDEX_ADDRESSES = re.compile(
    rf"(?<![\w-])(?:--(?:{'|'.join(INDEX_OPTIONS)})\b|(?:{'|'.join(INDEX_OPTIONS)})\s*=)"
    rf"|https?://[\w.-]*(?:{'|'.join(map(re.escape, INDEX_HOSTS))}|[\w./-]*/simple\b)"
)
UNFINISHED = re.compile(r"#\s*(TODO|FIXME|XXX|HACK)\b")
BARE_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[[\w, -]+\]\s+#\s*\S|\[[\w, -]+\]\s+\S)")


def too_long(path: str, text: str) -> Iterator[str]:
    """Yield a remark if a file may hold more than one thing."""
    lines = len(text.splitlines())
    if lines > LINES_MAX:
        yield f"{path} has {lines} lines: does it hold one thing?"


def long_functions(path: str, text: str) -> Iterator[str]:
    """Yield each function that does not fit on a screen."""
    for node in _functions(nodes(text)):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            yield f"{path}: {node.name} has {lines} lines, {FUNCTION_LINES_MAX} are allowed"


def bad_name(path: str, text: str) -> Iterator[str]:
    """Yield a breach if the name of a file or class says nothing."""
    name = PurePosixPath(path).name
    if name in NOWHERE or (name == "types.py" and path != TYPES_HOME):
        yield f"{path}: name the file after what it holds"
    for node in nodes(text):
        if (
            isinstance(node, ast.ClassDef)
            and CLASS_WORDS.search(node.name)
            and node.name not in CLASSES_ALLOWED
        ):
            yield f"{path}: class {node.name} is named after a role in no story"


def calls(path: str, text: str, banned: frozenset[str]) -> Iterator[str]:
    """Yield each call of a banned builtin."""
    for node in nodes(text):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in banned
        ):
            yield f"{path}:{node.lineno} calls {node.func.id}()"


def misplaced_imports(path: str, text: str) -> Iterator[str]:
    """Yield imports inside functions, and blocks that only a type checker executes."""
    for function in _functions(nodes(text)):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield f"{path}:{node.lineno} imports inside {function.name}"
    for node in nodes(text):
        if isinstance(node, ast.Name) and node.id == "TYPE_CHECKING":
            yield f"{path}:{node.lineno} uses TYPE_CHECKING: a layer is in the wrong place"


def swallowed(path: str, text: str) -> Iterator[str]:
    """Yield handlers that drop an error, and blanket ones that do not raise again."""
    for node in nodes(text):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if all(isinstance(step, ast.Pass) or _is_ellipsis(step) for step in node.body):
            yield f"{path}:{node.lineno} swallows an error: say what it means or let it pass"
        elif _is_blanket(node.type) and not isinstance(node.body[-1], ast.Raise):
            yield f"{path}:{node.lineno} catches everything and does not end by raising"


def bare_ignores(path: str, text: str) -> Iterator[str]:
    """Yield each `type: ignore` without a code and a reason."""
    for number, line in enumerate(text.splitlines(), 1):
        if BARE_IGNORE.search(line):
            yield f"{path}:{number} ignores a type error without a code and a reason"


def unfinished(path: str, text: str) -> Iterator[str]:
    """Yield each note to finish something later."""
    for number, line in enumerate(text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{path}:{number} is unfinished"


def foreign_headings(path: str, text: str) -> Iterator[str]:
    """Yield docstring headings that are not the house's, or not in the house's order."""
    for name, docstring in _docstrings(nodes(text)):
        seen = []
        for line in docstring.splitlines():
            if OTHER_HEADINGS.match(line):
                yield f"{path}: the docstring of {name} has {line.strip().split(':')[0]}:"
            result = re.match(rf"({'|'.join(HEADINGS)}):", line.strip())
            if result and result[1] not in seen:
                seen.append(result[1])
        if seen != sorted(seen, key=HEADINGS.index):
            yield f"{path}: the headings of {name} are {seen}, the order is {list(HEADINGS)}"


def machine_paths(path: str, text: str) -> Iterator[str]:
    """Yield each mention of a folder that exists on one machine only."""
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATHS.search(line):
            yield f"{path}:{number} names a machine's path: {line.strip()[:80]}"


def index_addresses(path: str, text: str) -> Iterator[str]:
    """Yield each address of a package registry, and each option that takes one."""
    for number, line in enumerate(text.splitlines(), 1):
        if INDEX_ADDRESSES.search(line):
            yield f"{path}:{number} names a registry: {line.strip()[:80]}"


def undocumented(text: str, words: frozenset[str], path: str) -> Iterator[str]:
    """Yield each word without a paragraph of its own (a heading with it in backticks)."""
    headings = [line for line in text.splitlines() if line.startswith("#")]
    for word in sorted(words):
        if not any(f"`{word}`" in heading for heading in headings):
            yield f"{path} has no paragraph headed `{word}`"


def _functions(found: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in found:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _docstrings(found: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in found:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield getattr(node, "name", "the module"), docstring


def _is_blanket(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_is_blanket(elt) for elt in kind.elts)
    return kind is None or (
        isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"}
    )


def _is_ellipsis(step: ast.stmt) -> bool:
    return (
        isinstance(step, ast.Expr)
        and isinstance(step.value, ast.Constant)
        and step.value.value is Ellipsis
    )
