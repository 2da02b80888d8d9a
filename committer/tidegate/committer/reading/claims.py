"""The file that a claim check names, read from the table's store."""

from tidegate.delta.errors import BrokenLog, Unavailable
from tidegate.pipeline.proposal import ClaimCheck
from tidegate.runtime.stores.log_store import LogStore


def read_claim(store: LogStore, claim: ClaimCheck) -> bytes | str | None:
    """Return the bytes of a claimed file, None where there is none, or why it is none to be read.

    Of a file that is larger than the claim says, one byte more: it is refused for its size, which
    may be any. Raises: Unavailable; InvalidRequest, for a root that leads elsewhere.
    """
    try:
        with store.open(claim.path) as file:
            return file.read(claim.size + 1)
    except FileNotFoundError:
        return None
    except BrokenLog as error:
        return error.fault
    except Unavailable as error:
        if isinstance(error.__cause__, PermissionError):
            # Of one file no retry cures that, and all that waits for the table would wait for it.
            return error.fault
        raise
    except OSError as error:
        raise Unavailable(f"reading {claim.path!r} of {store.root} failed: {error}") from error
