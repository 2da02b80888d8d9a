"""Runs seeds in threads, and prints what differs: `python -m tests.judge 0 200`."""

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from queue import Empty, Queue

from tests.judge.comparison import Difference
from tests.judge.generator import case
from tests.judge.shrinking import shrunk
from tests.judge.surroundings import surroundings

THREADS = 3


def main(first: int, last: int, shrink: int = 0) -> None:
    out = sys.stdout
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, surroundings(Path(folder)) as judge:
        print("ready", round(time.monotonic() - began, 1), flush=True)
        began = time.monotonic()
        seeds: Queue[int] = Queue()
        for seed in range(first, last):
            seeds.put(seed)
        found: dict[str, list[tuple[int, Difference]]] = {}
        lock = threading.Lock()
        bad: set[int] = set()

        def work(name: str) -> None:
            own = judge.new_session(name)
            while True:
                try:
                    seed = seeds.get_nowait()
                except Empty:
                    return
                that = case(seed)
                try:
                    differences = own.check(that)
                except Exception as error:  # noqa: BLE001
                    import traceback

                    traceback.print_exc()
                    continue
                if any(not item.is_slight for item in differences):
                    bad.add(seed)
                for difference in differences:
                    with lock:
                        new = difference.signature not in found
                        found.setdefault(difference.signature, []).append((seed, difference))
                    if not new:
                        continue
                    small, seen = that, difference
                    if shrink and not difference.is_slight:
                        small, seen, runs = shrunk(own, that, difference, shrink)
                    with lock:
                        print(
                            f"\n### seed {seed} [{time.monotonic() - began:.0f} s]: {seen}"
                            f"\n{small!r}",
                            flush=True,
                        )

        threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = time.monotonic() - began
        print(f"\n{last - first} sequences in {spent:.0f} s", flush=True)
        counts = Counter({signature: len(cases) for signature, cases in found.items()})
        for signature, count in counts.most_common():
            print(count, signature, [seed for seed, _ in found[signature]][:8])
        print("alike:", last - first - len(bad))
        for what, total in judge.seconds.most_common(40):
            if not what.startswith("count"):
                count = judge.seconds[f"count {what}"]
                print(f"{total:7.1f} s {count:5} {total / count:6.2f} {what}")
    out.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
