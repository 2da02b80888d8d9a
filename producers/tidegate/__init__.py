"""The public API of Tidegate: `from tidegate import Client, Table`.

`Client` needs no Spark. `Table`, `TidegateSource` and `use_session` need PySpark; `spark_config` is
for jobs of delta-spark. Each is imported when it is first used, so that the module itself loads
quickly. Types for editors are in `__init__.pyi`.
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
from tidegate_runtime.client.client import Rejected, result
from tidegate_runtime.client.proposal_builders import Stamp, Target
from tidegate_runtime.kafka.settings import KafkaSettings

__all__ = [
    "LOG_STORE_PACKAGES",
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
    "log_store_jar",
    "result",
    "spark_config",
    "use_session",
]

_LOADED_LATER = {
    "Client": "tidegate_producers.client",
    "LOG_STORE_PACKAGES": "tidegate_producers.log_store",
    "log_store_jar": "tidegate_producers.log_store",
    "spark_config": "tidegate_producers.log_store",
    "Table": "tidegate_producers.table",
    "TidegateSource": "tidegate_producers.datasource",
    "use_session": "tidegate_producers.datasource",
}


def __getattr__(name: str) -> Any:
    """Return a public name that is imported only when it is used.

    Raises: AttributeError, for a name that is not public; ModuleNotFoundError, if what it needs is
    not installed (`pip install tidegate[client]`, or with PySpark `tidegate[producers]`).
    """
    if name in _LOADED_LATER:
        return getattr(import_module(_LOADED_LATER[name]), name)
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
