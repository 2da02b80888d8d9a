"""Runs seeds, and prints what differs and what took how long: `python -m tests.judge 0 200`.

Behind the numbers: `shrink` shrinks what is found, `door` has delta-spark commit through the gate.
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.judge.running import Found, judged
from tests.judge.surroundings import surroundings


def main(seeds: list[int], *, shrinks: bool, door: bool) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        surroundings(Path(folder), len(seeds), through_the_gate=door) as judge,
    ):
        began_s = time.monotonic()

        def report(found: Found) -> None:
            _say(f"\n### [{time.monotonic() - began_s:.0f} s] {found}")

        def progress(done: int) -> None:
            if done % 50 == 0:
                _say(f"{done} sequences in {time.monotonic() - began_s:.0f} s")

        run = judged(judge, seeds, shrinks=shrinks, report=report, progress=progress)
        _say(f"\n{len(seeds)} sequences in {time.monotonic() - began_s:.0f} s")
        for signature, of in sorted(run.seeds_of.items(), key=lambda item: -len(item[1])):
            _say(f"{len(of)} {signature} {of[:8]}")
        for reason, count in run.excused.most_common():
            _say(f"{count} known: {reason}\n    such as {run.examples[reason]}")
        for what, total_s in sorted(judge.seconds.items(), key=lambda item: -item[1])[:40]:
            if not what.startswith("count"):
                times = judge.seconds[f"count {what}"]
                _say(f"{total_s:7.1f} s {times:5.0f} {total_s / times:6.2f} {what}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    first, last, *more = sys.argv[1:]
    listed = (
        [int(first), *map(int, last.split(","))] if "," in last else range(int(first), int(last))
    )
    main(list(listed), shrinks="shrink" in more, door="door" in more)
