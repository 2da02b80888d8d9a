"""Check metaData and protocol of all foreign tables by the rules for definitions and changes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidegate_delta.definitions.definition import Definition
from tidegate_delta.definitions.definition_changes import check_change
from tidegate_delta.definitions.drop_feature import Drop, dropped
from tidegate_delta.definitions.resolve_definition import resolve_definition
from tidegate_delta.errors import BrokenLog
from tidegate_delta.log.actions import Metadata, Protocol
from tidegate_delta.log.commit import Commit
from tidegate_delta.log.file_names import Version
from tidegate_delta.log.protocol_versions import canonical

JUDGED_MIN = 390
"""Definitions that the corpus had when these rules were first tested on it."""

FLAWED = {
    # Directives for a feature that was never final, left by the writer.
    "delta-rs/err-table_d": {"instruction_kept"},
    "delta-rs/err-table_e": {"instruction_kept"},
    "delta-rs/err-table_f": {"instruction_kept"},
    "delta-rs/err-table_i": {"instruction_kept"},
    # Made to be refused.
    "delta-rs/simple_table_features": {"malformed_protocol", "listed_for_readers_alone"},
    # The Java kernel requires less of catalog-managed tables than delta-spark does.
    "kernel-java/catalog-owned-preview": {"needed_feature_missing"},
    # Collations are a proposal, not part of the protocol yet.
    "golden/collations-table": {"collated_column"},
    "pr/collations": {"collated_column"},
    # Older than identity columns: delta-spark removes them with the next change.
    "spark/identity_test_written_by_version_5": {"feature_not_listed"},
}
"""Tables that break rules, with the rules."""


class Change(NamedTuple):
    """A commit that writes metaData or protocol, with the definition before it."""

    table: str
    version: int
    before: Definition | None
    metadata: Metadata | None
    protocol: Protocol | None
    operation: str
    parameters: dict[str, str]

    @property
    def after(self) -> Definition:
        """The definition after the commit."""
        metadata = self.metadata or (self.before and self.before.metadata)
        protocol = self.protocol or (self.before and self.before.protocol)
        assert metadata is not None
        assert protocol is not None
        return Definition(metadata, protocol)

    @property
    def dropping(self) -> str | None:
        """The feature that the commit drops."""
        return self.parameters.get("featureName") if self.operation == "DROP FEATURE" else None


def read(path: Path) -> Commit | None:
    """Return a commit without its file actions, or None for another file."""
    result = (b'"metaData"', b'"protocol"', b'"commitInfo"')
    lines = [line for line in path.read_bytes().splitlines() if any(key in line for key in result)]
    try:
        return Commit.decode(Version(int(path.stem)), b"\n".join(lines))
    except BrokenLog:
        return None


def changes(corpus: Path) -> Iterator[Change]:
    """Yield each change of a definition in each table of the corpus, in order."""
    for log in sorted((corpus / "tables").rglob("_delta_log")):
        table = str(log.parent.relative_to(corpus / "tables"))
        last: Definition | None = None
        for path in sorted(log.glob("[0-9]" * 20 + ".json")):
            result = read(path)
            if result is None or not (result.metadata or result.protocol):
                continue
            if last is None and not (result.metadata and result.protocol):
                continue
            row: Any = result.info.to_row()["commitInfo"] if result.info else {}
            one = Change(
                table,
                int(path.stem),
                last,
                result.metadata,
                result.protocol,
                row.get("operation", ""),
                row.get("operationParameters") or {},
            )
            last = one.after
            yield one


def in_order(protocol: Protocol) -> Protocol:
    """Return a protocol with sorted lists, whose order has no meaning."""
    return protocol.with_(
        reader_features=protocol.reader_features and tuple(sorted(protocol.reader_features)),
        writer_features=protocol.writer_features and tuple(sorted(protocol.writer_features)),
    )


def test_what_others_wrote_is_sound_but_for_what_is_known(corpus: Path) -> None:
    judged, flawed = 0, dict[str, set[str]]()
    for change in changes(corpus):
        judged += 1
        for flaw in check_change(change.before, change.after, dropping=change.dropping):
            flawed.setdefault(change.table, set()).add(flaw.rule)
    assert flawed == FLAWED
    assert judged >= JUDGED_MIN


def test_the_protocols_of_delta_spark_are_canonical(corpus: Path) -> None:
    seen = 0
    for change in changes(corpus):
        if change.table.startswith("spark44/") and change.protocol is not None:
            assert in_order(change.protocol) == canonical(change.protocol), change
            seen += 1
    assert seen > 50


def test_a_change_of_metadata_brings_the_protocol_that_delta_spark_wrote(corpus: Path) -> None:
    seen = 0
    for change in changes(corpus):
        if not change.table.startswith("spark44/") or change.metadata is None or change.dropping:
            continue
        if change.before is None or change.protocol is None:
            continue
        result = json.loads(change.parameters.get("properties", "{}"))
        asked = change.metadata.with_(configuration={**change.metadata.configuration, **result})
        settled = resolve_definition(change.before, asked)
        assert settled.flaws == (), change
        assert canonical(settled.definition.protocol) == canonical(change.protocol), change
        seen += 1
    assert seen >= 15


def test_dropping_a_feature_writes_what_delta_spark_wrote(corpus: Path) -> None:
    seen = 0
    for change in changes(corpus):
        if change.dropping is None or change.protocol is None or change.before is None:
            continue
        truncates = change.parameters.get("truncateHistory") == "true"
        made = dropped(
            Drop(change.dropping, truncates_history=truncates), change.before, change.version
        )
        assert made.protocol == in_order(change.protocol), change
        assert made.metadata.configuration == change.after.metadata.configuration, change
        seen += 1
    assert seen >= 4


def test_what_delta_spark_refuses_in_a_change_is_refused_with_its_class(corpus: Path) -> None:
    verdicts = []
    for path in sorted((corpus / "conflicts").glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            table = case["table"]
            before = Definition(
                Metadata.model_validate(table["metaData"]),
                Protocol.model_validate(table["protocol"]),
            )
            wanted = [a["metaData"] for a in case["actions"] if "metaData" in a]
            given = [a["protocol"] for a in case["actions"] if "protocol" in a]
            if len(wanted) > 1 or len(given) > 1 or not (wanted or given):
                continue
            operation = case["operation"]
            dropping = (
                operation["name"] == "DROP FEATURE" and operation["parameters"]["featureName"]
            )
            settled = resolve_definition(
                before,
                Metadata.model_validate(wanted[0]) if wanted else before.metadata,
                Protocol.model_validate(given[0]) if given else None,
            )
            flaws = check_change(before, settled.definition, dropping=dropping or None)
            invalid = case["expected"]["verdict"] == "invalid"
            classes = [flaw.error_class for flaw in (*settled.flaws, *flaws)]
            assert classes[:1] == ([case["expected"]["error_class"]] if invalid else []), case[
                "name"
            ]
            verdicts.append(invalid)
    assert sum(verdicts) >= 1
    assert len(verdicts) >= 40
