"""Fuzz a target for longer than CI does: `python -m tests.fuzz NAME [SECONDS]` (`make fuzz`).

With atheris it is guided by coverage; the project does not depend on it: `pip install atheris` into
the environment. Without it, samples are mutated blindly. Without a name, every target runs in turn.
Inputs with a finding are written to `.cache/fuzz`, and it prints the command that runs them again.
"""

import hashlib
import importlib
import itertools
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any, Final

from rich.console import Console

from tests.corpora import ROOT
from tests.fuzz.mutations import mutate

FOUND: Final = ROOT / ".cache" / "fuzz"
SECONDS: Final = 60.0
ABSENT: Final = (
    "atheris is not installed (pip install atheris): mutating samples blindly, without coverage"
)


def main(args: list[str]) -> int:
    """Run the requested targets; return 1 if there was a finding."""
    console = Console()
    name, more = (args[0], args[1:]) if args else ("all", [])
    guide = coverage_guide()
    known = targets(guide)
    if name != "all" and name not in known:
        console.print(f"no target {name!r}; there are: {', '.join(known)}", markup=False)
        return 2
    if more and Path(more[0]).is_file():
        known[name].feed(Path(more[0]).read_bytes())
        return 0
    seconds = float(more[0]) if more else SECONDS
    if guide is not None and name != "all":
        guided(guide, known[name], FOUND / "corpus" / name, seconds)
        return 0
    if guide is None:
        console.print(ABSENT)
    names = list(known) if name == "all" else [name]
    result = [blind(console, name, known[name], seconds / len(names)) for name in names]
    return 1 if any(result) else 0


def coverage_guide() -> Any:
    """Return the module atheris, or None if it is not installed."""
    try:
        return importlib.import_module("atheris")
    except ModuleNotFoundError:
        return None


def targets(guide: Any) -> Mapping[str, Any]:
    """Return the targets; the guide, if any, instruments our modules that they import."""
    watched = guide.instrument_imports(include=["tidegate"]) if guide else nullcontext()
    with watched:
        known: Mapping[str, Any] = importlib.import_module("tests.fuzz.targets").TARGETS
    return known


def guided(guide: Any, target: Any, corpus: Path, seconds: float) -> None:
    """Let atheris run a target for some seconds, or until it finds something."""
    for sample in target.samples():
        keep(sample, corpus)
    result = f"-artifact_prefix={FOUND}/"
    guide.Setup([sys.argv[0], f"-max_total_time={seconds:.0f}", result, str(corpus)], target.feed)
    guide.Fuzz()


def blind(console: Console, name: str, target: Any, seconds: float) -> int:
    """Run mutated samples for some seconds; return the number of different errors."""
    seen: set[str] = set()
    samples = target.samples()
    start = time.monotonic()
    runs = 0
    for seed in itertools.count():
        if time.monotonic() - start > seconds:
            break
        dice = Random(f"{name} {seed}")
        data = mutate(dice, dice.choice(samples))
        runs += 1
        result = fed(target, data)
        if result is not None and result not in seen:
            seen.add(result)
            place = keep(data)
            console.print(f"{name}: {result}", markup=False)
            console.print(f"  again: python -m tests.fuzz {name!r} {place}", markup=False)
    console.print(f"{name}: {runs:,} runs, {len(seen)} errors", markup=False)
    return len(seen)


def fed(target: Any, data: bytes) -> str | None:
    """Return the kind and place of an error that a target must not raise, or None."""
    try:
        target.feed(data)
    except Exception as error:  # any escaping exception is a finding
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
        return f"{type(error).__name__} at {where}"
    return None


def keep(data: bytes, folder: Path = FOUND) -> Path:
    """Write an input to a file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / hashlib.sha256(data).hexdigest()[:16]
    place.write_bytes(data)
    return place


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
