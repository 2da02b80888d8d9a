"""Invariants of patches: they change in a table what they state, and nothing else."""

import json
from typing import Any

from tests.simulation.history import History, Rows

Told = dict[str, Any]


def patches_are_complete(history: History) -> str | None:
    """A version that holds a patch changes what it states, and nothing else of the metadata."""
    for root, version, _, one in history.accepted():
        body = history.sent[f"{one['id']}/{one['sha256']}"].body
        if not body.get("metadata_patch"):
            continue
        entries = history.logs[root].entries
        before = next(result for rows in reversed(entries[:version]) if (result := _metadata(rows)))
        after = _metadata(entries[version])
        wanted = before
        for change in body["metadata_patch"]["changes"]:
            wanted = _changed(wanted, change)
        if after is None or _parsed(after) != _parsed(wanted):
            return f"version {version} of {root} is not what {one['id']} says"
    return None


def _metadata(rows: Rows) -> Told | None:
    return next((row["metaData"] for row in rows if "metaData" in row), None)


def _parsed(metadata: Told) -> Told:
    return {**metadata, "schemaString": json.loads(metadata["schemaString"])}


def _changed(metadata: Told, change: Told) -> Told:
    schema = json.loads(metadata["schemaString"])
    own = dict(metadata["configuration"])
    if change["op"] == "set_property":
        own[change["key"]] = change["value"]
    elif change["op"] == "add_column":
        schema["fields"].append(change["column"])
    else:
        [field] = [item for item in schema["fields"] if [item["name"]] == change["path"]]
        field["metadata"] = {**field["metadata"], "comment": change["comment"]}
    return {**metadata, "configuration": own, "schemaString": json.dumps(schema)}
