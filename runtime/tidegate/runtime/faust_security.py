"""The security block as Faust takes it; only the follower needs it, so only it installs Faust."""

import faust
from faust.types.auth import CredentialsT

from tidegate.runtime.kafka_security import revealed, ssl_context
from tidegate.runtime.kafka_settings import KafkaSettings


def for_faust(settings: KafkaSettings) -> CredentialsT | None:
    """Return Faust's credentials, or None for a plain connection.

    Raises: OSError, for a certificate or key that is not there or not what it should be.
    """
    security = settings.security
    context = ssl_context(security)
    if security.uses_sasl:
        return faust.SASLCredentials(
            username=security.username,
            password=revealed(security.password),
            ssl_context=context,
            mechanism=security.mechanism,
        )
    return None if context is None else faust.SSLCredentials(context)
