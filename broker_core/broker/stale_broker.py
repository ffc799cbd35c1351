"""A broker that is cut off from the others and answers its clients from its state at that moment.

Apache Kafka's broker behaves as follows (ReplicaManager, TransactionStateManager, KafkaApis). It keeps its roles,
since only the controller can remove them, and answers requests that only read: FindCoordinator, Metadata, OffsetFetch,
DescribeTransactions, ListTransactions, Fetch, ListOffsets, DescribeProducers. Requests that need the other replicas
time out, because the high watermark does not advance: with REQUEST_TIMED_OUT, which the coordinators turn into
COORDINATOR_NOT_AVAILABLE, and a leader that has to verify a transaction into NOT_ENOUGH_REPLICAS. Meanwhile the
other brokers elect new leaders and continue, and the broker follows them when it returns.

Here these requests fail at once. Writes with acks=0 and acks=1 fail too (Kafka acknowledges them, and the broker drops
them when it returns). Time does not pass for the broker: nothing times out.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from broker_core.broker.broker import Broker
from broker_core.broker.broker_settings import BrokerSettings
from broker_core.broker.cluster import Cluster
from broker_core.broker.controller import ControlledBroker, Controller
from broker_core.broker.endpoints import Address
from broker_core.broker.journals import MetadataLog
from broker_core.broker.log_manager import LogManager
from broker_core.broker.metadata import ClusterMetadata
from broker_core.broker.meters import Meters
from broker_core.broker.partitions import Leadership, with_actual_counts
from broker_core.coordinator.producer_ids import ProducerIds
from broker_core.errors import ErrorCode, KafkaError
from broker_core.log.partition_log import PartitionLog
from broker_core.ports import Storage
from broker_core.security.authorizer import authorizer_for
from broker_core.types import TopicPartition


def cut_off(cluster: Cluster, broker_id: int, addresses: Mapping[str, Mapping[int, Address]], memory: Storage) -> None:
    """Cut a broker off from the others, which take over its partitions and coordinators; see the module's description.

    `addresses` are those in Metadata responses now, by listener; `memory` is an empty storage for a copy of
    the logs. Raises ValueError if there is no other broker.
    """
    running = cluster.controller.addresses
    if len(running) < 2 or broker_id not in running:
        raise ValueError(
            f"broker {broker_id} cannot be cut off from other brokers; running brokers: "
            f"{', '.join(map(str, running)) or 'none'}"
        )
    copy_storage(cluster.storage, memory)
    twin = _stale_twin(cluster, broker_id, addresses, memory)
    cluster.controller.broker_left(broker_id)
    cluster.brokers[broker_id].stale_twin = twin


def rejoin(cluster: Cluster, broker_id: int) -> None:
    """Reconnect a broker that was cut off, and return its partitions to it; no effect on any other broker."""
    twin = cluster.brokers[broker_id].stale_twin
    if twin is not None:
        cluster.brokers[broker_id].stale_twin = None
        cluster.controller.broker_joined(broker_id, twin.controller.addresses[broker_id])


def is_cut_off(cluster: Cluster, broker_id: int) -> bool:
    return cluster.brokers[broker_id].stale_twin is not None


def copy_storage(source: Storage, target: Storage) -> None:
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


def _stale_twin(
    cluster: Cluster, broker_id: int, addresses: Mapping[str, Mapping[int, Address]], storage: Storage
) -> Broker:
    """Return the broker as it was at the cut; it shares the cluster's queues of responses and waiting requests."""
    present, standing_ms = cluster.brokers[broker_id], cluster.now_ms

    def now_ms() -> int:
        return standing_ms

    metadata_log = _StaleMetadataLog.at(storage, now_ms)
    metadata = ClusterMetadata(metadata_log.append, cluster.metadata.broker_ids, cluster.metadata.kafka_version)
    metadata.running_ids = cluster.metadata.running_ids
    metadata.load(metadata_log.records())
    config = with_actual_counts(cluster.config, metadata.topics)
    settings = BrokerSettings(config, metadata.stored)
    logs = _StaleLogManager(storage, settings, metadata)
    controller = _UnreachableController(
        config=config,
        metadata=metadata,
        metadata_log=metadata_log,
        logs=logs,
        addresses=dict(cluster.controller.addresses),
        # The load is not counted again.
        meters=Meters(),
        new_uuid=cluster.new_uuid,
        now_ms=now_ms,
    )
    twin = replace(
        present,
        settings=settings,
        metadata=metadata,
        authorizer=authorizer_for(config, metadata.acls),
        logs=logs,
        controller=controller,
        next_producer_id=ProducerIds(controller.allocate_producer_ids).next,
        now_ms=now_ms,
        stale_addresses={name: dict(each) for name, each in addresses.items()},
    )
    twin.sessions = present.sessions
    controller.start({broker_id: twin})
    return twin


class _UnreachableController(Controller):
    """The controller as a cut-off broker sees it: leaders can be read, and nothing can be changed."""

    def leader_of(self, topic_partition: TopicPartition) -> ControlledBroker | None:
        """Return the leader if it is the broker itself; raise NETWORK_EXCEPTION for another, which it cannot reach."""
        leader = self.metadata.leadership(topic_partition).leader
        if leader in self.broker_ids and leader not in self.brokers:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} cannot be reached")
        return self.brokers.get(leader)

    def allocate_producer_ids(self) -> NoReturn:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the controller cannot be reached")

    def _elect_coordinator(self, topic_partition: TopicPartition, leadership: Leadership) -> None:
        if leadership.leader in self.brokers:
            super()._elect_coordinator(topic_partition, leadership)


class _StaleMetadataLog(MetadataLog):
    """The cluster's metadata at the cut; a change would need the controller."""

    def append(self, key: bytes, value: bytes) -> NoReturn:
        _refuse("the cluster's metadata")


class _StaleLog(PartitionLog):
    """A read-only log."""

    def append_as_leader(self, *_: object, **__: object) -> NoReturn:
        _refuse(self.topic_partition)

    def append_end_txn_marker(self, *_: object, **__: object) -> NoReturn:
        _refuse(self.topic_partition)

    def delete_records_before(self, offset: int) -> NoReturn:
        _refuse(self.topic_partition)


class _StaleLogManager(LogManager):
    log_type = _StaleLog


def _refuse(what: object) -> NoReturn:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"a write to {what} was not replicated: the broker is cut off")
