"""Delegation tokens (KIP-48, KIP-373): create, renew, expire and describe them, and log in with them."""

import base64
import hashlib
import hmac
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from broker_core.errors import ErrorCode
from broker_core.security.acls import Operation, ResourceType
from broker_core.wire import messages as m
from tests.support.guarded_kafka import USERS, Stage, log_in
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


class LoginRefused(Exception):
    """A login that the broker refuses; the message is the broker's."""


def scram_login(
    client: RawClient, name: str, password: str, *, mechanism: str = "SCRAM-SHA-256", extension: str = "tokenauth=true"
) -> int:
    """Log in and return the session's lifetime in ms."""
    digest = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
    assert client.send(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    bare = f"n={name},r=fyko+d2lbbFgONRv9qkxdawL" + (f",{extension}" if extension else "")
    challenge = _exchange(client, f"n,,{bare}")[0]
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={fields['r']}"
    signed = hmac.digest(hashlib.new(digest, client_key).digest(), f"{bare},{challenge},{final}".encode(), digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signed, strict=True))).decode()
    return _exchange(client, f"{final},p={proof}")[1]


def _exchange(client: RawClient, message: str) -> tuple[str, int]:
    answer = client.send(SaslAuthenticateRequest(auth_bytes=message.encode()), 2)
    if answer.error_code:
        raise LoginRefused(answer.error_message)
    return bytes(answer.auth_bytes).decode(), int(answer.session_lifetime_ms)


NONE = ErrorCode.NONE
HOUR_MS = 3_600_000
DAY_MS, WEEK_MS = 24 * HOUR_MS, 7 * 24 * HOUR_MS


def create(
    client: RawClient,
    version: int = 3,
    *,
    lifetime_ms: int = -1,
    owner: str | None = None,
    renewers: tuple[tuple[str, str], ...] = (),
) -> Any:
    form = m.CreateDelegationTokenRequest
    return client.send(
        form(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[form.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
            max_lifetime_ms=lifetime_ms,
        ),
        version,
    )


def renew(client: RawClient, token: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    answer = client.send(m.RenewDelegationTokenRequest(hmac=token, renew_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(client: RawClient, token: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    answer = client.send(m.ExpireDelegationTokenRequest(hmac=token, expiry_time_period_ms=period_ms), version)
    return answer.error_code, answer.expiry_timestamp_ms


def describe(client: RawClient, owners: list[str] | None = None, version: int = 3) -> dict[str, Any]:
    form = m.DescribeDelegationTokenRequest
    wanted = (
        None
        if owners is None
        else [form.DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    )
    answer = client.send(form(owners=wanted), version)
    assert answer.error_code == NONE
    return {token.token_id: token for token in answer.tokens}


def known(client: RawClient, token_id: str, **options: Any) -> Any:
    """Wait until a token is described, and return it; Kafka's broker learns of it after its controller."""
    wait_until(lambda: token_id in describe(client), "the token is described")
    return describe(client, **options)[token_id]


@pytest.fixture
def other(stage: Stage) -> Iterator[RawClient]:
    """Return the connection of another user."""
    with closing(log_in(stage.kafka, other_name(stage))) as client:
        yield client


def other_name(stage: Stage) -> str:
    return USERS[-1 - USERS.index(stage.user)]


def log_in_with(stage: Stage, answer: Any, **options: Any) -> tuple[RawClient, int]:
    """Log in with a created token; the broker may not know it yet."""
    clients: list[RawClient] = []
    lifetimes: list[int] = []

    def succeeds() -> bool:
        client = RawClient(stage.kafka.sasl_address)
        try:
            lifetimes.append(scram_login(client, answer.token_id, base64.b64encode(answer.hmac).decode(), **options))
        except LoginRefused:
            client.close()
            return False
        clients.append(client)
        return True

    wait_until(succeeds, "the token is accepted")
    return clients[0], lifetimes[0]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_created_token_lives_as_long_as_the_settings_say(stage: Stage, version: int):
    answer = create(stage.client, version)
    assert (answer.error_code, answer.principal_type, answer.principal_name) == (NONE, "User", stage.user)
    if version >= 3:
        assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ("User", stage.user)
    issued_ms = answer.issue_timestamp_ms
    assert (answer.expiry_timestamp_ms - issued_ms, answer.max_timestamp_ms - issued_ms) == (DAY_MS, WEEK_MS)
    assert (len(answer.token_id), len(answer.hmac)) == (22, 64)
    short = create(stage.client, version, lifetime_ms=HOUR_MS)
    issued_ms = short.issue_timestamp_ms
    assert (short.expiry_timestamp_ms - issued_ms, short.max_timestamp_ms - issued_ms) == (HOUR_MS, HOUR_MS)
    longest = create(stage.client, version, lifetime_ms=2 * WEEK_MS)
    assert longest.max_timestamp_ms - longest.issue_timestamp_ms == WEEK_MS


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tokens_are_described_to_owner_and_renewer_only(stage: Stage, other: RawClient, version: int):
    answer = create(stage.client, renewers=(("User", other_name(stage)),))
    token = known(stage.client, answer.token_id, version=version)
    assert (token.principal_name, token.hmac) == (stage.user, answer.hmac)
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [("User", other_name(stage))]
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )
    if version >= 3:
        assert token.token_requester_principal_name == stage.user
    assert answer.token_id in describe(other, version=version)
    own = create(stage.client)
    assert own.token_id == known(stage.client, own.token_id).token_id
    assert own.token_id not in describe(other)
    assert describe(stage.client, [], version) == {}
    # Those of earlier tests with these users may be there, too.
    described = describe(stage.client, [other_name(stage)])
    assert answer.token_id in described
    assert own.token_id not in described


# Rule G.2/6.
def test_tokens_of_others_are_described_with_a_right(stage: Stage, other: RawClient):
    answer = create(other)
    known(other, answer.token_id)
    assert answer.token_id not in describe(stage.client)
    stage.grant(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, answer.token_id)
    wait_until(lambda: answer.token_id in describe(stage.client), "the right applies")
    second = create(other)
    known(other, second.token_id)
    assert second.token_id not in describe(stage.client)
    stage.grant(Operation.DESCRIBE_TOKENS, ResourceType.USER, f"User:{other_name(stage)}")
    wait_until(lambda: second.token_id in describe(stage.client), "the right applies")


# Rule G.2/3.
def test_token_for_another_owner_needs_a_right(stage: Stage, other: RawClient):
    name = other_name(stage)
    answer = create(stage.client, owner=name)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (answer.principal_name, answer.token_requester_principal_name) == (name, stage.user)
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)
    assert (answer.token_id, answer.hmac) == ("", b"")
    stage.grant(Operation.CREATE_TOKENS, ResourceType.USER, f"User:{name}")
    wait_until(lambda: create(stage.client, owner=name).error_code == NONE, "the right applies")
    answer = create(stage.client, owner=name)
    token = known(stage.client, answer.token_id)
    assert (token.principal_name, token.token_requester_principal_name) == (name, stage.user)
    # The requester may not renew it, and the owner may.
    assert renew(stage.client, answer.hmac) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(other, answer.hmac)[0] == NONE


def test_renewers_are_users(stage: Stage):
    answer = create(stage.client, renewers=(("Group", "g"),))
    assert (answer.error_code, answer.token_id) == (ErrorCode.INVALID_PRINCIPAL_TYPE, "")
    assert (answer.issue_timestamp_ms, answer.max_timestamp_ms) == (-1, -1)


# Rule G.2/5.
@pytest.mark.parametrize("version", [1, 2])
def test_owner_and_renewer_renew_and_expire_a_token(stage: Stage, other: RawClient, version: int):
    answer = create(stage.client, lifetime_ms=2 * DAY_MS)
    known(stage.client, answer.token_id)
    refused = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert renew(other, answer.hmac, version=version) == refused
    assert expire(other, answer.hmac, version=version) == refused
    code, expiry_ms = renew(stage.client, answer.hmac, HOUR_MS, version)
    assert code == NONE
    assert HOUR_MS <= expiry_ms - answer.issue_timestamp_ms < 2 * HOUR_MS
    wait_until(lambda: describe(stage.client)[answer.token_id].expiry_timestamp == expiry_ms, "it is renewed")
    # The period is at most that of the settings.
    code, expiry_ms = renew(stage.client, answer.hmac, WEEK_MS, version)
    assert (code, (expiry_ms - answer.issue_timestamp_ms) // HOUR_MS) == (NONE, 24)
    code, expiry_ms = expire(stage.client, answer.hmac, 10 * DAY_MS, version)
    assert (code, expiry_ms) == (NONE, answer.max_timestamp_ms)
    code, expiry_ms = expire(stage.client, answer.hmac, version=version)
    assert (code, expiry_ms < answer.expiry_timestamp_ms) == (NONE, True)
    wait_until(lambda: answer.token_id not in describe(stage.client), "it is deleted")
    unknown = (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert renew(stage.client, answer.hmac, version=version) == unknown
    assert expire(stage.client, answer.hmac, version=version) == unknown
    assert renew(stage.client, b"", version=version) == unknown


def test_expired_token_can_only_be_deleted(stage: Stage):
    answer = create(stage.client)
    known(stage.client, answer.token_id)
    code, expiry_ms = expire(stage.client, answer.hmac, 0)
    assert code == NONE
    expired = (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    # Renewed too early, it would not expire: Kafka's controller reads tokens from a cache that follows it.
    wait_until(lambda: describe(stage.client)[answer.token_id].expiry_timestamp == expiry_ms, "the change is known")
    wait_until(lambda: time.time() * 1000 > expiry_ms + 10, "the token has expired")
    assert renew(stage.client, answer.hmac) == expired
    assert expire(stage.client, answer.hmac, 1000) == expired
    assert describe(stage.client)[answer.token_id].expiry_timestamp == expiry_ms
    assert expire(stage.client, answer.hmac)[0] == NONE


# Rule G.2/4.
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_login_with_a_token_acts_as_its_owner(stage: Stage, mechanism: str):
    stage.grant(Operation.DESCRIBE, ResourceType.TOPIC, stage.topic)
    answer = create(stage.client)
    client, lifetime_ms = log_in_with(stage, answer, mechanism=mechanism)
    with closing(client):
        # The session ends with the token.
        assert 0 < lifetime_ms <= DAY_MS
        form = m.MetadataRequest
        described = client.send(form(topics=[form.MetadataRequestTopic(name=stage.topic)]), 9)
        assert described.topics[0].error_code == NONE
        # A token is no right to more tokens.
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        made = create(client)
        assert (made.error_code, made.principal_name, made.issue_timestamp_ms) == (refused, stage.user, -1)
        assert renew(client, answer.hmac) == (refused, -1)
        assert expire(client, answer.hmac) == (refused, -1)
        assert client.send(m.DescribeDelegationTokenRequest(owners=None), 3).error_code == refused


@pytest.mark.parametrize("wrong", ["password", "id", "extension"])
def test_login_with_a_wrong_token_is_refused(stage: Stage, wrong: str):
    answer = create(stage.client)
    log_in_with(stage, answer)[0].close()
    with RawClient(stage.kafka.sasl_address) as client, pytest.raises(LoginRefused, match="invalid credentials"):
        scram_login(
            client,
            "no-such-id" if wrong == "id" else answer.token_id,
            "wrong" if wrong == "password" else base64.b64encode(answer.hmac).decode(),
            extension="" if wrong == "extension" else "tokenauth=true",
        )


# Rule G.2/1.
def test_clients_that_are_not_authenticated_have_no_tokens(stage: Stage):
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert create(stage.root).error_code == refused
    assert renew(stage.root, b"x") == (refused, -1)
    assert expire(stage.root, b"x") == (refused, -1)
    assert stage.root.send(m.DescribeDelegationTokenRequest(owners=None), 3).error_code == refused
