"""Three combined nodes of Apache Kafka (broker and controller) that can be stopped, killed, paused and cut off.

    with apache_cluster(folder) as cluster:                  # topics have 3 replicas, min.insync.replicas=2
        clients use cluster.bootstrap_servers
        cluster.kill(2); cluster.start(2); cluster.wait_in_sync()
        cluster.cut(cluster.coordinator(GROUP, "group"))      # it still answers clients

Connections between nodes, and from clients to nodes, pass through a `PeerNetwork`. A node ends with the thread that
started it.
"""

import base64
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from tests.support.apache_kafka import (
    DATA,
    LOG4J,
    SMALL_NODE,
    START_DEADLINE_S,
    STOP_DEADLINE_S,
    Unavailable,
    fetch_jars,
    free_ports,
)
from tests.support.child_process import start_child
from tests.support.class_archive import java_with
from tests.support.java import SHORT_LIFE, java_problem
from tests.support.messages import filled
from tests.support.peer_network import CLIENTS, PeerNetwork, address_of, hosts, peer_name
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

GROUP, TRANSACTION = 0, 1
NODES = (1, 2, 3)
REPLICAS = 3
SYNC_DEADLINE_S = 120
_ANSWER_DEADLINE_S = 5
_JVM = (
    "-Xms64m",
    "-Xmx320m",
    *SHORT_LIFE,
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
_PREFERRED = 0
_METADATA_VERSION, _FIND_VERSION, _ELECT_VERSION, _REASSIGN_VERSION = 9, 4, 2, 0

_CLUSTER = {
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,PEER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PEER",
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": str(REPLICAS),
    "share.coordinator.state.topic.min.isr": "2",
    # A third of the defaults, so that a failover of nine seconds takes three to six here.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.index.size.max.bytes": str(1024 * 1024),
    # The test chooses the leaders.
    "auto.leader.rebalance.enable": "false",
    # A node that shuts down does not wait for a broken cluster.
    "controlled.shutdown.max.retries": "1",
}


@dataclass
class Node:
    """One node: its addresses, its files, its version (None: the POM's), and its process while it runs."""

    number: int
    folder: Path
    client_port: int
    peer_port: int
    controller_port: int
    version: str | None = None
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False

    @property
    def address(self) -> str:
        """Return the address for clients."""
        return f"{address_of(self.number, CLIENTS)}:{self.client_port}"

    @property
    def is_up(self) -> bool:
        """Return whether the process runs and is not paused."""
        return self.process is not None and self.process.poll() is None and not self.is_paused

    def logs(self) -> str:
        """Return the end of the node's output."""
        paths = [self.folder / "console.log", self.folder / "server.log"]
        return "".join(path.read_text(errors="replace")[-2000:] for path in paths if path.exists())


class ApacheCluster:
    """A running cluster; `apache_cluster` starts one."""

    def __init__(self, folder: Path, properties: Mapping[str, str], log_level: str, version: str | None) -> None:
        fetch_jars(version=version)
        ports = free_ports(3 * len(NODES))
        self.nodes = {
            number: Node(
                number, folder / f"node-{number}", ports[3 * index], ports[3 * index + 1], ports[3 * index + 2], version
            )
            for index, number in enumerate(NODES)
        }
        self.network = PeerNetwork(
            {number: (node.client_port,) for number, node in self.nodes.items()},
            {number: (node.peer_port, node.controller_port) for number, node in self.nodes.items()},
        )
        for node in self.nodes.values():
            self._configure(node, properties, log_level)

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all nodes, for clients."""
        return ",".join(node.address for node in self.nodes.values())

    def up(self) -> list[int]:
        """Return the nodes that run and are not paused."""
        return [number for number, node in self.nodes.items() if node.is_up]

    # Breaking and repairing.

    def start(self, *numbers: int) -> None:
        """Start nodes on their existing files; does not wait until they serve requests."""
        for node in (self.nodes[number] for number in numbers):
            assert node.process is None or node.process.poll() is not None, f"node {node.number} runs"
            with (node.folder / "console.log").open("ab") as console:
                node.process = start_child(
                    [*self._java(node), "kafka.Kafka", str(node.folder / "server.properties")],
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                )
            node.is_paused = False

    def stop(self, number: int) -> None:
        """Stop a node with SIGTERM, as its operator would; a node that was just started may exit with any status."""
        process = self._process(number)
        process.terminate()
        process.wait(STOP_DEADLINE_S)

    def kill(self, *numbers: int) -> None:
        """Send SIGKILL to nodes."""
        for number in numbers:
            self._process(number).kill()
        for number in numbers:
            self._process(number).wait(STOP_DEADLINE_S)
            self.nodes[number].is_paused = False

    def pause(self, number: int) -> None:
        """Send SIGSTOP to a node."""
        self._process(number).send_signal(signal.SIGSTOP)
        self.nodes[number].is_paused = True

    def resume(self, number: int) -> None:
        """Send SIGCONT to a node."""
        self._process(number).send_signal(signal.SIGCONT)
        self.nodes[number].is_paused = False

    def cut(self, number: int) -> None:
        """Cut a node off from its peers; it still answers clients."""
        self.network.cut(number)

    def heal(self, number: int) -> None:
        """Connect a node to its peers again."""
        self.network.heal(number)

    def hide(self, *numbers: int) -> None:
        """Make nodes refuse all clients."""
        for number in numbers:
            self.network.hide(number)

    def show(self, *numbers: int) -> None:
        """Make nodes accept clients again."""
        for number in numbers:
            self.network.show(number)

    def restart_in_turn(self) -> None:
        """Restart node after node, each when the one before is in sync again."""
        for number in NODES:
            self.stop(number)
            self.start(number)
            self.wait_in_sync()

    def upgrade(self, number: int, version: str) -> None:
        """Stop a node and start it with the jars of another version; does not wait until it serves requests."""
        fetch_jars(version=version)
        self.stop(number)
        self.nodes[number].version = version
        self.start(number)

    def repair(self) -> None:
        """Undo all faults and wait until all replicas are in sync."""
        for number, node in self.nodes.items():
            self.heal(number)
            self.show(number)
            if node.is_paused:
                self.resume(number)
            if not node.is_up:
                self.start(number)
        self.wait_in_sync()

    def move_leaders(self, chance: random.Random) -> None:
        """Move the leader of every partition, internal topics included, to another replica that is in sync."""
        replicas: dict[str, dict[int, list[int]]] = {}
        for topic in self._metadata(self._any()).topics:
            for each in topic.partitions:
                order = sorted(each.replica_nodes)
                now = order.index(each.leader_id) if each.leader_id in order else 0
                place = (now + chance.choice((1, 2))) % len(order)
                replicas.setdefault(topic.name, {})[each.partition_index] = order[place:] + order[:place]
        self._ask(self._any(), _reassignment(replicas), _REASSIGN_VERSION)
        partitions = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=sorted(each)) for name, each in replicas.items()
        ]
        self._ask(
            self._any(),
            ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=partitions, timeout_ms=5_000),
            _ELECT_VERSION,
        )

    # Looking.

    def coordinator(self, key_type: int, key: str, asked: int | None = None) -> int | None:
        """Return the node that coordinates a group or a transactional id according to node `asked`, or None."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        [found] = self._ask(asked or self._any(), request, _FIND_VERSION).coordinators
        return found.node_id if found.error_code == 0 else None

    def wait_for_coordinator(self, key_type: int, key: str, *, without: Collection[int] = ()) -> int:
        """Wait until a coordinator is known that is none of the excluded nodes, and return it."""

        def found() -> int | None:
            for asked in [number for number in self.up() if number not in without]:
                try:
                    number = self.coordinator(key_type, key, asked)
                except OSError:
                    continue
                if number is not None and number not in without:
                    return number
            return None

        number = wait_until(found, f"{key} has a coordinator", deadline_s=SYNC_DEADLINE_S, pause_s=0.2)
        assert number is not None
        return number

    def wait_in_sync(self) -> None:
        """Wait until every node sees a leader and all replicas in sync for every partition."""

        def in_sync() -> bool:
            for node in self.nodes.values():
                assert node.process is None or node.process.poll() is None, f"node {node.number} ended: {node.logs()}"
            try:
                return all(self._is_whole(number) for number in NODES)
            except OSError:
                return False

        wait_until(in_sync, "all replicas are in sync", deadline_s=SYNC_DEADLINE_S, pause_s=0.3)

    def _is_whole(self, number: int) -> bool:
        answer = self._metadata(number)
        return len(answer.brokers) == len(NODES) and all(
            each.leader_id in NODES and set(each.isr_nodes) == set(each.replica_nodes)
            for topic in answer.topics
            for each in topic.partitions
        )

    def _metadata(self, number: int) -> Any:
        return self._ask(number, MetadataRequest(topics=None, allow_auto_topic_creation=False), _METADATA_VERSION)

    def _any(self) -> int:
        """Return a node that runs."""
        for number in self.up():
            try:
                self._metadata(number)
            except OSError:
                continue
            return number
        raise ConnectionError("no node answers")

    def _ask(self, number: int, request: Any, version: int) -> Any:
        with RawClient(self.nodes[number].address, deadline_s=_ANSWER_DEADLINE_S) as client:
            return client.send(request, version)

    # The beginning and the end.

    def boot(self) -> None:
        """Format and start all nodes, and wait until group and transaction coordinators serve requests."""
        cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        self._format(cluster_id)
        self.start(*NODES)
        wait_until(self._answers, "the cluster serves clients", deadline_s=START_DEADLINE_S, pause_s=0.3)
        self.wait_in_sync()

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes.values():
            if node.process is not None:
                node.process.kill()
                node.process.wait(STOP_DEADLINE_S)
        self.network.close()

    def _answers(self) -> bool:
        for node in self.nodes.values():
            assert node.process is not None and node.process.poll() is None, f"node {node.number}: {node.logs()}"
        try:
            # A request for a coordinator also creates its topic.
            return all(self.coordinator(kind, "ready", number) for kind in (GROUP, TRANSACTION) for number in NODES)
        except OSError:
            return False

    def _format(self, cluster_id: str) -> None:
        formats = [
            subprocess.Popen(
                [
                    *self._java(node),
                    "kafka.tools.StorageTool",
                    "format",
                    "--cluster-id",
                    cluster_id,
                    "--config",
                    str(node.folder / "server.properties"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for node in self.nodes.values()
        ]
        for each in formats:
            output, _ = each.communicate(timeout=START_DEADLINE_S)
            assert each.returncode == 0, f"Apache Kafka did not format its storage: {output.decode()}"

    def _process(self, number: int) -> subprocess.Popen[bytes]:
        process = self.nodes[number].process
        assert process is not None, f"node {number} was never started"
        return process

    def _java(self, node: Node) -> Sequence[str]:
        return java_with(
            fetch_jars(version=node.version),
            *_JVM,
            f"-Dlog4j2.configurationFile={node.folder / 'log4j2.xml'}",
            f"-Djdk.net.hosts.file={node.folder / 'hosts'}",
        )

    def _configure(self, node: Node, properties: Mapping[str, str], log_level: str) -> None:
        node.folder.mkdir(parents=True)
        own, name = address_of(node.number, node.number), peer_name(node.number)
        settings = (
            SMALL_NODE
            | _CLUSTER
            | {
                "node.id": str(node.number),
                "listeners": f"CLIENT://{own}:{node.client_port},PEER://{own}:{node.peer_port},CONTROLLER://{own}:"
                f"{node.controller_port}",
                "advertised.listeners": f"CLIENT://{node.address},PEER://{name}:{node.peer_port},CONTROLLER://{name}:"
                f"{node.controller_port}",
                "controller.quorum.voters": ",".join(
                    f"{each.number}@{peer_name(each.number)}:{each.controller_port}" for each in self.nodes.values()
                ),
                "log.dirs": str(node.folder / DATA),
            }
            | dict(properties)
        )
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (node.folder / "server.properties").write_text("".join(lines))
        (node.folder / "hosts").write_text(hosts(node.number, NODES))
        (node.folder / "log4j2.xml").write_text(LOG4J.format(path=node.folder / "server.log", level=log_level))


def _reassignment(replicas: Mapping[str, Mapping[int, list[int]]]) -> Any:
    topics = [
        {"name": name, "partitions": [{"partition_index": number, "replicas": order} for number, order in each.items()]}
        for name, each in replicas.items()
    ]
    return filled(AlterPartitionReassignmentsRequest, timeout_ms=5_000, topics=topics)


@contextmanager
def apache_cluster(
    folder: Path,
    properties: Mapping[str, str] | None = None,
    *,
    log_level: str = "WARN",
    version: str | None = None,
) -> Iterator[ApacheCluster]:
    """Run three nodes of a version, by default the POM's, with the given settings added to the small defaults.

    Raises:
        Unavailable: If Java, Maven, the jars or loopback addresses for each node are missing.
    """
    problem = java_problem()
    if problem:
        raise Unavailable(problem)
    if sys.platform != "linux":
        raise Unavailable("A cluster of three needs the whole of 127.0.0.0/8 on the loopback device; use Linux.")
    cluster = ApacheCluster(folder, properties or {}, log_level, version)
    try:
        cluster.boot()
        yield cluster
    finally:
        cluster.close()
