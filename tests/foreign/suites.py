"""The suites: how each is fetched, which broker it expects, and how it runs."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.foreign.brokers import Place, Sasl, running
from tests.foreign.fetching import crate, go_module
from tests.foreign.kills import FLINK, KILLABLE_APACHE, KILLS, RESTARTS, STREAMS, Application, run_with_faults
from tests.foreign.librdkafka import run_librdkafka
from tests.foreign.outcomes import Outcomes
from tests.foreign.programs import ROOT, cargo_tests, go_packages, go_tests, pytest_tests
from tests.foreign.sarama import run_sarama
from tests.support.apache_kafka import kafka_version
from tests.support.java_tools import TOOLS_POM
from tests.support.kafkajs import VERSION as KAFKAJS

FOLDER: Final = Path(__file__).parent
VERSIONS: Final = FOLDER / "versions.json"
GO_PROXY = "Go module proxy"
OWN = "scenarios of this project"
MAVEN = f"Maven Central; {OWN}"
# Where the version stands beside what fetches it.
OTHER_VERSIONS: Final[dict[str, Callable[[], str]]] = {
    "streams": lambda: kafka_version(FOLDER / STREAMS.pom),
    "streams-restarts": lambda: kafka_version(FOLDER / STREAMS.pom),
    "flink": lambda: kafka_version(FOLDER / FLINK.pom),
    "flink-restarts": lambda: kafka_version(FOLDER / FLINK.pom),
    "kafkajs": lambda: KAFKAJS,
    "kafka-tools": lambda: kafka_version(TOOLS_POM),
}
# franz-go's default of 500,000 records takes half an hour on two cores.
KGO_RECORDS = "20000"
# These call a helper of the suite that dereferences nil, which ends all tests of the package.
KAFKA_GO_CRASHES = "TestReaderConsumerGroup/(verify_offset_committed|consumer_group_commits_on_close)"

# Runs a suite, or the tests that match a pattern, on one kind of broker; writes what the runner prints into a file.
Run = Callable[[str, Path, str | None], Outcomes]


@dataclass(frozen=True)
class Suite:
    """A suite: its name in the table, where it is from, how it runs, and the version of Apache Kafka beside it."""

    title: str
    origin: str
    run: Run
    apache_version: str = kafka_version()


def version_of(name: str) -> str:
    """Return the pinned version of a suite."""
    versions: dict[str, str] = json.loads(VERSIONS.read_text(encoding="utf-8"))
    return versions.get(name) or OTHER_VERSIONS[name]()


def _franz_go(kind: str, log: Path, only: str | None) -> Outcomes:
    module = "github.com/twmb/franz-go"
    folder = go_module(module, version_of("franz-go"))
    with running(kind) as address:
        environment = {
            "KGO_SEEDS": address,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": os.environ.get("KGO_TEST_RECORDS", KGO_RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        return go_tests(folder, module, ["./pkg/kgo"], environment, log, only=only)


def _kafka_go(kind: str, log: Path, only: str | None) -> Outcomes:
    module = "github.com/segmentio/kafka-go"
    folder = go_module(module, version_of("kafka-go"))
    # As the suite's own compose file starts its broker.
    place = Place(
        host="localhost",
        port=9092,
        sasl=Sasl(
            9093,
            {"adminplain": "admin-secret"},
            {("adminscram256", 256): "admin-secret-256", ("adminscram512", 512): "admin-secret-512"},
        ),
        settings={
            "message.max.bytes": "200000000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        },
    )
    with running(kind, place):
        # As its own CI does: the tests of package nettest fail there as well.
        environment = {"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"}
        return go_tests(folder, module, go_packages(folder), environment, log, only=only, skip=KAFKA_GO_CRASHES)


def _rskafka(kind: str, log: Path, only: str | None) -> Outcomes:
    folder = crate("rskafka", version_of("rskafka"), updated=["rsasl"])
    # As the suite's own compose file sets it.
    with running(kind, Place(settings={"auto.create.topics.enable": "false"})) as address:
        environment = {"TEST_INTEGRATION": "1", "TEST_BROKER_IMPL": "kafka", "KAFKA_CONNECT": address}
        return cargo_tests(folder, ["--all-features", "--lib", "--tests"], environment, log, only)


def _own_scenarios(kind: str, log: Path, only: str | None) -> Outcomes:
    chosen = f"kafkajs and {kind}" + (f" and ({only})" if only else "")
    return pytest_tests(ROOT, ["tests/interop", "--apache"], {}, log, chosen)


def _kafka_tools(kind: str, log: Path, only: str | None) -> Outcomes:
    # Its test compares both brokers: each call's exit status and output.
    return pytest_tests(ROOT, ["tests/conformance/test_command_line_tools.py", "--apache"], {}, log, only)


def _killed(application: Application, kind: str, log: Path, only: str | None) -> Outcomes:
    return run_with_faults(application, KILLS, kind, log, KILLABLE_APACHE)


def _restarted(application: Application, kind: str, log: Path, only: str | None) -> Outcomes:
    return run_with_faults(application, RESTARTS, kind, log)


SUITES: Final = {
    "franz-go": Suite("franz-go (kgo)", GO_PROXY, _franz_go),
    "sarama": Suite("Sarama", GO_PROXY, lambda *arguments: run_sarama(version_of("sarama"), *arguments)),
    "kafka-go": Suite("kafka-go", GO_PROXY, _kafka_go),
    "librdkafka": Suite(
        "librdkafka", "crates.io (rdkafka-sys)", lambda *arguments: run_librdkafka(version_of("librdkafka"), *arguments)
    ),
    "rskafka": Suite("rskafka", "crates.io", _rskafka),
    "streams": Suite(
        "Kafka Streams EOS v2, SIGKILL of workers and broker", MAVEN, partial(_killed, STREAMS), KILLABLE_APACHE
    ),
    "streams-restarts": Suite(
        "Kafka Streams EOS v2, SIGKILL of workers, restarts of the broker", MAVEN, partial(_restarted, STREAMS)
    ),
    "flink": Suite(
        "Flink's exactly-once sink, SIGKILL of workers and broker", MAVEN, partial(_killed, FLINK), KILLABLE_APACHE
    ),
    "flink-restarts": Suite(
        "Flink's exactly-once sink, SIGKILL of workers, restarts of the broker", MAVEN, partial(_restarted, FLINK)
    ),
    "kafka-tools": Suite("Kafka's command-line tools, compared", MAVEN, _kafka_tools),
    "kafkajs": Suite("kafkajs", f"{OWN}: the npm package has no tests", _own_scenarios),
}
