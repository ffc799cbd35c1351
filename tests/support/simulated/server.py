"""The simulated server, the counterpart of `server.socket_server`: a cluster in virtual time, with links that fail.

Requests that arrive shortly after one another are settled together, as in the TCP server; a power loss can occur
between their arrival and settling. All brokers run in one process, which is killed, paused and started as a whole. A
single broker can be made unreachable, and its partitions and coordinators moved to others.
"""

from collections.abc import Callable
from functools import partial

from broker_core.broker import stale_broker
from broker_core.broker.cluster import Cluster
from broker_core.broker.connection import Connection
from broker_core.broker.endpoints import PLAINTEXT, Address
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.write_ahead import WriteAheadStorage
from broker_core.ports import Entropy
from broker_core.simulation.disk import MemoryStorage
from tests.support.simulated.clock import SimulatedClock
from tests.support.simulated.disk import PowerLoss, SimulatedDisk
from tests.support.simulated.faults import FaultKind
from tests.support.simulated.network import API_KEY_PLACE, Link, LinkTransport, SentRequest, SimulatedNetwork
from tests.support.simulated.scheduler import ScheduledEvent

PORT = 9092
# Sizes of the write-ahead log: a checkpoint after each step, after some, and only before names change. And numbers of
# files: each step makes a frame, those with several files do, or none does, so that the syncs of all take time.
_CHECKPOINT_BYTES = (1, 4_096, 65_536, 1_048_576)
_MIN_FILES = (1, 2, 1_000)


class SimulatedServer:
    """A cluster on a simulated network and disk, which can be started again after its process has died."""

    def __init__(
        self,
        *,
        network: SimulatedNetwork,
        disk: SimulatedDisk,
        entropy: Entropy,
        clock: SimulatedClock,
        config: BrokerConfig,
        broker_count: int,
    ) -> None:
        self.network = network
        self.scheduler = network.scheduler
        self.faults = network.faults
        self.disk = disk
        self.clock = clock
        self._entropy = entropy
        self._config = config
        self._addresses = {number: Address(f"broker{number}", PORT) for number in range(1, broker_count + 1)}
        self._storage: WriteAheadStorage | None = None
        self._cluster: Cluster | None = None
        self._settle_event: ScheduledEvent | None = None
        self._timer: ScheduledEvent | None = None
        self._waiting: list[Callable[[], None]] | None = None
        self.down: set[int] = set()
        self._power_loss_trigger: tuple[bytes, int] | None = None
        # Exceptions that are not the result of an injected fault.
        self.bugs: list[BaseException] = []
        # Called after the process has died; the argument is true if the machine lost power.
        self.died: Callable[[bool], None] = lambda _power: None
        disk.after_us = self.scheduler.after
        network.server = self

    # The process

    @property
    def is_running(self) -> bool:
        return self._cluster is not None

    @property
    def cluster(self) -> Cluster:
        assert self._cluster is not None, "the cluster is not running"
        return self._cluster

    def start(self) -> bool:
        """Open the cluster on the disk's files; return whether it is running."""
        assert self._cluster is None
        try:
            self._storage = WriteAheadStorage(
                self.disk,
                checkpoint_bytes=self.disk.random.choice(_CHECKPOINT_BYTES),
                min_files=self.disk.random.choice(_MIN_FILES),
            )
            self._cluster = Cluster(
                storage=self._storage,
                entropy=self._entropy,
                config=self._config,
                addresses=self._addresses,
                now_ms=self.clock.now_ms(),
            )
        except PowerLoss:
            self._process_ended(power=True, fault=FaultKind.POWER_LOST_WRITING)
        except Exception as error:
            self._stopped_by(error)
        else:
            self.scheduler.note("cluster up")
            self._arm()
        return self._cluster is not None

    def stop(self) -> None:

        def close(now_ms: int) -> None:
            self.cluster.close(now_ms)
            assert self._storage is not None
            self._storage.close()

        self._drive(close)
        if self._cluster is not None:
            self._end()

    def kill(self, *, power: bool) -> None:
        """Kill the process; with `power` the machine loses power too, and unsynced writes are lost."""
        if self._cluster is not None:
            self._process_ended(power=power, fault=FaultKind.POWER_LOST if power else FaultKind.KILLED)

    def pause(self, duration_us: int) -> None:
        """Suspend the process for some time; requests that arrive are queued."""
        if self._waiting is None:
            self._waiting = []
            self.faults.record(FaultKind.BROKER_PAUSED)
            self.scheduler.after(duration_us, self.resume)

    def resume(self) -> None:
        """Resume the suspended process, and handle the queued requests."""
        waiting, self._waiting = self._waiting or [], None
        for action in waiting:
            action()

    def lose_power_at(self, api_key: int, operations: int) -> None:
        """Cause a power loss `operations` disk operations after the next request of an API arrives."""
        self._power_loss_trigger = (api_key.to_bytes(2, "big"), operations)

    def take_down(self, broker_id: int) -> None:
        """Make one broker unreachable until `bring_up`."""
        self.down.add(broker_id)
        self.faults.record(FaultKind.BROKER_DOWN)
        self.network.reset(broker_id)

    def bring_up(self, broker_id: int) -> None:
        self.down.discard(broker_id)

    def cut_off(self, broker_id: int) -> None:
        """Cut a broker off from the others, if there are any; clients still reach it."""

        def cut(cluster: Cluster) -> None:
            if broker_id in cluster.controller.addresses and len(cluster.controller.addresses) > 1:
                stale_broker.cut_off(cluster, broker_id, {PLAINTEXT: cluster.controller.addresses}, MemoryStorage())
                self.faults.record(FaultKind.STALE_BROKER)

        self.act(cut)

    def rejoin(self, broker_id: int) -> None:
        self.act(lambda cluster: stale_broker.rejoin(cluster, broker_id))

    def jump(self, by_ms: int) -> None:
        """Move the cluster's clock ahead."""
        self.clock.jump(by_ms)
        self.faults.record(FaultKind.CLOCK_AHEAD)
        if self._cluster is not None:
            self._arm()

    def act(self, action: Callable[[Cluster], None]) -> None:
        """Apply an action to the running cluster, then let it settle."""
        if self._cluster is not None:
            self._drive(lambda _now_ms: action(self.cluster))
            self.schedule_settle()

    # The network's events (`NetworkServer`)

    def accept(self, link: Link) -> Connection | None:
        if self._cluster is None or link.broker_id in self.down:
            return None
        return Connection(self._cluster.brokers[link.broker_id], LinkTransport(link), link.client)

    def received(self, link: Link, connection: Connection, data: bytes, sent: SentRequest | None = None) -> None:
        """Pass bytes to the core, and schedule settling; `sent` is the request that they complete."""
        if self._waiting is not None:
            self._waiting.append(partial(self.received, link, connection, data, sent))
        elif self._cluster is not None and not connection.closed:
            if sent is not None:
                self.network.handled(sent, is_late=not link.is_open)
            if self._power_loss_trigger is not None and data[API_KEY_PLACE] == self._power_loss_trigger[0]:
                self.disk.fuse, self._power_loss_trigger = self._power_loss_trigger[1], None
            self._drive(lambda now_ms: connection.receive(data, now_ms))
            self.schedule_settle()

    def lost(self, link: Link, connection: Connection) -> None:
        if self._waiting is not None:
            self._waiting.append(partial(self.lost, link, connection))
        elif self._cluster is not None and connection.lost():
            self.schedule_settle()

    def schedule_settle(self) -> None:
        """Schedule `Cluster.settle` after a short delay, once for all requests that arrive before."""
        if self._settle_event is None and self._cluster is not None:
            delay_us = self.scheduler.random.randint(*self.network.conditions.settle_delay_us)
            self._settle_event = self.scheduler.after(delay_us, self._settle)

    def _settle(self) -> None:
        self._settle_event = None
        if self._waiting is not None:
            self._waiting.append(self.schedule_settle)
        elif self._cluster is not None:
            self._drive(partial(self._cluster.settle_overlapping, sync_ended=self.schedule_settle))
            if self._cluster is not None:
                self._arm()

    def _advance(self) -> None:
        self._timer = None
        if self._waiting is not None:
            self._waiting.append(self._advance)
        elif self._cluster is not None:
            self._drive(self._cluster.advance)
            if self._cluster is not None:
                self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # At least one millisecond ahead: with a deadline that stays due, time would not advance.
        when_us = max(self.clock.when_us(self.cluster.next_deadline_ms()), self.scheduler.now_us + 1_000)
        self._timer = self.scheduler.at(when_us, self._advance)

    def _drive(self, step: Callable[[int], object]) -> None:
        """Run one step. An exception ends the process: a core that cannot write its log must not send responses."""
        try:
            step(self.clock.now_ms())
        except PowerLoss:
            self._process_ended(power=True, fault=FaultKind.POWER_LOST_WRITING)
        except Exception as error:
            self._stopped_by(error)

    def _stopped_by(self, error: Exception) -> None:
        if not is_disk_trouble(error):
            self.bugs.append(error)
        fault = FaultKind.STOPPED_UNSYNCED if self.disk.has_failed_sync else FaultKind.STOPPED_FULL
        self._process_ended(power=False, fault=fault)

    def _process_ended(self, *, power: bool, fault: FaultKind) -> None:
        self.scheduler.note(f"cluster down: {fault.value}")
        self.faults.record(fault)
        self._end()
        if power:
            self.disk.lose_power()
        else:
            self.disk.lose_process()
        self.died(power)

    def _end(self) -> None:
        self._cluster = None
        self._waiting = None
        for event in (self._settle_event, self._timer):
            if event is not None:
                event.cancel()
        self._settle_event = self._timer = None
        self.network.reset()


def is_disk_trouble(error: BaseException) -> bool:
    """Return whether a full disk or a failed sync explains the error."""
    return isinstance(error, OSError) or (isinstance(error, KafkaError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR)
