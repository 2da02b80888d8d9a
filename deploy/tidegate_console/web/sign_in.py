"""The operator's role: signed in by a token from a file, with a session and a CSRF token."""

import hashlib
import hmac
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate_delta.errors import Misconfigured
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability.logs import log_event

COOKIE: Final = "tidegate_session"
SESSION_S: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1_000
TOKEN_MIN: Final = 16
"""Characters of a token; a shorter one could be guessed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Session:
    """An operator who is signed in. `csrf` is in each form of the pages that are shown to them."""

    csrf: str
    ends_s: float


class Operators:
    """The sessions of operators; without a file for the token there are none."""

    def __init__(self, token_location: str | None, clock: Clock) -> None:
        self._location = token_location
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        if token_location is not None:
            self._token()

    @property
    def may_sign_in(self) -> bool:
        """Whether there are operators."""
        return self._location is not None

    def sign_in(self, token: str) -> str | None:
        """Return the cookie of a new session, or None for a wrong token."""
        if self._location is None or not hmac.compare_digest(
            token.encode(), self._token().encode()
        ):
            log_event(_log, "sign_in_refused", level=logging.WARNING)
            return None
        now_s = self._clock.boot_s()
        alive = {key: session for key, session in self._sessions.items() if session.ends_s > now_s}
        if len(alive) >= SESSIONS_MAX:
            del alive[min(alive, key=lambda key: alive[key].ends_s)]
        cookie = secrets.token_urlsafe(32)
        session = Session(secrets.token_urlsafe(32), now_s + SESSION_S)
        self._sessions = {**alive, _key(cookie): session}
        log_event(_log, "signed_in")
        return cookie

    def session(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, unless it has ended."""
        session = self._sessions.get(_key(cookie)) if cookie else None
        return session if session is not None and session.ends_s > self._clock.boot_s() else None

    def sign_out(self, cookie: str | None) -> None:
        """End a session."""
        if cookie:
            self._sessions.pop(_key(cookie), None)

    def _token(self) -> str:
        """Return the token that counts now. Raises: Misconfigured."""
        assert self._location is not None, "operators may sign in"
        try:
            token = Path(self._location).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise Misconfigured(
                f"console.operator_token_location: {self._location} cannot be read ({why})"
            ) from None
        if len(token) < TOKEN_MIN:
            raise Misconfigured(
                f"console.operator_token_location: the token in {self._location} has fewer than "
                f"{TOKEN_MIN} characters; write a longer one, such as `openssl rand -hex 32` makes"
            )
        return token


def _key(cookie: str) -> str:
    """Return a cookie's place among the sessions, which does not tell its value by timing."""
    return hashlib.sha256(cookie.encode()).hexdigest()
