"""The server of the core over TCP, in one thread, on asyncio.

The server passes all requests that arrive in one iteration of the event loop to the core, then calls `Cluster.settle`
once. This is group commit: one sync makes the writes of all of them durable.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from broker_core.broker.cluster import Cluster, MetadataLoad
from broker_core.broker.endpoints import Address, Listener
from broker_core.broker.fault_injection import Crashed, FaultInjector
from broker_core.broker.monitoring.metrics import BrokerMetrics, take_metrics
from broker_core.broker.purgatory import Purgatory
from broker_core.broker.request_log import RequestLog
from broker_core.broker.restoring import abandon_answering, begin_without_clients
from broker_core.broker.stale_broker import is_cut_off, rejoin
from broker_core.config import BrokerConfig
from broker_core.errors import AllBrokersCrashed
from broker_core.ports import Entropy, Storage
from broker_core.security.sasl_oauthbearer import TokenValidator
from broker_core.server.acceptor import Acceptor, ReservedPorts
from broker_core.server.clock import SystemClock
from broker_core.server.connection_protocol import Clients, ConnectionProtocol
from broker_core.server.connection_quotas import ConnectionQuotas, reconfigure_all
from broker_core.server.listeners import ListenerPlan, principal_rules, sasl_of
from broker_core.server.tls_contexts import TlsContexts

logger = logging.getLogger(__name__)

_MAX_SLEEP_MS = 60_000


@dataclass(eq=False, kw_only=True)
class SocketServer:
    """The TCP server of all brokers of a cluster.

    `tls` replaces the certificates in the settings. `users` maps user names to their passwords for PLAIN and SCRAM.
    `token_validator` validates OAUTHBEARER tokens; without one, unsigned tokens are accepted.

    With a `request_log` requests are recorded and faults can be injected. `lose_unsynced` is called when all brokers
    crash, to discard writes in the storage that are not durable.
    """

    storage: Storage
    entropy: Entropy
    clock: SystemClock
    config: BrokerConfig
    listeners: Sequence[ListenerPlan]
    brokers: int = 1
    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] | None = None
    token_validator: TokenValidator | None = None
    purgatory: Callable[[], Purgatory] = Purgatory
    request_log: RequestLog | None = None
    lose_unsynced: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self._broker_ids = [self.config.broker_id + index for index in range(self.brokers)]
        self._contexts = TlsContexts(self.listeners, self.tls, self._broker_ids)
        self._rules = principal_rules(self.listeners)
        log = self.request_log
        self.fault_injector = None if log is None else FaultInjector(log, self._call_later)
        self.clients = Clients(self.clock.now_ms, self.step, self.fault_injector)
        # The address of each broker, by listener.
        self.addresses: dict[str, dict[int, Address]] = {}
        # The addresses of the running brokers, for Metadata responses.
        self.reachable: dict[str, dict[int, Address]] = {}
        # The brokers' addresses of the first listener; without listeners, no client sees them.
        self._own_addresses = dict.fromkeys(self._broker_ids, Address("no-listener", 0))
        self._core_listeners: dict[str, Listener] = {}
        self._quotas: dict[int, ConnectionQuotas] = {}
        self._acceptors: dict[tuple[str, int], Acceptor] = {}
        self._ports = ReservedPorts()
        self._closing: dict[int, asyncio.Task[None]] = {}
        self._is_settle_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._cluster: Cluster | None = None
        # Whether the core has failed, for example to write a log; no more requests are handled.
        self.has_failed = False
        self.failure: asyncio.Future[None] | None = None

    @property
    def cluster(self) -> Cluster:
        """The running cluster; `AllBrokersCrashed` if no broker is running."""
        if self._cluster is None:
            raise AllBrokersCrashed("all brokers have crashed: `restart()` starts them again")
        return self._cluster

    def metrics(self) -> BrokerMetrics:
        """Return the cluster's current metrics. Call it in the event loop's thread only."""
        return take_metrics(self.cluster, self.clock.now_ms())

    async def start(self) -> None:
        """Bind the ports, open the cluster and accept connections; raise OSError if a port is in use."""
        self._loop = asyncio.get_running_loop()
        self.failure = self._loop.create_future()
        try:
            for plan in self.listeners:
                self.addresses[plan.name] = {}
                for index, broker_id in enumerate(self._broker_ids):
                    port = self._ports.reserve((plan.name, broker_id), plan.bind.host, plan.bind_port(index))
                    self.addresses[plan.name][broker_id] = plan.advertised_address(index, port)
            self._own_addresses = next(iter(self.addresses.values()), self._own_addresses)
            self._open_cluster()
        except BaseException:
            self._ports.close()
            raise
        for broker_id in self._broker_ids:
            self._open_acceptors(broker_id)
        self._arm()

    def cluster_of(self, storage: Storage, load: MetadataLoad | None = None) -> Cluster:
        """Return a new cluster over a storage, with the settings of this server."""
        return Cluster(
            storage=storage,
            entropy=self.entropy,
            config=self.config,
            addresses=self._own_addresses,
            now_ms=self.clock.now_ms(),
            stopwatch=self.clock.stopwatch_ms,
            purgatory=self.purgatory(),
            load=load,
        )

    def _open_cluster(self, load: MetadataLoad | None = None) -> None:
        self.reachable.update((name, dict(addresses)) for name, addresses in self.addresses.items())
        self._cluster = self.cluster_of(self.storage, load)
        if self.fault_injector is not None:
            self._cluster.marker_writer.intercept = self.fault_injector.intercept_marker
        self._core_listeners = {plan.name: self._listener(plan) for plan in self.listeners}
        settings, metadata = self.cluster.settings, self.cluster.metadata
        self._quotas = {
            each: ConnectionQuotas(settings.of(each), self.listeners, self._slot_released, metadata)
            for each in self._broker_ids
        }
        self.cluster.settings.subscribe(self._reconfigure_quotas)
        self._contexts.follow(self.cluster.settings)

    def _reconfigure_quotas(self) -> None:
        reconfigure_all(self._quotas, self.cluster)
        self._slot_released()

    def replace_cluster(self, exchange: Callable[[Cluster], MetadataLoad]) -> None:
        """Close the cluster, let `exchange` replace its files and return the metadata's load, and open it again.

        Connections stay open, except those with a request that a fault delays. Requests that wait are answered first.
        """
        old, now_ms = self.cluster, self.clock.now_ms()
        for client in self.clients.connected:
            client.suspend()
        abandon_answering(old, now_ms)
        away = [broker_id for broker_id in self._broker_ids if self.is_away(broker_id)]
        quotas = self._quotas
        self._open_cluster(exchange(old))
        # The open connections keep their slots.
        self._quotas = quotas
        self._reconfigure_quotas()
        begin_without_clients(self.cluster, away, now_ms)
        self.publish_addresses()
        for client in list(self.clients.connected):
            client.attach(self.cluster.brokers[client.broker_id], self._core_listeners[client.listener_name])

    def _open_acceptors(self, broker_id: int) -> None:
        quotas = self._quotas[broker_id]
        for plan in self.listeners:
            name = plan.name
            acceptor = self._acceptors[name, broker_id] = Acceptor(
                self._ports.take((name, broker_id)),
                name,
                quotas=quotas,
                now_ms=self.clock.now_ms,
                context=partial(self._contexts.of, name, broker_id),
                protocol_factory=partial(self._new_connection, name, broker_id),
                evict=partial(self._evict_quietest, broker_id, quotas),
            )
            acceptor.open()

    def _new_connection(self, listener: str, broker_id: int, slot: ExitStack) -> ConnectionProtocol:
        broker = self.cluster.brokers[broker_id]
        return ConnectionProtocol(self.clients, broker, self._core_listeners[listener], self._rules.get(listener), slot)

    # Stopping and starting brokers

    @property
    def is_down(self) -> bool:
        return self._cluster is None

    def is_away(self, broker_id: int) -> bool:
        return self._cluster is None or (
            broker_id not in self._cluster.controller.addresses and not is_cut_off(self._cluster, broker_id)
        )

    def stop_broker(self, broker_id: int, *, abruptly: bool) -> None:
        """Stop a broker after it has responded to what it has written, or crash it.

        A crash of the last running broker discards writes that are not durable.
        """
        if self.is_away(broker_id):
            return
        rejoin(self.cluster, broker_id)
        if abruptly and len(self.cluster.controller.addresses) == 1:
            self.shut_down(cleanly=False)
            return
        if abruptly:
            for client in self.clients.of(broker_id):
                client.abort()
        self._close_acceptors(broker_id)
        self.cluster.controller.broker_left(broker_id)
        self.publish_addresses()
        self.schedule_settle()

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker; raise OSError, and start nothing, if another program has taken its port meanwhile."""
        if not self.is_away(broker_id):
            return
        if self._cluster is None:
            await self.all_closed()
            self._reserve_again(broker_id)
            self._open_cluster()
            for other in self._broker_ids:
                if other != broker_id:
                    self.cluster.controller.broker_left(other)
        else:
            await self._closing[broker_id]
            self._reserve_again(broker_id)
            self.cluster.controller.broker_joined(broker_id, self._own_addresses[broker_id])
        self.publish_addresses()
        self._open_acceptors(broker_id)
        self.settle_cluster()

    def shut_down(self, *, cleanly: bool) -> None:
        """Stop all brokers; unless `cleanly`, break connections and discard writes that are not durable."""
        if cleanly:
            self.cluster.close(self.clock.now_ms())
        if self._timer is not None:
            self._timer.cancel()
        for broker_id in self._broker_ids:
            # Also of brokers that are about to stop.
            for client in self.clients.of(broker_id):
                (client.close if cleanly else client.abort)()
            if not self.is_away(broker_id):
                self._close_acceptors(broker_id)
        self._cluster = None
        if self.lose_unsynced is not None and not cleanly:
            self.lose_unsynced()

    def _close_acceptors(self, broker_id: int) -> None:
        acceptors = {key: self._acceptors.pop(key) for key in list(self._acceptors) if key[1] == broker_id}
        for acceptor in acceptors.values():
            acceptor.close()
        self._closing[broker_id] = asyncio.get_running_loop().create_task(self._leave(broker_id, acceptors))

    def publish_addresses(self) -> None:
        """Let Metadata responses have the addresses of the running brokers."""
        for name, addresses in self.addresses.items():
            # In the cluster's order, and in place, because the listener has a reference to this mapping.
            self.reachable[name].clear()
            self.reachable[name].update((each, addresses[each]) for each in self.cluster.controller.addresses)

    async def _leave(self, broker_id: int, acceptors: "Mapping[tuple[str, int], Acceptor]") -> None:
        """Send the responses that wait for a sync, close the connections, and reserve the ports when they are free.

        This is a task because the caller may be in the middle of a step.
        """
        self.settle_cluster()
        for client in self.clients.of(broker_id):
            client.close()
        for acceptor in acceptors.values():
            await acceptor.closed()
        with suppress(OSError):
            # The start of the broker tries again.
            self._reserve_again(broker_id)

    def _reserve_again(self, broker_id: int) -> None:
        for plan in self.listeners:
            self._ports.reserve_again((plan.name, broker_id))

    async def all_closed(self) -> None:
        await asyncio.gather(*self._closing.values(), return_exceptions=True)

    def _call_later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run an action as a separate step after a delay in real time, unless all brokers crash before."""
        cluster = self._cluster

        def step(now_ms: int) -> None:
            self.cluster.now_ms = now_ms
            action()

        def act() -> None:
            if self._cluster is cluster:
                self._drive(step)
                self.settle_cluster()

        asyncio.get_running_loop().call_later(delay_s, act)

    def _listener(self, plan: ListenerPlan) -> Listener:
        metadata = self.cluster.metadata
        sasl = sasl_of(plan, self.config, metadata, self.entropy, self.users or {}, self.token_validator)
        return Listener(plan.name, self.reachable[plan.name], sasl, self.addresses)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for acceptor in self._acceptors.values():
            acceptor.close()
        if self._cluster is not None and not self.has_failed:
            # Before the connections close: a producer without the responses would send its batches again, and the
            # next start knows only the last batch of each.
            self._cluster.close(self.clock.now_ms())
        await self.clients.close()
        await self.all_closed()
        self._ports.close()

    def _slot_released(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.slot_released()

    def _evict_quietest(self, broker_id: int, quotas: ConnectionQuotas) -> None:
        """Close the client connection that has been idle longest, to free a slot for the inter-broker listener."""
        others = [each for each in self.clients.of(broker_id) if not quotas.is_protected(each.listener_name)]
        if others:
            max(others, key=ConnectionProtocol.idle_ms).close()

    def step(self, action: Callable[[], bool | None]) -> None:
        """Let the core act, and schedule settling unless the action returns False."""
        if not self.has_failed:
            try:
                if action() is not False and not self._is_settle_scheduled:
                    self.schedule_settle()
            except Crashed:
                return

    def schedule_settle(self) -> None:
        """Schedule `Cluster.settle` after all requests that arrive in this iteration of the event loop."""
        if not self._is_settle_scheduled:
            self._is_settle_scheduled = True
            asyncio.get_running_loop().call_soon(self._settle_scheduled)

    def settle_cluster(self) -> None:
        self._drive(lambda now_ms: self.cluster.settle(now_ms))

    def _settle_scheduled(self) -> None:
        self._is_settle_scheduled = False
        self._drive(lambda now_ms: self.cluster.settle_overlapping(now_ms, self._sync_ended))

    def _sync_ended(self) -> None:
        with suppress(RuntimeError):
            # The loop is closed if the server has stopped meanwhile.
            self._loop.call_soon_threadsafe(self.schedule_settle)

    def _advance(self) -> None:
        self.clients.close_idle(self.config.connections_max_idle_ms)
        self.advance()

    def advance(self) -> None:
        self._drive(lambda now_ms: self.cluster.advance(now_ms))

    def _drive(self, step: Callable[[int], None]) -> None:
        """Run one step. An exception fails the server: a core that cannot write its log must not send responses."""
        if self.has_failed or self._cluster is None:
            return
        try:
            step(self.clock.now_ms())
        except Crashed:
            return
        except Exception as error:
            logger.exception("the broker stops because of an unexpected error")
            self.has_failed = True
            if self.failure is not None and not self.failure.done():
                self.failure.set_exception(error)
            for acceptor in self._acceptors.values():
                acceptor.close()
            self.clients.abort()
            return
        if self.is_down:
            return
        self.clients.resume_drained()
        self._arm()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        wait_ms = min(max(self.cluster.next_deadline_ms() - self.clock.now_ms(), 0), _MAX_SLEEP_MS)
        at_s = loop.time() + wait_ms / 1000
        if self._timer is not None:
            # The deadline seldom changes; a timer that is early only finds nothing due, and arms the next one.
            if loop.time() < self._timer.when() <= at_s and not self._timer.cancelled():
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._advance)
