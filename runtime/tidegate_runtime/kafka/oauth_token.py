"""Tokens for SASL's OAUTHBEARER: from a file, or from a token endpoint by client credentials."""

import base64
import binascii
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate_delta.errors import Misconfigured, Unavailable
from tidegate_runtime.clock import SystemClock

ANSWER_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_FRESH_S: Final = 60.0
"""How soon a token without a date of its own is read again."""


@dataclass(frozen=True)
class TokenSource:
    """The file that holds a token, or the endpoint that gives one for an id and a secret."""

    file: str | None
    url: str | None
    client_id: str | None
    client_secret: str | None
    scope: str | None

    def __repr__(self) -> str:
        """Name the place, and no secret."""
        return f"TokenSource({self.file or self.url})"


@dataclass(frozen=True)
class Token:
    """A token, whom it is for, and when it ends. Units: seconds since the Unix epoch."""

    value: str
    principal: str
    expires_s: float

    def __repr__(self) -> str:
        """Name the principal, and not the token."""
        return f"Token({self.principal!r}, expires_s={self.expires_s})"


def oauth_token(source: TokenSource) -> Token:
    """Return a token of a source.

    Raises: Misconfigured, for a file that holds none, an endpoint that refuses us, or a token that
        has expired; Unavailable, if the endpoint does not answer.
    """
    if source.file is not None:
        return _checked(_of_file(source.file), None, source.file)
    assert source.url is not None, "the settings have one of the two"
    answer = _token_response(source, source.url)
    value = answer.get("access_token")
    if not isinstance(value, str) or not value:
        raise Misconfigured(
            f"the token endpoint {source.url} answers without `access_token`; check "
            "kafka.security.oauth_token_url"
        )
    lifetime_s = answer.get("expires_in")
    return _checked(value, lifetime_s if isinstance(lifetime_s, int | float) else None, source.url)


def _of_file(path: str) -> str:
    try:
        value = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no token"
        raise Misconfigured(
            f"kafka.security.oauth_token_location: {path} cannot be read ({reason}); check the "
            "path, and who writes the token there"
        ) from None
    if not value:
        raise Misconfigured(f"kafka.security.oauth_token_location: {path} is empty")
    return value


def _token_response(source: TokenSource, url: str) -> dict[str, Any]:
    form = {"grant_type": "client_credentials"}
    if source.scope is not None:
        form["scope"] = source.scope
    # RFC 6749 section 2.3.1: both are form-encoded before they are joined.
    user = ":".join(
        urllib.parse.quote(part or "", safe="") for part in (source.client_id, source.client_secret)
    )
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": f"Basic {base64.b64encode(user.encode()).decode()}",
        },
    )
    if request.type not in ("http", "https"):
        raise Misconfigured(f"kafka.security.oauth_token_url: {url} should begin with https://")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            answer = json.loads(response.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        if error.code >= 500 or error.code == 429:
            raise Unavailable(f"the token endpoint {url} answers {error.code}") from None
        raise Misconfigured(
            f"the token endpoint {url} answers {error.code}; check `oauth_client_id`, its secret "
            "and `oauth_scope` in kafka.security"
        ) from None
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unavailable(f"the token endpoint {url} does not answer: {reason}") from None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Misconfigured(
            f"the token endpoint {url} does not answer with a JSON object; check "
            "kafka.security.oauth_token_url"
        )
    return answer


def _checked(value: str, lifetime_s: float | None, place: str) -> Token:
    claims = _claims(value)
    now_s = SystemClock().now_ms() / 1000
    expires = claims.get("exp")
    if isinstance(expires, int | float):
        expires_s = float(expires)
    else:
        expires_s = now_s + (lifetime_s or _FRESH_S)
    if expires_s <= now_s:
        raise Misconfigured(
            f"the token of {place} expired {now_s - expires_s:.0f} s ago; look at who renews it, "
            "and at this machine's clock"
        )
    return Token(value, str(claims.get("sub", "")), expires_s)


def _claims(value: str) -> dict[str, Any]:
    """Return the claims of a JSON Web Token; brokers may take tokens of another kind."""
    parts = value.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}
