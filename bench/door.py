"""Unmodified delta-spark through the gate, beside its own log store: local disk and slow store."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.committer_line import CommitterLine
from bench.door_program import WRITERS
from bench.figures import Figure, median
from bench.slow_store import BUCKET, PUT_MS
from bench.spark_beside import CONFIG
from tidegate_local.kafka_jars import ensure_jars
from tidegate_producers.log_store import spark_config

LOCAL_APPENDS: Final = 40
SLOW_APPENDS: Final = 12
MORE_MS: Final = 30.0
"""What a commit may take longer than by delta-spark's own log store."""

ENGINES: Final = ("gate", "alone")
_AWS: Final = "software.amazon.awssdk"
_AWS_VERSION: Final = "2.35.4"
S3A: Final = {
    # Hadoop's client brings the whole of Amazon's SDK, 670 MB; these are the parts that it needs.
    "packages": "org.apache.hadoop:hadoop-aws:3.5.0 "
    + " ".join(
        f"{_AWS}:{part}:{_AWS_VERSION}"
        for part in ("s3", "sts", "s3-transfer-manager", "apache-client", "netty-nio-client")
    ),
    "spark.jars.excludes": f"{_AWS}:bundle",
    "spark.hadoop.fs.s3a.access.key": "any",
    "spark.hadoop.fs.s3a.secret.key": "any",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.multiobjectdelete.enable": "false",
}


def figures(folder: Path, rounds: int, seconds: float) -> list[Figure]:
    """Return the latency of lone appends on both stores, and the rate of many writers on one table.

    The writers are threads of one driver: between processes delta-spark's own log store loses
    versions.
    """
    (folder / "tables").mkdir()
    with CommitterLine(folder) as line:
        [client] = ensure_jars(lambda line: None).glob("kafka-clients-*.jar")
        through = spark_config(line.gate.kafka)
        through["spark.jars"] += f",{client}"
        runs: dict[str, list[Mapping[str, Any]]] = {}
        for number in range(rounds):
            for engine, own in zip(ENGINES, (through, {}), strict=True):
                local = (folder / "tables" / f"{engine}-{number}").as_uri()
                run = _run({**CONFIG, **own}, local, LOCAL_APPENDS, seconds)
                runs.setdefault(f"{engine} local", []).append(run)
                slow = {**CONFIG, **S3A, "spark.hadoop.fs.s3a.endpoint": line.store.endpoint}
                run = _run({**slow, **own}, f"s3a://{BUCKET}/{engine}-{number}", SLOW_APPENDS, 0.0)
                runs.setdefault(f"{engine} slow", []).append(run)
    rate, theirs = (median([run["rate"] for run in runs[f"{one} local"]]) for one in ENGINES)
    lost, theirs_lost = (sum(run["gave_up"] for run in runs[f"{one} local"]) for one in ENGINES)
    return [
        _latency("", runs["gate local"], runs["alone local"]),
        _latency(f" on the {PUT_MS:.0f} ms store", runs["gate slow"], runs["alone slow"]),
        Figure(
            f"unmodified delta-spark, {WRITERS} threads append to one table",
            f"{rate:.1f}/s, {lost} gave up",
            f"own log store {theirs:.1f}/s, {theirs_lost} gave up",
            rate / theirs,
            "",
            recorded=None,
        ),
    ]


def _latency(
    where: str, through: list[Mapping[str, Any]], alone: list[Mapping[str, Any]]
) -> Figure:
    ours, peer = (1000 * median([median(run["took_s"]) for run in one]) for one in (through, alone))
    return Figure(
        f"unmodified delta-spark, append of one row{where}",
        f"{ours:.0f} ms",
        f"own log store {peer:.0f} ms",
        ours / peer,
        f"<= {MORE_MS:.0f} ms more",
        is_met=ours <= peer + MORE_MS,
        recorded=None,
    )


def _run(
    settings: Mapping[str, str], root: str, lone_appends: int, seconds: float
) -> Mapping[str, Any]:
    argv = [sys.executable, "-m", "bench.door_program", json.dumps(settings), root]
    argv += [str(lone_appends), str(seconds)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"bench.door_program failed:\n{done.stderr[-4000:]}")
    result: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
