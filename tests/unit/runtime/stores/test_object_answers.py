import errno
from typing import Any

import pytest

from tidegate.runtime.stores.object_answers import Refusal, Verdict, is_missing, judge

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
        ({"ETag": "x"}, Verdict.DONE),
        (b"", Verdict.DONE),
        (refused(412, "PreconditionFailed"), Verdict.REFUSED),
        (refused(409, "ConditionalRequestConflict"), Verdict.UNKNOWN),
        (refused(408, "RequestTimeout"), Verdict.UNKNOWN),
        (refused(400, "RequestTimeout"), Verdict.UNKNOWN),
        (refused(429), Verdict.UNKNOWN),
        (refused(503, "SlowDown"), Verdict.UNKNOWN),
        (refused(500, "InternalError"), Verdict.UNKNOWN),
        (refused(400, "InvalidArgument"), Verdict.FATAL),
        (refused(403, "AccessDenied"), Verdict.FATAL),
        (refused(404, "NoSuchBucket"), Verdict.FATAL),
        (refused(301, "PermanentRedirect"), Verdict.FATAL),
        (refused(501, "NotImplemented"), Verdict.FATAL),
        (botocore.ReadTimeoutError(endpoint_url=ENDPOINT), Verdict.UNKNOWN),
        (botocore.ConnectTimeoutError(endpoint_url=ENDPOINT), Verdict.UNKNOWN),
        (botocore.EndpointConnectionError(endpoint_url=ENDPOINT), Verdict.UNKNOWN),
        (TimeoutError(), Verdict.UNKNOWN),
        (ConnectionResetError(), Verdict.UNKNOWN),
        (botocore.NoCredentialsError(), Verdict.FATAL),
        (botocore.ParamValidationError(report="x"), Verdict.FATAL),
    ],
    ids=repr,
)
def test_an_answer_suggests(answer: Any, verdict: Verdict) -> None:
    assert judge(answer) is verdict
    if isinstance(answer, botocore.ClientError):
        assert judge(as_s3fs_raises(answer)) is verdict


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (412, "conditionNotMet", Verdict.REFUSED),
        (408, "", Verdict.UNKNOWN),
        (409, "conflict", Verdict.UNKNOWN),
        (429, "rateLimitExceeded", Verdict.UNKNOWN),
        (500, "backendError", Verdict.UNKNOWN),
        (504, "", Verdict.UNKNOWN),
        (0, "", Verdict.UNKNOWN),
        (302, "", Verdict.FATAL),
        (400, "invalid", Verdict.FATAL),
        (401, "authError", Verdict.FATAL),
        (404, "NoSuchBucket", Verdict.FATAL),
        (501, "", Verdict.FATAL),
    ],
)
def test_a_bare_refusal_suggests(status: int, code: str, verdict: Verdict) -> None:
    assert judge(Refusal(status, code, "said so")) is verdict
    assert is_missing(Refusal(404, "notFound", ""))
    assert not is_missing(Refusal(404, "NoSuchBucket", ""))


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (409, "BlobAlreadyExists", Verdict.REFUSED),
        (412, "ConditionNotMet", Verdict.REFUSED),
        (409, "ContainerBeingDeleted", Verdict.UNKNOWN),
        (200, "", Verdict.UNKNOWN),
        (201, "", Verdict.UNKNOWN),
        (500, "OperationTimedOut", Verdict.UNKNOWN),
        (503, "ServerBusy", Verdict.UNKNOWN),
        (403, "AuthenticationFailed", Verdict.FATAL),
        (404, "ContainerNotFound", Verdict.FATAL),
        (404, "ResourceNotFound", Verdict.FATAL),
    ],
)
def test_an_answer_of_azure_suggests(status: int, code: str, verdict: Verdict) -> None:
    azure = pytest.importorskip("azure.core.exceptions")
    error = azure.HttpResponseError(message=code)
    error.status_code, error.error_code = status, code
    assert judge(error) is verdict
    assert is_missing(error) is False


def test_what_azures_client_lost_on_the_way_is_unknown() -> None:
    azure = pytest.importorskip("azure.core.exceptions")
    for kind in (azure.ServiceRequestError, azure.ServiceResponseError, azure.IncompleteReadError):
        assert judge(kind(message="lost")) is Verdict.UNKNOWN
    half = azure.DecodeError(message="no closing tag")
    half.status_code = 200
    assert judge(half) is Verdict.UNKNOWN
    assert judge(azure.ClientAuthenticationError(message="no credential")) is Verdict.FATAL


def test_a_mistake_of_ours_is_no_answer() -> None:
    with pytest.raises(TypeError):
        judge(TypeError("a mistake"))


def test_a_missing_object_is_told_from_a_missing_bucket() -> None:
    assert is_missing(as_s3fs_raises(refused(404, "NoSuchKey")))
    assert is_missing(refused(404))
    assert not is_missing(refused(404, "NoSuchBucket"))
    assert not is_missing(refused(404, "NoSuchAccessPoint"))
    assert not is_missing(refused(403, "AccessDenied"))
    assert is_missing(Refusal(404, "notFound", "No such object: lake/a"))
    assert not is_missing(Refusal(404, "", "not found"))
    assert not is_missing(TimeoutError())
    assert not is_missing(b"content")
