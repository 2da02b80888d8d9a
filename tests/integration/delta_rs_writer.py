"""A delta-rs writer that commits directly. Arguments: table, name, report file, and a folder.

It appends a row at a time, and deletes one row in ten. It writes the result of each into its
report, one JSON line each; `open` means that a failed operation may have been committed. It pauses
while the folder holds the file `rest`, and ends when it holds `stop`.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64())])
DELETED_OF = 10
REST_S = 0.01
LOOKS_MAX = 100
"""A listing of a growing folder is no consistent snapshot: delta-rs may miss a version and fail."""


def main(folder: str, name: str, account: str, signs: str) -> None:
    table = DeltaTable(folder)
    number = 0
    with Path(account).open("w", encoding="utf-8", buffering=1) as file:
        while not Path(signs, "stop").exists():
            if Path(signs, "rest").exists():
                time.sleep(REST_S)
                continue
            rows = pa.table([[name], [number]], schema=SCHEMA)
            line = {"verb": "append", "number": number, "why": None, "open": False}
            try:
                write_deltalake(table, rows, mode="append")
                file.write(json.dumps({**line, "version": table.version()}) + "\n")
                if number % DELETED_OF == 0:
                    line["verb"] = "delete"
                    done = table.delete(f"writer = '{name}' AND number = {number}")
                    if done["num_deleted_rows"] != 1:
                        line["why"] = str(done)
                    file.write(json.dumps({**line, "version": table.version()}) + "\n")
            except DeltaError as error:
                is_open = not isinstance(error, CommitFailedError)
                file.write(json.dumps({**line, "why": str(error), "open": is_open}) + "\n")
                look_again(table)
            number += 1


def look_again(table: DeltaTable) -> None:
    """Update the table to its newest version."""
    for left in reversed(range(LOOKS_MAX)):
        try:
            table.update_incremental()
        except DeltaError:
            if not left:
                raise
            time.sleep(REST_S)
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
