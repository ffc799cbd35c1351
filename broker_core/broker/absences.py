"""Hand what a broker leads to the others while it is away, and back when it returns, as a cluster's controller does."""

from typing import TYPE_CHECKING, NamedTuple

from broker_core.broker.fetch_sessions import FetchSessions
from broker_core.types import TopicPartition

if TYPE_CHECKING:
    from broker_core.broker.cluster import Address, Cluster


class _Lent(NamedTuple):
    """Say whose a partition is, and who leads it meanwhile."""

    owner: int
    borrower: int


class Absences:
    """Know which brokers of a cluster are away."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._lent: dict[TopicPartition, _Lent] = {}
        # Whose they are: partitions that were to get a leader while no broker was there.
        self._unled: dict[TopicPartition, int] = {}

    def left(self, broker_id: int) -> None:
        """Let a broker be away; with nobody left, what it leads waits for the first that returns."""
        cluster = self._cluster
        if cluster.addresses.pop(broker_id, None) is None:
            return
        cluster.catalog.broker_ids = others = tuple(cluster.addresses)
        if others:
            for index, topic_partition in enumerate(self._led_by(broker_id)):
                borrower = others[index % len(others)]
                owner = self._lent[topic_partition].owner if topic_partition in self._lent else broker_id
                self._lent[topic_partition] = _Lent(owner, borrower)
                cluster.move_leader(topic_partition, borrower)

    def came(self, broker_id: int, address: "Address") -> None:
        """Let a broker be back; it leads what it led, unless somebody has decided otherwise meanwhile."""
        cluster = self._cluster
        # In their order, and in the very mapping that connections know.
        ordered = sorted({**cluster.addresses, broker_id: address}.items())
        cluster.addresses.clear()
        cluster.addresses.update(ordered)
        cluster.catalog.broker_ids = tuple(cluster.addresses)
        # What a client has fetched is not known any more after a start.
        cluster.brokers[broker_id].sessions = FetchSessions(cluster.config.max_incremental_fetch_session_cache_slots)
        for topic_partition, lent in list(self._lent.items()):
            if lent.owner == broker_id:
                del self._lent[topic_partition]
                if topic_partition in self._led_by(lent.borrower):
                    cluster.move_leader(topic_partition, broker_id)
        for absent in cluster.brokers.keys() - cluster.addresses.keys():
            for topic_partition in self._led_by(absent):
                self._lent[topic_partition] = _Lent(absent, broker_id)
                cluster.move_leader(topic_partition, broker_id)
        unled, self._unled = self._unled, {}
        for topic_partition, owner in unled.items():
            self.elect(topic_partition, owner)

    def elect(self, topic_partition: TopicPartition, owner: int) -> None:
        """Give a partition that has no leader its owner as one, or another broker until the owner is back."""
        cluster = self._cluster
        if not cluster.catalog.has_partition(topic_partition) or cluster.leader_of(topic_partition) is not None:
            return
        if not cluster.addresses:
            self._unled[topic_partition] = owner
            return
        leader = owner if owner in cluster.addresses else min(cluster.addresses)
        if leader != owner:
            self._lent[topic_partition] = _Lent(owner, leader)
        cluster.move_leader(topic_partition, leader)

    def _led_by(self, broker_id: int) -> list[TopicPartition]:
        return [
            topic_partition
            for topic in self._cluster.catalog.topics.values()
            for topic_partition, leadership in zip(topic.topic_partitions(), topic.partitions, strict=True)
            if leadership.leader == broker_id
        ]
