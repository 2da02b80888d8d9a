"""The security block as Faust takes it; only the follower needs it, so only it installs Faust."""

import ssl
from contextlib import suppress
from typing import Any

import faust
from faust.types.auth import CredentialsT

from tidegate.runtime.kafka.security import KafkaSecurity, revealed, ssl_context
from tidegate.runtime.kafka.settings import KafkaSettings


def for_faust(settings: KafkaSettings) -> CredentialsT | None:
    """Return Faust's credentials, or None for a plain connection.

    Raises: OSError, for a certificate or key that is not there or not what it should be.
    """
    security = settings.security
    context = None
    if security.uses_tls:
        context = RenewedTls(ssl.PROTOCOL_TLS_CLIENT)
        context.read(security)
    if security.uses_sasl:
        return faust.SASLCredentials(
            username=security.username,
            password=revealed(security.password),
            ssl_context=context,
            mechanism=security.mechanism,
        )
    return None if context is None else faust.SSLCredentials(context)


class RenewedTls(ssl.SSLContext):
    """A context by whose connections each reads its certificates anew: their files are replaced
    under a running service, and the brokers take the former ones no more.
    """

    _security: KafkaSecurity
    _last: ssl.SSLContext

    def read(self, security: KafkaSecurity) -> None:
        """Read the files that are named. Raises: OSError."""
        context = ssl_context(security)
        assert context is not None, "it is asked for where there is TLS"
        self._security, self._last = security, context

    def wrap_bio(self, *buffers: Any, **told: Any) -> ssl.SSLObject:
        """Return a connection's end; where a file is just being written, by what was read last."""
        with suppress(OSError):
            self.read(self._security)
        return self._last.wrap_bio(*buffers, **told)
