"""What S3 says, told from what whoever lies before it says: pages have a status, too, and ETags."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tidegate_runtime.storage.object_responses import ErrorResponse, said

OUTDATED: Final = ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired")
"""S3's error codes for credentials that are no longer good: their file may hold new ones by now."""


def etag(answer: Mapping[str, Any]) -> str:
    """Return what S3 calls an object's bytes. Raises: Refusal, for a weak ETag as web servers and
    their frameworks give to each page: S3 knows none.
    """
    told = str(said(answer, "ETag"))
    if told.startswith("W/"):
        raise ErrorResponse(0, "", "the answer's ETag is a weak one, so it is no store's")
    return told


def check_written(answer: Mapping[str, Any]) -> None:
    """Take no page for a success: to a PUT S3 has nothing to say but headers. Raises: Refusal."""
    etag(answer)
    size = answer["ResponseMetadata"]["HTTPHeaders"].get("content-length", "0")
    if size != "0":
        raise ErrorResponse(0, "", f"the answer to a PUT has {size} bytes, so it is no store's")


def check_whose(error: OSError) -> None:
    """Raise a Refusal for a 404 without a store's code, which the library replaces by the number,
    or by nothing where the page happens to be XML.

    A gateway that has lost its stores says that to whatever it is asked, and a file that is missing
    from a log is another matter.
    """
    answer = getattr(error.__cause__, "response", None) or {}
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status == 404 and answer.get("Error", {}).get("Code") in ("404", "", None):
        why = "a 404 without a code is no store's: look at the endpoint"
        raise ErrorResponse(0, "", why) from error


@contextmanager
def understood() -> Iterator[None]:
    """Have the client trip over an answer as over a refusal. Raises: Refusal."""
    try:
        yield
    except RecursionError as error:
        # Redirected, it asks for the bucket's region, is redirected, asks for it again, and so on.
        why = "the store leads elsewhere: give the endpoint_url that it leads to, or the region"
        raise ErrorResponse(307, "", why) from error
    except ValueError as error:
        raise ErrorResponse(0, "", f"the answer cannot be read: {error}") from error
