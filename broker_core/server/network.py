"""Serve the core over TCP, in one thread, on asyncio.

Whatever arrives in one turn of the event loop is handed to the core first and settled once: that is group
commit, one sync for all the requests that came in together.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from broker_core.broker.cluster import Cluster
from broker_core.broker.connection import Connection
from broker_core.broker.endpoints import Address, Listener
from broker_core.broker.fault_injection import Crashed, FaultInjector
from broker_core.broker.monitoring.metrics import BrokerMetrics, take_metrics
from broker_core.broker.monitoring.request_log import RequestLog
from broker_core.broker.purgatory import Purgatory
from broker_core.broker.stale_broker import is_cut_off, rejoin
from broker_core.config import BrokerConfig
from broker_core.ports import Entropy, Storage
from broker_core.security.principals import PrincipalRules
from broker_core.security.sasl_oauthbearer import TokenValidator
from broker_core.security.sasl_passwords import MECHANISM_NAMES, credential_of_password
from broker_core.security.sasl_settings import SaslWorld, sasl_settings
from broker_core.server.client import Client
from broker_core.server.door import Door, bind
from broker_core.server.limits import ConnectionLimits
from broker_core.server.listeners import ListenerPlan
from broker_core.server.tls import tls_context
from broker_core.server.virtual_time import Clock

log = logging.getLogger(__name__)

_MAX_SLEEP_MS = 60_000
# So long clients have to take leave of an encrypted connection when the server stops.
_GOODBYE_S = 1


class Server:
    """Listen at every listener's address of every broker, and drive the cluster behind them.

    `tls` takes the place of the certificates in the settings; `users` (name and password) may come in with PLAIN and
    SCRAM; `token_validator` vouches for the tokens of OAUTHBEARER, without one unsigned tokens are taken at their word.

    With a `request_log` requests are noted and faults can strike. `forget` is called when all brokers crash: it takes
    from the storage what was not made durable.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        entropy: Entropy,
        clock: Clock,
        config: BrokerConfig,
        listeners: Sequence[ListenerPlan],
        brokers: int = 1,
        tls: ssl.SSLContext | None = None,
        users: Mapping[str, str] | None = None,
        token_validator: TokenValidator | None = None,
        purgatory: Callable[[], Purgatory] = Purgatory,
        request_log: RequestLog | None = None,
        forget: Callable[[], None] | None = None,
    ) -> None:
        self._storage = storage
        self._entropy = entropy
        self._clock = clock
        self._config = config
        self._plans = listeners
        self._broker_ids = [config.broker_id + index for index in range(brokers)]
        self._contexts = {plan.name: tls or tls_context(plan) for plan in listeners if plan.has_tls}
        self._rules = {
            plan.name: PrincipalRules(plan.config.ssl_principal_mapping_rules)
            for plan in listeners
            if plan.has_tls and not plan.has_sasl
        }
        self._users = users or {}
        self._token_validator = token_validator
        self._purgatory = purgatory
        self._forget = forget
        self.fault_injector = None if request_log is None else FaultInjector(request_log, self._later)
        self._addresses: dict[str, dict[int, Address]] = {}
        # The addresses of those brokers that are not away: what clients are told.
        self.reachable: dict[str, dict[int, Address]] = {}
        self._listeners: dict[str, Listener] = {}
        self._limits: dict[int, ConnectionLimits] = {}
        self._doors: dict[tuple[str, int], Door] = {}
        # What is bound and not opened yet; while a broker is away it keeps its ports.
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._ports: dict[tuple[str, int], int] = {}
        self._leaving: dict[int, asyncio.Task[None]] = {}
        self._clients: set[Client] = set()
        self._nobody_left = asyncio.Event()
        # Few of many clients: only they are looked at when work is done.
        self._paused: set[Client] = set()
        self._settling = False
        self._timer: asyncio.TimerHandle | None = None
        self._cluster: Cluster | None = None
        self.failure: asyncio.Future[None] | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the running cluster."""
        assert self._cluster is not None, "the server is not started"
        return self._cluster

    def metrics(self) -> BrokerMetrics:
        """Say how the cluster stands now; only in the thread of the event loop."""
        return take_metrics(self.cluster, self._clock.now_ms())

    @property
    def addresses(self) -> Mapping[str, Mapping[int, Address]]:
        """Return by listener where clients reach each broker."""
        return self._addresses

    async def start(self) -> None:
        """Bind the ports, open the cluster, accept clients; raises OSError when a port is taken."""
        self.failure = asyncio.get_running_loop().create_future()
        try:
            for plan in self._plans:
                self._addresses[plan.name] = {}
                for index, broker_id in enumerate(self._broker_ids):
                    sock = self._sockets[plan.name, broker_id] = bind(plan.bind.host, plan.bind_port(index))
                    port = self._ports[plan.name, broker_id] = sock.getsockname()[1]
                    self._addresses[plan.name][broker_id] = plan.advertised_address(index, port)
            self._open_cluster()
        except BaseException:
            self._drop_sockets()
            raise
        for broker_id in self._broker_ids:
            self._open_doors(broker_id)
        self._arm()

    def _open_cluster(self) -> None:
        for name, addresses in self._addresses.items():
            self.reachable[name] = dict(addresses)
        self._cluster = Cluster(
            storage=self._storage,
            entropy=self._entropy,
            config=self._config,
            addresses=self._addresses[self._plans[0].name],
            now_ms=self._clock.now_ms(),
            stopwatch=self._clock.stopwatch_ms,
            purgatory=self._purgatory(),
        )
        self._cluster.marker_writer.interceptor = self.fault_injector
        self._listeners = {plan.name: self._listener(plan) for plan in self._plans}
        self._limits = {
            broker_id: ConnectionLimits(self._config, self._plans, self._room_made) for broker_id in self._broker_ids
        }

    def _open_doors(self, broker_id: int) -> None:
        limits = self._limits[broker_id]
        for plan in self._plans:
            name = plan.name
            door = self._doors[name, broker_id] = Door(
                self._sockets.pop((name, broker_id)),
                name,
                limits=limits,
                now_ms=self._clock.now_ms,
                context=self._contexts.get(name),
                new_client=partial(
                    Client, self, self.cluster.brokers[broker_id], self._listeners[name], self._rules.get(name)
                ),
                made_room_for=partial(self._make_room, broker_id, limits),
            )
            door.open()

    def _drop_sockets(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()

    # Brokers that go and come

    @property
    def is_down(self) -> bool:
        """Say whether none is left."""
        return self._cluster is None

    def is_away(self, broker_id: int) -> bool:
        """Say whether a broker is stopped or has crashed."""
        return self._cluster is None or (
            broker_id not in self._cluster.controller.addresses and not is_cut_off(self._cluster, broker_id)
        )

    def broker_leaves(self, broker_id: int, *, abruptly: bool) -> None:
        """Let a broker be away; the last one that crashes takes with it what was not made durable."""
        if self.is_away(broker_id):
            return
        rejoin(self.cluster, broker_id)
        if abruptly and len(self.cluster.controller.addresses) == 1:
            self.fall(cleanly=False)
            return
        self._shut(broker_id, abruptly=abruptly)
        self.cluster.controller.broker_left(broker_id)
        self.publish_addresses()
        self.settle_soon()

    async def broker_comes(self, broker_id: int) -> None:
        """Let a broker be back at its old address; after a crash of all, the first one finds what was durable."""
        if not self.is_away(broker_id):
            return
        if self._cluster is None:
            await self.all_shut()
            self._open_cluster()
            for other in self._broker_ids:
                if other != broker_id:
                    self.cluster.controller.broker_left(other)
        else:
            await self._leaving[broker_id]
            self.cluster.controller.broker_joined(broker_id, self._addresses[self._plans[0].name][broker_id])
        self.publish_addresses()
        self._open_doors(broker_id)
        self.settle()

    def fall(self, *, cleanly: bool) -> None:
        """Let all brokers stop; not cleanly, connections break and what was not made durable is gone."""
        if cleanly:
            self.cluster.close(self._clock.now_ms())
        if self._timer is not None:
            self._timer.cancel()
        for broker_id in self._broker_ids:
            if not self.is_away(broker_id):
                self._shut(broker_id, abruptly=not cleanly)
        self._cluster = None
        if self._forget is not None and not cleanly:
            self._forget()

    def _shut(self, broker_id: int, *, abruptly: bool) -> None:
        for client in list(self._clients):
            if client.broker_id == broker_id:
                (client.abort if abruptly else client.close)()
        doors = {key: self._doors.pop(key) for key in list(self._doors) if key[1] == broker_id}
        for door in doors.values():
            door.close()
        self._leaving[broker_id] = asyncio.get_running_loop().create_task(self._keep_ports(doors))

    def publish_addresses(self) -> None:
        """Name to clients the brokers that are there, and no others."""
        for name, addresses in self._addresses.items():
            # In their order, and in the very mapping that the listener knows.
            self.reachable[name].clear()
            self.reachable[name].update((each, addresses[each]) for each in self.cluster.controller.addresses)

    async def _keep_ports(self, doors: "Mapping[tuple[str, int], Door]") -> None:
        """Bind the ports again as soon as they are free, and do not listen: nobody else shall get them."""
        for (name, broker_id), door in doors.items():
            await door.closed()
            plan = next(plan for plan in self._plans if plan.name == name)
            self._sockets[name, broker_id] = bind(plan.bind.host, self._ports[name, broker_id])

    async def all_shut(self) -> None:
        """Wait until nobody can connect any more to a broker that is away."""
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Take an action after some real time, as a turn of its own; nothing is left to do for it after a crash."""
        cluster = self._cluster

        def step(now_ms: int) -> None:
            self.cluster.now_ms = now_ms
            action()

        def act() -> None:
            if self._cluster is cluster:
                self._drive(step)
                self.settle()

        asyncio.get_running_loop().call_later(delay_s, act)

    def _listener(self, plan: ListenerPlan) -> Listener:
        """Return what the core knows of a listener, once there is a cluster that knows users."""
        if not plan.has_sasl:
            return Listener(plan.name, self.reachable[plan.name])
        metadata = self.cluster.metadata
        world = SaslWorld(
            lambda mechanism, user: metadata.scram.get((mechanism, user)),
            self._entropy,
            self._users,
            self._token_validator,
        )
        sasl = sasl_settings(self._config, plan.name, world)
        for mechanism in sorted(MECHANISM_NAMES & sasl.mechanisms.keys()):
            for user, password in self._users.items():
                known = metadata.scram.get((mechanism, user))
                if known is None:
                    metadata.set_scram(mechanism, user, credential_of_password(mechanism, password, self._entropy))
                elif not known.is_of(mechanism, password):
                    log.info(
                        "users: %r keeps the password for %s that an earlier start or an administrator has set",
                        user,
                        mechanism,
                    )
        return Listener(plan.name, self.reachable[plan.name], sasl)

    async def stop(self) -> None:
        """Stop accepting, hang up, and close the logs cleanly."""
        if self._timer is not None:
            self._timer.cancel()
        for door in self._doors.values():
            door.close()
        for client in list(self._clients):
            client.close()
        if self._cluster is not None and not self.has_failed:
            self._cluster.close(self._clock.now_ms())
        await self._see_off()
        await self.all_shut()
        self._drop_sockets()

    async def _see_off(self) -> None:
        """Wait a moment for encrypted connections to end in good order, then cut what is left."""
        if self._clients:
            try:
                await asyncio.wait_for(self._nobody_left.wait(), _GOODBYE_S)
            except TimeoutError:
                for client in list(self._clients):
                    client.abort()

    def _room_made(self) -> None:
        for door in self._doors.values():
            door.room_made()

    def _make_room(self, broker_id: int, limits: ConnectionLimits) -> None:
        """Close the connection that has been quiet for longest, for one that the brokers themselves need."""
        others = [
            client
            for client in self._clients
            if client.broker_id == broker_id and not limits.is_protected(client.listener_name)
        ]
        if others:
            max(others, key=Client.quiet_ms).close()

    def received(self, connection: Connection, data: bytes) -> None:
        """Hand bytes to the core, and settle when this turn's bytes are all in."""
        if not self.has_failed:
            try:
                connection.receive(data, self._clock.now_ms())
            except Crashed:
                return
            self.settle_soon()

    def settle_soon(self) -> None:
        """Settle in this turn of the event loop, after all that came in with it."""
        if not self._settling:
            self._settling = True
            asyncio.get_running_loop().call_soon(self._settle)

    @property
    def has_failed(self) -> bool:
        """Say whether the core could not keep a promise; nothing is answered any more."""
        return self.failure is not None and self.failure.done()

    def settle(self) -> None:
        """Settle now."""
        self._drive(lambda now_ms: self.cluster.settle(now_ms))

    def _settle(self) -> None:
        self._settling = False
        self.settle()

    def _advance(self) -> None:
        for client in list(self._clients):
            if 0 <= self._config.connections_max_idle_ms <= client.quiet_ms():
                client.close()
        self.advance()

    def advance(self) -> None:
        """Do what has come due, and settle."""
        self._drive(lambda now_ms: self.cluster.advance(now_ms))

    def _drive(self, step: Callable[[int], None]) -> None:
        """Take a step; a core that cannot write its log must not go on answering."""
        if self.has_failed or self._cluster is None:
            return
        try:
            step(self._clock.now_ms())
        except Crashed:
            return
        except Exception as error:
            log.exception("the broker stops: it cannot keep its promises any more")
            if self.failure is not None and not self.failure.done():
                self.failure.set_exception(error)
            for door in self._doors.values():
                door.close()
            for client in list(self._clients):
                client.abort()
            return
        if self.is_down:
            return
        self._paused = {client for client in self._paused if not client.resume_if_drained()}
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = min(max(self.cluster.next_deadline_ms() - self._clock.now_ms(), 0), _MAX_SLEEP_MS)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._advance)

    def now_ms(self) -> int:
        """Return the server's time."""
        return self._clock.now_ms()

    def joined(self, client: Client) -> None:
        """Note a new client."""
        self._clients.add(client)
        self._nobody_left.clear()

    def left(self, client: Client) -> None:
        """Note that a client is gone."""
        self._clients.discard(client)
        self._paused.discard(client)
        if not self._clients:
            self._nobody_left.set()

    def paused(self, client: Client) -> None:
        """Note that a client is not read from until its requests have been worked off."""
        self._paused.add(client)
