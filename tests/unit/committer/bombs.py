"""Bombs: proposals that are small to send but would be expensive to process.

Run as `bombs.py NAME FOLDER`. The process builds the bomb, limits its own memory and CPU, sends
the bomb to a committer on a real folder, and prints as JSON the outcomes of the bomb and of a
good proposal after it.
"""

import json
import os
import resource
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from tests.builders import Gate, add, an_id, metadata, proposal, protocol, rows_of
from tidegate_committer.settings import CommitterSection
from tidegate_delta.deletion_vectors import descriptors, roaring_bitmap
from tidegate_delta.log.commit import sha256
from tidegate_messages.codec import encode
from tidegate_messages.outcome import Outcome
from tidegate_messages.proposal import Proposal
from tidegate_runtime.kafka.client_protocols import Headers
from tidegate_runtime.storage.local_store import LocalStore

MEMORY_BYTES: Final = 768 * 1024 * 1024
"""The memory limit of a bomb's process, including the bomb's own bytes and those read from a file.
"""

CPU_S: Final = 60
"""Stops an endless run; a bomb normally takes a second or a few."""

MIB: Final = 1024 * 1024
DEEP: Final = 100_000


class Range:
    """A committer and a table in a folder with the file `old`, to which bombs are sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = folder.as_uri()
        section = CommitterSection(roots=(root,))
        self.gate = Gate(section, {root: LocalStore(root)})
        named = ["deletionVectors"]
        rows = (
            protocol(3, 7, readerFeatures=named, writerFeatures=named),
            metadata(enableDeletionVectors="true"),
        )
        self.ask(proposal(*rows, table_root=root, read_version=-1))
        self.ask(proposal(add("old"), table_root=root))

    def ask(self, *values: Proposal | bytes, headers: Headers = ()) -> list[Outcome]:
        """Return the outcomes of some records."""
        before = len(self.gate.outcomes())
        self.gate.send(*values, headers=headers)
        self.gate.settle()
        return self.gate.outcomes()[before:]

    def proposal(self, *rows: Any, **fields: Any) -> Proposal:
        """Return a proposal that read the version with `old`."""
        root = self.folder.as_uri()
        return proposal(*rows, table_root=root, **{"read_version": 1, **fields})

    def claiming(self, parts: Iterator[bytes], **fields: Any) -> Proposal:
        """Return a proposal whose claim check file consists of these parts."""
        one = self.proposal(**fields)
        return self._claim(one, f"_tidegate/proposals/{one.proposal_id}.ndjson", parts)

    def staging(self, parts: Iterator[bytes]) -> Proposal:
        """Return a verbatim proposal for the next version."""
        path = f"_delta_log/_staged_commits/{2:020d}.{an_id()}.json"
        nothing = {"path": path, "size": 1, "sha256": "0" * 64}
        one = self.proposal(kind="verbatim", exact_version=2, claim_check=nothing)
        return self._claim(one, path, parts)

    def _claim(self, one: Proposal, path: str, parts: Iterator[bytes]) -> Proposal:
        content = b"".join(parts)
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        claim = {"path": path, "size": len(content), "sha256": sha256(content)}
        return Proposal.model_validate({**json.loads(encode(one)), "claim_check": claim})


Bomb = Callable[[Range], Proposal | bytes]


def million_actions(here: Range) -> Proposal:
    """Ten times as many actions as allowed, each of them valid."""
    line = json.dumps(add("part-%07d.parquet")).encode() + b"\n"
    return here.claiming(line % number for number in range(1_000_000))


def million_ready_actions(here: Range) -> Proposal:
    """The same as a verbatim entry."""
    line = json.dumps(add("part-%07d.parquet")).encode() + b"\n"
    return here.staging(line % number for number in range(1_000_000))


def blank_lines(here: Range) -> Proposal:
    """A claim file of blank lines."""
    return here.claiming(iter([b"\n" * (200 * MIB)]))


def one_long_line(here: Range) -> Proposal:
    """Sixty million objects in one action."""
    return here.claiming(iter([b'{"add":{"x":[', b"{}," * (60 * MIB), b"{}]}}\n"]))


def padded_actions(here: Range) -> Proposal:
    """Actions with unknown fields, each line just under the length limit."""
    padded = json.dumps(add("part-%07d.parquet")).encode()[:-2] + b',"x":[%s{}]}}\n'
    objects = b"{}," * MIB
    return here.claiming(padded % (number, objects) for number in range(64))


def many_tags(here: Range) -> Proposal:
    """Files with more tags than bytes of data."""
    tags = {f"{number:x}": "" for number in range(200_000)}
    lines = (json.dumps(add(f"a{number}", tags=tags)).encode() + b"\n" for number in range(40))
    return here.claiming(lines)


def larger_than_it_says(here: Range) -> Proposal:
    """A claim check that states a few bytes, for a file of unlimited size."""
    one = here.claiming(iter([b"{}"]))
    assert one.claim_check is not None
    with (here.folder / one.claim_check.path).open("r+b") as file:
        file.truncate(64 * 1024 * MIB)
    return one


def deep_record(here: Range) -> bytes:
    """A record with a hundred thousand levels of nesting."""
    return b'{"a":' * DEEP + b"1" + b"}" * DEEP


def deep_action(here: Range) -> Proposal:
    """A claim file with an action of as many levels."""
    return here.claiming(iter([b'{"add":' + b"[" * DEEP + b"]" * DEEP + b"}\n"]))


def deep_statistics(here: Range) -> Proposal:
    """Statistics nested as deep as their length limit allows."""
    return here.proposal(add("a", stats='{"numRecords":1,"x":' + "[" * 8_000 + "]" * 8_000 + "}"))


def deep_schema(here: Range) -> Proposal:
    """A schema of arrays of arrays, as deep as fits into a record."""
    deep = '{"type":"array","containsNull":true,"elementType":' * 10_000
    kind = deep + '"long"' + "}" * 10_000
    text = f'{{"type":"struct","fields":[{{"name":"x","type":{kind},"nullable":true}}]}}'
    return here.proposal({"metaData": {**metadata()["metaData"], "schemaString": text}})


def deep_predicate(here: Range) -> bytes:
    """A predicate with a hundred thousand nested negations."""
    record = encode(here.proposal(add("a"), reads={"predicates": [{"op": "X"}]}))
    return record.replace(b'{"op":"X"}', b'{"op":"not","arg":' * DEEP + b"1" + b"}" * DEEP)


def wide_predicate(here: Range) -> Proposal:
    """A predicate with fifty thousand arguments."""
    parts = [{"op": "true"}] * 50_000
    return here.proposal(add("a"), reads={"predicates": [{"op": "and", "args": parts}]})


def long_number(here: Range) -> bytes:
    """A file size with half a million digits."""
    record = encode(here.proposal(add("a", size=4711)))
    return record.replace(b"4711", b"9" * 500_000)


def rows_beyond_counting(here: Range) -> Proposal:
    """A deletion vector whose stated cardinality is 2^40."""
    vector = {**rows_of("old", [1]).rows, "cardinality": 2**40}
    return here.proposal(dv_intents=[rows_of("old", [1], rows=vector, num_records=2**41)])


def vector_in_a_record(here: Range) -> Proposal:
    """A deletion vector of three billion rows, inline in one record."""
    content = _vector(1, 50_000)
    rows = {
        "storageType": "i",
        "pathOrInlineDv": descriptors.z85_encode(content + bytes(-len(content) % 4)),
        "sizeInBytes": len(content),
        "cardinality": 50_000 << 16,
    }
    return here.proposal(dv_intents=[rows_of("old", [1], rows=rows, num_records=2**33)])


def vector_in_a_file(here: Range) -> Proposal:
    """A deletion vector of three hundred billion rows, in a file of the maximal allowed size."""
    content = _vector(70, 1 << 16)
    size = struct.pack(">I", len(content))
    name = f"deletion_vector_{'00000000-0000-0000-0000-000000000000'}.bin"
    (here.folder / name).write_bytes(b"\x01" + size + content + struct.pack(">I", crc32(content)))
    rows = {
        "storageType": "u",
        "pathOrInlineDv": "0" * 20,
        "offset": 1,
        "sizeInBytes": len(content),
        "cardinality": 70 << 32,
    }
    return here.proposal(dv_intents=[rows_of("old", [1], rows=rows, num_records=2**40)])


def _vector(buckets: int, blocks: int) -> bytes:
    """Return a vector with `buckets` buckets of `blocks` blocks, every row deleted."""
    bucket = b"".join(
        [
            struct.pack("<I", 12347 | blocks - 1 << 16),
            b"\xff" * ((blocks + 7) // 8),
            *(struct.pack("<HH", block, 0xFFFF) for block in range(blocks)),
            bytes(4 * blocks),
            struct.pack("<HHH", 1, 0, 0xFFFF) * blocks,
        ]
    )
    head = struct.pack("<IQ", roaring_bitmap.MAGIC, buckets)
    return head + b"".join(struct.pack("<I", key) + bucket for key in range(buckets))


BOMBS: Final[Mapping[str, tuple[Bomb, str, str]]] = {
    "million actions": (million_actions, "rejected", "too_large"),
    "million ready actions": (million_ready_actions, "denied", "too_large"),
    "blank lines": (blank_lines, "rejected", "too_large"),
    "one long line": (one_long_line, "rejected", "too_large"),
    "padded actions": (padded_actions, "rejected", "too_large"),
    "many tags": (many_tags, "rejected", "too_large"),
    "larger than it says": (larger_than_it_says, "rejected", "claim_check"),
    "deep record": (deep_record, "set aside", "malformed"),
    "deep action": (deep_action, "rejected", "malformed"),
    "deep statistics": (deep_statistics, "rejected", "malformed"),
    "deep schema": (deep_schema, "rejected", "bad_metadata"),
    "deep predicate": (deep_predicate, "denied", "malformed"),
    "wide predicate": (wide_predicate, "rejected", "too_large"),
    "long number": (long_number, "denied", "malformed"),
    "rows beyond counting": (rows_beyond_counting, "rejected", "malformed"),
    "vector in a record": (vector_in_a_record, "rejected", "rows_out_of_range"),
    "vector in a file": (vector_in_a_file, "rejected", "vector_unreadable"),
}
"""Each bomb, and its expected outcome."""


def main(name: str, folder: str) -> None:
    """Send a bomb and print its outcome."""
    here = Range(Path(folder))
    bomb = BOMBS[name][0](here)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    room = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    outcomes = here.ask(bomb)
    if outcomes:
        rejection = outcomes[-1].rejection
        result = [outcomes[-1].status, rejection.rule if rejection else "", str(rejection)]
    else:
        result = [
            "set aside",
            *(dict(here.gate.letters()[-1].headers)[item].decode() for item in ("rule", "reason")),
        ]
    good = here.ask(here.proposal(add("good")))[-1].status
    json.dump({"told": result, "good": good}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
