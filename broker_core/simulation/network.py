"""Serve the core in virtual time over links that fail: the twin of the server on TCP.

What arrives within one turn is settled together, as there; between arrival and settling the power may fail. Brokers
share one process: it is killed, paused and started again as a whole, while a single broker can be taken down, its
partitions and coordinators moved elsewhere.
"""

from collections.abc import Callable
from functools import partial

from broker_core.broker import stale_broker
from broker_core.broker.cluster import Cluster
from broker_core.broker.connection import Connection
from broker_core.broker.endpoints import PLAINTEXT, Address
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.ports import Entropy
from broker_core.simulation.clock import SimulatedClock
from broker_core.simulation.disk import MemoryStorage, PowerLoss, SimulatedDisk
from broker_core.simulation.faults import CALM, Fault, FaultCounts, Weather
from broker_core.simulation.links import API_KEY_PLACE, ClientEnd, Link, Sent, Transport
from broker_core.simulation.scheduler import Event, Scheduler

PORT = 9092


class SimulatedNetwork:
    """Know the links, and who is cut off."""

    def __init__(self, scheduler: Scheduler, faults: FaultCounts) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self.weather: Weather = CALM
        self._server: SimulatedServer | None = None
        self._links: dict[int, Link] = {}
        self._link_count = 0
        self._cut: set[str] = set()
        self._sent_count = 0
        self._handled: set[tuple[str, object]] = set()
        self._newest: dict[str, Sent] = {}
        # Which requests of whom were handled after their sender gave up, by API key as on the wire.
        self.late: set[tuple[str, bytes]] = set()

    @property
    def server(self) -> "SimulatedServer":
        """Return who serves."""
        assert self._server is not None, "nobody serves this network"
        return self._server

    def served_by(self, server: "SimulatedServer") -> None:
        """Take note of who serves."""
        self._server = server

    def connect(self, client: str, broker_id: int, end: ClientEnd) -> Link:
        """Begin a connection; the client may send at once and learns later if nobody is there."""
        self._link_count += 1
        link = self._links[self._link_count] = Link(self, self._link_count, client, broker_id, end)
        return link

    def forget(self, link: Link) -> None:
        """Drop a link that is gone."""
        self._links.pop(link.number, None)

    def number(self, client: str, api: bytes, asked: object, *, changes: bool) -> Sent:
        """Name a request that goes out."""
        self._sent_count += 1
        return Sent(client, self._sent_count, api, asked, changes)

    def handled(self, sent: Sent, *, is_late: bool) -> None:
        """Count a request that a broker handles late, for the second time, or after one that was sent later.

        Only what changes something counts as coming twice or out of order: two looks may change places unnoticed. A
        request that is overtaken by nothing but its own repetition comes twice, but not out of order.
        """
        if is_late:
            self.faults.struck(Fault.LATE_REQUEST)
            self.late.add((sent.client, sent.api))
        if not sent.changes:
            return
        if sent.asked is not None:
            name = (sent.client, sent.asked)
            if name in self._handled:
                self.faults.struck(Fault.DUPLICATED)
            self._handled.add(name)
        newest = self._newest.get(sent.client)
        if newest is None or newest.number < sent.number:
            self._newest[sent.client] = sent
        elif newest.asked is None or newest.asked != sent.asked:
            self.faults.struck(Fault.REORDERED)

    def is_cut(self, client: str) -> bool:
        """Say whether a client is cut off."""
        return client in self._cut

    def cut(self, client: str) -> None:
        """Part a client from all brokers; what is under way is held back."""
        self._cut.add(client)

    def heal(self, client: str) -> None:
        """Join a client to the brokers again, and let arrive what was held back."""
        self._cut.discard(client)
        for link in [each for each in self._links.values() if each.client == client]:
            link.release()

    def heal_all(self) -> None:
        """Join everybody."""
        for client in sorted(self._cut):
            self.heal(client)

    def reset(self, broker_id: int | None = None) -> None:
        """Break all links, or those to one broker."""
        for link in list(self._links.values()):
            if broker_id in (None, link.broker_id):
                link.reset()

    def links_of(self, client: str) -> list[Link]:
        """Return the links of a client."""
        return [each for each in self._links.values() if each.client == client]


class SimulatedServer:
    """Drive a cluster over a network and a disk, and survive its deaths."""

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
        self._cluster: Cluster | None = None
        self._settling: Event | None = None
        self._timer: Event | None = None
        self._waiting: list[Callable[[], None]] | None = None
        self.down: set[int] = set()
        self._mine: tuple[bytes, int] | None = None
        # What no fault explains: bugs of ours.
        self.bugs: list[BaseException] = []
        # Called when the process has died, with whether its machine lost its power.
        self.died: Callable[[bool], None] = lambda _power: None
        network.served_by(self)

    # Life and death

    @property
    def is_running(self) -> bool:
        """Say whether there is a process."""
        return self._cluster is not None

    @property
    def cluster(self) -> Cluster:
        """Return the running cluster."""
        assert self._cluster is not None, "the cluster is not running"
        return self._cluster

    def start(self) -> bool:
        """Open the cluster over what the disk has; say whether it came up."""
        assert self._cluster is None
        try:
            self._cluster = Cluster(
                storage=self.disk,
                entropy=self._entropy,
                config=self._config,
                addresses=self._addresses,
                now_ms=self.clock.now_ms(),
            )
        except PowerLoss:
            self._fell(power=True, fault=Fault.POWER_LOST_WRITING)
        except Exception as error:
            self._fell(power=False, fault=Fault.STOPPED_FULL, error=error)
        else:
            self.scheduler.note("cluster up")
            self._arm()
        return self._cluster is not None

    def stop(self) -> None:
        """Close the cluster cleanly."""
        self._drive(self.cluster.close)
        if self._cluster is not None:
            self._end()

    def kill(self, *, power: bool) -> None:
        """End the process now; with `power` its machine too, and what was not made durable."""
        if self._cluster is not None:
            self._fell(power=power, fault=Fault.POWER_LOST if power else Fault.KILLED)

    def pause(self, duration_us: int) -> None:
        """Stop the process for some time; what arrives waits."""
        if self._waiting is None:
            self._waiting = []
            self.faults.struck(Fault.BROKER_PAUSED)
            self.scheduler.after(duration_us, self.resume)

    def resume(self) -> None:
        """Let it go on."""
        waiting, self._waiting = self._waiting or [], None
        for action in waiting:
            action()

    def lose_power_at(self, api_key: int, operations: int) -> None:
        """Let the power fail so many operations of the disk after the next request of an API has come in."""
        self._mine = (api_key.to_bytes(2, "big"), operations)

    def take_down(self, broker_id: int) -> None:
        """Let one broker be unreachable until `bring_up`."""
        self.down.add(broker_id)
        self.faults.struck(Fault.BROKER_DOWN)
        self.network.reset(broker_id)

    def bring_up(self, broker_id: int) -> None:
        """Let it be reached again."""
        self.down.discard(broker_id)

    def cut_off(self, broker_id: int) -> None:
        """Cut a broker off from the others, if there are any; clients reach it as before."""

        def cut(cluster: Cluster) -> None:
            if broker_id in cluster.controller.addresses and len(cluster.controller.addresses) > 1:
                stale_broker.cut_off(cluster, broker_id, {PLAINTEXT: cluster.controller.addresses}, MemoryStorage())
                self.faults.struck(Fault.STALE_BROKER)

        self.act(cut)

    def rejoin(self, broker_id: int) -> None:
        """Let a broker that was cut off be one of them again."""
        self.act(lambda cluster: stale_broker.rejoin(cluster, broker_id))

    def jump(self, by_ms: int) -> None:
        """Set the clock of the running cluster ahead."""
        self.clock.jump(by_ms)
        self.faults.struck(Fault.CLOCK_AHEAD)
        if self._cluster is not None:
            self._arm()

    def act(self, action: Callable[[Cluster], None]) -> None:
        """Do something to the running cluster, then settle."""
        if self._cluster is not None:
            self._drive(lambda _now_ms: action(self.cluster))
            self.settle_soon()

    # What arrives

    def accept(self, link: Link) -> Connection | None:
        """Give a link its connection; None when nobody listens."""
        if self._cluster is None or link.broker_id in self.down:
            return None
        return Connection(self._cluster.brokers[link.broker_id], Transport(link), link.client)

    def received(self, link: Link, connection: Connection, data: bytes, sent: Sent | None = None) -> None:
        """Hand bytes to the core, and settle when this turn's bytes are all in; `sent` names what they complete."""
        if self._waiting is not None:
            self._waiting.append(partial(self.received, link, connection, data, sent))
        elif self._cluster is not None and not connection.closed:
            if sent is not None:
                self.network.handled(sent, is_late=not link.is_open)
            if self._mine is not None and data[API_KEY_PLACE] == self._mine[0]:
                self.disk.fuse, self._mine = self._mine[1], None
            self._drive(lambda now_ms: connection.receive(data, now_ms))
            self.settle_soon()

    def lost(self, link: Link, connection: Connection) -> None:
        """Tell the core that a client is gone."""
        if self._waiting is not None:
            self._waiting.append(partial(self.lost, link, connection))
        elif self._cluster is not None:
            connection.lost()

    def settle_soon(self) -> None:
        """Settle in a moment, after all that comes in with it."""
        if self._settling is None and self._cluster is not None:
            delay_us = self.scheduler.random.randint(*self.network.weather.settle_us)
            self._settling = self.scheduler.after(delay_us, self._settle)

    def _settle(self) -> None:
        self._settling = None
        if self._waiting is not None:
            self._waiting.append(self.settle_soon)
        elif self._cluster is not None:
            self._drive(self._cluster.settle)
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
        # One millisecond at the least, or a deadline that stays due would stop time.
        when_us = max(self.clock.when_us(self.cluster.next_deadline_ms()), self.scheduler.now_us + 1_000)
        self._timer = self.scheduler.at(when_us, self._advance)

    def _drive(self, step: Callable[[int], None]) -> None:
        """Take a step; a core that cannot write its log must not go on answering."""
        try:
            step(self.clock.now_ms())
        except PowerLoss:
            self._fell(power=True, fault=Fault.POWER_LOST_WRITING)
        except Exception as error:
            self._fell(power=False, fault=Fault.STOPPED_FULL, error=error)

    def _fell(self, *, power: bool, fault: Fault, error: Exception | None = None) -> None:
        if error is not None and not is_disk_trouble(error):
            self.bugs.append(error)
        self.scheduler.note(f"cluster down: {fault.value}")
        self.faults.struck(fault)
        self._end()
        if power:
            self.disk.lose_power()
        else:
            self.disk.lose_process()
        self.died(power)

    def _end(self) -> None:
        self._cluster = None
        self._waiting = None
        for event in (self._settling, self._timer):
            if event is not None:
                event.cancel()
        self._settling = self._timer = None
        self.network.reset()


def is_disk_trouble(error: BaseException) -> bool:
    """Say whether a full disk explains the error."""
    return isinstance(error, OSError) or (isinstance(error, KafkaError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR)
