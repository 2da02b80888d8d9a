"""Write files of the log that follow from its commits: any writer's file will do."""

from typing import Final

from tidegate_delta.errors import OutcomeUnknown
from tidegate_delta.log.file_names import in_log
from tidegate_runtime.storage.log_store import LogStore, Put

_PUT_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 256 * 1024


def put_derived(store: LogStore, name: str, content: bytes) -> bool:
    """Write a file of the log unless it exists; return whether ours is there.

    Raises: OutcomeUnknown, when it is not known whether the file exists; Unavailable.
    """
    deadline_s = _PUT_S + len(content) / _SLOWEST_BYTES_PER_S
    result = store.put_if_absent(in_log(name), content, deadline_s)
    if result is Put.UNKNOWN:
        raise OutcomeUnknown(
            f"the store did not say whether {name} of table {store.root} was written; the log is "
            "read again and what is missing is written then"
        )
    return result is Put.WON
