"""What an object store's answer suggests, without the libraries that bring it.

| answer | suggests |
|---|---|
| 2xx | done |
| 412, and Azure's 409 `BlobAlreadyExists` | the condition was refused: read and compare |
| 408, any other 409, 425, 429, 5xx, a timeout, a reset, a 2xx that cannot be read | unknown |
| any other, and what was never sent | fatal |
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, NamedTuple

Response = Any
"""A reply as the client library gives it, or the exception that came in its place."""

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
"""The libraries' roots of what may have reached the store all the same."""

_OBJECTS_GONE: Final = ("NoSuchKey", "404", "notFound", "BlobNotFound")
"""What S3 (whose HEAD has no words), Google and Azure say of an object that is not there. Others
are of a bucket, of an access point, or, Azure's `ResourceNotFound`, of rights.
"""


class ResponseMeaning(Enum):
    """What an answer suggests."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FATAL = "fatal"


class ErrorResponse(Exception):
    """A store's answer other than success, where no library has an exception that keeps it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message[:512]}")
        self.status = status
        self.code = code


def judge(answer: Response) -> ResponseMeaning:
    """Return what an answer suggests.

    Raises: the answer itself, when it is an exception that no store and no network brings.
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
        # Only what brings the credentials is at work here: nothing was sent.
        return ResponseMeaning.FATAL
    if isinstance(answer, OSError) or library == "aiohttp":
        return ResponseMeaning.UNKNOWN
    raise answer


def is_not_implemented(answer: Response) -> bool:
    """Whether a store says that it does not know such a request, or a condition of it."""
    reply = _reply(answer) if isinstance(answer, BaseException) else None
    return reply is not None and reply.status == _NOT_IMPLEMENTED


def is_missing(answer: Response) -> bool:
    """Whether the answer says that the object, and nothing else, is not there."""
    reply = _reply(answer) if isinstance(answer, BaseException) else None
    return reply is not None and reply.status == 404 and reply.code in _OBJECTS_GONE


def words(answer: Response) -> str:
    """Return what an answer says, with the store's code: s3fs keeps the bare message of most."""
    text = str(answer) or "it took too long"
    reply = _reply(answer) if isinstance(answer, BaseException) else None
    code = f"{reply.code}: " if reply and reply.code and reply.code not in text else ""
    return f"{type(answer).__name__}: {code}{text}"


def said(answer: Mapping[str, Any], word: str) -> Any:
    """Return what every answer of a store says of such a request.

    Raises: Refusal, for one that does not: a page that a gateway answers with has a status too.
    """
    if word not in answer:
        raise ErrorResponse(
            0, "", f"the answer has no {word}, so it is no store's: look at the endpoint"
        )
    return answer[word]


@contextmanager
def read_as_told() -> Iterator[None]:
    """Take what an answer lacks, or says in another way than stores do, for a refusal.

    Raises: Refusal.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ErrorResponse(0, "", f"the answer cannot be read: {error!r}") from error


class _Reply(NamedTuple):
    """A store's own answer. `status` is 0 where the library does not tell it, and of success where
    the library trips over what came with it.
    """

    status: int
    code: str


def _reply(answer: BaseException) -> _Reply | None:
    """The store's reply behind an exception; s3fs keeps the original as the cause."""
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
