"""Unmodified delta-spark through the gate, beside its own log store, on a local disk."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.door_program import LONE, WRITERS
from bench.figures import Figure, median
from bench.spark_beside import CONFIG
from tidegate_local.kafka_jars import ensure_jars
from tidegate_local.local_stack import LocalStack
from tidegate_producers.log_store import spark_config

MORE_MS: Final = 30.0
"""What a commit may take longer than by delta-spark's own log store."""


def figures(stack: LocalStack, folder: Path, rounds: int, seconds: float) -> list[Figure]:
    """Return the latency of lone appends, and the rate of many writers on one table."""
    [client] = ensure_jars(lambda line: None).glob("kafka-clients-*.jar")
    through = {**CONFIG, **spark_config(stack.kafka)}
    through["spark.jars"] += f",{client}"
    runs: dict[str, list[Mapping[str, Any]]] = {"alone": [], "gate": []}
    for number in range(rounds):
        for name, settings in (("alone", CONFIG), ("gate", through)):
            place = folder / "tables" / f"{name}-{number}"
            runs[name].append(_run(settings, place, seconds))
    ours, peer = (_latency_ms(runs[name]) for name in ("gate", "alone"))
    rate, theirs = (median([run["rate"] for run in runs[name]]) for name in ("gate", "alone"))
    lost, theirs_lost = (sum(run["gave_up"] for run in runs[name]) for name in ("gate", "alone"))
    return [
        Figure(
            f"unmodified delta-spark, append of one row, median of {LONE}",
            f"{ours:.0f} ms",
            f"own log store {peer:.0f} ms",
            ours / peer,
            f"<= {MORE_MS:.0f} ms more",
            is_met=ours <= peer + MORE_MS,
            recorded=None,
        ),
        Figure(
            f"unmodified delta-spark, {WRITERS} threads append to one table",
            f"{rate:.1f}/s, {lost} gave up",
            f"own log store {theirs:.1f}/s, {theirs_lost} gave up",
            rate / theirs,
            "",
            recorded=None,
        ),
    ]


def _run(settings: Mapping[str, str], folder: Path, seconds: float) -> Mapping[str, Any]:
    argv = [sys.executable, "-m", "bench.door_program", json.dumps(settings), str(folder)]
    done = subprocess.run([*argv, str(seconds)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"bench.door_program failed:\n{done.stderr[-4000:]}")
    result: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _latency_ms(runs: list[Mapping[str, Any]]) -> float:
    return 1000 * median([median(run["took_s"]) for run in runs])
