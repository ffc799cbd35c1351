"""Run a broker inside a test process.

`with EmbeddedBroker() as kafka:` starts a real broker in a background thread on a free loopback port, keeps
its logs in memory unless it is given a folder, and is gone without a trace when the block ends.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from broker_core.broker.cluster import Cluster
from broker_core.broker.metrics import Metrics
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.ports import Storage
from broker_core.security.sasl_oauthbearer import TokenValidator
from broker_core.server.clock import SystemClock, SystemEntropy
from broker_core.server.disk import DiskStorage
from broker_core.server.listeners import plan_listeners
from broker_core.server.network import Server
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

T = TypeVar("T")

_START_SECONDS = 60


class EmbeddedBroker:
    """Hold a running Kafka-compatible cluster.

    `brokers` broker ids share one set of logs; `topics` maps names to partition counts; `config` takes
    Kafka's broker settings by their own names. Raises `ConfigError` for a setting that cannot be used and
    `OSError` when a port is taken.

    `listeners` maps names to protocols (PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL); every broker has each of them.
    `users` maps names to the passwords with which they come in by PLAIN and SCRAM. `tls` serves SSL and SASL_SSL: any
    server-side `ssl.SSLContext`, which decides about client certificates too. `token_validator(token, now_ms)` returns
    a `ValidToken` or raises `InvalidToken`, and switches OAUTHBEARER on. `port` is the first of as many in a row as
    there are listeners times brokers; 0 means free ones.

    >>> with EmbeddedBroker(topics={"lines": 4}) as kafka:
    ...     print(kafka.bootstrap_servers)  # doctest: +SKIP
    >>> with EmbeddedBroker(listeners={"SECURE": "SASL_PLAINTEXT"}, users={"alice": "secret"}) as kafka:
    ...     print(kafka.bootstrap("SECURE"))  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        topics: Mapping[str, int] | None = None,
        transaction_version: int = 2,
        config: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        listeners: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        token_validator: TokenValidator | None = None,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: a cluster has at least one")
        settings = {"transaction.version": str(transaction_version)}
        if listeners is not None:
            settings |= _listener_settings(listeners, host, port, brokers)
        if token_validator is not None:
            settings["sasl.enabled.mechanisms"] = f"{BrokerConfig().sasl_enabled_mechanisms},OAUTHBEARER"
        self._config = BrokerConfig().override(settings | dict(config or {}))
        self._topics = dict(topics or {})
        self._data_dir = data_dir
        self._brokers = brokers
        self._plans = plan_listeners(self._config, brokers=brokers, host=host, port=port)
        self._users, self._tls, self._token_validator = dict(users or {}), tls, token_validator
        for name, value, is_used in (("users", users, any(plan.has_sasl for plan in self._plans)),
                                     ("tls", tls, any(plan.has_tls for plan in self._plans))):
            if value and not is_used:
                raise ConfigError(f"{name}: no listener asks for that; give listeners={{'SECURE': 'SASL_SSL'}}, or one "
                                  "with SASL_PLAINTEXT or SSL")
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses clients connect to, separated by commas; of several listeners the first's."""
        return self.bootstrap(self._plans[0].name)

    def bootstrap(self, listener: str) -> str:
        """Return the addresses of one listener, separated by commas."""
        addresses = self._running().addresses
        if listener.upper() not in addresses:
            raise ValueError(f"there is no listener {listener!r}; there are {', '.join(addresses)}")
        return ",".join(f"{host}:{port}" for host, port in addresses[listener.upper()].values())

    def start(self) -> Self:
        """Start and return when clients can connect."""
        if self._thread is not None:
            raise RuntimeError("this broker is already running; make another one")
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="embedded-broker", daemon=True)
        self._thread.start()
        try:
            started.result(timeout=_START_SECONDS)
        except Exception:
            self._thread.join()
            self._thread = None
            raise
        return self

    def close(self) -> None:
        """Stop, flush and close; a broker that is not running is left alone."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic without a client."""
        self.call(lambda cluster: cluster.create_topic(name, partitions, config))

    def leader(self, topic_partition: tuple[str, int]) -> int:
        """Return the id of the broker that leads a partition."""
        return self.call(lambda cluster: cluster.catalog.leadership(TopicPartition(*topic_partition)).leader)

    def move_leader(self, topic_partition: tuple[str, int], broker: int) -> None:
        """Make `broker` the leader of a partition, in a new leader epoch; clients find out as they do with Kafka.

        Broker ids count from `node.id`, which is 1 unless set. Raises `KafkaError` for a partition or broker
        that does not exist; a move to the broker that leads already begins a new epoch too.
        """
        self.call(lambda cluster: cluster.move_leader(TopicPartition(*topic_partition), broker))

    def coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> int:
        """Return the id of the broker that coordinates a transactional id or a group."""
        topic, key = _coordinated(transactional_id, group)
        return self.call(
            lambda cluster: cluster.catalog.leadership(cluster.coordinator_partition_of(topic, key)).leader)

    def move_coordinator(self, broker: int, *, transactional_id: str | None = None, group: str | None = None) -> None:
        """Make `broker` the coordinator of a transactional id or a group.

        The ids that live in the same partition of the internal topic move with it. The new coordinator carries
        on from the log: transactions that were being ended are ended, open ones stay open.
        """
        topic, key = _coordinated(transactional_id, group)
        self.call(lambda cluster: cluster.move_leader(cluster.coordinator_partition_of(topic, key), broker))

    @property
    def metrics(self) -> Metrics:
        """Return how the cluster stands at this moment; ask again for another moment."""
        server = self._running()
        return self.call(lambda _: server.metrics())

    def call(self, action: Callable[[Cluster], T]) -> T:
        """Run `action(cluster)` in the broker's thread and return its result: the way to look inside."""
        self._running()
        assert self._loop is not None
        if threading.current_thread() is self._thread:
            raise RuntimeError("an action cannot wait for another action: use the cluster it was given")
        return asyncio.run_coroutine_threadsafe(self._act(action), self._loop).result()

    async def _act(self, action: Callable[[Cluster], T]) -> T:
        server = self._running()
        try:
            return action(server.cluster)
        finally:
            # What it has appended before it failed has to be made durable and told, too.
            server.settle()

    def _running(self) -> Server:
        if self._failure is not None:
            raise RuntimeError(f"the broker has stopped: {self._failure}") from self._failure
        if self._server is None:
            raise RuntimeError("the broker is not running: use `with EmbeddedBroker() as kafka:` or call start()")
        return self._server

    def _storage(self, after: ExitStack) -> Storage:
        if self._data_dir is None:
            return MemoryStorage()
        storage = DiskStorage(Path(self._data_dir))
        after.callback(storage.close)
        return storage

    def _run(self, started: "Future[None]") -> None:
        with ExitStack() as after:
            asyncio.run(self._serve(started, after))

    async def _serve(self, started: "Future[None]", after: ExitStack) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = None
        try:
            server = Server(
                storage=self._storage(after), entropy=SystemEntropy(), clock=SystemClock(), config=self._config,
                listeners=self._plans, brokers=self._brokers, tls=self._tls, users=self._users,
                token_validator=self._token_validator)
            await server.start()
            for name, partitions in self._topics.items():
                if name not in server.cluster.catalog.topics:
                    server.cluster.create_topic(name, partitions)
            server.cluster.settle(server.now_ms())
        except Exception as error:
            if server is not None:
                await server.stop()
            started.set_exception(error)
            return
        assert server.failure is not None
        server.failure.add_done_callback(self._fail)
        self._server = server
        started.set_result(None)
        await self._stopping.wait()
        self._server = None
        await server.stop()

    def _fail(self, failure: "asyncio.Future[None]") -> None:
        self._failure = failure.exception()
        self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _listener_settings(listeners: Mapping[str, str], host: str, port: int, brokers: int) -> dict[str, str]:
    """Say in Kafka's settings which listeners are wanted."""
    if not listeners:
        raise ConfigError("listeners={}: a broker has at least one; leave it out for one in plaintext")
    place = f"[{host}]" if ":" in host else host
    ports = {name: port + number * brokers if port else 0 for number, name in enumerate(listeners)}
    return {
        "listeners": ",".join(f"{name}://{place}:{ports[name]}" for name in listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in listeners.items()),
    }


def _coordinated(transactional_id: str | None, group: str | None) -> tuple[str, str]:
    """Return the internal topic and the key that say which coordinator is meant."""
    if transactional_id is not None and group is None:
        return TRANSACTION_STATE_TOPIC, transactional_id
    if group is not None and transactional_id is None:
        return CONSUMER_OFFSETS_TOPIC, group
    raise ValueError("name either a transactional_id or a group")
