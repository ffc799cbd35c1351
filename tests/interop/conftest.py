"""Fixtures that run each scenario with every client on `broker_core` and, with --apache, on Apache Kafka."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.driver import Adapter, Client, ClientError
from tests.interop.fleet import FLEET
from tests.interop.limits import limit_of
from tests.support.both_brokers import BROKERS, SETTINGS, brokers_of
from tests.support.interop_brokers import (
    FLEETING,
    FORGETFUL,
    Bouncing,
    Running,
    at_version,
    bouncing_broker,
    broker,
    cluster,
)
from tests.support.short_form import chosen, is_in, leave_out

FOLDER = Path(__file__).parent
BROKER_FIXTURES = ("kafka", "fleeting_kafka", "forgetful_kafka", "bouncing_kafka", "three_brokers")
# Apache Kafka runs as one node here, and tests cannot pause its internals.
CORE_ONLY = {"three_brokers": BROKERS[:1]}
# After that, a copy waits for a transaction that never ends, or the next one of its producer ends it the same way.
FORGETS_MARKERS = "Apache Kafka 4.4.0 that is killed or stopped can forget a marker (KAFKA-20734)"
# A member that joins while its predecessor's transaction completes gets an error, and copies rows again.
FORGET_WHAT_IS_PENDING = ("aiokafka", "kafkajs")
GOES_BACK = "the client fetches offsets in a version that does not wait for transactions (before KIP-447)"
# Each client takes a minute or two, and some must be downloaded.
EVERYDAY = "confluent"
# Kafka's own client, and the one of most other languages, are in the short form of every run.
ALWAYS = (EVERYDAY, "java")
NOT_EVERY_DAY = "make test uses confluent-kafka only: `make conformance` uses this client too"


@dataclass(frozen=True)
class Pool:
    """The clients' processes, which live as long as the test run."""

    adapters: dict[tuple[str, str], Adapter]

    def client(self, name: str, kafka: Running | Bouncing) -> Client:
        """Return a client of that broker; skip the test if the client is not available."""
        return Client(name, self._adapter(name, "writer"), self._adapter(name, "reader"), kafka.bootstrap_servers)

    def _adapter(self, name: str, role: str) -> Adapter:
        if (name, role) not in self.adapters:
            self.adapters[name, role] = FLEET[name].start()
        return self.adapters[name, role]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with every client and every broker of this run."""
    for fixture in BROKER_FIXTURES:
        if fixture in metafunc.fixturenames:
            brokers = CORE_ONLY.get(fixture) or brokers_of(metafunc.config)
            metafunc.parametrize(fixture, brokers, indirect=True, scope="session")
    if "peer_name" in metafunc.fixturenames:
        pairs = [(name, peer) for name in FLEET for peer in FLEET if name != peer]
        metafunc.parametrize(
            "client_name, peer_name",
            [
                pytest.param(*pair, marks=[getattr(pytest.mark, name) for name in pair])
                for pair in chosen(pairs, "pairs of clients", of=3, long_form="make conformance")
            ],
            scope="session",
        )
    elif "client_name" in metafunc.fixturenames:
        metafunc.parametrize(
            "client_name", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in FLEET], scope="session"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the known failures of a client, and skip what it does not support."""
    spared: set[pytest.Item] = set()
    kills: list[pytest.Item] = []
    is_thorough = bool(config.getoption("--apache"))
    left_out = _clients_to_leave_out() if is_thorough else ()
    for item in items:
        if isinstance(item, pytest.Function) and is_in(item, FOLDER) and hasattr(item, "callspec"):
            parameters = item.callspec.params
            if (
                _is_spared(parameters, is_thorough)
                or ("peer_name" not in parameters and parameters.get("client_name") in left_out)
                or (config.getoption("--after-make-test") and _is_repeated(parameters))
            ):
                spared.add(item)
            mark = _mark(item, is_thorough)
            if mark is not None:
                item.add_marker(mark)
                if mark.kwargs["reason"] in (FORGETS_MARKERS, GOES_BACK):
                    kills.append(item)
    if kills:
        what = "kills after which a client may lose or repeat records, which fails no test"
        spared.update(set(kills) - set(chosen(kills, what, of=5, long_form="make conformance")))
    leave_out(config, items, spared)


def _clients_to_leave_out() -> set[str]:
    """Return the clients that the short form leaves out; librdkafka and Java's are in every run."""
    others = {name for name in FLEET if name not in ALWAYS}
    what = "clients beside librdkafka and Java's, where they are alone"
    return others.difference(chosen(sorted(others), what, of=len(others), long_form="make conformance"))


def _is_repeated(parameters: Mapping[str, object]) -> bool:
    """Return whether `make test` has run this: the client of every day on `broker_core`."""
    is_everyday = parameters.get("client_name") == EVERYDAY and "peer_name" not in parameters
    is_ours = any(parameters.get(fixture) == BROKERS[0] for fixture in BROKER_FIXTURES)
    return is_everyday and is_ours and not _is_spared(parameters, is_thorough=False)


def _is_spared(parameters: Mapping[str, object], is_thorough: bool) -> bool:
    """Return whether to skip two of the four ways to restart a broker, for clients that support all four.

    This saves time with Apache Kafka, which is slow to start, and in `make test`.
    """
    if "bouncing_kafka" not in parameters or "sends" not in parameters:
        return False
    if is_thorough and parameters["bouncing_kafka"] != "apache":
        return False
    name = str(parameters["client_name"])
    supports_all = (
        limit_of(name, "test_broker_restarts_during_a_copy_and_every_input_is_copied_once_in_order", ["group metadata"])
        is None
    )
    return supports_all and (parameters["sends"] == "group metadata") is not parameters["hard"]


def _mark(item: pytest.Function, is_thorough: bool) -> pytest.MarkDecorator | None:
    parameters = item.callspec.params
    asked = [str(parameters[name]) for name in ("client_name", "peer_name") if name in parameters]
    if not is_thorough and any(name != EVERYDAY for name in asked):
        return pytest.mark.skip(reason=NOT_EVERY_DAY)
    if "hard" in parameters and parameters.get("bouncing_kafka") == "apache":
        return pytest.mark.xfail(reason=FORGETS_MARKERS, strict=False)
    if parameters.get("hard") and asked[0] in FORGET_WHAT_IS_PENDING:
        return pytest.mark.xfail(reason=GOES_BACK, strict=False)
    limit = limit_of(asked[0], item.originalname, list(parameters.values())) if asked else None
    if limit is None:
        return None
    if limit.is_skipped:
        return pytest.mark.skip(reason=f"unsupported: {limit.reason}")
    return pytest.mark.xfail(reason=limit.reason, raises=ClientError, strict=limit.is_certain)


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Return the clients' processes."""
    pool = Pool({})
    yield pool
    for adapter in pool.adapters.values():
        adapter.close()


def _broker_fixture(run: Callable[..., object], name: str) -> Callable[..., Iterator[Running]]:
    @pytest.fixture(scope="session", name=name)
    def fixture(request: pytest.FixtureRequest) -> Iterator[Running]:
        with run(request.param) as running:
            yield running

    return fixture


fleeting_kafka = _broker_fixture(lambda kind: broker(kind, FLEETING), "fleeting_kafka")
forgetful_kafka = _broker_fixture(lambda kind: broker(kind, FORGETFUL), "forgetful_kafka")
three_brokers = _broker_fixture(lambda _: cluster(), "three_brokers")


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Running]:
    """Return a running broker; tests share it and use unique topics, groups and ids."""
    if request.param == "apache":
        yield request.getfixturevalue("shared_apache")
    else:
        with broker(request.param, SETTINGS) as running:
            yield running


@pytest.fixture
def kafka_v1(kafka: Running) -> Iterator[Running]:
    """Return the broker with the older transaction protocol for every client."""
    with at_version(kafka, 1):
        yield kafka


@pytest.fixture(scope="session")
def bouncing_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bouncing]:
    """Return a broker that can be stopped and restarted; it runs when a test begins."""
    with bouncing_broker(request.param, tmp_path_factory.mktemp(f"bouncing-{request.param}")) as running:
        yield running


@pytest.fixture
def client(client_name: str, pool: Pool, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Return a client of the broker under test."""
    (broker_fixture,) = [name for name in BROKER_FIXTURES if name in request.fixturenames]
    client = pool.client(client_name, request.getfixturevalue(broker_fixture))
    yield client
    client.close()


@pytest.fixture
def peer(peer_name: str, pool: Pool, kafka: Running) -> Iterator[Client]:
    """Return another client, of another implementation."""
    peer = pool.client(peer_name, kafka)
    yield peer
    peer.close()
