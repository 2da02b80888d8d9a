import errno
from typing import Any

import pytest

from tidegate_runtime.storage.object_responses import (
    ErrorResponse,
    ResponseMeaning,
    is_missing,
    meaning_of,
)

botocore = pytest.importorskip("botocore.exceptions")

ENDPOINT = "http://store"


def refused(status: int, code: str = "") -> Any:
    response: Any = {
        "Error": {"Code": code or str(status), "Message": "said so"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return botocore.ClientError(response, "PutObject")


def as_s3fs_raises(error: Any) -> OSError:
    translated = OSError(errno.EINVAL, "said so")
    translated.__cause__ = error
    return translated


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"ETag": "x"}, ResponseMeaning.DONE),
        (b"", ResponseMeaning.DONE),
        (refused(412, "PreconditionFailed"), ResponseMeaning.REFUSED),
        (refused(409, "ConditionalRequestConflict"), ResponseMeaning.UNKNOWN),
        (refused(408, "RequestTimeout"), ResponseMeaning.UNKNOWN),
        (refused(400, "RequestTimeout"), ResponseMeaning.UNKNOWN),
        (refused(429), ResponseMeaning.UNKNOWN),
        (refused(503, "SlowDown"), ResponseMeaning.UNKNOWN),
        (refused(500, "InternalError"), ResponseMeaning.UNKNOWN),
        (refused(400, "InvalidArgument"), ResponseMeaning.FATAL),
        (refused(403, "AccessDenied"), ResponseMeaning.FATAL),
        (refused(404, "NoSuchBucket"), ResponseMeaning.FATAL),
        (refused(301, "PermanentRedirect"), ResponseMeaning.FATAL),
        (refused(501, "NotImplemented"), ResponseMeaning.FATAL),
        (botocore.ReadTimeoutError(endpoint_url=ENDPOINT), ResponseMeaning.UNKNOWN),
        (botocore.ConnectTimeoutError(endpoint_url=ENDPOINT), ResponseMeaning.UNKNOWN),
        (botocore.EndpointConnectionError(endpoint_url=ENDPOINT), ResponseMeaning.UNKNOWN),
        (TimeoutError(), ResponseMeaning.UNKNOWN),
        (ConnectionResetError(), ResponseMeaning.UNKNOWN),
        (botocore.NoCredentialsError(), ResponseMeaning.FATAL),
        (botocore.ParamValidationError(report="x"), ResponseMeaning.FATAL),
    ],
    ids=repr,
)
def test_an_answer_suggests(answer: Any, verdict: ResponseMeaning) -> None:
    assert meaning_of(answer) is verdict
    if isinstance(answer, botocore.ClientError):
        assert meaning_of(as_s3fs_raises(answer)) is verdict


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (412, "conditionNotMet", ResponseMeaning.REFUSED),
        (408, "", ResponseMeaning.UNKNOWN),
        (409, "conflict", ResponseMeaning.UNKNOWN),
        (429, "rateLimitExceeded", ResponseMeaning.UNKNOWN),
        (500, "backendError", ResponseMeaning.UNKNOWN),
        (504, "", ResponseMeaning.UNKNOWN),
        (0, "", ResponseMeaning.UNKNOWN),
        (302, "", ResponseMeaning.FATAL),
        (400, "invalid", ResponseMeaning.FATAL),
        (401, "authError", ResponseMeaning.FATAL),
        (404, "NoSuchBucket", ResponseMeaning.FATAL),
        (501, "", ResponseMeaning.FATAL),
    ],
)
def test_a_bare_refusal_suggests(status: int, code: str, verdict: ResponseMeaning) -> None:
    assert meaning_of(ErrorResponse(status, code, "said so")) is verdict
    assert is_missing(ErrorResponse(404, "notFound", ""))
    assert not is_missing(ErrorResponse(404, "NoSuchBucket", ""))


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (409, "BlobAlreadyExists", ResponseMeaning.REFUSED),
        (412, "ConditionNotMet", ResponseMeaning.REFUSED),
        (409, "ContainerBeingDeleted", ResponseMeaning.UNKNOWN),
        (200, "", ResponseMeaning.UNKNOWN),
        (201, "", ResponseMeaning.UNKNOWN),
        (500, "OperationTimedOut", ResponseMeaning.UNKNOWN),
        (503, "ServerBusy", ResponseMeaning.UNKNOWN),
        (403, "AuthenticationFailed", ResponseMeaning.FATAL),
        (404, "ContainerNotFound", ResponseMeaning.FATAL),
        (404, "ResourceNotFound", ResponseMeaning.FATAL),
    ],
)
def test_an_answer_of_azure_suggests(status: int, code: str, verdict: ResponseMeaning) -> None:
    azure = pytest.importorskip("azure.core.exceptions")
    error = azure.HttpResponseError(message=code)
    error.status_code, error.error_code = status, code
    assert meaning_of(error) is verdict
    assert is_missing(error) is False


def test_what_azures_client_lost_on_the_way_is_unknown() -> None:
    azure = pytest.importorskip("azure.core.exceptions")
    for kind in (azure.ServiceRequestError, azure.ServiceResponseError, azure.IncompleteReadError):
        assert meaning_of(kind(message="lost")) is ResponseMeaning.UNKNOWN
    half = azure.DecodeError(message="no closing tag")
    half.status_code = 200
    assert meaning_of(half) is ResponseMeaning.UNKNOWN
    assert (
        meaning_of(azure.ClientAuthenticationError(message="no credential"))
        is ResponseMeaning.FATAL
    )


def test_a_mistake_of_ours_is_no_answer() -> None:
    with pytest.raises(TypeError):
        meaning_of(TypeError("a mistake"))


def test_a_missing_object_is_distinguished_from_a_missing_bucket() -> None:
    assert is_missing(as_s3fs_raises(refused(404, "NoSuchKey")))
    assert is_missing(refused(404))
    assert not is_missing(refused(404, "NoSuchBucket"))
    assert not is_missing(refused(404, "NoSuchAccessPoint"))
    assert not is_missing(refused(403, "AccessDenied"))
    assert is_missing(ErrorResponse(404, "notFound", "No such object: lake/a"))
    assert not is_missing(ErrorResponse(404, "", "not found"))
    assert not is_missing(TimeoutError())
    assert not is_missing(b"content")
