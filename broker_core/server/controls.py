"""What a test may do to the leaders and coordinators of a running cluster."""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from broker_core.broker.cluster import Cluster
from broker_core.broker.stale_broker import cut_off, is_cut_off, rejoin
from broker_core.ports import Storage
from broker_core.server.network import Server
from broker_core.server.thread import ServerThread
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

T = TypeVar("T")


class Outage:
    """A fault that lasts until `end()` or the end of its `with` block; a second end changes nothing."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Controls:
    """Move, take away and look up leaders and coordinators; the part of `EmbeddedBroker` that does so."""

    _thread: ServerThread

    def _memory(self) -> Storage:
        """Return an empty storage in memory."""
        raise NotImplementedError

    def call(self, action: Callable[[Cluster], T]) -> T:
        """Run `action(cluster)` in the broker's thread and return its result: the way to look inside."""

        def act(server: Server) -> T:
            if server.is_down:
                raise RuntimeError("all brokers have crashed: `restart()` starts them again")
            return action(server.cluster)

        return self._thread.act(act)

    def leader(self, topic_partition: tuple[str, int]) -> int:
        """Return the id of the broker that leads a partition, -1 while it has no leader."""
        return self.call(lambda cluster: cluster.metadata.leadership(TopicPartition(*topic_partition)).leader)

    def move_leader(self, topic_partition: tuple[str, int], broker: int) -> None:
        """Make `broker` the leader of a partition, in a new leader epoch; clients find out as they do with Kafka.

        Broker ids count from `node.id`, which is 1 unless set. Raises `KafkaError` for a partition or broker
        that does not exist; a move to the broker that leads already begins a new epoch too.
        """
        self.call(lambda cluster: cluster.controller.move_leader(TopicPartition(*topic_partition), broker))

    def without_leader(self, topic_partition: tuple[str, int]) -> Outage:
        """Take a partition's leader away until `end()` or the end of the `with` block.

        Meanwhile every broker answers NOT_LEADER_OR_FOLLOWER for it and Metadata LEADER_NOT_AVAILABLE with leader -1;
        markers of transactions wait. Then its leader leads again, in a new leader epoch, or another broker while that
        one is away. `move_leader` and a restart of all brokers end the outage earlier; of outages of one partition
        that overlap, the first counts. Raises `KafkaError` for a partition that does not exist.

        >>> from broker_core.embedded import EmbeddedBroker
        >>> with EmbeddedBroker(topics={"in": 1}) as kafka:
        ...     with kafka.without_leader(("in", 0)):
        ...         meanwhile = kafka.leader(("in", 0))
        ...     meanwhile, kafka.leader(("in", 0))
        (-1, 1)
        """
        return self._without_leader(lambda _: TopicPartition(*topic_partition))

    def coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> int:
        """Return the id of the broker that coordinates a transactional id or a group, -1 while none does."""
        topic, key = _coordinated(transactional_id, group)
        return self.call(
            lambda cluster: cluster.metadata.leadership(cluster.controller.coordinator_partition_of(topic, key)).leader
        )

    def move_coordinator(self, broker: int, *, transactional_id: str | None = None, group: str | None = None) -> None:
        """Make `broker` the coordinator of a transactional id or a group.

        The ids that live in the same partition of the internal topic move with it. The new coordinator carries
        on from the log: transactions that were being ended are ended, open ones stay open.
        """
        topic, key = _coordinated(transactional_id, group)
        self.call(
            lambda cluster: cluster.controller.move_leader(
                cluster.controller.coordinator_partition_of(topic, key), broker
            )
        )

    def without_coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> Outage:
        """Take away the coordinator of a transactional id or a group until `end()` or the end of the `with` block.

        Meanwhile FindCoordinator answers COORDINATOR_NOT_AVAILABLE and every broker NOT_COORDINATOR; the timeouts of
        transactions go on. Then the coordinator loads its state from the log, in a new coordinator epoch. The ids that
        live in the same partition of the internal topic share the outage; see `without_leader` for when it ends.

        >>> from broker_core.embedded import EmbeddedBroker
        >>> with EmbeddedBroker(brokers=2) as kafka:
        ...     with kafka.without_coordinator(group="g"):
        ...         meanwhile = kafka.coordinator(group="g")
        ...         kafka.move_coordinator(2, group="g")
        ...     meanwhile, kafka.coordinator(group="g")
        (-1, 2)
        """
        topic, key = _coordinated(transactional_id, group)
        return self._without_leader(lambda cluster: cluster.controller.coordinator_partition_of(topic, key))

    def _without_leader(self, find: Callable[[Cluster], TopicPartition]) -> Outage:
        def begin(cluster: Cluster) -> Outage:
            topic_partition = find(cluster)
            leader = cluster.controller.leader_of(topic_partition)
            cluster.controller.lose_leader(topic_partition)

            def end(server: Server) -> None:
                if leader is not None and not server.is_down:
                    server.cluster.controller.elect(topic_partition, leader.broker_id)

            return Outage(lambda: self._thread.act(end))

        return self.call(begin)

    def stale_broker(self, broker: int) -> Outage:
        """Cut a broker off from the others until `end()` or the end of the `with` block; clients still reach it.

        The others take over what it leads and coordinates, and go on. It does not know: it answers FindCoordinator,
        Metadata, OffsetFetch, DescribeTransactions, ListTransactions, Fetch, ListOffsets and DescribeProducers as it
        would have at that moment. What needs a replica fails, and leaves nothing behind: REQUEST_TIMED_OUT, from
        coordinators COORDINATOR_NOT_AVAILABLE, and NOT_ENOUGH_REPLICAS where a leader has to ask the coordinator of a
        transaction. Apache Kafka lets the client wait for that first: use `fault` with `broker=` and `Delay` or `Drop`.
        Time stands for it. Then it leads what it led again. Its end comes earlier when it is stopped or crashed.

        Raises ValueError when there is no other running broker, or this one does not run or is cut off already.

        >>> from broker_core.embedded import EmbeddedBroker
        >>> with EmbeddedBroker(brokers=2, topics={"in": 2}) as kafka:
        ...     with kafka.stale_broker(2):
        ...         meanwhile = kafka.leader(("in", 1))
        ...     meanwhile, kafka.leader(("in", 1))
        (1, 2)
        """

        def begin(server: Server) -> None:
            if server.is_down:
                raise ValueError("no broker runs")
            cut_off(server.cluster, broker, server.reachable, self._memory())
            server.publish_addresses()

        def end(server: Server) -> None:
            if not server.is_down and is_cut_off(server.cluster, broker):
                rejoin(server.cluster, broker)
                server.publish_addresses()

        self._thread.act(begin)
        return Outage(lambda: self._thread.act(end))


def _coordinated(transactional_id: str | None, group: str | None) -> tuple[str, str]:
    """Return the internal topic and the key that say which coordinator is meant."""
    if transactional_id is not None and group is None:
        return TRANSACTION_STATE_TOPIC, transactional_id
    if group is not None and transactional_id is None:
        return CONSUMER_OFFSETS_TOPIC, group
    raise ValueError("name either a transactional_id or a group")
