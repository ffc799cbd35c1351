"""Fixtures that run each conformance test on `broker_core` and, with --apache, on Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from broker_core import EmbeddedBroker
from tests.support.both_brokers import BROKERS, DURABLE_SETTINGS, SETTINGS, Kafka, brokers_of
from tests.support.clients import unique
from tests.support.guarded_kafka import GuardedKafka, Stage, guarded_kafka
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.restartable import Restartable, restartable
from tests.support.short_form import is_in, leave_out
from tests.support.waiting import wait_until

FOLDER = Path(__file__).parent
BROKER_FIXTURES = ("kafka", "durable_kafka", "restarted", "guarded")
# Those that single modules define.
OF_MODULES = ("locked", "broker", "three")
# With these, a test on `broker_core` is skipped in runs without --apache.
NEED_MORE = frozenset({"apache_asked_for", "may_fetch"})
# The types of coordinators in FindCoordinator.
_GROUP, _TRANSACTION = 0, 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every broker of this run."""
    brokers = brokers_of(metafunc.config)
    for fixture in (*BROKER_FIXTURES, *OF_MODULES):
        if fixture in metafunc.fixturenames:
            # Without a scope here, each has the one of its fixture.
            metafunc.parametrize(fixture, brokers, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --after-make-test, leave out what does the same without --apache: tests whose broker is `broker_core`."""
    if not config.getoption("--after-make-test"):
        return
    leave_out(config, items, {item for item in items if is_in(item, FOLDER) and _is_repeated(item)})


def _is_repeated(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    return (
        parameters is not None
        and any(parameters.params.get(fixture) == BROKERS[0] for fixture in BROKER_FIXTURES)
        and not NEED_MORE.intersection(getattr(item, "fixturenames", ()))
    )


@pytest.fixture(scope="session")
def apache_asked_for(request: pytest.FixtureRequest) -> None:
    """Skip a test that needs Apache Kafka unless the run has --apache."""
    if not request.config.getoption("--apache"):
        pytest.skip("needs Apache Kafka, that is Java and Maven: run with --apache")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Return a running broker; tests share it and use unique topics, groups and ids."""
    if request.param == "apache":
        yield request.getfixturevalue("shared_apache")
    else:
        with EmbeddedBroker(config=SETTINGS) as embedded:
            yield Kafka(embedded.bootstrap_servers)


@pytest.fixture(scope="session")
def durable_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    """Return a shared running broker over a folder; tests may read the folder and restart the broker."""
    folder = tmp_path_factory.mktemp(f"durable-{request.param}")
    with restartable(request.param, folder, DURABLE_SETTINGS) as broker:
        yield broker


def _wait_for_coordinator(kafka: GuardedKafka, key_type: int) -> None:
    """Let a broker create the internal topic: without it, it coordinates nothing, and refuses with another error."""
    body = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
    with RawClient(kafka.bootstrap_servers) as root:
        wait_until(lambda: root.send(body, 4).coordinators[0].error_code == 0, f"a coordinator of type {key_type}")


@pytest.fixture(scope="session")
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    """Return a shared running broker with an authorizer; every test has its own user."""
    with guarded_kafka(request.param, tmp_path_factory.mktemp(f"guarded-{request.param}")) as broker:
        for key_type in (_GROUP, _TRANSACTION):
            _wait_for_coordinator(broker, key_type)
        yield broker


@pytest.fixture
def stage(guarded: GuardedKafka) -> Iterator[Stage]:
    """Return a user without rights, with an administrator's connection."""
    stage = Stage(guarded)
    yield stage
    stage.close()


@pytest.fixture
def client(kafka: Kafka) -> Iterator[RawClient]:
    """Return a connection."""
    with RawClient(kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture
def session(client: RawClient) -> RawSession:
    """Return a session with a unique transactional id."""
    return RawSession(client, unique("id"))


@pytest.fixture
def idempotent(client: RawClient) -> RawSession:
    """Return an idempotent producer without transactions."""
    return RawSession(client, None)
