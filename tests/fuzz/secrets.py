"""Fuzz targets for authentication tokens."""

from collections.abc import Callable

from broker_core.security.sasl import Mechanism
from broker_core.security.sasl_oauthbearer import OAuthBearer, UnsecuredTokens
from broker_core.security.sasl_passwords import Plain, Scram, credential_of_password
from tests.support.direct import CountingEntropy

PASSWORDS = {"alice": "secret"}
_SCRAM = "SCRAM-SHA-256"
_credential = credential_of_password(_SCRAM, "secret", CountingEntropy())
_MECHANISMS: tuple[Callable[[], Mechanism], ...] = (
    lambda: Plain(PASSWORDS),
    lambda: Scram(_SCRAM, lambda mechanism, name: _credential if name == "alice" else None, CountingEntropy()),
    lambda: OAuthBearer(UnsecuredTokens()),
)
NOW_MS = 1_700_000_000_000


def feed_tokens(data: bytes) -> None:
    """Evaluate two tokens of a client; the first byte selects the mechanism, a line feed ends the first token.

    A client is accepted by PLAIN only if the password is in its token.
    """
    if not data:
        return
    number = data[0] % len(_MECHANISMS)
    mechanism = _MECHANISMS[number]()
    for token in data[1:].split(b"\n", 1):
        mechanism.evaluate(token, NOW_MS)
    if mechanism.user_name is not None and number == 0:
        assert b"secret" in data
