"""S3's conditional PUT, and whole objects, through obstore: sent from the calling thread and signed
in Rust, for a quarter of s3fs's CPU time.

botocore provides the bucket's address, the credentials and the certificate authorities, as for
every other request. obstore (delta-rs's client of object stores) signs, sends once, and follows no
redirect. A request that it can't send, or that a store doesn't accept from it, goes through s3fs
instead (`UseOtherWay`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from html import unescape
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.release import ENGINE
from tidegate_runtime.storage.object_responses import OUTDATED, ErrorResponse

CONNECTIONS_MAX: Final = 64
"""Idle connections to keep: as many as there are threads that send conditional PUTs."""

SIGNER_S: Final = 3.0
"""Timeout of the service that issues credentials; the current ones are used until they expire."""

_NOT_HERE: Final = (301, 302, 303, 307, 308, 400, 501)
"""Statuses after which nothing was written, but another form of the request may succeed: to another
region, without a header that this store doesn't know, or with one that it requires.
"""

_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})[^:\n]*(?:: )?(.*)", re.DOTALL)
_STATUSES: Final = {
    "AlreadyExistsError": 412,
    "PreconditionError": 412,
    "PermissionDeniedError": 403,
    "UnauthenticatedError": 401,
    "FileNotFoundError": 404,
}
"""The status for each of obstore's exceptions, in case a release of it words its messages
otherwise.
"""

_WHY_MAX: Final = 400
_REDIRECT: Final = "redirect without LOCATION"
_NO_ETAG: Final = "ETag Header missing"
_ETAG: Final = re.compile(r'"?[0-9a-fA-F]{32}"?')
"""The ETag of S3, and of compatible stores, for an object written by one PUT."""


class UseOtherWay(Exception):
    """Nothing was written or read, and s3fs may be able to; `for_good`: for all requests to this
    bucket.
    """

    def __init__(self, reason: str, *, for_good: bool = True) -> None:
        super().__init__(reason)
        self.for_good = for_good


class _NotSent(Exception):
    """Carries the URL to which a request would have been sent."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


@dataclass
class ObstoreClients:
    """The clients of one bucket; `config` is obstore's, without credentials and timeouts.

    A client's timeout is fixed when it is made, so there is one client for each timeout.
    """

    bucket: str
    config: Mapping[str, Any]
    options: Mapping[str, Any]
    credentials: Any
    _signed_by: Any = None
    _clients: dict[float, Any] = field(default_factory=dict)
    _turn: Lock = field(default_factory=Lock)

    def client(self, timeout_s: float) -> Any:
        """Return the client for requests with this timeout.

        Raises: UseOtherWay; botocore's errors, if no credentials can be had.
        """
        signed_by = self.credentials.get_frozen_credentials() if self.credentials else None
        with self._turn:
            if signed_by != self._signed_by:
                self._signed_by, self._clients = signed_by, {}
            if timeout_s not in self._clients:
                self._clients[timeout_s] = self._new_client(signed_by, timeout_s)
            return self._clients[timeout_s]

    def _new_client(self, signed_by: Any, timeout_s: float) -> Any:
        def credentials() -> dict[str, Any]:
            return {
                "access_key_id": signed_by.access_key,
                "secret_access_key": signed_by.secret_key,
                "token": signed_by.token,
                "expires_at": None,
            }

        patience = timedelta(seconds=timeout_s)
        try:
            return import_module("obstore.store").S3Store(
                self.bucket,
                config=dict(self.config),
                # All addresses of a host name share this connect timeout.
                client_options={**self.options, "timeout": patience, "connect_timeout": patience},
                retry_config={"max_retries": 0},
                credential_provider=credentials if signed_by else None,
            )
        except (ValueError, import_module("obstore.exceptions").BaseError) as error:
            raise UseOtherWay(str(error)) from error


def obstore_clients(system: Any, bucket: str, *, pays: bool) -> ObstoreClients:
    """Return the clients of a bucket, with the options and the configuration of s3fs's `system`.

    Raises: UseOtherWay, if obstore is not installed, or would use another address or signature;
    Misconfigured, for a file of certificates that can't be read; ValueError and botocore's errors,
    for wrong options.
    """
    try:
        import_module("obstore")
    except ImportError as error:
        raise UseOtherWay("obstore is not there; install tidegate[s3]") from error
    if ":" in bucket or bucket.endswith("--x-s3"):
        raise UseOtherWay("access points and directory buckets have rules of their own")
    session = _session()
    client = _client(session, system)
    endpoint = _url(client, bucket, "key").removesuffix("/key")
    s3_config = session.get_scoped_config().get("s3", {})
    if isinstance(s3_config, Mapping) and s3_config.get("signature_version", "s3v4") != "s3v4":
        raise UseOtherWay("AWS's configuration names another signature")
    config = {
        # The constructor takes from the environment what it is not given.
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": True,
        "region": client.meta.region_name or "us-east-1",
        "skip_signature": system.anon,
        "request_payer": pays,
        "s3_express": False,
        "unsigned_payload": False,
        "conditional_put": "etag",
        # Without a checksum a bucket with Object Lock refuses a PUT.
        "checksum_algorithm": "sha256",
    }
    options = {
        "user_agent": ENGINE,
        "allow_http": endpoint.startswith("http://"),
        "allow_invalid_certificates": False,
        "http1_only": True,
        "pool_max_idle_per_host": str(CONNECTIONS_MAX),
        "root_certificate": _authorities(session),
    }
    return ObstoreClients(bucket, config, options, _credentials(session, system))


def send(client: Any, key: str, content: bytes) -> None:
    """Send a PUT that the store refuses if the object exists.

    Raises: ErrorResponse; OSError, for a response that did not come; UseOtherWay.
    """
    exceptions = import_module("obstore.exceptions")
    _check_key(key)
    try:
        response = import_module("obstore").put(
            client, key, content, mode="create", use_multipart=False
        )
    except ValueError as error:
        raise UseOtherWay(f"the key cannot be sent: {error}", for_good=False) from error
    except (exceptions.BaseError, OSError) as error:
        raise _translated(error) from error
    etag = response["e_tag"] or ""
    if not _ETAG.fullmatch(etag):
        raise ErrorResponse(0, "", f"the answer's ETag {etag} is not as S3's are: it is compared")


def fetch(client: Any, key: str) -> bytes:
    """Return an object.

    Raises: ErrorResponse, for a refusal; UseOtherWay, for every other answer: s3fs shows it whole.
    It is for good where the bucket is elsewhere.
    """
    exceptions = import_module("obstore.exceptions")
    _check_key(key)
    try:
        answer = import_module("obstore").get(client, key)
        etag, size = answer.meta["e_tag"] or "", answer.meta["size"]
        content = bytes(answer.bytes())
    except (exceptions.BaseError, OSError, ValueError) as error:
        refusal = _translated(error)
        if isinstance(refusal, (ErrorResponse, UseOtherWay)):
            raise refusal from error
        raise UseOtherWay(str(error), for_good=False) from error
    if not etag or size != len(content):
        raise UseOtherWay("the answer is not as a store's", for_good=False)
    return content


def _check_key(key: str) -> None:
    if key.strip("/") != key or not key:
        raise UseOtherWay(f"obstore would take {key!r} for another key", for_good=False)


def _translated(error: Exception) -> Exception:
    """Translate obstore's exception, which has the status only in its text."""
    message, _, details = str(error).partition("\n\nDebug source")
    match = _STATUS.search(message)
    if match is not None:
        status, page = int(match[1]), match[2]
        refusal = ErrorResponse(status, _element(page, "Code"), _element(page, "Message"))
        is_elsewhere = status in _NOT_HERE and refusal.code not in (*OUTDATED, "RequestTimeout")
        return UseOtherWay(str(refusal)) if is_elsewhere else refusal
    if _REDIRECT in message:
        return UseOtherWay(message)
    if _NO_ETAG in message:
        return ErrorResponse(
            0, "", "the answer has no ETag, so it is no store's: look at the endpoint"
        )
    if (known := _STATUSES.get(type(error).__name__)) is not None:
        return ErrorResponse(known, "", message)
    # Only the inner error says why no response came: refused, reset, not trusted.
    cause = " ".join(details.partition("inner:")[2].split())
    return OSError(f"{message}: {cause[:_WHY_MAX]}")


def _element(page: str, name: str) -> str:
    match = re.search(f"<{name}>([^<]*)</{name}>", page)
    return unescape(match[1]) if match else ""


def _authorities(session: Any) -> bytes:
    """Return the certificate authorities that botocore trusts."""
    named = session.get_config_variable("ca_bundle")
    path = named or import_module("botocore.httpsession").get_cert_path(True)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        cause = error.strerror or type(error).__name__
        raise Misconfigured(f"AWS_CA_BUNDLE, or ca_bundle, names {path}: {cause}") from error


def _session() -> Any:
    """Return a botocore session for a bucket, with its configuration and source of credentials."""
    session = import_module("botocore.session").Session()
    # Credentials are renewed in the thread of a PUT, and by default with the timeouts of any
    # request: a minute for each address, five times.
    timeouts = {"connect_timeout": SIGNER_S, "read_timeout": SIGNER_S}
    session.set_default_client_config(
        import_module("botocore.config").Config(**timeouts, retries={"total_max_attempts": 2})
    )
    return session


def _client(session: Any, system: Any) -> Any:
    """Return a client that sends nothing: it only computes where s3fs's requests go."""
    unsigned = {"signature_version": import_module("botocore").UNSIGNED}
    config = import_module("botocore.config").Config(**{**system.config_kwargs, **unsigned})
    arguments = {"endpoint_url": system.endpoint_url, **system.client_kwargs}
    return session.create_client("s3", config=config, **arguments)


def _url(client: Any, bucket: str, key: str) -> str:
    """Return the URL to which the client would send a PUT. Raises: botocore's errors."""

    def instead(request: Any, **_: Any) -> None:
        raise _NotSent(request.url)

    client.meta.events.register_last("before-send.s3.PutObject", instead)
    try:
        client.put_object(Bucket=bucket, Key=key)
    except _NotSent as not_sent:
        return not_sent.url
    raise AssertionError("the library calls this event before it sends anything")


def _credentials(session: Any, system: Any) -> Any:
    """Return botocore's credentials, which renew themselves; None for anonymous requests.

    Raises: UseOtherWay, if there are none: s3fs reports why.
    """
    if system.anon:
        return None
    if system.key and system.secret:
        kind = import_module("botocore.credentials").Credentials
        return kind(system.key, system.secret, system.token)
    credentials = None if system.key or system.secret else session.get_credentials()
    if credentials is None:
        raise UseOtherWay("there are no credentials", for_good=False)
    return credentials
