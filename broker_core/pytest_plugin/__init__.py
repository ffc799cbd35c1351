"""Give tests a Kafka: `kafka` fresh for each, `kafka_cluster` shared, and clients that are closed for them.

Owns: the fixtures, the marker, the option, what a failed test's report carries.
Asks: `embedded` for a broker; `real_cluster` for one that is not ours.
Never: imports a client or the broker before a test needs it: the plugin is loaded in every run of pytest.

    import pytest

    @pytest.mark.kafka(brokers=3, topics={"in": 4})
    def test_my_consumer(kafka, kafka_producer, kafka_consumer):
        kafka_producer().produce("in", b"hello")
        ...

The marker takes what `EmbeddedBroker` takes. When a test fails, its report carries the newest requests and the listings
of the partitions that were written.

With `--kafka-bootstrap host:port` the same tests run on a real cluster; a test that asks for what cannot be had there
is skipped and says for what. `real_cluster` tells what becomes of topics and groups there. `--kafka-config file` says
how clients get in; `kafka.client_settings` gives it to clients that the factories have not made.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from broker_core.embedded import EmbeddedBroker
    from broker_core.pytest_plugin.real_cluster import RealCluster, RealRun

_SHOWN_REQUESTS = 40
_SHOWN_PARTITIONS = 8
_SHOWN_LINES = 40

Settings = Mapping[str, Any]

_BROKER: "pytest.StashKey[EmbeddedBroker | RealCluster]" = pytest.StashKey()
_SHARED: "pytest.StashKey[EmbeddedBroker | RealCluster]" = pytest.StashKey()
_REAL_RUN: "pytest.StashKey[RealRun]" = pytest.StashKey()
_SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()
_ON_ANY_CLUSTER = frozenset({"topics", "brokers"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests run on a real cluster."""
    parser.getgroup("kafka").addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help="run tests with the fixtures kafka and kafka_cluster on this "
        "cluster instead of an embedded broker; what cannot be had there is skipped",
    )
    parser.getgroup("kafka").addoption(
        "--kafka-config",
        metavar="FILE",
        help="how clients get into that cluster: librdkafka's settings, name=value a "
        "line, such as security.protocol=SASL_SSL",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and read how to get into the real cluster."""
    path = config.getoption("--kafka-config")
    if path and not config.getoption("--kafka-bootstrap"):
        raise pytest.UsageError("--kafka-config says how to get into a real cluster: name it with --kafka-bootstrap")
    config.stash[_SETTINGS] = _read_settings(path) if path else {}
    config.addinivalue_line(
        "markers",
        "kafka(brokers=1, topics=None, transaction_version=2, ...): what the fixture kafka is made with; "
        "takes the arguments of broker_core.embedded.EmbeddedBroker",
    )


def _read_settings(path: str) -> dict[str, str]:
    """Read `name=value` lines, comments and empty ones left out; a file that is no such thing ends the run."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--kafka-config {path}: {error}") from None
    pairs = [line.partition("=") for line in map(str.strip, lines) if line and not line.startswith("#")]
    nameless = [number for number, (name, equals, _) in enumerate(pairs, 1) if not name.strip() or not equals]
    if nameless:
        # What the line says may be secret.
        raise pytest.UsageError(f"--kafka-config {path}: setting {nameless[0]} is not of the form name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _running(config: pytest.Config, options: dict[str, Any]) -> "EmbeddedBroker | RealCluster":
    address = config.getoption("--kafka-bootstrap")
    if not address:
        from broker_core.embedded import EmbeddedBroker

        return EmbeddedBroker(**options)
    special = sorted(options.keys() - _ON_ANY_CLUSTER)
    if special:
        pytest.skip(f"{special[0]}={options[special[0]]!r} needs the embedded broker: run without --kafka-bootstrap")
    from broker_core.pytest_plugin.real_cluster import RealCluster, RealRun

    if _REAL_RUN not in config.stash:
        config.stash[_REAL_RUN] = RealRun(address, config.stash[_SETTINGS])
    return RealCluster(config.stash[_REAL_RUN], options.get("brokers", 1), options.get("topics") or {})


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker | RealCluster]":
    """Give a broker of the test's own, made with the arguments of its marker `kafka`."""
    marker = request.node.get_closest_marker("kafka")
    options = dict(marker.kwargs) if marker is not None else {}
    with _running(request.config, options) as broker:
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

    broker = _broker_of(request)
    real = _real(request, broker)
    made: list[Producer] = []

    def make(settings: Settings | None = None) -> Producer:
        chosen = {**_client_settings(broker, real), **(settings or {})}
        made.append(Producer(chosen) if real is None else real.producer(chosen))
        return made[-1]

    yield make
    while made:
        # What a test has left unsent is not worth waiting for, and `close` would wait for a broker that is away.
        made[-1].purge()
        made[-1].flush(0)
        if real is not None:
            real.abort_open_transaction(made[-1])
        # Its last reference, unless the test has failed: then its frames are still there.
        made.pop()


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Consumer]]":
    """Give a function that makes consumers: `kafka_consumer("in", {"isolation.level": "read_uncommitted"})`.

    They begin at the start of the topics named. Unless the settings say otherwise they belong to group `test`, on a
    real cluster to one that the test shares with nobody.
    """
    from confluent_kafka import Consumer

    broker = _broker_of(request)
    real = _real(request, broker)
    made: list[Consumer] = []

    def make(*topics_and_settings: str | Settings) -> Consumer:
        topics = [each for each in topics_and_settings if isinstance(each, str)]
        settings = {
            key: value for each in topics_and_settings if not isinstance(each, str) for key, value in each.items()
        }
        if real is not None:
            settings["group.id"] = real.group(settings.get("group.id"))
        made.append(
            Consumer(
                {**_client_settings(broker, real), "group.id": "test", "auto.offset.reset": "earliest", **settings}
            )
        )
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


def _real(request: pytest.FixtureRequest, broker: object) -> "RealCluster | None":
    """Return the broker if it is the real cluster of this run; a fixture of the test's own may be neither."""
    if _REAL_RUN not in request.config.stash:
        return None
    from broker_core.pytest_plugin.real_cluster import RealCluster

    return broker if isinstance(broker, RealCluster) else None


def _client_settings(broker: "EmbeddedBroker | RealCluster", real: "RealCluster | None") -> dict[str, str]:
    """Return how a client gets in; a fixture of the test's own may know no more than its address."""
    return {"bootstrap.servers": broker.bootstrap_servers} if real is None else real.client_settings


def _remember(item: pytest.Item, broker: "EmbeddedBroker | RealCluster") -> None:
    item.stash[_BROKER] = broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put into the report of a failed test what its broker has seen."""
    report = yield
    if report.failed and report.when == "call" and _BROKER in item.stash:
        from broker_core.embedded import EmbeddedBroker

        broker = item.stash[_BROKER]
        try:
            if isinstance(broker, EmbeddedBroker):
                report.sections += _story(broker)
            elif _REAL_RUN in item.config.stash:
                report.sections.append(("kafka cluster", broker.story(_SHOWN_PARTITIONS)))
        except RuntimeError as error:
            report.sections.append(("kafka", str(error)))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the run leaves on a real cluster."""
    if _REAL_RUN in config.stash:
        for line in config.stash[_REAL_RUN].left():
            terminalreporter.write_line(line)


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
    return "\n".join([lines[0], f"  ... {len(lines) - _SHOWN_LINES} earlier batches", *lines[1 - _SHOWN_LINES :]])
