"""Clients of a cluster's SASL listener, with time as an argument."""

from functools import cache
from typing import Any

from broker_core.broker.connection import Connection
from broker_core.broker.endpoints import Listener
from broker_core.security.sasl_passwords import ScramCredential, credential_of_password
from broker_core.security.sasl_settings import SaslServices, sasl_settings
from broker_core.wire import messages as m
from broker_core.wire.framing import bare_frame
from tests.support.direct import CountingEntropy, DirectClient, direct_cluster

PASSWORDS = {"alice": "secret", "bob": "hunter2"}
ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"


def secured_cluster(**settings: str):
    cluster = direct_cluster(
        settings={"sasl.enabled.mechanisms": ALL, **{key.replace("_", "."): value for key, value in settings.items()}}
    )
    for name, password in PASSWORDS.items():
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            cluster.metadata.set_scram(mechanism, name, _credential(mechanism, password))
    return cluster


@cache
def _credential(mechanism: str, password: str) -> ScramCredential:
    # 4,096 rounds of a hash.
    return credential_of_password(mechanism, password, CountingEntropy())


class SaslClient(DirectClient):
    """A client of the listener `secure`."""

    def __init__(self, cluster: Any, **world: Any) -> None:
        super().__init__(cluster)
        scram = cluster.metadata.scram
        settings = sasl_settings(
            cluster.config,
            "SECURE",
            SaslServices(lambda mechanism, user: scram.get((mechanism, user)), CountingEntropy(), PASSWORDS, **world),
        )
        self._connection = Connection(
            cluster.brokers[1], self, "test", Listener("SECURE", cluster.controller.addresses, settings)
        )

    @property
    def principal(self) -> str:
        """Return the principal that the broker sees."""
        return str(self._connection.principal)

    def raw(self, data: bytes) -> None:
        """Send raw bytes."""
        self._connection.receive(data, self.cluster.now_ms)
        self.cluster.settle(self.cluster.now_ms)

    def bare(self, token: bytes) -> bytes | None:
        """Send a token without Kafka's headers; return the token of the response."""
        self.raw(bare_frame(token))
        return self.sent.pop(0)[4:] if self.sent else None

    def pass_time(self, ms: int) -> None:
        """Advance the clock."""
        self.cluster.advance(self.cluster.now_ms + ms)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        """Send a SaslHandshake request with a mechanism."""
        return self.ask(m.SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes, version: int = 2) -> Any:
        """Send a token in a SaslAuthenticate request."""
        return self.ask(m.SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, name: str = "alice", password: str = "secret") -> Any:
        """Authenticate with PLAIN."""
        assert self.handshake().error_code == 0
        return self.token(plain(name, password))


def plain(name: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{name}\0{password}".encode()
