"""Queries on an open table: is a file live, which files to scan, what changed."""

from pathlib import Path

from bench import generated_changes, generated_logs
from bench.figures import Figure, at_least, at_most
from bench.fresh import OURS, THEIRS, Runs, alternate, middle
from bench.generated_logs import Shape

PLAN_S = 0.3
WARM_BYTES = 120
FIRST_S = 0.05

WARM = {"keys": (OURS, "warm keys"), "set": (OURS, "warm set")}
PLANS = {
    "ours": (OURS, "plan"),
    "statistics": (OURS, "plan by statistics"),
    "delta-rs": (THEIRS, "plan"),
}
CHANGES = {"ours": (OURS, "changes"), "delta-rs": (THEIRS, "changes")}


def figures(folder: Path, rounds: int, files: int, rows: int) -> list[Figure]:
    """Return S6 and R2 for a table with this many files, and F1 for one with this many rows."""
    table, changing = folder / "table", folder / "changing"
    generated_logs.generate(table, Shape.V2, files)
    generated_changes.generate(changing, rows)
    return [
        *_warm(files, alternate(WARM, [table], rounds)),
        *_plans(files, alternate(PLANS, [table], rounds)),
        *_changes(alternate(CHANGES, [changing], rounds)),
    ]


def _warm(files: int, runs: Runs) -> list[Figure]:
    us, plain = middle(runs["keys"], "extra"), middle(runs["set"], "extra")
    lookups = middle(runs["keys"], "counted") / middle(runs["keys"], "s")
    return [
        Figure(
            f"a warm set of {files:,} live files, bytes a file",
            f"{us:.0f} B",
            f"a set of str {plain:.0f} B",
            us / plain,
            f"S6: <= {WARM_BYTES} B",
            f"{lookups:,.0f} lookups/s, each hit confirmed",
            is_met=us <= WARM_BYTES,
            recorded=at_most(0.55),
        )
    ]


def _plans(files: int, runs: Runs) -> list[Figure]:
    peer = runs["delta-rs"]
    peer_text = f"limit {PLAN_S} s; delta-rs, by partition alone, {middle(peer, 's'):.2f} s"
    plan_figures = []
    for way, by, recorded in (
        ("ours", "partition and statistics", at_most(0.7)),
        ("statistics", "statistics alone", at_most(2.33)),
    ):
        us = runs[way]
        plan_figures.append(
            Figure(
                f"plan a scan of {middle(us, 'counted'):,.0f} of {files:,} files, by {by}",
                f"{middle(us, 's'):.3f} s",
                peer_text,
                middle(us, "s") / PLAN_S,
                f"R2: <= {PLAN_S} s",
                f"CPU time {middle(us, 'cpu_s'):.3f} s; the snapshot is open, nothing is cached",
                is_met=middle(us, "s") <= PLAN_S,
                recorded=recorded,
            )
        )
    return plan_figures


def _changes(runs: Runs) -> list[Figure]:
    us, peer = ((middle(runs[way], "counted") / middle(runs[way], "s")) for way in CHANGES)
    first, peer_first = (middle(runs[way], "extra") for way in CHANGES)
    cpu = middle(runs["ours"], "cpu_s") / middle(runs["delta-rs"], "cpu_s")
    return [
        Figure(
            "changes read to Arrow, rows/s",
            f"{us:,.0f}/s",
            f"delta-rs load_cdf {peer:,.0f}/s",
            us / peer,
            "F1: >= 0.5",
            f"CPU time {cpu:.2f} of delta-rs's; {middle(runs['ours'], 'mib'):.0f} MiB",
            is_met=us / peer >= 0.5,
            recorded=at_least(0.55),
        ),
        Figure(
            "changes, first batch",
            f"{1e3 * first:.0f} ms",
            f"limit {1e3 * FIRST_S:.0f} ms; delta-rs {1e3 * peer_first:.0f} ms",
            first / FIRST_S,
            f"F1: <= {1e3 * FIRST_S:.0f} ms",
            is_met=first <= FIRST_S,
            recorded=at_most(0.36),
        ),
    ]
