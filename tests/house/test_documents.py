"""The documents match the code: error classes, settings, metrics, features, files."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import prometheus_client
import pytest
from pydantic import BaseModel

from tests.house import chart, rules, tree
from tests.simulation.test_mutants import MUTANTS
from tests.unit.committer.bombs import BOMBS
from tests.unit.committer.hostile_paths import PATHS
from tidegate_delta.features.supported_features import FEATURES, Feature
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import schema_name
from tidegate_messages.topics import EVERYBODY, RIGHTS, Topics
from tidegate_runtime.observability import metrics
from tidegate_runtime.service.settings import ServiceSettings

OPERATIONS = "docs/operations.md"
GUIDE = "docs/writing-from-spark.md"
ADR_PARTS = ["Context", "Decision", "Because", "We give up", "Revisit when"]
ADR_LINES_MAX = 60
CELL_WORDS_MAX = 25
ADRS = sorted(name for name in tree.files() if re.match(r"docs/adr/\d{4}-", name))
DOCUMENTS = sorted(name for name in tree.files() if name.endswith(".md"))
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")
LINK_TO_HEADING = re.compile(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)")
PLACE_IN_A_MANUAL = re.compile(r"\b([\w-]+\.md)#([\w-]+)")
SOURCE_NAME = re.compile(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|sh|yaml|md|txt|toml|json))`")
BARE_NAME = re.compile(r"`([\w-]+\.(?:py|sh|yaml|toml))`")
SHORT_FOR = {
    package.removeprefix("tidegate_"): f"{folder}/{package}"
    for package, folder in tree.PACKAGES.items()
} | {"protocol": "protocol", "deploy": "deploy"}
"""Short forms of package folders in prose paths: `committer/decision/machine.py`."""


def test_the_wire_contract_names_every_topic_message_and_schema() -> None:
    text = tree.text("docs/wire-contract.md")
    topics = {topic.name.removeprefix("tidegate.") for topic in Topics().declared()}
    formats = {*FORMATS.values(), *(schema_name(kind) for kind in FORMATS)}
    assert [name for name in sorted(topics | formats) if f"`{name}`" not in text] == []


def error_classes() -> frozenset[str]:
    """Return every class below TidegateError, wherever it is defined."""
    parents: dict[str, set[str]] = {}
    for name in tree.python_files(tests=False):
        for node in tree.nodes(tree.text(name)):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                parents.setdefault(node.name, set()).update(bases)
    result = {"TidegateError"}
    while more := {name for name, above in parents.items() if above & result} - result:
        result |= more
    return frozenset(result - {"TidegateError"})


def sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each section of the services' settings with its name, once."""
    seen: set[str] = set()
    kinds: list[type[ServiceSettings]] = [ServiceSettings]
    for name in tree.python_files(tests=False):
        if name.endswith("/settings.py") and not name.startswith("runtime/"):
            module = importlib.import_module(tree.module_of(name))
            kinds += [
                kind
                for kind in vars(module).values()
                if isinstance(kind, type) and issubclass(kind, ServiceSettings)
            ]
    for kind in kinds:
        for section, field in kind.model_fields.items():
            if section in seen:
                continue
            seen.add(section)
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield section, field.annotation


LABELS_ALLOWED = frozenset(
    ("table", "outcome", "status", "rule", "kind", "state", "why", "op", "resolved", "reason")
) | {"partition", "route"}
"""Each has few values, all set by us; a table's is of a registered table, a topic partition's of
one that the process owns, a route's of one in an ingest job's settings.
"""


def metric_labels() -> dict[str, tuple[str, ...]]:
    """Return the labels of all metrics by exposed name."""
    kinds = (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
    return {
        sample.name + ("_total" if isinstance(value, prometheus_client.Counter) else ""): tuple(
            value._labelnames
        )
        for value in vars(metrics).values()
        if isinstance(value, kinds)
        for sample in value.describe()
    }


def metric_names() -> set[str]:
    """Return the exposed names of all metrics."""
    return set(metric_labels())


def feature_row(feature: Feature) -> str:
    """Return the guide's line on a feature."""
    return f"| `{feature.name}` | {feature.reads.value} | {feature.writes.value} |"


def test_every_error_class_has_a_paragraph() -> None:
    classes = error_classes()
    assert {"Unavailable", "OutcomeUnknown", "Misconfigured", "Rejected"} <= classes
    assert not list(rules.undocumented(tree.text(OPERATIONS), classes, OPERATIONS))


def test_every_setting_is_explained_under_its_section() -> None:
    text = tree.text(OPERATIONS)
    result = dict(sections())
    assert {"kafka", "http", "log", "committer", "checkpointer", "cdc"} <= result.keys()
    assert not list(rules.undocumented(text, frozenset({*result, "storage"}), OPERATIONS))
    keys = [f"`{section}.{key}`" for section, kind in result.items() for key in kind.model_fields]
    assert [key for key in keys if key not in text] == []


def shown(value: object) -> str:
    """Return a default as the tables of settings show it."""
    mib, day_ms = 1024 * 1024, 24 * 60 * 60 * 1000
    if value is None or value == () or value == {}:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= mib and value % mib == 0:
        return f"{value // mib} MiB"
    if isinstance(value, int) and value >= day_ms and value % day_ms == 0:
        return f"{value // day_ms} days"
    if isinstance(value, int | float):
        return f"{value:g}" if value < mib else str(value)
    return str(value)


def test_every_setting_has_one_line_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \| ([^|]+) \|", tree.text(OPERATIONS), re.MULTILINE)
    in_words = {("kafka", "security"), ("kafka", "client"), ("cdc", "tables"), ("cdc", "registry")}
    result = {(section, key): default.strip("`") for section, key, default in rows}
    assert len(result) == len(rows), "a setting is explained twice"
    defaults = {
        (section, key): shown(field.get_default(call_default_factory=True))
        for section, kind in sections()
        for key, field in kind.model_fields.items()
    }
    assert result.keys() == defaults.keys()
    wrong = {
        key: (result[key], default) for key, default in defaults.items() if result[key] != default
    }
    assert wrong.keys() <= in_words, wrong


def test_every_metric_is_explained_with_its_labels_and_no_other_is() -> None:
    table = tree.text("docs/reference.md").partition("\n## Metrics\n")[2]
    rows = re.findall(r"^\| `(tidegate_\w+)` \| ([^|]*) \| [^|]+ \|$", table, re.MULTILINE)
    explained = {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert explained == metric_labels()
    documents = [name for name in DOCUMENTS if name.startswith(("docs/", "deploy/"))]
    named = {n for d in documents for n in re.findall(r"\btidegate_\w+", tree.text(d))}
    named -= tree.PACKAGES.keys()
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} - metric_names() == set()


def test_every_alert_has_its_entry_in_the_runbook_and_none_is_left_over() -> None:
    parts = re.split(r"^## ", tree.text("docs/runbook.md"), flags=re.MULTILINE)[1:]
    entries = {heading: text for heading, _, text in (part.partition("\n") for part in parts)}
    assert list(entries) == [alert["alert"] for alert in chart.alerts()]
    wanted = ("- **Check** ", "- **Do:** ", "- **Over** ")
    assert [
        name
        for name, text in entries.items()
        if not all(text.count(f"\n{part}") == 1 for part in wanted)
    ] == []


@pytest.mark.parametrize("name", ["docs/committer.md", OPERATIONS])
def test_no_cell_of_a_manual_is_a_paragraph(name: str) -> None:
    rows = [line for line in tree.text(name).splitlines() if line.startswith("|")]
    cells = [cell.split() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    long = [" ".join(words) for words in cells if len(words) > CELL_WORDS_MAX]
    assert long == [], "make it a list below the table"


def test_no_page_but_the_reference_lists_alerts() -> None:
    row = re.compile(r"^\| \[?`Tidegate[A-Z]", re.MULTILINE)
    assert [name for name in DOCUMENTS if row.search(tree.text(name))] == ["docs/reference.md"]


def test_no_label_has_values_without_end() -> None:
    assert {label for labels in metric_labels().values() for label in labels} <= LABELS_ALLOWED


def test_the_guide_describes_each_feature_as_the_code_treats_it() -> None:
    guide = tree.text(GUIDE)
    assert [name for name, row in FEATURES.items() if feature_row(row) not in guide] == []
    section = guide.partition("## Table features")[2]
    listed = re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE)
    assert [name for name in listed if name not in FEATURES] == []


def test_the_rights_of_the_manual_are_those_that_the_doctor_checks() -> None:
    rows = re.findall(
        r"^\| ([\w ]+) \| (topic|group|transactional id) ([^|]+) \| ([\w, ]+) \|$",
        tree.text(OPERATIONS),
        re.MULTILINE,
    )
    result = {
        (who, kind, name, tuple(operations.split(", ")))
        for who, kind, names, operations in rows
        for name in re.findall(r"`([\w.*-]+)`", names)
    }
    needed = {
        (who, right.kind, right.name, right.operations)
        for who, rights in (*RIGHTS.items(), ("everybody", EVERYBODY))
        for right in rights
    }
    assert result == needed


def test_the_proof_counts_what_there_is() -> None:
    proof = tree.text("docs/proof.md")
    assert f", {len(MUTANTS)} mutants |" in proof
    assert f"| {len(PATHS)} paths, {len(BOMBS)} bombs " in proof


def test_the_readme_begins_with_the_two_commands() -> None:
    commands = re.findall(r"^make \w+", tree.text("README.md"), re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]
    assert "make test" in "\n".join(tree.text("README.md").splitlines()[:8])


def test_the_map_fits_in_a_sitting() -> None:
    assert len(tree.text("ARCHITECTURE.md").splitlines()) <= 250


@pytest.mark.parametrize("name", ADRS)
def test_a_decision_is_one_page_in_five_parts(name: str) -> None:
    text = tree.text(name)
    number = int(PurePosixPath(name).name[:4])
    assert text.startswith(f"# {number}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ADR_PARTS
    assert len(text.splitlines()) <= ADR_LINES_MAX


@pytest.mark.parametrize("service", ["committer", "checkpointer", "cdc_publisher"])
def test_the_readme_of_a_service_describes_each_file(service: str) -> None:
    text = tree.text(f"{service}/README.md")
    names = [PurePosixPath(name).stem for name in tree.python_files() if name.startswith(service)]
    own = [name for name in names if name not in ("__init__", "__main__", "settings")]
    assert len(own) > 3
    assert [name for name in own if not re.search(rf"`{name}(\.py)?`", text)] == []


def test_the_map_leads_to_every_decision() -> None:
    assert [name for name in ADRS if f"]({name})" not in tree.text("ARCHITECTURE.md")] == []


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(PurePosixPath(name).name[:4]) for name in ADRS]
    assert len(numbers) >= 10
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files_that_exist(name: str) -> None:
    folder = (tree.ROOT / name).parent
    broken = [link for link in LINK.findall(tree.text(name)) if not (folder / link).exists()]
    assert not broken


def headings(name: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and MkDocs make them."""
    prose = re.sub(r"^```.*?^```", "", tree.text(name), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head).strip().lower().replace(" ", "-") for head in found}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_into_documents_lead_to_headings_that_exist(name: str) -> None:
    folder = (tree.ROOT / name).parent
    links = [
        ((folder / path).resolve().relative_to(tree.ROOT).as_posix() if path else name, place)
        for path, place in LINK_TO_HEADING.findall(tree.text(name))
    ]
    broken = [
        f"{file}#{place}"
        for file, place in links
        if file.endswith(".md") and place not in headings(file)
    ]
    assert not broken


def test_programs_name_places_of_the_documents_that_exist() -> None:
    named = {
        (f"docs/{file}", place)
        for name in tree.python_files(tests=False)
        for file, place in PLACE_IN_A_MANUAL.findall(tree.text(name))
    }
    assert ("docs/operations.md", "errors") in named
    assert [link for link in sorted(named) if link[1] not in headings(link[0])] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_prose_names_exist(name: str) -> None:
    missing = [path for path in SOURCE_NAME.findall(tree.text(name)) if not _exists(name, path)]
    assert not missing


@pytest.mark.parametrize("name", DOCUMENTS)
def test_bare_file_names_in_prose_exist(name: str) -> None:
    known = {PurePosixPath(path).name for path in tree.files()}
    assert [bare for bare in BARE_NAME.findall(tree.text(name)) if bare not in known] == []


def test_a_file_that_does_not_exist_is_found() -> None:
    assert _exists("README.md", "delta/log/commit.py")
    assert not _exists("README.md", "delta/no_such_file.py")


def _exists(document: str, path: str) -> bool:
    head, _, rest = path.partition("/")
    folders = [tree.ROOT, (tree.ROOT / document).parent]
    if head in SHORT_FOR:
        folders.append(tree.ROOT / SHORT_FOR[head])
        return any((folder / path).exists() for folder in folders[:2]) or (
            (folders[2] / rest).exists()
        )
    folders += [
        tree.ROOT / root for root in set(tree.PACKAGES.values())
    ]  # for a path such as tidegate_delta/errors.py
    folders.append(tree.ROOT / SHORT_FOR.get(document.partition("/")[0], "."))
    return any((folder / path).exists() for folder in folders)
