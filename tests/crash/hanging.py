"""Search for hanging transactions, and their end as by an operator (KIP-664).

A restarted Apache Kafka 4 forgets markers (KAFKA-20734): a transaction that its coordinator ends before a partition has
elected its leader is complete for the coordinator and stays open in the partition forever. No client can cause or end
that.
"""

from typing import NamedTuple

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from broker_core.types import TopicPartition
from spark_eos.client.inspection import TransactionDescription, describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.support.clients import metadata_of
from tests.support.raw_client import RawClient

COMMITTED = "CompleteCommit"
# The states of a transactional id whose last transaction has ended, markers included.
ENDED = ("Empty", COMMITTED, "CompleteAbort", "Dead")
_TRANSACTION_STATE = "__transaction_state"


class Open(NamedTuple):
    """A transaction that is open in a partition, by its producer and its first offset there."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int


class Hanging(NamedTuple):
    """A transaction that is open in a partition while its coordinator considers it ended.

    `commit` is how it ended; None: unknown, so that it must stay as it is.
    """

    place: Open
    coordinator_epoch: int
    transactional_id: str
    state: str
    commit: bool | None

    def __str__(self) -> str:
        return (
            f"{self.transactional_id} is {self.state} and open in {self.place.topic_partition} from "
            f"offset {self.place.first_offset} on"
        )


def find_hanging(address: str) -> list[Hanging]:
    """Search all partitions, then the coordinators, then the partitions again.

    A transaction hangs if it was open before its coordinator reported it as ended, markers included, and is still open.
    """
    before = _open(address)
    if not before:
        return []
    with KafkaClient(ClientOptions((address,))) as client:
        listed = {each.producer_id: each for each in list_transactions(client)}
        names = {listed[place.producer_id].transactional_id for place in before if place.producer_id in listed}
        described = {each.producer_id: each for each in describe_transactions(client, names).values() if each.exists}
    after = _open(address)
    found = []
    for place, coordinator_epoch in before.items():
        known = described.get(place.producer_id)
        # A coordinator that has not yet loaded its partition does not know the id.
        if place in after and known is not None and known.state in ENDED:
            found.append(
                Hanging(place, coordinator_epoch, known.transactional_id, known.state, outcome_of(place, known))
            )
    return found


def end_hanging(address: str) -> list[Hanging]:
    """Write the missing marker of each hanging transaction; return those now ended, and those of unknown outcome."""
    done = []
    for each in find_hanging(address):
        if each.commit is None:
            done.append(each)
            continue
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(
            name=each.place.topic_partition.topic, partition_indexes=[each.place.topic_partition.partition]
        )
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=each.place.producer_id,
                    producer_epoch=each.place.producer_epoch,
                    transaction_result=each.commit,
                    topics=[topic],
                    coordinator_epoch=max(each.coordinator_epoch, 0),
                )
            ]
        )
        with RawClient(_leaders(address)[each.place.topic_partition]) as client:
            answer = client.send(request, 1)
        if answer.markers[0].topics[0].partitions[0].error_code == 0:
            done.append(each)
    return done


def outcome_of(place: Open, known: TransactionDescription) -> bool | None:
    """Return whether a transaction was committed, according to the description of its id's last transaction."""
    # Under transactions V2, and at a timeout, the end raises the epoch by one; a higher epoch is another transaction's.
    if known.producer_epoch - place.producer_epoch not in (0, 1):
        return None
    return known.state == COMMITTED


def _leaders(address: str) -> dict[TopicPartition, str]:
    """Return the address of each partition's leader, where there is one."""
    cluster = metadata_of(address)
    nodes = {number: f"{node.host}:{node.port}" for number, node in cluster.brokers.items()}
    return {
        TopicPartition(name, number): nodes[partition.leader]
        for name, topic in cluster.topics.items()
        for number, partition in topic.partitions.items()
        if name != _TRANSACTION_STATE and partition.leader in nodes
    }


def _open(address: str) -> dict[Open, int]:
    """Return all open transactions, with the epoch of the coordinator that last wrote a marker for the producer."""
    led: dict[str, dict[str, list[int]]] = {}
    for place, node in _leaders(address).items():
        led.setdefault(node, {}).setdefault(place.topic, []).append(place.partition)
    found: dict[Open, int] = {}
    for node, topics in led.items():
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=sorted(numbers))
                for name, numbers in topics.items()
            ]
        )
        with RawClient(node) as client:
            answer = client.send(request, 0)
        found |= {
            Open(
                TopicPartition(topic.name, partition.partition_index),
                each.producer_id,
                each.producer_epoch,
                each.current_txn_start_offset,
            ): each.coordinator_epoch
            for topic in answer.topics
            for partition in topic.partitions
            for each in partition.active_producers
            if each.current_txn_start_offset >= 0
        }
    return found
