"""One node of an Apache Kafka before KRaft, with its ZooKeeper, for tests of what old brokers lack."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.apache_kafka import (
    JVM,
    START_DEADLINE_S,
    Unavailable,
    die_with_parent,
    fetch_jars,
    free_ports,
    stop_process,
)
from tests.support.java import java_command, java_problem
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
        process = subprocess.Popen(
            [str(java_command()), *JVM, "-cp", str(jars / "*"), main, str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,
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
