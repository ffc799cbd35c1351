"""A cluster: its brokers, which share one storage, and the order in which effects happen.

A request changes logs and queues effects: its response, the markers of a transaction. `settle` syncs the logs, runs
the queued effects, and repeats until none is left. So no client is sent an acknowledgment, and no partition a marker,
for a write that a crash could lose.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from broker_core.broker.apis import served_apis
from broker_core.broker.broker import Broker, Effect, SyncQueue
from broker_core.broker.broker_settings import BrokerSettings
from broker_core.broker.controller import Controller
from broker_core.broker.endpoints import Address
from broker_core.broker.journals import MetadataLog
from broker_core.broker.log_manager import LogManager
from broker_core.broker.marker_writer import MarkerWriter
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.meters import Meters, Stopwatch, stopped
from broker_core.broker.partitions import with_actual_counts
from broker_core.broker.purgatory import Purgatory
from broker_core.config import BrokerConfig
from broker_core.coordinator.producer_ids import ProducerIds
from broker_core.coordinator.transactions.messages import MarkerOrder
from broker_core.errors import DamageError
from broker_core.installed import parts
from broker_core.ports import Entropy, Storage, run_steps
from broker_core.security.authorizer import authorizer_for
from broker_core.types import LONGEST_STRING_BYTES, TopicPartition

logger = logging.getLogger(__name__)

# To open as many logs takes some 10 ms.
_CHECKED_AT_ONCE: Final = 20
# Replays the records in the metadata log for a caller who has them in memory.
MetadataLoad = Callable[[ClusterMetadata], None]


class Job(Protocol):
    """What does something at some times; `next_deadline_ms` is None if nothing is due."""

    def advance(self, now_ms: int) -> None: ...

    def next_deadline_ms(self) -> int | None: ...


class LogMaintenance:
    """The maintenance jobs and their intervals."""

    def __init__(self, logs: LogManager, config: BrokerConfig, now_ms: int) -> None:
        self._logs = logs
        # Each job with its interval.
        self._jobs: dict[Callable[[int], None], int] = {
            self._begin_retention: config.log_retention_check_interval_ms,
            self._expire_producers: config.producer_id_expiration_check_interval_ms,
        }
        if config.log_cleaner_enable:
            self._jobs[self._compact] = _backoff_ms(config)
        self._due_ms = {job: now_ms + interval_ms for job, interval_ms in self._jobs.items()}
        # A test that shortens the interval does not wait for the first check either.
        first_ms = min(config.log_initial_task_delay_ms, config.log_retention_check_interval_ms)
        self._due_ms[self._begin_retention] = now_ms + first_ms
        # The logs whose retention is still to be checked, and since when.
        self._unchecked: deque[TopicPartition] = deque()
        self._checking_since_ms = now_ms

    def reconfigure(self, config: BrokerConfig, now_ms: int) -> None:
        """Apply another `log.cleaner.backoff.ms`, the only interval that changes while brokers run."""
        backoff_ms = _backoff_ms(config)
        if self._jobs.get(self._compact, backoff_ms) != backoff_ms:
            self._jobs[self._compact] = backoff_ms
            self._due_ms[self._compact] = now_ms + backoff_ms

    def advance(self, now_ms: int) -> None:
        for job, interval_ms in self._jobs.items():
            if now_ms >= self._due_ms[job]:
                self._due_ms[job] = now_ms + interval_ms
                job(now_ms)
        self._apply_retention(now_ms)

    def next_deadline_ms(self) -> int:
        return self._checking_since_ms if self._unchecked else min(self._due_ms.values())

    def _begin_retention(self, now_ms: int) -> None:
        self._unchecked = deque(self._logs.with_files())
        self._checking_since_ms = now_ms

    def _apply_retention(self, now_ms: int) -> None:
        """Check some logs; the requests that have come meanwhile are handled before the next ones are checked."""
        for _ in range(min(len(self._unchecked), _CHECKED_AT_ONCE)):
            place = self._unchecked.popleft()
            if self._logs.has_files(place) and self._logs.get(place, now_ms).apply_retention(now_ms):
                self._logs.moved(place)

    def _expire_producers(self, now_ms: int) -> None:
        for each in self._logs.opened():
            each.expire_producers(now_ms)

    def _compact(self, now_ms: int) -> None:
        for each in self._logs.opened():
            try:
                result = each.compact(now_ms)
            except DamageError as damage:
                # Its other segments stay readable, and recovery handles the damage at the next start.
                logger.warning("%s is not compacted: %s", each.topic_partition, damage)
                continue
            if result is not None:
                logger.info(
                    "%s compacted from %d to %d bytes", each.topic_partition, result.bytes_before, result.bytes_after
                )
                self._logs.moved(each.topic_partition)


def _backoff_ms(config: BrokerConfig) -> int:
    """Return the time between two compactions; without any, time would never pass."""
    return max(config.log_cleaner_backoff_ms, 1)


class Cluster:
    """The loop that drives the brokers; everything runs in the caller's thread, at the time the caller passes."""

    # The orders and effects that follow when the writes so far, which are being synced, are durable.
    _step: tuple[Sequence[tuple[Broker, MarkerOrder]], Sequence[Effect]] | None = None

    def __init__(
        self,
        *,
        storage: Storage,
        entropy: Entropy,
        config: BrokerConfig,
        addresses: Mapping[int, Address],
        now_ms: int,
        stopwatch: Stopwatch = stopped,
        purgatory: Purgatory | None = None,
        load: MetadataLoad | None = None,
    ) -> None:
        self.now_ms = now_ms
        self.storage = storage
        self._entropy = entropy
        self._sync_queue = SyncQueue()
        self.meters = Meters(stopwatch)
        self.purgatory = Purgatory() if purgatory is None else purgatory
        self._throttled = Purgatory()
        self._metadata_log = MetadataLog.at(storage, self._time)
        self.metadata = ClusterMetadata(self._metadata_log.append, addresses, config.kafka_version)
        (load or self._load)(self.metadata)
        levels = (config.transaction_version, config.group_version, config.share_version)
        # Kafka prints a UUID as 22 URL-safe base64 characters; hexadecimal is easier to read.
        cluster_id = config.cluster_id or entropy.random_bytes(11).hex()
        self.metadata.open_cluster(cluster_id, *levels, min_insync_replicas=config.min_insync_replicas)
        self.config = config = with_actual_counts(config, self.metadata.topics)
        self.settings = BrokerSettings(config, self.metadata.stored)
        self.logs = LogManager(storage, self.settings, self.metadata)
        self.controller = Controller(
            config=config,
            metadata=self.metadata,
            metadata_log=self._metadata_log,
            logs=self.logs,
            addresses=dict(addresses),
            meters=self.meters,
            new_uuid=self.new_uuid,
            now_ms=self._time,
        )
        self._authorizer = authorizer_for(config, self.metadata.acls)
        self._producer_ids = ProducerIds(self.controller.allocate_producer_ids)
        self.brokers = {broker_id: self._broker(broker_id) for broker_id in addresses}
        self.marker_writer = MarkerWriter(
            brokers=self.brokers,
            running=self.controller.addresses,
            metadata=self.metadata,
            sync_queue=self._sync_queue,
            sync=self.sync,
            now_ms=self._time,
        )
        self._log_maintenance = LogMaintenance(self.logs, self.settings.of(min(addresses)), now_ms)
        self.settings.subscribe(self._reconfigure)
        jobs = [each.job(self.metadata, config, now_ms) for each in parts("jobs")]
        # All that does something at some times, in the order in which it is done.
        self._timed: list[Job] = [self.purgatory, self._throttled, *self._of_brokers(), self._log_maintenance, *jobs]
        self.controller.start(self.brokers)
        self.settle(now_ms)

    def _broker(self, broker_id: int) -> Broker:
        return Broker(
            broker_id=broker_id,
            settings=self.settings,
            metadata=self.metadata,
            authorizer=self._authorizer,
            logs=self.logs,
            controller=self.controller,
            purgatory=self.purgatory,
            throttled=self._throttled,
            sync_queue=self._sync_queue,
            meters=self.meters,
            next_producer_id=self._producer_ids.next,
            new_member_id=self._new_member_id,
            now_ms=self._time,
            served_apis=served_apis,
        )

    def _of_brokers(self) -> Iterator[Job]:
        for broker in self.brokers.values():
            yield broker.transactions
            yield broker.groups
            yield from broker.parts

    def _load(self, metadata: ClusterMetadata) -> None:
        metadata.load(self._metadata_log.records())

    def _reconfigure(self) -> None:
        for broker in self.brokers.values():
            broker.reconfigure()
        self.logs.reconfigure_all()
        self._log_maintenance.reconfigure(self.settings.of(min(self.brokers)), self.now_ms)

    def advance(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for each in self._timed:
            each.advance(now_ms)
        self.settle(now_ms)

    def next_deadline_ms(self) -> int:
        deadlines = [each.next_deadline_ms() for each in self._timed]
        return min(deadline for deadline in deadlines if deadline is not None)

    def settle(self, now_ms: int) -> None:
        """Sync pending writes, then send responses and write markers, until no effect is left."""
        self.now_ms = now_ms
        self.sync()
        while self._step is not None or self._take_step():
            self.sync()
            self._run_step()

    def settle_overlapping(self, now_ms: int, sync_ended: Callable[[], None]) -> None:
        """Settle until a sync takes time, then return, so that requests are handled while the disk works.

        `sync_ended` is called in any thread at the end of that sync; call `settle_overlapping` again then.
        """
        self.now_ms = now_ms
        # A sync may have failed while a request was handled, and only its client has noticed.
        self.logs.check_disk()
        if self._step is not None:
            if not self.logs.is_synced:
                return
            self.logs.finish_sync()
            self._run_step()
        while self._take_step():
            self._metadata_log.sync()
            if self.logs.start_sync(sync_ended):
                return
            self._run_step()

    def _take_step(self) -> bool:
        """Take the queued effects; return whether there are any. A sync now makes the writes they confirm durable."""
        changed = self.logs.take_changed()
        if changed:
            self.purgatory.wake(changed, self.now_ms)
        brokers = self.brokers.values()
        orders = [(broker, order) for broker in brokers for order in broker.transactions.completion.take()]
        effects = self._sync_queue.take()
        if orders or effects:
            self._step = orders, effects
        return self._step is not None

    def _run_step(self) -> None:
        assert self._step is not None
        (orders, effects), self._step = self._step, None
        for effect in effects:
            effect(self.now_ms)
        for broker, order in orders:
            self.marker_writer.deliver(broker, order, self.now_ms)

    def sync(self) -> None:
        self._metadata_log.sync()
        self.logs.sync()

    def close(self, now_ms: int) -> None:
        self.settle(now_ms)
        self.logs.close(now_ms)
        self._metadata_log.close(now_ms)

    def abandon(self, now_ms: int) -> None:
        """Settle and close the files as they are, without the time that a clean close takes: others replace them."""
        self.settle(now_ms)
        self.logs.release()
        self._metadata_log.release()

    def sync_and_snapshot(self) -> None:
        """Make the files such that a start with a copy of them replays no batches, except of logs not in use."""
        self.logs.sync_and_snapshot(self.now_ms)
        run_steps(self._metadata_log.storage, self._metadata_log.closing_steps(self.now_ms))

    def _time(self) -> int:
        return self.now_ms

    def new_uuid(self) -> UUID:
        return UUID(bytes=self._entropy.random_bytes(16), version=4)

    def _new_member_id(self, client_id: str) -> str:
        ending = f"-{self.new_uuid()}"
        # A name of maximum length is shortened, to leave space for the unique part.
        return client_id.encode()[: LONGEST_STRING_BYTES - len(ending)].decode(errors="ignore") + ending
