"""Delegation tokens over time, over restarts, and without a secret key."""

import pytest

from broker_core.errors import DamageError, ErrorCode
from broker_core.security.principals import user
from broker_core.simulation.disk import MemoryStorage
from broker_core.wire import messages as m
from tests.support.direct import DirectClient, direct_cluster

SETTINGS = {
    "delegation.token.secret.key": "secret",
    "delegation.token.expiry.time.ms": "1000",
    "delegation.token.expiry.check.interval.ms": "5000",
}
START_MS = 1_000_000


def client_of(cluster):
    return DirectClient(cluster, principal=user("alice"))


def create(client):
    form = m.CreateDelegationTokenRequest
    renewer = form.CreatableRenewers(principal_type="User", principal_name="bob")
    return client.ask(form(renewers=[renewer], max_lifetime_ms=-1), 3)


def described(client):
    """Return what identifies each token, and what it consists of."""
    tokens = client.ask(m.DescribeDelegationTokenRequest(owners=None), 3).tokens
    return [(each.token_id, bytes(each.hmac), str(each.to_dict() | {"hmac": None})) for each in tokens]


def test_tokens_survive_a_restart_with_the_same_key(storage: MemoryStorage):
    cluster = direct_cluster(storage, settings=SETTINGS)
    client = client_of(cluster)
    kept, deleted = create(client), create(client)
    answer = client.ask(m.ExpireDelegationTokenRequest(hmac=deleted.hmac, expiry_time_period_ms=-1), 2)
    assert answer.error_code == ErrorCode.NONE
    before = described(client)
    storage.crash()
    client = client_of(direct_cluster(storage, settings=SETTINGS))
    assert described(client) == before
    assert [each[:2] for each in before] == [(kept.token_id, kept.hmac)]
    [other] = described(client_of(direct_cluster(storage, settings=SETTINGS | {"delegation.token.secret.key": "new"})))
    assert (other[0], other[1] == kept.hmac, other[2]) == (kept.token_id, False, before[0][2])


# Rule G.2/7.
def test_expired_tokens_are_deleted_at_the_next_check():
    cluster = direct_cluster(settings=SETTINGS)
    client = client_of(cluster)
    token = create(client)
    assert cluster.next_deadline_ms() <= START_MS + 5000
    cluster.advance(START_MS + 4999)
    client.now_ms = START_MS + 4999
    assert [each[0] for each in described(client)] == [token.token_id]
    cluster.advance(START_MS + 5000)
    assert described(client) == []


# Rule G.2/2.
def test_without_a_secret_key_there_are_no_tokens():
    client = client_of(direct_cluster())
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(client).error_code == disabled
    assert client.ask(m.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), 2).error_code == disabled
    assert client.ask(m.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), 2).error_code == disabled
    assert client.ask(m.DescribeDelegationTokenRequest(owners=None), 3).error_code == disabled


@pytest.mark.parametrize("damage", [(b'"owner"', b'"outer"'), (b'"User", "bob"', b'"User"')])
def test_damaged_token_in_the_metadata_is_reported(damage):
    cluster = direct_cluster(settings=SETTINGS)
    create(client_of(cluster))
    records = list(cluster._metadata_log.records())
    changed = [(offset, value.replace(*damage)) for offset, value in records]
    assert changed != records
    with pytest.raises(DamageError, match="token missing or of a wrong kind"):
        direct_cluster().metadata.load(changed)
