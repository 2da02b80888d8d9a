"""Write files of the log that follow from its commits: any writer's file will do."""

from typing import Final

from tidegate_delta.errors import OutcomeUnknown, Unavailable
from tidegate_delta.log.file_names import in_log
from tidegate_runtime.storage.log_store import NO_CONDITION, LogStore, Put

_PUT_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 256 * 1024


def put_derived(store: LogStore, name: str, content: bytes) -> bool:
    """Write a file of the log unless it exists; return whether ours is there.

    On a store without conditional PUT, where a topic partition decides versions, check first
    whether it exists: files derived from the log may safely be written twice.
    Raises: OutcomeUnknown, when it is not known whether the file exists; Unavailable.
    """
    path = in_log(name)
    try:
        result = store.put_if_absent(path, content, _PUT_S + len(content) / _SLOWEST_BYTES_PER_S)
    except Unavailable as error:
        if error.error_class != NO_CONDITION:
            raise
        try:
            store.open(path).close()
        except FileNotFoundError:
            store.put(path, content)
            return True
        return False
    if result is Put.UNKNOWN:
        raise OutcomeUnknown(
            f"the store did not say whether {name} of table {store.root} was written; the log is "
            "read again and what is missing is written then"
        )
    return result is Put.WON
