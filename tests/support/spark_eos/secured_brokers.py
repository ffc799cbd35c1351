"""Secured brokers of either kind, and unique names on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.support.secured import USERS, Secured, secured
from tests.support.spark_eos.security_clients import Credentials

SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
AWKWARD_USER, AWKWARD = "ann", 'it is; "s=cret" \\ 1'


@pytest.fixture(scope="module")
def kafka(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(broker_kind, tmp_path_factory.mktemp("secured")) as running:
        for user, password in (*USERS.items(), (AWKWARD_USER, AWKWARD)):
            make_scram_user(running, user, password)
        yield running


@pytest.fixture
def own(kafka: Secured, tmp_path: Path) -> Credentials:
    return Credentials(kafka, tmp_path)


def make_scram_user(kafka: Secured, user: str, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    # A request changes a user once at most.
    for mechanism in SCRAM.values():
        wanted = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(60)
