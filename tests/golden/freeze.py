"""Writes down what a release promises to the next one: messages, their schemas, settings, topics.

    python -m tests.golden.freeze      # tests/golden/<version>/, of the version in pyproject.toml

Until a version is released its folder may be written anew; afterwards never. The tests
(`tests/house/test_golden.py`) compare every folder with the code.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.house import chart
from tidegate_messages.codec import FORMATS
from tidegate_messages.json_schemas import examples_of, schema_files
from tidegate_messages.topics import Topics
from tidegate_runtime.release import RELEASE

FOLDER = Path(__file__).parent
SERVICES = ("committer", "checkpointer", "cdc-publisher")


def settings_of(service: str) -> dict[str, Any]:
    """Return a service's settings and their defaults, by dotted name."""
    return dict(_leaves(chart.settings_of(service)(), ()))


def _leaves(model: BaseModel, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _leaves(value, (*path, name))
        else:
            dumped = model.model_dump(mode="json", include={name})[name]
            yield ".".join((*path, name)), dumped


def topics() -> dict[str, Any]:
    """Return the topics as they are declared, for three partitions."""
    return {
        topic.name: {"partitions": topic.partitions, "config": topic.properties}
        for topic in Topics("tidegate.", 3).declared()
    }


def examples() -> dict[str, dict[str, Any]]:
    """Return the examples of all messages, by format and name: `proposal/1 create`."""
    return {
        f"{form} {name}": body
        for kind, form in FORMATS.items()
        for name, body in examples_of(kind).items()
    }


def write(folder: Path) -> None:
    """Write the golden files into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    content = {
        "settings": {service: settings_of(service) for service in SERVICES},
        "topics": topics(),
        "messages": examples(),
        "schemas": {name: json.loads(text) for name, text in schema_files().items()},
    }
    for name, what in content.items():
        text = json.dumps(what, indent=1, sort_keys=True, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(FOLDER / RELEASE)
