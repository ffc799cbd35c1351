"""`eos-kafka transactions abort` on releases of Apache Kafka that cannot report what the command checks first."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_eos.admin.output import ExitCode
from tests.support.apache_kafka import JVM, START_DEADLINE_S, Unavailable, fetch_jars, free_ports, stop_process
from tests.support.both_brokers import Kafka
from tests.support.child_process import start_child
from tests.support.clients import make_producer, make_topic, send, values_soon
from tests.support.java import java_command, java_problem
from tests.support.raw_client import RawClient
from tests.support.raw_session import Identity, RawSession, record_batch
from tests.support.transactions_command import ours
from tests.support.waiting import wait_until

_ASKED_S = 2
_SETTINGS = {
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}


@contextmanager
def old_kafka(version: str) -> Iterator[str]:
    """Run one node until the block ends, and yield its address.

    Raises `Unavailable` if Java, Maven or the jars are missing.
    """
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    jars = fetch_jars(version=version)
    with tempfile.TemporaryDirectory(prefix="old-kafka-") as name:
        folder, (port, zookeeper_port) = Path(name), free_ports(2)
        address, zookeeper = f"127.0.0.1:{port}", f"127.0.0.1:{zookeeper_port}"
        with (
            _java(
                jars,
                folder / "zookeeper",
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                {
                    "dataDir": str(folder / "znodes"),
                    "clientPort": str(zookeeper_port),
                    "clientPortAddress": "127.0.0.1",
                    "admin.enableServer": "false",
                },
            ),
            # The node tries again until ZooKeeper accepts connections.
            _java(
                jars,
                folder / "kafka",
                "kafka.Kafka",
                _SETTINGS
                | {"listeners": f"PLAINTEXT://{address}", "zookeeper.connect": zookeeper, "log.dirs": f"{folder}/data"},
            ) as node,
        ):
            wait_until(
                lambda: node.poll() is not None or _answers(address),
                f"Apache Kafka {version} serves {address}",
                deadline_s=START_DEADLINE_S,
            )
            output = (folder / "kafka.log").read_text("utf-8", "replace")
            assert node.poll() is None, f"Apache Kafka {version} ended: {output[-4000:]}"
            yield address


@contextmanager
def _java(jars: Path, file: Path, main: str, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program with a properties file until the block ends."""
    properties = file.with_suffix(".properties")
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    with file.with_suffix(".log").open("wb") as output:
        process = start_child(
            [str(java_command()), *JVM, "-cp", str(jars / "*"), main, str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        stop_process(process)


def _answers(address: str) -> bool:
    try:
        return bool(AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=_ASKED_S).brokers)
    except KafkaException:
        return False


# The newest version of Produce that both releases serve.
PRODUCE = 8
# An identity that no coordinator of this cluster has given out.
LATE = Identity(4_000, 3)


@pytest.mark.parametrize(
    ("release", "missing"),
    [
        ("2.7.2", "cannot report what is open in"),
        # The first with DescribeProducers; ListTransactions came with 3.0.
        ("2.8.2", "cannot report whether the transaction is live"),
    ],
)
@pytest.mark.usefixtures("apache_asked_for")
def test_abort_without_checks_needs_force(release: str, missing: str) -> None:
    with old_kafka(release) as address, RawClient(address) as client:
        kafka = Kafka(address, "apache")
        topic = make_topic(kafka)
        late = RawSession(client, None)
        late.transactional_id = "late"
        assert late.produce(topic, record_batch([b"late"], LATE, 0), version=PRODUCE)[0] == 0
        send(make_producer(kafka), topic, [b"behind"])
        values_soon(kafka, topic, [])
        words = (
            *("abort", "--topic", topic, "--partition", "0", f"--producer-id={LATE.producer_id}"),
            *(f"--producer-epoch={LATE.producer_epoch}", "--coordinator-epoch=0"),
        )

        refused = ours(address, *words)
        assert refused.code == ExitCode.NOTHING_DONE
        assert missing in refused.errors and "--force" in refused.errors
        values_soon(kafka, topic, [])

        assert ours(address, *words, "--force", "--yes").code == ExitCode.DONE
        values_soon(kafka, topic, [b"behind"])
