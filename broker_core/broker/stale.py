"""A broker that is cut off from the others and answers its clients from what it knew at that moment.

What Apache Kafka's broker does then (ReplicaManager, TransactionStateManager, KafkaApis): it keeps the roles it had,
since only the controller could take them away, and answers every look at them: FindCoordinator, Metadata, OffsetFetch,
DescribeTransactions, ListTransactions, Fetch, ListOffsets, DescribeProducers. What needs the other replicas fails when
its time is up, because the high watermark stands: REQUEST_TIMED_OUT, of which the coordinators make
COORDINATOR_NOT_AVAILABLE and a leader that has to ask another broker's coordinator NOT_ENOUGH_REPLICAS. Meanwhile the
others elect new leaders and go on, and when the broker comes back it follows them.

Here the failures come at once, acks=0 and acks=1 fail too (Kafka acknowledges such writes, and the broker drops them
when it comes back), and time stands for the broker: it times nothing out.
"""

from collections.abc import Mapping
from typing import NoReturn

from broker_core.broker.broker import Broker
from broker_core.broker.catalog import Leadership
from broker_core.broker.cluster import Address, Cluster
from broker_core.broker.listener import Listener
from broker_core.broker.logs import Logs
from broker_core.config import BrokerConfig
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.ports import Storage
from broker_core.types import TopicPartition


def cut_off(cluster: Cluster, broker_id: int, addresses: Mapping[str, Mapping[int, Address]], memory: Storage) -> None:
    """Part a broker from the others, which take over what it leads and coordinates; see above for what it does.

    `addresses` are those that clients learn now, by listener; `memory` is empty and takes what the broker has of
    the logs. Raises ValueError when there is no other broker.
    """
    if len(cluster.addresses) < 2 or broker_id not in cluster.addresses:
        raise ValueError(
            f"broker {broker_id} cannot be cut off from others: the brokers that run are "
            f"{', '.join(map(str, cluster.addresses)) or 'none'}"
        )
    copy_storage(cluster.storage, memory)
    past = _Past(cluster, broker_id, addresses, memory)
    cluster.absences.left(broker_id)
    cluster.brokers[broker_id].twin = past.brokers[broker_id]


def rejoin(cluster: Cluster, broker_id: int) -> None:
    """Let a broker that was cut off follow the others again, and lead what it led; any other is left alone."""
    twin = cluster.brokers[broker_id].twin
    if twin is not None:
        cluster.brokers[broker_id].twin = None
        cluster.absences.came(broker_id, twin.cluster.addresses[broker_id])


def is_cut_off(cluster: Cluster, broker_id: int) -> bool:
    """Say whether a broker is cut off."""
    return cluster.brokers[broker_id].twin is not None


def copy_storage(source: Storage, target: Storage) -> None:
    """Copy all files, which lie in the root or one folder below it."""
    for name in source.list_folder(""):
        try:
            _copy_file(source, target, name)
        except IsADirectoryError:
            for file_name in source.list_folder(name):
                _copy_file(source, target, f"{name}/{file_name}")


def _copy_file(source: Storage, target: Storage, path: str) -> None:
    file = source.open(path)
    try:
        target.open(path).append(file.read(0, file.size()))
    finally:
        file.close()


class _Past(Cluster):
    """The cluster as one of its brokers remembers it; answers leave, and requests wait, by way of the present one."""

    is_past = True

    def __init__(
        self, present: Cluster, broker_id: int, addresses: Mapping[str, Mapping[int, Address]], storage: Storage
    ) -> None:
        self._broker_id = broker_id
        self._addresses_by_listener = {name: dict(each) for name, each in addresses.items()}
        super().__init__(
            storage=storage,
            entropy=present.entropy,
            config=present.config,
            addresses=present.addresses,
            now_ms=present.now_ms,
            stopwatch=present.meters.stopwatch,
            purgatory=present.purgatory,
        )
        self.hooks = present.hooks
        self.meters = present.meters
        broker = self.brokers[broker_id]
        broker.outbox, broker.meters = present.outbox, present.meters
        broker.sessions = present.brokers[broker_id].sessions

    def settle(self, now_ms: int) -> None:
        """Do nothing: no marker reaches another broker."""

    def leader_of(self, topic_partition: TopicPartition) -> Broker | None:
        """Return the leader if it is the broker itself; raise NETWORK_EXCEPTION for another, which it cannot ask."""
        leader = super().leader_of(topic_partition)
        if leader is not None and leader.broker_id != self._broker_id:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader.broker_id} cannot be reached")
        return leader

    def addresses_by(self, listener: Listener) -> Mapping[int, Address]:
        """Return what clients learned before."""
        return self._addresses_by_listener[listener.name]

    def _open_catalog(self, config: BrokerConfig) -> None:
        """Begin no new term."""

    def _open_logs(self, storage: Storage) -> Logs:
        return _PastLogs(storage, self.config, self.catalog)

    def _elect_coordinator(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        if leadership.leader == self._broker_id:
            super()._elect_coordinator(topic_partition, leadership)

    def _append_metadata(self, key: bytes, value: bytes) -> int:
        _refuse("the cluster's metadata")

    def _allocate_producer_ids(self) -> tuple[int, int]:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the controller cannot be reached")


class _PastLog(PartitionLog):
    """A log that can be read and takes nothing more."""

    def append_as_leader(self, *_: object, **__: object) -> NoReturn:
        """Refuse."""
        _refuse(self.topic_partition)

    def append_end_txn_marker(self, **_: object) -> NoReturn:
        """Refuse."""
        _refuse(self.topic_partition)

    def delete_records_before(self, offset: int) -> NoReturn:
        """Refuse."""
        _refuse(self.topic_partition)


class _PastLogs(Logs):
    log_type = _PastLog


def _refuse(what: object) -> NoReturn:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"a write to {what} was not replicated: the broker is cut off")
