"""The login that a delegation token is."""

from dataclasses import replace

from broker_core.features.delegation_tokens.logins import token_logins
from broker_core.features.delegation_tokens.records import DelegationToken, set_token
from broker_core.security.principals import user
from broker_core.simulation.entropy import SeededEntropy
from tests.support.direct import direct_cluster


def test_a_token_is_a_login_of_its_owner_with_a_secret_key_only() -> None:
    cluster = direct_cluster(settings={"delegation.token.secret.key": "secret"})
    set_token(cluster.metadata, "t", DelegationToken("t", user("ann"), user("bob"), (), 1, 9, 5))
    logins = token_logins(cluster.metadata, cluster.config, SeededEntropy(1))
    login = logins("SCRAM-SHA-256", "t")
    assert login is not None
    assert (login.owner_name, login.expires_ms) == ("ann", 5)
    assert logins("SCRAM-SHA-256", "another") is None
    without_key = replace(cluster.config, delegation_token_secret_key="")
    assert token_logins(cluster.metadata, without_key, SeededEntropy(1))("SCRAM-SHA-256", "t") is None
