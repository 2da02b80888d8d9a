"""The documents explain each rule to writers and operators."""

import ast
import re
from collections.abc import Iterable
from typing import get_args

from tests.house import tree
from tests.house.refusals import committer_sources, rules
from tidegate_committer.conflicts import conflict_rules as conflicts
from tidegate_committer.intake import refusals
from tidegate_committer.loop import gauges
from tidegate_messages.outcome import Status
from tidegate_messages.refusals import OTHER, REFUSALS, label_of

MANUAL = "docs/committer.md"
REFERENCE = "docs/reference.md"
OPERATIONS = "docs/operations.md"
GUIDE = "docs/writing-from-any-program.md"
SETTLING = (
    "protocol/tidegate_delta/definitions/feature_directives.py",
    "protocol/tidegate_delta/definitions/resolve_definition.py",
)
"""Where table definitions are checked; the committer reports these flaws under their own names."""

FEW = 5
"""Rules that a page may explain in a table of its own, because it says more than the reference."""


DOORS_THAT_LOG = (
    *("service/health", "kafka/librdkafka", "kafka/producer"),
    *("storage/object_store", "storage/s3_bucket", "table_registry", "service/runner"),
)
"""Runtime files whose log lines appear in the committer's log."""

FAULT = {"fault"}
"""Events logged with a traceback, and therefore by the logging library's own call."""


def spoken() -> set[str]:
    """Return every rule that an outcome can name."""
    named = {value for name, value in vars(refusals).items() if name.isupper() and name[0] != "_"}
    asked_by_properties = rules({name: tree.text(name) for name in SETTLING})
    by_name = {rule.__name__ for rule in conflicts.RULES}
    return rules(committer_sources()) | named | asked_by_properties | by_name


def test_the_table_of_refusals_has_every_rule_and_no_other() -> None:
    assert {"concurrent_append", "id_reused", "unknown_kind", "feature_by_hand"} <= spoken()
    assert spoken() - REFUSALS.keys() == set(), "add them to tidegate_messages/refusals.py"
    assert REFUSALS.keys() - spoken() == set(), "no code says these any more"


def test_the_reference_explains_each_rule_and_no_other() -> None:
    section = tree.text(REFERENCE).partition("\n## Refusals\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", section, re.MULTILINE)
    assert rows == [(rule, result.cause, result.remedy) for rule, result in REFUSALS.items()]


def test_no_other_page_lists_the_rules() -> None:
    pages = [name for name in tree.files() if name.startswith("docs/") and name.endswith(".md")]
    rows = {
        page: {rule for rule in REFUSALS if f"\n| `{rule}`" in tree.text(page)} for page in pages
    }
    assert {page for page, rules in rows.items() if len(rules) > FEW} == {REFERENCE}


def test_the_guide_for_writers_names_rules_that_there_are() -> None:
    section = tree.text(GUIDE).partition("\n## Why a proposal was not committed\n")[2]
    denied = section.partition("Always `denied`")[2].partition("\n\n")[0]
    assert "unknown_table" in denied
    named = re.findall(r"`(\w+)`", denied)
    assert [rule for rule in named if rule not in REFUSALS] == []


def test_a_rule_in_any_spelling_is_found() -> None:
    source = (
        "X: Final = 'by_constant'\n"
        "flaw(X, 'f', 'w', 'r')\n"
        "denied(candidate, 'by_literal' if a else 'by_other_literal', '')\n"
        "Rejection(rule='by_keyword', reason='')\n"
        "DeadLetter('set_aside', '', '')\n"
        "RULES: Final[tuple[ConflictRule, ...]] = (by_function,)\n"
        "denied(candidate, error.error_class, '')\n"
        "Flaw('by_a_definition', 'f', 'w', 'r')\n"
    )
    assert rules({"x.py": source}) == {
        "by_constant",
        "by_literal",
        "by_other_literal",
        "by_keyword",
        "set_aside",
        "by_function",
        "by_a_definition",
    }


def test_a_rule_of_nobodys_is_one_label_with_all_of_its_kind() -> None:
    assert label_of("concurrent_append") == "concurrent_append"
    assert label_of("LogGap") == OTHER


def test_the_manual_explains_every_state_of_a_table_and_of_the_loop() -> None:
    text = tree.text(MANUAL)
    tables = text.partition("\n## States of a table\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE) == list(gauges.STATES)
    loop = text.partition("\n## States of the loop\n")[2].partition("\n## ")[0]
    said = re.findall(
        r'(?:True|False), f?"(\w+):', tree.text("committer/tidegate_committer/loop/service.py")
    )
    assert set(said) == {"active", "standby", "joining"}
    assert [word for word in said if f"`{word}`" not in loop] == []


def events(names: Iterable[str]) -> set[str]:
    """Return the events that files log by name."""
    calls = [
        node
        for name in names
        for node in tree.nodes(tree.text(name))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "log_event"
    ]
    result = [call.args[1] for call in calls]
    return {str(event.value) for event in result if isinstance(event, ast.Constant)}


def explained(manual: str, heading: str) -> set[str]:
    """Return the events explained in the table below a heading."""
    section = tree.text(manual).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {event for row in rows for event in re.findall(r"`(\w+)`", row)}


def test_the_manual_explains_every_event_in_the_log_and_no_other() -> None:
    dependencies = [f"runtime/tidegate_runtime/{name}.py" for name in DOORS_THAT_LOG]
    result = events([*committer_sources(), *dependencies])
    assert {"halted", "assigned", "dead_letter"} <= result
    assert result | FAULT == explained(MANUAL, "Its log")
    section = tree.text(MANUAL).partition("\n## Its log\n")[2].partition("\n## ")[0]
    assert [status for status in get_args(Status) if f"`{status}`" not in section] == []


def test_the_manual_explains_every_event_of_the_services_that_follow() -> None:
    sources = [name for name in tree.python_files(tests=False) if not name.startswith("committer/")]
    dependencies = {
        f"runtime/tidegate_runtime/{name}.py"
        for name in ("service/health", "kafka/librdkafka", "kafka/producer", "service/runner")
    }
    result = events(name for name in sources if name not in dependencies)
    assert {"set_aside", "took_over", "compacted"} <= result
    assert result - {"unchanged", "overtaken"} == explained(OPERATIONS, "Log lines")
