"""What an object store's answer suggests, without the libraries that bring it.

| answer | suggests |
|---|---|
| 2xx | done |
| 412 | the condition was refused: read and compare |
| 408, 409, 429, 5xx, a timeout, a reset | unknown |
| any other, and what was never sent | fatal |
"""

from enum import Enum
from typing import Any, Final

Answer = Any
"""A reply as the client library gives it, or the exception that came in its place."""

_UNKNOWN_STATUS: Final = (408, 409, 425, 429)
_NOT_IMPLEMENTED: Final = 501
_LOST_ON_THE_WAY: Final = frozenset({"ConnectionError", "HTTPClientError", "ResponseParserError"})
"""botocore's roots of what may have reached the store all the same."""


class Verdict(Enum):
    """What an answer suggests."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    FATAL = "fatal"


def judge(answer: Answer) -> Verdict:
    """Return what an answer suggests.

    Raises: the answer itself, when it is an exception that no store and no network brings.
    """
    if not isinstance(answer, BaseException):
        return Verdict.DONE
    response = _response(answer)
    if response is not None:
        return _by_status(response)
    library = type(answer).__module__.partition(".")[0]
    if library in ("botocore", "aiobotocore"):
        names = {kind.__name__ for kind in type(answer).__mro__}
        return Verdict.UNKNOWN if names & _LOST_ON_THE_WAY else Verdict.FATAL
    if isinstance(answer, OSError) or library == "aiohttp":
        return Verdict.UNKNOWN
    raise answer


def is_missing(answer: Answer) -> bool:
    """Whether the answer says that the object, not its bucket, is not there."""
    response = _response(answer) if isinstance(answer, BaseException) else None
    if response is None:
        return False
    code = response.get("Error", {}).get("Code")
    return _status(response) == 404 and code != "NoSuchBucket"


def _response(answer: BaseException) -> dict[str, Any] | None:
    """The store's reply behind an exception; s3fs keeps the original as the cause."""
    for error in (answer, answer.__cause__):
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return response
    return None


def _status(response: dict[str, Any]) -> int:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status)


def _by_status(response: dict[str, Any]) -> Verdict:
    status = _status(response)
    code = response.get("Error", {}).get("Code")
    if status == 412 or code == "PreconditionFailed":
        return Verdict.REFUSED
    if status in _UNKNOWN_STATUS or code in ("RequestTimeout", "SlowDown"):
        return Verdict.UNKNOWN
    if status == 0 or (status >= 500 and status != _NOT_IMPLEMENTED):
        return Verdict.UNKNOWN
    return Verdict.FATAL
