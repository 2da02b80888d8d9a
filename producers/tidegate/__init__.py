"""The public API of Tidegate: `from tidegate import Client, Table`.

`Table`, `TidegateSource` and `use_session` need PySpark, which is imported when one of them is
first used; everything else works without it. Types for editors are in `__init__.pyi`.
"""

from importlib import import_module
from typing import Any

from tidegate_delta.errors import (
    InvalidRequest,
    Misconfigured,
    OutcomeUnknown,
    TidegateError,
    Unavailable,
)
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import AppTxn, Operation, Proposal, ReadSet
from tidegate_producers.cached_clients import client_for
from tidegate_runtime.client.client import Client, Rejected, result
from tidegate_runtime.client.proposal_drafts import Stamp, Target
from tidegate_runtime.kafka.settings import KafkaSettings

__all__ = [
    "AppTxn",
    "Client",
    "InvalidRequest",
    "KafkaSettings",
    "Misconfigured",
    "Operation",
    "Outcome",
    "OutcomeUnknown",
    "Proposal",
    "ReadSet",
    "Rejected",
    "Stamp",
    "Table",
    "Target",
    "TidegateError",
    "TidegateSource",
    "Unavailable",
    "client_for",
    "result",
    "use_session",
]

_NEEDS_PYSPARK = {
    "Table": "tidegate_producers.table",
    "TidegateSource": "tidegate_producers.datasource",
    "use_session": "tidegate_producers.datasource",
}


def __getattr__(name: str) -> Any:
    """Return a public name that needs PySpark, importing it first.

    Raises: AttributeError, for a name that is not public; ModuleNotFoundError, if PySpark is not
    installed (`pip install tidegate[producers]`).
    """
    if name in _NEEDS_PYSPARK:
        return getattr(import_module(_NEEDS_PYSPARK[name]), name)
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
