"""Brokers of either kind with an authorizer, and authenticated clients."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from broker_core.config import STANDARD_AUTHORIZER
from broker_core.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from broker_core.wire import messages as m
from tests.support.clients import make_topic, unique
from tests.support.listener_brokers import listening
from tests.support.messages import EVERY_ACL, filled
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.secured import jaas
from tests.support.waiting import wait_until

PASSWORD = "secret"
USERS = tuple(f"user{number}" for number in range(400))
# Not `users` of the embedded broker, which would spend 3 s on the SCRAM credentials of so many.
_LOGINS = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
_SETTINGS = {
    "transaction.state.log.num.partitions": "5",
    "offsets.topic.num.partitions": "5",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Clients of the listener without authentication: the tests' administrator, and Apache Kafka's own controller.
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "for tests",
    # A member of a share group has its assignment at once, not a second later.
    "group.share.assignment.interval.ms": "0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config": jaas("PLAIN", _LOGINS),
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": jaas("SCRAM-SHA-256", ""),
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": jaas("SCRAM-SHA-512", ""),
}
_fresh_user = itertools.count()


@dataclass(frozen=True)
class GuardedKafka:
    """The addresses of a broker with an authorizer: for its administrator, and for all other clients."""

    bootstrap_servers: str
    sasl_address: str
    name: str


@contextmanager
def guarded_kafka(kind: str, folder: Path, more_settings: Mapping[str, str] | None = None) -> Iterator[GuardedKafka]:
    """Run a broker of this kind until the block ends, with settings added."""
    listeners = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
    settings = _SETTINGS | dict(more_settings or {})
    with listening(kind, listeners, settings, folder) as addresses:
        yield GuardedKafka(addresses["PLAINTEXT"], addresses["SASL"], kind)


def log_in(kafka: GuardedKafka, user: str) -> RawClient:
    """Return an authenticated connection of a user."""
    client = RawClient(kafka.sasl_address)
    assert client.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    answer = client.send(m.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 2)
    assert answer.error_code == 0, answer
    return client


def create_acls(client: RawClient, *creations: Mapping[str, Any]) -> list[int]:
    """Send one CreateAcls request and return the error codes."""
    answer = client.send(filled(m.CreateAclsRequest, creations=[*creations]), 3)
    return [result.error_code for result in answer.results]


def list_acls(client: RawClient, **chosen: Any) -> set[tuple[Any, ...]]:
    """Send one DescribeAcls request with this filter; return type, pattern, name and entry of each ACL."""
    answer = client.send(m.DescribeAclsRequest(**EVERY_ACL | chosen), 3)
    assert answer.error_code == 0, answer
    places = ("resource_type", "pattern_type", "resource_name")
    entries = ("principal", "host", "operation", "permission_type")
    return {
        (*(getattr(found, name) for name in places), *(getattr(acl, name) for name in entries))
        for found in answer.resources
        for acl in found.acls
    }


def delete_acls(client: RawClient, *filters: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Send one DeleteAcls request; return error code and number of ACLs for each filter."""
    answer = client.send(filled(m.DeleteAclsRequest, filters=[{**EVERY_ACL, **each} for each in filters]), 3)
    return [(result.error_code, len(result.matching_acls)) for result in answer.filter_results]


class Stage:
    """The user, the names and the administrator's connection of one test."""

    def __init__(self, kafka: GuardedKafka) -> None:
        self.kafka = kafka
        self.user = USERS[next(_fresh_user)]
        self.root = RawClient(kafka.bootstrap_servers)
        self.client = log_in(kafka, self.user)
        self.group, self.id, self.missing = unique("group"), unique("id"), unique("missing")
        self.cluster = CLUSTER_NAME
        # Results of an `ask` that it needs again in its next call.
        self.notes: dict[str, Any] = {}

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.root.close()

    @cached_property
    def topic(self) -> str:
        """Create a topic."""
        return make_topic(self.kafka)

    @cached_property
    def other(self) -> str:
        """Create another topic."""
        return make_topic(self.kafka)

    @cached_property
    def session(self) -> RawSession:
        """Return the user's session for single transactional requests."""
        return RawSession(self.client, self.id)

    @cached_property
    def root_session(self) -> RawSession:
        """Return the administrator's session for the same transactional id."""
        return RawSession(self.root, self.id)

    def grant(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        pattern: PatternType = PatternType.LITERAL,
        permission: Permission = Permission.ALLOW,
        host: str = "*",
        who: str | None = None,
    ) -> None:
        """Create an ACL and wait until the broker applies it."""
        principal = who or f"User:{self.user}"
        assert create_acls(
            self.root,
            {
                "resource_type": resource_type,
                "resource_name": name,
                "resource_pattern_type": pattern,
                "principal": principal,
                "host": host,
                "operation": operation,
                "permission_type": permission,
            },
        ) == [0]
        wanted = (resource_type, pattern, name, principal, host, operation, permission)
        wait_until(lambda: wanted in list_acls(self.root, principal_filter=principal), f"{wanted} is known")
