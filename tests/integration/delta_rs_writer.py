"""A writer with delta-rs that knows no gate: arguments are table, name, account, and a folder.

It appends a row and then the next, and takes one of ten away again. What it was told of each it
writes into its account, a line of JSON each. It rests while the folder holds the file `rest`, and
ends when it holds `stop`.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

SCHEMA = pa.schema([("writer", pa.string()), ("number", pa.int64())])
DELETED_OF = 10
REST_S = 0.01


def main(folder: str, name: str, account: str, signs: str) -> None:
    table = DeltaTable(folder)
    number = 0
    with Path(account).open("w", encoding="utf-8", buffering=1) as told:
        while not Path(signs, "stop").exists():
            if Path(signs, "rest").exists():
                time.sleep(REST_S)
                continue
            rows = pa.table([[name], [number]], schema=SCHEMA)
            verb = "append"
            try:
                write_deltalake(table, rows, mode="append")
                told.write(json.dumps({"verb": verb, "number": number, "why": None}) + "\n")
                if number % DELETED_OF == 0:
                    verb = "delete"
                    table.delete(f"writer = '{name}' AND number = {number}")
                    told.write(json.dumps({"verb": verb, "number": number, "why": None}) + "\n")
            except DeltaError as error:
                told.write(json.dumps({"verb": verb, "number": number, "why": str(error)}) + "\n")
                table.update_incremental()
            number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
