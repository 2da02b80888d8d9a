"""The file that a claim check names, read from the table's store."""

from tidegate.delta.errors import Unavailable
from tidegate.pipeline.proposal import ClaimCheck
from tidegate.runtime.stores.log_store import LogStore


def read_claim(store: LogStore, claim: ClaimCheck) -> bytes | None:
    """Return the bytes of a claimed file, or None where there is none.

    Of a file that is larger than the claim says, one byte more: it is refused for its size, which
    may be any. Raises: Unavailable.
    """
    try:
        with store.open(claim.path) as file:
            return file.read(claim.size + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"reading {claim.path!r} of {store.root} failed: {error}") from error
