"""The controls of a running cluster for tests: its brokers, leaders, coordinators and virtual clock."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Self, SupportsIndex, TypeVar

from broker_core.broker.cluster import Cluster
from broker_core.broker.fault_injection import Crashed
from broker_core.broker.stale_broker import cut_off, is_cut_off, rejoin
from broker_core.ports import Storage
from broker_core.server.clock import VirtualClock
from broker_core.server.listeners import read_addresses
from broker_core.server.network_conditions import checked_rule
from broker_core.server.socket_server import SocketServer
from broker_core.server.thread import ServerThread
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    check_number,
    check_text,
    check_whole,
)

T = TypeVar("T")

# A time that is further away does not fit where Kafka stores it.
CENTURY_S = 3_155_760_000


class Outage:
    """A fault that lasts until `end()` or the end of its `with` block; ending it twice has no effect."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


@dataclass(frozen=True)
class BrokerHandle:
    """One broker of an `EmbeddedBroker`, to be stopped, crashed and started; returned by `EmbeddedBroker.broker`."""

    broker_id: int
    _thread: ServerThread

    def stop(self) -> None:
        """Shut the broker down cleanly; until `start`, other replicas lead its partitions, other brokers coordinate.

        It responds to what it has written, then closes its connections. Called from the function of a fault, it does so
        when the current step of the broker's thread has ended.
        """
        self._leave(abruptly=False)

    def crash(self) -> None:
        """Break the broker's connections at once; other replicas lead its partitions, other brokers coordinate.

        A partition without another replica that runs has no leader until `start`.

        A crash of the last running broker has the effect of `EmbeddedBroker.crash`.
        """
        self._leave(abruptly=True)

    def start(self) -> None:
        """Start the broker at its previous address; it leads its partitions again. No effect if it is running.

        Raises RuntimeError in the function of a fault, which runs in the broker's thread, and OSError if another
        program has taken the port meanwhile.
        """
        with self._thread.changing():
            self._thread.wait_for(lambda server: server.start_broker(self.broker_id))

    @property
    def is_running(self) -> bool:
        """Whether the broker is running and clients can reach it."""
        return not self._thread.running().is_away(self.broker_id)

    def _leave(self, *, abruptly: bool) -> None:
        with self._thread.changing():
            self._thread.act(lambda server: server.stop_broker(self.broker_id, abruptly=abruptly))
            if not self._thread.is_here:
                self._thread.wait_for(lambda server: server.all_closed())
            elif self._thread.running().is_down:
                raise Crashed


@dataclass(frozen=True)
class ClockHandle:
    """The virtual clock of an `EmbeddedBroker`; returned by `EmbeddedBroker.clock`."""

    _thread: ServerThread
    _clock: VirtualClock

    def now_ms(self) -> int:
        """Return the broker's time in milliseconds since the epoch."""
        return self._clock.now_ms()

    def advance(self, seconds: float | timedelta = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Advance the time by the sum; timeouts, session expirations and retention run, each at its own time.

        No client request is handled during the call. A group member whose session timeout is within this time cannot
        send a heartbeat and is removed.

        >>> from datetime import timedelta
        >>> from broker_core import EmbeddedBroker
        >>> with EmbeddedBroker(clock="virtual") as kafka:
        ...     before = kafka.clock.now_ms()
        ...     kafka.clock.advance(30, minutes=1)
        ...     kafka.clock.advance(timedelta(hours=1))
        ...     kafka.clock.now_ms() - before
        3690000

        Raises:
            TypeError: An argument is neither a number nor, as the first, a `timedelta`.
            ValueError: The sum is negative, or more than a century.
        """
        total_s: float = 0
        for name, value, unit_s in (
            ("seconds", seconds.total_seconds() if isinstance(seconds, timedelta) else seconds, 1),
            ("minutes", minutes, 60),
            ("hours", hours, 3600),
            ("days", days, 86_400),
        ):
            check_number(name, value)
            total_s += value * unit_s
        if not 0 <= total_s <= CENTURY_S:
            raise ValueError(
                f"advance by {total_s} seconds: expected from 0 to {CENTURY_S}, a century; time cannot be moved back"
            )
        self._thread.act(
            lambda server: self._clock.pass_by(round(total_s * 1000), server.cluster.next_deadline_ms, server.advance)
        )


class ClusterControls:
    """The methods of `EmbeddedBroker` that stop and start brokers, and that look up, move and remove their roles."""

    _thread: ServerThread

    @property
    def broker_ids(self) -> range:
        """Return the ids of all brokers, whether they run or not."""
        raise NotImplementedError

    def _memory(self) -> Storage:
        """Return an empty storage in memory."""
        raise NotImplementedError

    def _call(self, action: Callable[[Cluster], T]) -> T:
        """Run `action(cluster)` in the broker's thread and return its result; for this package and its tests."""
        return self._thread.act(lambda server: action(server.cluster))

    def broker(self, broker_id: int) -> BrokerHandle:
        """Return one broker, to be stopped, crashed or started; ids count from `node.id`, which is 1 unless set.

        >>> from broker_core import EmbeddedBroker
        >>> with EmbeddedBroker(brokers=2, topics={"in": 2}) as kafka:
        ...     kafka.broker(1).crash()
        ...     while_it_is_away = kafka.leader(("in", 0))
        ...     kafka.broker(1).start()
        ...     while_it_is_away, kafka.leader(("in", 0))
        (2, 1)
        """
        broker_id = check_whole("broker_id", broker_id)
        if broker_id not in self.broker_ids:
            raise ValueError(f"there is no broker {broker_id!r}; there are {', '.join(map(str, self.broker_ids))}")
        return BrokerHandle(broker_id, self._thread)

    def crash(self) -> None:
        """Crash all brokers at once; `restart` starts them with what is left.

        Logs in memory lose what was not synced. Files in a `data_dir` stay as the operating system has them, as after
        SIGKILL. Called from the function of a fault, it ends the handling of the request at once.
        """
        with self._thread.changing():
            self._thread.act(lambda server: server.shut_down(cleanly=False))
            if self._thread.is_here:
                raise Crashed
            self._thread.wait_for(lambda server: server.all_closed())

    def restart(self) -> None:
        """Start all brokers that are not running, at their old addresses; if all are, stop them cleanly first.

        Raises RuntimeError in the function of a fault, which runs in the broker's thread.
        """
        self._thread.check_can_wait()

        def stop(server: SocketServer) -> None:
            if not any(map(server.is_away, self.broker_ids)):
                server.shut_down(cleanly=True)

        with self._thread.changing():
            self._thread.act(stop)
            for broker_id in self.broker_ids:
                self.broker(broker_id).start()

    def leader(self, topic_partition: tuple[str, int]) -> int:
        """Return the id of the broker that leads a partition, -1 if none does."""
        place = _place(topic_partition)
        return self._call(lambda cluster: cluster.metadata.leadership(place).leader)

    def move_leader(self, topic_partition: tuple[str, int], broker: int) -> None:
        """Make `broker` the leader of a partition, in a new leader epoch; clients discover it as with Apache Kafka.

        Broker ids count from `node.id`, which is 1 unless set. A move to the broker that already leads begins a new
        leader epoch too. A broker that is no replica becomes one, in place of the old leader. Raises `KafkaError` for
        a partition that does not exist, and for a broker that does not exist or does not run.
        """
        place, broker = _place(topic_partition), check_whole("broker", broker)
        self._call(lambda cluster: cluster.controller.move_leader(place, broker))

    def without_leader(self, topic_partition: tuple[str, int]) -> Outage:
        """Leave a partition without leader until `end()` of the result, or the end of its `with` block.

        During the outage every broker returns NOT_LEADER_OR_FOLLOWER for the partition, Metadata contains
        LEADER_NOT_AVAILABLE and leader -1, and transaction markers wait. Afterwards the old leader leads again, in a
        new leader epoch, or another broker if the old leader is not running. `move_leader` and a restart of all brokers
        end the outage earlier. Of overlapping outages of one partition the first counts. Raises `KafkaError` for a
        partition that does not exist.

        >>> from broker_core import EmbeddedBroker
        >>> with EmbeddedBroker(topics={"in": 1}) as kafka:
        ...     with kafka.without_leader(("in", 0)):
        ...         meanwhile = kafka.leader(("in", 0))
        ...     meanwhile, kafka.leader(("in", 0))
        (-1, 1)
        """
        place = _place(topic_partition)
        return self._without_leader(lambda _: place)

    def coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> int:
        """Return the id of the broker that coordinates a transactional id or a group, -1 if none does."""
        topic, key = _coordinated(transactional_id, group)
        return self._call(
            lambda cluster: cluster.metadata.leadership(cluster.controller.coordinator_partition_of(topic, key)).leader
        )

    def move_coordinator(self, broker: int, *, transactional_id: str | None = None, group: str | None = None) -> None:
        """Make `broker` the coordinator of a transactional id or a group.

        All ids in the same partition of the internal topic move with it. The new coordinator loads its state from the
        log: it completes transactions in the prepare states, and open ones stay open.
        """
        topic, key = _coordinated(transactional_id, group)
        broker = check_whole("broker", broker)
        self._call(
            lambda cluster: cluster.controller.move_leader(
                cluster.controller.coordinator_partition_of(topic, key), broker
            )
        )

    def without_coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> Outage:
        """Leave a transactional id or a group without coordinator until `end()`, or the end of the `with` block.

        During the outage FindCoordinator returns COORDINATOR_NOT_AVAILABLE and every broker NOT_COORDINATOR;
        transaction timeouts keep running. Afterwards the coordinator loads its state from the log, in a new coordinator
        epoch. All ids in the same partition of the internal topic share the outage, which ends as described for
        `without_leader`.

        >>> from broker_core import EmbeddedBroker
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

            def end(server: SocketServer) -> None:
                if leader is not None and not server.is_down:
                    server.cluster.controller.elect(topic_partition, leader.broker_id)

            return Outage(lambda: self._thread.act(end))

        return self._call(begin)

    def stale_broker(self, broker: int) -> Outage:
        """Cut a broker off from the others until `end()` or the end of the `with` block; clients still reach it.

        Other replicas take over the partitions it leads, and other brokers the ids it coordinates. The broker keeps its
        state of that moment and uses it for FindCoordinator, Metadata, OffsetFetch, DescribeTransactions,
        ListTransactions, Fetch, ListOffsets and DescribeProducers. Requests that need a replica have no effect and
        fail: with REQUEST_TIMED_OUT, at coordinators with COORDINATOR_NOT_AVAILABLE, and with NOT_ENOUGH_REPLICAS if a
        leader needs the coordinator of a transaction. Apache Kafka returns these errors after its timeouts; to imitate
        that, use `fault` with `broker=` and `Delay` or `Drop`. Time stands still for the broker. Afterwards it leads
        its partitions again. A stop or crash of the broker ends the outage earlier.

        Raises ValueError if no other broker is running, or if this one is not running or already cut off.

        >>> from broker_core import EmbeddedBroker
        >>> with EmbeddedBroker(brokers=2, topics={"in": 2}) as kafka:
        ...     with kafka.stale_broker(2):
        ...         meanwhile = kafka.leader(("in", 1))
        ...     meanwhile, kafka.leader(("in", 1))
        (1, 2)
        """
        broker = check_whole("broker", broker)

        def begin(server: SocketServer) -> None:
            if server.is_down:
                raise ValueError("no broker is running")
            cut_off(server.cluster, broker, server.reachable, self._memory())
            server.publish_addresses()

        def end(server: SocketServer) -> None:
            if not server.is_down and is_cut_off(server.cluster, broker):
                rejoin(server.cluster, broker)
                server.publish_addresses()

        self._thread.act(begin)
        return Outage(lambda: self._thread.act(end))

    def network(
        self,
        *,
        latency_ms: float = 0,
        bytes_per_s: float | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> Outage:
        """Make the network between clients and brokers slow until `end()` or the end of the `with` block.

        Of several that match a connection, the newest applies. Delays are in real time, also with a virtual clock.

        >>> from broker_core import EmbeddedBroker
        >>> with EmbeddedBroker() as kafka, kafka.network(latency_ms=100, client_id="far-away"):
        ...     pass

        Args:
            latency_ms: The delay of each request, and again of each answer.
            bytes_per_s: The rate of each connection in each direction; by default unlimited.
            client_id: Only connections whose first request has this `client.id`.
            broker: Only connections to this broker.
        """
        rule = checked_rule(latency_ms, bytes_per_s, client_id, broker, self.broker_ids)
        if not self._thread.running().addresses:
            raise RuntimeError("this broker has no listener, because of listeners={}: there is no network to slow down")
        self._thread.act(lambda server: server.clients.network.add(rule))
        return Outage(lambda: self._thread.act(lambda server: server.clients.network.remove(rule)))

    def advertise(self, addresses: str, listener: str | None = None) -> None:
        """Name other addresses to clients from now on, such as the ports that a container's are mapped to.

        Brokers listen where they did. Clients get the addresses with Metadata, as from `advertised.listeners`.

        >>> from broker_core import EmbeddedBroker
        >>> with EmbeddedBroker() as kafka:
        ...     kafka.advertise("localhost:32768")
        ...     kafka.bootstrap_servers
        'localhost:32768'

        Args:
            addresses: `host:port` of each broker in the order of their ids, with commas between them.
            listener: The name of the listener; by default the first one.

        Raises:
            ValueError: There is no such listener, or the addresses have another form or number.
            RuntimeError: The broker has no listener, or is not running.
        """
        check_text("addresses", addresses)
        found = read_addresses(addresses, self.broker_ids)

        def change(server: SocketServer) -> None:
            if not server.addresses:
                raise RuntimeError(
                    "this broker has no listener, because of listeners={}: there is nothing to advertise"
                )
            name = next(iter(server.addresses)) if listener is None else listener.upper()
            if name not in server.addresses:
                raise ValueError(f"there is no listener {listener!r}; there are {', '.join(server.addresses)}")
            # In place, because listeners refer to it.
            server.addresses[name].update(found)
            if not server.is_down:
                server.publish_addresses()

        self._thread.act(change)


def _place(topic_partition: tuple[str, int]) -> TopicPartition:
    """Return a partition; raise TypeError for anything else."""
    match topic_partition:
        case (str() as topic, SupportsIndex() as partition):
            return TopicPartition(topic, partition.__index__())
    raise TypeError(f"the partition is {topic_partition!r}; expected topic and number, such as ('orders', 0)")


def _coordinated(transactional_id: str | None, group: str | None) -> tuple[str, str]:
    """Return the internal topic and the key that identify the coordinator."""
    if "" in (transactional_id, group):
        raise ValueError("a transactional_id or a group cannot be empty")
    if transactional_id is not None and group is None:
        return TRANSACTION_STATE_TOPIC, transactional_id
    if group is not None and transactional_id is None:
        return CONSUMER_OFFSETS_TOPIC, group
    raise ValueError("name either a transactional_id or a group")
