"""Keep a copy of a table in a JSON file, from its change stream, each change exactly once.

    python table_copy.py BROKERS TABLE FILE [--prefix tidegate.] [--once]

After each whole version FILE is replaced: it holds the rows by their keys, and the position behind
them. Kill the program at any moment and start it again with the same arguments. The publisher needs
`cdc.provide_transaction_metadata=true`. With --once it copies what there is, and ends.
"""

import argparse
import json
import os
from pathlib import Path

from tidegate import KafkaSettings, changes


def main() -> None:
    """Follow the stream until it is quiet, or for ever."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("brokers", "table", "file"):
        parser.add_argument(name)
    parser.add_argument("--prefix", default="tidegate.")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    file = Path(arguments.file)
    saved = json.loads(file.read_text()) if file.exists() else {"rows": [], "position": None}
    copy = changes.TableCopy.of(saved["rows"])
    kafka = KafkaSettings(bootstrap_servers=arguments.brokers, topic_prefix=arguments.prefix)
    with changes.follow(arguments.table, kafka, saved["position"]) as stream:
        for version in stream.versions(quiet_s=15.0 if arguments.once else None):
            for change in version.changes:
                copy.apply(change)
            # Rows and position are one file, replaced in one step: neither is without the other.
            written = file.with_suffix(".new")
            written.write_text(json.dumps({"rows": copy.saved, "position": version.position}))
            os.replace(written, file)


if __name__ == "__main__":
    main()
