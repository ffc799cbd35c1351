"""Give tests a Kafka: `kafka` fresh for each, `kafka_cluster` shared, and clients that are closed for them.

    import pytest

    @pytest.mark.kafka(brokers=3, topics={"in": 4})
    def test_my_consumer(kafka, kafka_producer, kafka_consumer):
        kafka_producer().produce("in", b"hello")
        ...

The marker takes what `EmbeddedBroker` takes. With `--kafka-bootstrap host:port` the same tests run on a real cluster;
a test that asks for what cannot be had there is skipped and says for what. When a test fails, its report carries the
newest requests and the listings of the partitions that were written.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pytest

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from broker_core.embedded import EmbeddedBroker

# What is heavy to import is imported by the tests that need it: the plugin is loaded in every run of pytest.

_SHOWN_REQUESTS = 40
_SHOWN_PARTITIONS = 8
_SHOWN_LINES = 40
_PATIENCE_S = 30
_BROKER: "pytest.StashKey[EmbeddedBroker]" = pytest.StashKey()
_SHARED: "pytest.StashKey[EmbeddedBroker | RealCluster]" = pytest.StashKey()
_ON_ANY_CLUSTER = frozenset({"topics", "brokers"})

Settings = Mapping[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests run on a real cluster."""
    parser.getgroup("kafka").addoption(
        "--kafka-bootstrap", metavar="HOST:PORT", help="run tests with the fixtures kafka and kafka_cluster on this "
        "cluster instead of an embedded broker; what cannot be had there is skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "kafka(brokers=1, topics=None, transaction_version=2, ...): what the fixture kafka is made with; "
        "takes the arguments of broker_core.embedded.EmbeddedBroker")


class RealCluster:
    """Stand for a cluster that is not ours: it has addresses and topics; a test that wants more is skipped."""

    def __init__(self, bootstrap_servers: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._created: list[str] = []

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, which goes with the test; the test is skipped if it is there already: it is not ours."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        if name in self._admin.list_topics(timeout=_PATIENCE_S).topics:
            pytest.skip(f"the real cluster has a topic {name!r} already, and it may be somebody's")
        self._admin.create_topics([NewTopic(name, partitions, config=dict(config or {}))])[name].result(_PATIENCE_S)
        self._created.append(name)

    def need_brokers(self, count: int) -> None:
        """Skip the test on a cluster of fewer."""
        found = len(self._admin.list_topics(timeout=_PATIENCE_S).brokers)
        if found < count:
            pytest.skip(f"the test needs {count} brokers; the real cluster has {found}")

    def __getattr__(self, name: str) -> NoReturn:
        from broker_core.embedded import EmbeddedBroker

        if name.startswith("_") or not hasattr(EmbeddedBroker, name):
            raise AttributeError(name)
        pytest.skip(f"kafka.{name} needs the embedded broker: run without --kafka-bootstrap")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for deleted in self._admin.delete_topics(self._created).values() if self._created else ():
            deleted.result(_PATIENCE_S)


def _running(config: pytest.Config, options: dict[str, Any]) -> "EmbeddedBroker | RealCluster":
    address = config.getoption("--kafka-bootstrap")
    if not address:
        from broker_core.embedded import EmbeddedBroker

        return EmbeddedBroker(**options)
    special = sorted(options.keys() - _ON_ANY_CLUSTER)
    if special:
        pytest.skip(f"{special[0]}={options[special[0]]!r} needs the embedded broker: run without --kafka-bootstrap")
    cluster = RealCluster(address)
    cluster.need_brokers(options.get("brokers", 1))
    return cluster


def _create_topics(kafka: "EmbeddedBroker | RealCluster", options: dict[str, Any]) -> None:
    if isinstance(kafka, RealCluster):
        for name, partitions in (options.get("topics") or {}).items():
            kafka.create_topic(name, partitions)


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker | RealCluster]":
    """Give a broker of the test's own, made with the arguments of its marker `kafka`."""
    marker = request.node.get_closest_marker("kafka")
    options = dict(marker.kwargs) if marker is not None else {}
    with _running(request.config, options) as broker:
        _create_topics(broker, options)
        _remember(request.node, broker)
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker | RealCluster]":
    """Give a broker that all tests of the run share: each has to use names of its own."""
    with _running(request.config, {}) as broker:
        request.session.stash[_SHARED] = broker
        yield broker
        del request.session.stash[_SHARED]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Note which tests use the shared broker, for their reports."""
    if "kafka_cluster" in getattr(item, "fixturenames", ()) and _SHARED in item.session.stash:
        _remember(item, item.session.stash[_SHARED])


@pytest.fixture
def kafka_producer(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Producer]]":
    """Give a function that makes producers: `kafka_producer({"transactional.id": "t"})`."""
    from confluent_kafka import Producer

    address = _broker_of(request).bootstrap_servers
    made: list[Producer] = []

    def make(settings: Settings | None = None) -> Producer:
        made.append(Producer({"bootstrap.servers": address, **(settings or {})}))
        return made[-1]

    yield make
    while made:
        # What a test has left unsent is not worth waiting for, and `close` would wait for a broker that is away.
        made[-1].purge()
        made[-1].flush(0)
        # Its last reference, unless the test has failed: then its frames are still there.
        made.pop()


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Consumer]]":
    """Give a function that makes consumers: `kafka_consumer("in", {"isolation.level": "read_uncommitted"})`.

    They begin at the start of the topics named and belong to group `test` unless the settings say otherwise.
    """
    from confluent_kafka import Consumer

    address = _broker_of(request).bootstrap_servers
    made: list[Consumer] = []

    def make(*topics_and_settings: str | Settings) -> Consumer:
        topics = [each for each in topics_and_settings if isinstance(each, str)]
        settings = {key: value for each in topics_and_settings if not isinstance(each, str)
                    for key, value in each.items()}
        made.append(Consumer({"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest",
                              **settings}))
        if topics:
            made[-1].subscribe(topics)
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def _broker_of(request: pytest.FixtureRequest) -> "EmbeddedBroker | RealCluster":
    """Return the broker that the test has asked for; the fresh one unless it named only the shared one."""
    shared = "kafka_cluster" in request.fixturenames and "kafka" not in request.fixturenames
    broker: EmbeddedBroker | RealCluster = request.getfixturevalue("kafka_cluster" if shared else "kafka")
    _remember(request.node, broker)
    return broker


def _remember(item: pytest.Item, broker: "EmbeddedBroker | RealCluster") -> None:
    from broker_core.embedded import EmbeddedBroker

    if isinstance(broker, EmbeddedBroker):
        item.stash[_BROKER] = broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put into the report of a failed test what its broker has seen."""
    report = yield
    if report.failed and report.when == "call" and _BROKER in item.stash:
        try:
            report.sections += _story(item.stash[_BROKER])
        except RuntimeError as error:
            report.sections.append(("kafka", str(error)))
    return report


def _story(broker: "EmbeddedBroker") -> list[tuple[str, str]]:
    requests = broker.requests()
    shown = [str(each) for each in requests[-_SHOWN_REQUESTS:]]
    left_out = len(requests) - len(shown)
    if left_out:
        shown.insert(0, f"... {left_out} earlier requests")
    sections = [("kafka requests", "\n".join(shown) or "none came")]
    if any(broker.broker(broker_id).is_running for broker_id in broker.broker_ids):
        written = broker.written_partitions()
        listings = [_shortened(broker.partition(*each).dump()) for each in written[:_SHOWN_PARTITIONS]]
        if len(written) > _SHOWN_PARTITIONS:
            listings.append(f"... {len(written) - _SHOWN_PARTITIONS} more partitions")
        sections.append(("kafka partitions", "\n".join(listings) or "none was written"))
    return sections


def _shortened(listing: str) -> str:
    lines = listing.splitlines()
    if len(lines) <= _SHOWN_LINES:
        return listing
    return "\n".join([lines[0], f"  ... {len(lines) - _SHOWN_LINES} earlier batches", *lines[1 - _SHOWN_LINES:]])
