"""Tell S3's own responses from those of a proxy in front of it, which may have ETags, too."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tidegate_runtime.storage.object_responses import ErrorResponse, required_value

OUTDATED: Final = ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired")
"""S3's error codes for credentials that are not valid any longer: their file may hold new ones."""

_REDIRECTS: Final = (301, 302, 307, 308)


def etag(answer: Mapping[str, Any]) -> str:
    """Return the ETag of an object's bytes.

    Raises: ErrorResponse, for a weak ETag: web servers give one to each page, S3 never does.
    """
    value = str(required_value(answer, "ETag"))
    if value.startswith("W/"):
        raise ErrorResponse(0, "", "the answer's ETag is a weak one, so it is no store's")
    return value


def check_written(answer: Mapping[str, Any]) -> None:
    """Check that a page is not taken for a success: S3's response to a PUT has no body.

    Raises: ErrorResponse.
    """
    etag(answer)
    size = answer["ResponseMetadata"]["HTTPHeaders"].get("content-length", "0")
    if size != "0":
        raise ErrorResponse(0, "", f"the answer to a PUT has {size} bytes, so it is no store's")


def check_404_origin(error: OSError) -> None:
    """Raise an ErrorResponse for a 404 without a store's error code.

    The library puts the status in its place, or nothing if the page is XML. A gateway that has lost
    its store answers every request so, which must not count as a file missing from the log.
    """
    answer = getattr(error.__cause__, "response", None) or {}
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status == 404 and answer.get("Error", {}).get("Code") in ("404", "", None):
        message = "a 404 without a code is no store's: look at the endpoint"
        raise ErrorResponse(0, "", message) from error


def ask_region_once(client: Any) -> None:
    """Let an S3 client of botocore ask for a bucket's region once after a redirect.

    It asks by a HEAD of the bucket. If that is redirected, too, it would ask again, a hundred
    times over and each time inside the last, until Python's stack ends or its connections do.
    """
    event = "before-call.s3.HeadBucket"
    client.meta.events.register(event, _as_redirected, unique_id="tidegate-region-once")


def _as_redirected(context: dict[str, Any], **_: Any) -> None:
    context.setdefault("s3_redirect", {})["redirected"] = True


def check_redirect(error: OSError) -> None:
    """Raise an ErrorResponse for a redirect that the client could not follow."""
    answer = getattr(error.__cause__, "response", None) or {}
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if status in _REDIRECTS:
        message = "the store leads elsewhere: give the endpoint_url that it leads to, or the region"
        raise ErrorResponse(status, answer.get("Error", {}).get("Code", ""), message) from error


@contextmanager
def understood() -> Iterator[None]:
    """Turn the client's errors over a response into an ErrorResponse. Raises: ErrorResponse."""
    try:
        yield
    except ValueError as error:
        raise ErrorResponse(0, "", f"the answer cannot be read: {error}") from error
