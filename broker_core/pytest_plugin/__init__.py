"""A pytest plugin with Kafka fixtures: a broker for each test (`kafka`), a shared one (`kafka_cluster`), and clients.

Owns: the fixtures, the marker, the options, and the sections about the broker in a failed test's report.
Uses: `embedded` for a broker; `real_cluster` for an existing cluster; `failure_reports` for failed tests.
Never: imports a client or the broker before a test needs it, as every run of pytest loads the plugin.

    import pytest

    @pytest.mark.kafka(brokers=3, topics={"in": 4})
    def test_my_consumer(kafka, kafka_producer, kafka_consumer):
        kafka_producer().produce("in", b"hello")
        ...

The marker takes the arguments of `EmbeddedBroker`. The report of a failed test contains the newest requests and
listings of the partitions that were written, of all embedded brokers that the test has used.

With `--kafka-bootstrap host:port` the same tests run on a real cluster. A test is skipped, with the reason, if it needs
a feature that a real cluster does not have. `real_cluster` describes how topics and groups are cleaned up.
`--kafka-config file` contains the clients' security settings. For clients that the fixtures do not create, use
`kafka.client_settings`.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_core.pytest_plugin.failure_reports import SHOWN_PARTITIONS, FailureReports, fixtures_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from broker_core.aio import EmbeddedBroker as AsyncBroker
    from broker_core.embedded import EmbeddedBroker
    from broker_core.pytest_plugin.real_cluster import RealCluster, RealRun

Settings = Mapping[str, Any]

_REAL_RUN: "pytest.StashKey[RealRun]" = pytest.StashKey()
_SETTINGS: pytest.StashKey[Settings] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help="run tests with the fixtures kafka and kafka_cluster on this "
        "cluster instead of an embedded broker; tests that need the embedded broker are skipped",
    )
    group.addoption(
        "--kafka-version",
        metavar="X.Y",
        help="the version of Kafka, such as 3.9, whose APIs and features the embedded brokers serve; "
        "tests whose marker asks for another version or for a newer protocol of transactions are skipped",
    )
    group.addoption(
        "--kafka-report",
        action="store_true",
        help="write an HTML page about the embedded brokers of each failed test",
    )
    group.addoption(
        "--kafka-report-dir",
        metavar="DIR",
        default="kafka-report",
        help="the folder for the pages of --kafka-report (%(default)s)",
    )
    group.addoption(
        "--kafka-config",
        metavar="FILE",
        help="file with client settings for that cluster: librdkafka's names, one name=value "
        "per line, such as security.protocol=SASL_SSL",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, ignore a dependency's warnings, and read the client settings for the real cluster."""
    path = config.getoption("--kafka-config")
    if path and not config.getoption("--kafka-bootstrap"):
        raise pytest.UsageError("--kafka-config needs --kafka-bootstrap, the address of the real cluster")
    _check_version(config.getoption("--kafka-version"), config.getoption("--kafka-bootstrap"))
    config.pluginmanager.register(FailureReports(config), "broker_core.failure_reports")
    config.stash[_SETTINGS] = _read_settings(path) if path else {}
    config.addinivalue_line(
        "markers",
        "kafka(brokers=1, topics=None, kafka_version=None, ...): arguments of broker_core.EmbeddedBroker "
        "for the fixture kafka",
    )
    _ignore_warnings(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Ignore a dependency's warnings in conftest files too, which may import the broker."""
    _ignore_warnings(early_config)
    return (yield)


def _ignore_warnings(config: pytest.Config) -> None:
    # kafka-python calls deprecated functions of importlib.resources when it is imported. Without the filter, runs with
    # warnings as errors fail in the import, and other runs list hundreds of warnings.
    line = "ignore:(read_text|open_text) is deprecated:DeprecationWarning"
    if line not in config.getini("filterwarnings"):
        config.addinivalue_line("filterwarnings", line)


def _check_version(version: str | None, address: str | None) -> None:
    if version is None:
        return
    if address:
        raise pytest.UsageError("--kafka-version is for embedded brokers; a real cluster has its own version")
    from broker_core.errors import ConfigError
    from broker_core.wire.kafka_versions import known_version

    try:
        known_version(version)
    except ConfigError as error:
        raise pytest.UsageError(f"--kafka-version: {error}") from None


def _read_settings(path: str) -> dict[str, str]:
    """Read `name=value` lines, skipping comments and empty lines; a malformed file is a usage error."""
    from broker_core.properties import read_properties

    try:
        found = list(read_properties(Path(path).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise pytest.UsageError(f"--kafka-config {path}: {error}") from None
    for number, each in enumerate(found, 1):
        if each.separator != "=":
            # The message does not contain the line, which may be secret.
            raise pytest.UsageError(f"--kafka-config {path}: setting {number} is not of the form name=value")
    return {each.name: each.value for each in found}


def _running(config: pytest.Config, options: dict[str, Any]) -> "EmbeddedBroker | RealCluster":
    address = config.getoption("--kafka-bootstrap")
    if not address:
        from broker_core.embedded import EmbeddedBroker

        return EmbeddedBroker(**_of_version(config.getoption("--kafka-version"), options))
    special = sorted(options.keys() - {"topics", "brokers"})
    if special:
        pytest.skip(f"{special[0]}={options[special[0]]!r} needs the embedded broker: run without --kafka-bootstrap")
    from broker_core.pytest_plugin.real_cluster import RealCluster, RealRun

    if _REAL_RUN not in config.stash:
        config.stash[_REAL_RUN] = RealRun(address, config.stash[_SETTINGS])
    return RealCluster(config.stash[_REAL_RUN], options.get("brokers", 1), options.get("topics") or {})


def _of_version(version: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the version of the command line; skip a test that cannot run with it."""
    from broker_core.errors import ConfigError
    from broker_core.wire.kafka_versions import version_settings

    if version is None:
        return options
    own = options.get("kafka_version", version)
    if own != version:
        pytest.skip(f"kafka_version={own!r} of the test differs from --kafka-version {version}")
    try:
        version_settings(version, options.get("transaction_version"))
    except ConfigError as error:
        pytest.skip(f"--kafka-version {version}: {error}")
    return {**options, "kafka_version": version}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse arguments that would be ignored: the broker that all tests share has none."""
    used, marker = getattr(item, "fixturenames", ()), item.get_closest_marker("kafka")
    if "kafka_cluster" in used and "kafka" not in used and marker is not None and (marker.args or marker.kwargs):
        raise TypeError(
            "the marker kafka is for the fixture kafka, and this test uses only kafka_cluster, which all tests share; "
            "use the fixture kafka, or remove the marker"
        )


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker | RealCluster]":
    """Provide a broker for one test, created with the arguments of the test's marker `kafka`."""
    marker = request.node.get_closest_marker("kafka")
    if marker is not None and marker.args:
        raise TypeError(f"the marker kafka has {marker.args!r} without a name; write for example kafka(brokers=3)")
    options = dict(marker.kwargs) if marker is not None else {}
    with _running(request.config, options) as broker:
        yield broker


@pytest.fixture
def async_kafka(kafka: "EmbeddedBroker | RealCluster") -> "AsyncBroker":
    """Provide the broker of the fixture `kafka` with coroutines for its methods, for any plugin that runs asyncio."""
    from broker_core.aio import EmbeddedBroker as AsyncBroker
    from broker_core.embedded import EmbeddedBroker

    if not isinstance(kafka, EmbeddedBroker):
        pytest.skip("async_kafka needs the embedded broker: run without --kafka-bootstrap")
    return AsyncBroker.around(kafka)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> "Iterator[EmbeddedBroker | RealCluster]":
    """Provide a broker that all tests of the run share; use different topics, groups and transactional ids in each."""
    with _running(request.config, {}) as broker:
        yield broker


@pytest.fixture
def kafka_producer(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Producer]]":
    """Provide a function that creates producers: `kafka_producer({"transactional.id": "t"})`."""
    from confluent_kafka import KafkaException, Producer

    broker, real = _used(request)
    made: list[Producer] = []

    def make(settings: Settings | None = None) -> Producer:
        chosen = {**_client_settings(broker, real), **(settings or {})}
        made.append(Producer(chosen) if real is None else real.producer(chosen))
        return made[-1]

    yield make
    while made:
        # Discard unsent records: with a broker that is not running, `close` would wait for their delivery.
        made[-1].purge()
        # A producer with a fatal error, such as a fenced producer, raises an exception here.
        with suppress(KafkaException):
            made[-1].flush(0)
        if real is not None:
            real.abort_open_transaction(made[-1])
        # Drop the last reference. If the test has failed, the frames in its report may have another one.
        made.pop()


@pytest.fixture
def kafka_consumer(request: pytest.FixtureRequest) -> "Iterator[Callable[..., Consumer]]":
    """Provide a function that creates consumers: `kafka_consumer("in", {"isolation.level": "read_uncommitted"})`.

    They subscribe to the given topics and start at their beginning. Without `group.id` in the settings they join the
    group `test`, or on a real cluster a group of this test only.
    """
    from confluent_kafka import Consumer

    broker, real = _used(request)
    made: list[Consumer] = []

    def make(*topics_and_settings: str | Settings) -> Consumer:
        for each in topics_and_settings:
            if not isinstance(each, str | Mapping):
                raise TypeError(f"kafka_consumer has {each!r}; expected topics as str, and dictionaries of settings")
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
    while made:
        # Without a running broker, `close` would wait for the end of the session, 45 s.
        if not _is_down(broker):
            made[-1].close()
        made.pop()


def _used(request: pytest.FixtureRequest) -> "tuple[EmbeddedBroker | RealCluster, RealCluster | None]":
    """Return the broker that the test uses, `kafka` unless it requests only `kafka_cluster`, and again if it is real.

    A fixture that overrides `kafka` may return any type.
    """
    shared = "kafka_cluster" in request.fixturenames and "kafka" not in request.fixturenames
    broker = request.getfixturevalue("kafka_cluster" if shared else "kafka")
    if _REAL_RUN not in request.config.stash:
        return broker, None
    from broker_core.pytest_plugin.real_cluster import RealCluster

    return broker, broker if isinstance(broker, RealCluster) else None


def _is_down(broker: object) -> bool:
    """Return whether no broker of an embedded cluster is running."""
    from broker_core.embedded import EmbeddedBroker

    if not isinstance(broker, EmbeddedBroker):
        return False
    try:
        return not any(broker.broker(broker_id).is_running for broker_id in broker.broker_ids)
    except RuntimeError:
        return True  # It has been closed.


def _client_settings(broker: "EmbeddedBroker | RealCluster", real: "RealCluster | None") -> dict[str, str]:
    """Return a client's settings; an override of `kafka` may return an object that has only `bootstrap_servers`."""
    return {"bootstrap.servers": broker.bootstrap_servers} if real is None else real.client_settings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _REAL_RUN in item.config.stash:
        from broker_core.pytest_plugin.real_cluster import RealCluster

        results = [each.cached_result for each in fixtures_of(item).values()]
        found = [each[0] for each in results if each is not None and isinstance(each[0], RealCluster)]
        if found:
            report.sections.append(("kafka cluster", found[0].story(SHOWN_PARTITIONS)))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _REAL_RUN in config.stash:
        for line in config.stash[_REAL_RUN].left():
            terminalreporter.write_line(line)
