"""Find every rule by which a proposal can fail, in the committer's code."""

import ast
from collections.abc import Iterator

from tests.house import tree

COMMITTER = "committer/tidegate_committer/"
PLACES = {"flaw": 0, "Flaw": 0, "refuse": 0, "DeadLetter": 0, "denied": 1}
"""Call -> the index of its argument that is the rule."""


def rules(sources: dict[str, str]) -> set[str]:
    """Return the rules in some sources: names of the functions in RULES, constants, and literals.

    A variable is skipped: its rule is defined elsewhere, or it is an error's class.
    """
    trees = [tree.parsed(text) for text in sources.values()]
    constants = {name: value for tree in trees for name, value in _constants(tree)}
    result: set[str] = set()
    for item in trees:
        for node in ast.walk(item):
            if isinstance(node, ast.Call):
                result.update(_rules(_rule_of(node), constants))
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "RULES":
                result.update(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
    return result - {"RULES", "Final", "ConflictRule", "tuple"}


def committer_sources() -> dict[str, str]:
    """Return the committer's source files."""
    names = [name for name in tree.python_files(tests=False) if name.startswith(COMMITTER)]
    return {name: tree.text(name) for name in names}


def _constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.target, ast.Name) and isinstance(node.value.value, str):
            yield node.target.id, node.value.value


def _rule_of(call: ast.Call) -> ast.expr | None:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name in ("Rejection", "Conflict"):
        return next((keyword.value for keyword in call.keywords if keyword.arg == "rule"), None)
    place = PLACES.get(name)
    return call.args[place] if place is not None and len(call.args) > place else None


def _rules(rule: ast.expr | None, constants: dict[str, str]) -> Iterator[str]:
    if isinstance(rule, ast.Constant):
        yield str(rule.value)
    elif isinstance(rule, ast.Name) and rule.id in constants:
        yield constants[rule.id]
    elif isinstance(rule, ast.IfExp):
        yield from _rules(rule.body, constants)
        yield from _rules(rule.orelse, constants)
