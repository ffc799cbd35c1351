"""Run a broker inside a test process.

`with EmbeddedBroker() as kafka:` starts a real broker in a background thread on a free loopback port, keeps
its logs in memory unless it is given a folder, and is gone without a trace when the block ends.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from broker_core.broker.cluster import Cluster
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.ports import Storage
from broker_core.server.clock import SystemClock, SystemEntropy
from broker_core.server.disk import DiskStorage
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

    >>> with EmbeddedBroker(topics={"lines": 4}) as kafka:
    ...     print(kafka.bootstrap_servers)  # doctest: +SKIP
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
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: a cluster has at least one")
        settings = {"transaction.version": str(transaction_version), **(config or {})}
        self._config = BrokerConfig().override(settings)
        self._topics = dict(topics or {})
        self._data_dir = data_dir
        self._host = host
        self._ports = [port + index if port else 0 for index in range(brokers)]
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses clients connect to, separated by commas."""
        return ",".join(f"{host}:{port}" for host, port in self._running().addresses)

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

    def call(self, action: Callable[[Cluster], T]) -> T:
        """Run `action(cluster)` in the broker's thread and return its result: the way to look inside."""
        self._running()
        assert self._loop is not None
        if threading.current_thread() is self._thread:
            raise RuntimeError("an action cannot wait for another action: use the cluster it was given")
        return asyncio.run_coroutine_threadsafe(self._act(action), self._loop).result()

    async def _act(self, action: Callable[[Cluster], T]) -> T:
        server = self._running()
        result = action(server.cluster)
        server.settle()
        return result

    def _running(self) -> Server:
        if self._failure is not None:
            raise RuntimeError(f"the broker has stopped: {self._failure}") from self._failure
        if self._server is None:
            raise RuntimeError("the broker is not running: use `with EmbeddedBroker() as kafka:` or call start()")
        return self._server

    def _storage(self) -> Storage:
        return MemoryStorage() if self._data_dir is None else DiskStorage(Path(self._data_dir))

    def _run(self, started: "Future[None]") -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: "Future[None]") -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = None
        try:
            server = Server(
                storage=self._storage(), entropy=SystemEntropy(), clock=SystemClock(), config=self._config,
                host=self._host, ports=self._ports)
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


def _coordinated(transactional_id: str | None, group: str | None) -> tuple[str, str]:
    """Return the internal topic and the key that say which coordinator is meant."""
    if transactional_id is not None and group is None:
        return TRANSACTION_STATE_TOPIC, transactional_id
    if group is not None and transactional_id is None:
        return CONSUMER_OFFSETS_TOPIC, group
    raise ValueError("name either a transactional_id or a group")
