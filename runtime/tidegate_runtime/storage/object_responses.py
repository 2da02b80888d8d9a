"""What an object store's response means, without importing the client libraries.

| response | meaning |
|---|---|
| 2xx | done |
| 412, and Azure's 409 `BlobAlreadyExists` | the condition was refused: read and compare |
| 408, any other 409, 425, 429, 5xx, a timeout, a reset, a 2xx that cannot be read | unknown |
| any other, and a request that was never sent | fatal |

Tell S3's own responses from those of a proxy in front of it, which may have ETags, too.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, NamedTuple

Response = Any
"""A response as the client library returns it, or the exception raised instead."""

_REFUSED_CODES: Final = ("PreconditionFailed", "BlobAlreadyExists")
_UNKNOWN_STATUS: Final = (408, 409, 425, 429)
_UNKNOWN_CODES: Final = ("RequestTimeout", "SlowDown")
_NOT_IMPLEMENTED: Final = 501
_LOST_ON_THE_WAY: Final = frozenset(
    {
        # botocore
        "ConnectionError",
        "HTTPClientError",
        "ResponseParserError",
        # azure.core
        "ServiceRequestError",
        "ServiceResponseError",
        "IncompleteReadError",
        "DecodeError",
    }
)
"""Base exceptions of the libraries after which the request may have reached the store."""

_OBJECTS_GONE: Final = ("NoSuchKey", "404", "notFound", "BlobNotFound")
"""Error codes of S3 (whose HEAD has no body), Google and Azure for a missing object. Other 404
codes are about a bucket, an access point or, Azure's `ResourceNotFound`, about rights.
"""


class ResponseMeaning(Enum):
    """What a response means."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FATAL = "fatal"


class ErrorResponse(Exception):
    """A store's response other than success, for which no library has a suitable exception."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message[:512]}")
        self.status = status
        self.code = code


def meaning_of(answer: Response) -> ResponseMeaning:
    """Return what a response means.

    Raises: the response itself, if it is an exception of neither a store nor the network.
    """
    if not isinstance(answer, BaseException):
        return ResponseMeaning.DONE
    reply = _reply(answer)
    if reply is not None:
        return _by_status(reply)
    library = type(answer).__module__.partition(".")[0]
    if library in ("botocore", "aiobotocore", "azure"):
        names = {kind.__name__ for kind in type(answer).__mro__}
        return ResponseMeaning.UNKNOWN if names & _LOST_ON_THE_WAY else ResponseMeaning.FATAL
    if library in ("google", "gcsfs"):
        # These libraries only provide the credentials: no request was sent.
        return ResponseMeaning.FATAL
    if isinstance(answer, OSError) or library == "aiohttp":
        return ResponseMeaning.UNKNOWN
    raise answer


def is_not_implemented(answer: Response) -> bool:
    """Whether a store reports that it does not support such a request or its condition."""
    reply = _reply(answer) if isinstance(answer, BaseException) else None
    return reply is not None and reply.status == _NOT_IMPLEMENTED


def is_missing(answer: Response) -> bool:
    """Whether the response says that the object is missing, and nothing else."""
    reply = _reply(answer) if isinstance(answer, BaseException) else None
    return reply is not None and reply.status == 404 and reply.code in _OBJECTS_GONE


def words(answer: Response) -> str:
    """Return a response's message with the store's code, which s3fs drops from most errors."""
    text = str(answer) or "it took too long"
    reply = _reply(answer) if isinstance(answer, BaseException) else None
    code = f"{reply.code}: " if reply and reply.code and reply.code not in text else ""
    return f"{type(answer).__name__}: {code}{text}"


def required_value(answer: Mapping[str, Any], name: str) -> Any:
    """Return a value that every response of a store to such a request has.

    Raises: ErrorResponse, if it is missing: a gateway's page may have the same status.
    """
    if name not in answer:
        raise ErrorResponse(
            0, "", f"the answer has no {name}, so it is no store's: look at the endpoint"
        )
    return answer[name]


@contextmanager
def malformed_as_error() -> Iterator[None]:
    """Turn errors over missing or malformed parts of a response into an ErrorResponse.

    Raises: ErrorResponse.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ErrorResponse(0, "", f"the answer cannot be read: {error!r}") from error


class _Reply(NamedTuple):
    """A store's own response.

    `status` is 0 if the library does not report it, and that of a success if the library failed to
    read its content.
    """

    status: int
    code: str


def _reply(answer: BaseException) -> _Reply | None:
    """Return the store's response behind an exception; s3fs keeps the original as the cause."""
    if isinstance(answer, ErrorResponse):
        return _Reply(answer.status, answer.code)
    for error in (answer, answer.__cause__):
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return _Reply(int(status), response.get("Error", {}).get("Code") or "")
    status_code = getattr(answer, "status_code", None)
    if isinstance(status_code, int):
        code = getattr(answer, "error_code", None)
        return _Reply(status_code, str(getattr(code, "value", code) or ""))
    return None


def _by_status(reply: _Reply) -> ResponseMeaning:
    if reply.status == 412 or reply.code in _REFUSED_CODES:
        return ResponseMeaning.REFUSED
    if reply.status in _UNKNOWN_STATUS or reply.code in _UNKNOWN_CODES:
        return ResponseMeaning.UNKNOWN
    if reply.status < 300 or (reply.status >= 500 and reply.status != _NOT_IMPLEMENTED):
        return ResponseMeaning.UNKNOWN
    return ResponseMeaning.FATAL


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
