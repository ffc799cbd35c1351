"""Run a broker inside a test process.

`with EmbeddedBroker() as kafka:` starts a real broker in a background thread on a free loopback port, keeps
its logs in memory unless it is given a folder, and is gone without a trace when the block ends. It can be looked
into, broken at any request, stopped, crashed and started again, and its time can stand.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from broker_core.broker.fault_injection import Action, Crashed, Delay, Disconnect, Drop, Error, Fault, Hold
from broker_core.broker.monitoring.inspection import (
    PartitionView,
    TransactionView,
    partition_view,
    pending_work,
    transaction_view,
    written_partitions,
)
from broker_core.broker.monitoring.metrics import BrokerMetrics
from broker_core.broker.monitoring.request_log import RequestLog, RequestSeen
from broker_core.broker.purgatory import Purgatory
from broker_core.config import BrokerConfig
from broker_core.errors import ConfigError
from broker_core.ports import Storage
from broker_core.security.sasl_oauthbearer import TokenValidator
from broker_core.server.clock import SystemClock, SystemEntropy
from broker_core.server.controls import Controls, Outage
from broker_core.server.disk import DiskStorage
from broker_core.server.handles import BrokerHandle, ClockHandle
from broker_core.server.listeners import listener_settings, plan_listeners
from broker_core.server.network import Server
from broker_core.server.thread import ServerThread
from broker_core.server.virtual_time import RealTimePurgatory, VirtualClock
from broker_core.simulation.clock import SeededEntropy
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import TopicPartition

__all__ = [
    "Delay",
    "Disconnect",
    "Drop",
    "EmbeddedBroker",
    "Error",
    "Fault",
    "Hold",
    "Outage",
    "PartitionView",
    "RequestSeen",
    "TransactionView",
]

T = TypeVar("T")

_PAUSE_S = 0.01
_CLOCKS = ("real", "virtual")


class EmbeddedBroker(Controls):
    """Hold a running Kafka-compatible cluster.

    `brokers` broker ids share one set of logs; `topics` maps names to partition counts; `config` takes
    Kafka's broker settings by their own names. Raises `ConfigError` for a setting that cannot be used, `OSError` when
    a port is taken and `DamageError` for a `data_dir` that cannot be understood, such as one of a newer version.

    `listeners` maps names to protocols (PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL); every broker has each of them.
    `users` maps names to the passwords with which they come in by PLAIN and SCRAM. A SCRAM password that a `data_dir`
    has already stays as it is, whoever set it; one that was deleted there is made again. `tls` serves SSL and SASL_SSL:
    any server-side `ssl.SSLContext`, which decides about client certificates too. `token_validator(token, now_ms)`
    returns a `ValidToken` or raises `InvalidToken`, and switches OAUTHBEARER on. `port` is the first of as many in a
    row as there are listeners times brokers; 0 means free ones.

    With `clock="virtual"` time stands until `clock.advance` moves it; only a client's own patience, such as a fetch's
    max_wait, goes by real time. A `seed` makes ids repeatable. The newest `requests_kept` requests can be looked at.

    >>> with EmbeddedBroker(topics={"lines": 4}) as kafka:
    ...     kafka.partition("lines", 0).high_watermark
    0
    >>> with EmbeddedBroker(listeners={"SECURE": "SASL_PLAINTEXT"}, users={"alice": "secret"}) as kafka:
    ...     kafka.bootstrap("SECURE").split(":")[0]
    '127.0.0.1'
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
        clock: str = "real",
        seed: int | None = None,
        requests_kept: int = 1000,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: a cluster has at least one")
        if clock not in _CLOCKS:
            raise ConfigError(f"clock={clock!r}: expected one of {', '.join(_CLOCKS)}")
        settings = {"transaction.version": str(transaction_version)}
        if clock == "virtual":
            # A connection is as real as its client: it does not grow old with the broker's clock.
            settings["connections.max.idle.ms"] = "-1"
        if listeners is not None:
            settings |= listener_settings(listeners, host, port, brokers)
        if token_validator is not None:
            settings["sasl.enabled.mechanisms"] = f"{BrokerConfig().sasl_enabled_mechanisms},OAUTHBEARER"
        self._config = BrokerConfig().override(settings | dict(config or {}))
        self._topics = dict(topics or {})
        self._data_dir = data_dir
        self._brokers = brokers
        self._plans = plan_listeners(self._config, brokers=brokers, host=host, port=port)
        self._users, self._tls, self._token_validator = dict(users or {}), tls, token_validator
        for name, value, is_used in (
            ("users", users, any(plan.has_sasl for plan in self._plans)),
            ("tls", tls, any(plan.has_tls for plan in self._plans)),
        ):
            if value and not is_used:
                raise ConfigError(
                    f"{name}: no listener asks for that; give listeners={{'SECURE': 'SASL_SSL'}}, or one "
                    "with SASL_PLAINTEXT or SSL"
                )
        self._clock = VirtualClock() if clock == "virtual" else SystemClock()
        self._entropy = SystemEntropy() if seed is None else SeededEntropy(seed)
        self._requests = RequestLog(requests_kept)
        self._after = ExitStack()
        self._thread = ServerThread(self._make, self._prepare, self._after.close)

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses clients connect to, separated by commas; of several listeners the first's."""
        return self.bootstrap(self._plans[0].name)

    @property
    def client_settings(self) -> dict[str, str]:
        """Return what a librdkafka client needs to find the broker: what runs on a real cluster too asks for this."""
        return {"bootstrap.servers": self.bootstrap_servers}

    def bootstrap(self, listener: str) -> str:
        """Return the addresses of one listener, separated by commas."""
        addresses = self._thread.running().addresses
        if listener.upper() not in addresses:
            raise ValueError(f"there is no listener {listener!r}; there are {', '.join(addresses)}")
        return ",".join(f"{host}:{port}" for host, port in addresses[listener.upper()].values())

    def start(self) -> Self:
        """Start and return when clients can connect."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop, flush and close; a broker that is not running is left alone."""
        self._thread.stop()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic without a client."""
        self.call(lambda cluster: cluster.controller.create_topic(name, partitions, config))

    # Brokers and time

    def broker(self, broker_id: int) -> BrokerHandle:
        """Return the handle of one broker; ids count from `node.id`, which is 1 unless set.

        >>> with EmbeddedBroker(brokers=2, topics={"in": 2}) as kafka:
        ...     kafka.broker(1).crash()
        ...     while_it_is_away = kafka.leader(("in", 0))
        ...     kafka.broker(1).start()
        ...     while_it_is_away, kafka.leader(("in", 0))
        (2, 1)
        """
        if broker_id not in self.broker_ids:
            raise ValueError(f"there is no broker {broker_id}; there are {', '.join(map(str, self.broker_ids))}")
        return BrokerHandle(broker_id, self._thread)

    def crash(self) -> None:
        """Let all brokers crash at once; `restart` opens what is left.

        Of logs in memory only what was synced is left. Files in a folder stay as the operating system has them, as
        after SIGKILL. From inside a fault it ends the work on the request there and then.
        """
        self._thread.act(lambda server: server.fall(cleanly=False))
        if self._thread.is_here:
            raise Crashed
        self._thread.wait_for(lambda server: server.all_shut())

    def restart(self) -> None:
        """Start all brokers that are away, at their old addresses; if none is, stop them all in good order first."""
        brokers = [self.broker(broker_id) for broker_id in self.broker_ids]
        if all(broker.is_running for broker in brokers):
            self._thread.act(lambda server: server.fall(cleanly=True))
        for broker in brokers:
            broker.start()

    @property
    def clock(self) -> ClockHandle:
        """Return the clock of a broker that was made with `clock="virtual"`; RuntimeError for any other.

        >>> with EmbeddedBroker(clock="virtual") as kafka:
        ...     before = kafka.clock.now_ms()
        ...     kafka.clock.advance(60)
        ...     kafka.clock.now_ms() - before
        60000
        """
        if not isinstance(self._clock, VirtualClock):
            raise RuntimeError('the clock is real: make the broker with clock="virtual" to move its time')
        return ClockHandle(self._thread, self._clock)

    # Faults

    def fault(
        self,
        *,
        api: str | None = None,
        when: str = "before",
        action: Action,
        times: int | None = None,
        nth: int | None = None,
        version: int | None = None,
        client_id: str | None = None,
        principal: str | None = None,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> Fault:
        """Strike requests that match all that is given, `times` times (for ever unless set), or only the `nth`.

        `when` is "before" the request is handled; "after_apply", when it has taken effect durably and only the answer
        is missing (what was refused is not struck); or "mid", for each marker that the end of a transaction has to
        write: the transaction is prepared.
        `action` is `Error`, `Delay`, `Drop`, `Disconnect`, `Hold`, or a function that is called with the `RequestSeen`
        in the broker's thread, where it may use `call`, `move_leader`, `crash` and the like. Raises ValueError for
        what can never match.

        >>> with EmbeddedBroker() as kafka:
        ...     with kafka.fault(api="Metadata", action=Error("BROKER_NOT_AVAILABLE"), times=1) as fault:
        ...         fault.hits
        0
        """
        fault_injector = self._thread.running().fault_injector
        assert fault_injector is not None
        fault = Fault(
            fault_injector.remove,
            api=api,
            when=when,
            action=action,
            times=times,
            nth=nth,
            version=version,
            client_id=client_id,
            principal=principal,
            broker=broker,
            topic=topic,
            partition=partition,
            group=group,
            transactional_id=transactional_id,
        )
        fault_injector.add(fault)
        return fault

    # Inspection

    def transaction(self, transactional_id: str) -> TransactionView:
        """Return how a transactional id stands now; KeyError when its coordinator does not know it."""
        view = self.call(lambda cluster: transaction_view(cluster, transactional_id))
        if view is None:
            raise KeyError(f"no coordinator knows transactional id {transactional_id!r}")
        return view

    def partition(self, topic: str, partition: int) -> PartitionView:
        """Return how a partition stands now; raises `KafkaError` when there is none.

        >>> with EmbeddedBroker(topics={"in": 1}) as kafka:
        ...     print(kafka.partition("in", 0).dump())
        in-0: log start 0, LSO 0, HW 0, log end 0, leader 1 at epoch 0
        """
        return self.call(lambda cluster: partition_view(cluster, TopicPartition(topic, partition)))

    def written_partitions(self) -> list[TopicPartition]:
        """Name the partitions, internal ones left out, that hold anything."""
        return self.call(written_partitions)

    def requests(
        self, *, api: str | None = None, client_id: str | None = None, transactional_id: str | None = None
    ) -> list[RequestSeen]:
        """Return the newest requests that match, oldest first; each prints as a line."""
        seen = self._thread.act(lambda _: list(self._requests))
        return [
            each
            for each in seen
            if (api is None or each.api == api)
            and (client_id is None or each.client_id == client_id)
            and (transactional_id is None or transactional_id in each.transactional_ids)
        ]

    @staticmethod
    def wait_for(condition: Callable[[], T], timeout: float = 10) -> T:
        """Wait until `condition()` is true and return what it gave; AssertionError after `timeout` seconds.

        >>> with EmbeddedBroker() as kafka:
        ...     kafka.wait_for(lambda: kafka.broker(1).is_running)
        True
        """
        end = time.monotonic() + timeout
        while not (found := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {timeout} s in vain; it was {found!r} at last")
            time.sleep(_PAUSE_S)
        return found

    def assert_quiescent(self, *, clients_may_wait: bool = False) -> None:
        """Raise AssertionError that names every open transaction, unstable partition and waiting request.

        With `clients_may_wait` the fetches of consumers that are still open are no matter.
        """
        found = self.call(lambda cluster: pending_work(cluster, clients_may_wait=clients_may_wait))
        assert not found, "the broker is not at rest: " + "; ".join(found)

    @property
    def metrics(self) -> BrokerMetrics:
        """Return how the cluster stands at this moment; ask again for another moment."""
        return self._thread.act(lambda server: server.metrics())

    @property
    def _server(self) -> Server | None:
        return self._thread.server

    @property
    def broker_ids(self) -> range:
        """Return the ids of all brokers, whether they run or not."""
        return range(self._config.broker_id, self._config.broker_id + self._brokers)

    def _memory(self) -> Storage:
        return MemoryStorage()

    def _make(self) -> Server:
        storage: Storage
        forget = None
        if self._data_dir is None:
            storage = memory = MemoryStorage()
            forget = memory.crash
        else:
            storage = disk = DiskStorage(Path(self._data_dir))
            self._after.callback(disk.close)
        clock = self._clock
        return Server(
            storage=storage,
            entropy=self._entropy,
            clock=clock,
            config=self._config,
            listeners=self._plans,
            brokers=self._brokers,
            tls=self._tls,
            users=self._users,
            token_validator=self._token_validator,
            purgatory=(lambda: RealTimePurgatory(clock)) if isinstance(clock, VirtualClock) else Purgatory,
            request_log=self._requests,
            forget=forget,
        )

    def _prepare(self, server: Server) -> None:
        for name, partitions in self._topics.items():
            if name not in server.cluster.metadata.topics:
                server.cluster.controller.create_topic(name, partitions)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
