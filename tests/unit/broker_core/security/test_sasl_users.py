"""SCRAM users: set, described and deleted, and never disclosed."""

import pytest
from scramp import ScramClient

from broker_core.security.sasl_passwords import credential_of_password
from broker_core.simulation.disk import MemoryStorage
from broker_core.wire import messages as m
from tests.support.broker_core.sasl_world import SaslClient, secured_cluster
from tests.support.direct import CountingEntropy, DirectClient, direct_cluster

UPSERT = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
DELETE = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
KEYS = {"salt": b"s" * 16, "salted_password": b"top-secret" * 3}


def alter(client, *changes):
    answer = client.ask(
        m.AlterUserScramCredentialsRequest(
            deletions=[change for change in changes if isinstance(change, DELETE)],
            upsertions=[change for change in changes if isinstance(change, UPSERT)],
        ),
        0,
    )
    return {result.user: result.error_code for result in answer.results}


@pytest.fixture
def client():
    return DirectClient(direct_cluster())


def test_users_and_their_deletion_survive_a_restart():
    storage = MemoryStorage()
    cluster = direct_cluster(storage)
    client = DirectClient(cluster)
    alter(
        client,
        UPSERT(name="a", mechanism=1, iterations=4096, **KEYS),
        UPSERT(name="b", mechanism=1, iterations=4096, **KEYS),
    )
    alter(client, DELETE(name="b", mechanism=1))
    before = dict(cluster.metadata.scram)
    cluster.close(cluster.now_ms)
    assert direct_cluster(storage).metadata.scram == before
    assert set(before) == {("SCRAM-SHA-256", "a")}


def test_new_password_is_valid_immediately_and_the_old_one_is_not():
    cluster = secured_cluster()
    new = credential_of_password("SCRAM-SHA-256", "new", CountingEntropy())
    cluster.metadata.set_scram("SCRAM-SHA-256", "alice", new)
    for password, is_good in (("new", True), ("secret", False)):
        client, scram = SaslClient(cluster), ScramClient(["SCRAM-SHA-256"], "alice", password)
        client.handshake("SCRAM-SHA-256")
        scram.set_server_first(client.token(scram.get_client_first().encode()).auth_bytes.decode())
        client.post(m.SaslAuthenticateRequest(auth_bytes=scram.get_client_final().encode()), 2)
        client.pass_time(100)
        assert (client.take().error_code == 0) is is_good
