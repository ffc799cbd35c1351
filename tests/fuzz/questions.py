"""Requests of a cluster's client, one for each use of responses."""

from collections.abc import Callable, Mapping

from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import IsolationLevel, ProducerIdentity, TopicPartition
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.fetch import OffsetsGoneError, RangeFetch
from spark_eos.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets, txn_offset_commit
from spark_eos.client.inspection import describe_transactions, list_transactions, sees_every_id
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.needed_apis import ask_brokers
from spark_eos.client.offset_lookup import LogPoint, OffsetLookup
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.producer_scan import ProducerScan
from spark_eos.client.topics import create_topic, describe_topic_config
from spark_eos.client.transaction_admin import broker_ids, partitions_of, write_end_marker
from spark_eos.client.transactions import end_txns, init_producer_id
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.positions import EARLIEST, LATEST
from spark_eos.options.source import FetchLimits

TOPIC, ID, GROUP = "t", "id", "g"
PLACE = TopicPartition(TOPIC, 0)
_LIMITS = FetchLimits(1 << 20, 1 << 20, 1, 0, 3_000)


def _features(client: KafkaClient) -> None:
    client.transaction_version()


def _topics(client: KafkaClient) -> None:
    OffsetLookup(client).places_matching(lambda name: len(name) % 2 == 0)
    client.require_topics([TOPIC])
    client.brokers()


def _create(client: KafkaClient) -> None:
    create_topic(client, "new", partition_count=1, replication_factor=1)


def _configs(client: KafkaClient) -> None:
    describe_topic_config(client, TOPIC)
    ask_brokers(client, [1], ["transaction.max.timeout.ms"], timeout_ms=5_000)


def _coordinators(client: KafkaClient) -> None:
    client.find_coordinators(CoordinatorType.TRANSACTION, [ID, "other"])
    client.find_coordinator(CoordinatorType.GROUP, GROUP)


def _offsets(client: KafkaClient) -> None:
    lookup = OffsetLookup(client)
    for position in (EARLIEST, LATEST, 1):
        lookup.offsets({PLACE: position, TopicPartition(TOPIC, 1): position}, IsolationLevel.READ_COMMITTED)
    lookup.epoch_ends({PLACE: 0})


def _records(client: KafkaClient) -> None:
    lookup = OffsetLookup(client)
    place = lookup.places([TOPIC]).get(PLACE)
    if place is None:
        return
    end = lookup.offsets({PLACE: LATEST}, IsolationLevel.READ_COMMITTED).get(PLACE) or 0
    # With an older epoch the client looks up where that epoch ended.
    planned = LogPoint(max(place.leader_epoch - 1, 0), 0)
    for each in (LogPoint(), planned):
        fetch = RangeFetch(client, PLACE, place, IsolationLevel.READ_COMMITTED, _LIMITS, each)
        for chunk in fetch.chunks(0, min(end, 100)):
            assert chunk.next_position > chunk.position


def _produce(client: KafkaClient, transaction_version: int) -> None:
    taken = init_producer_id(client, ID, transaction_timeout_ms=60_000)
    identity = taken._replace(transaction_version=transaction_version)
    producer = TransactionalProducer(client)
    producer.begin(identity)
    batch = build_batch([NewRecord(b"k", b"v", (), 1_000)] * 3)
    for partition in (0, 1):
        producer.send(TopicPartition(TOPIC, partition), [EncodedBatch(bytearray(batch), 3)])
    producer.flush()
    txn_offset_commit(client, identity, GROUP, {PLACE: OffsetAndMetadata(5, "metadata")})
    end_txns(client, [identity], commit=True)


def _describe(client: KafkaClient) -> None:
    sees_every_id(client)
    describe_transactions(client, [ID, "unknown"])


def _list(client: KafkaClient) -> None:
    list_transactions(client, states=["Ongoing"], id_pattern="i.*")


def _group(client: KafkaClient) -> None:
    commit_offsets(client, GROUP, {PLACE: OffsetAndMetadata(3)})
    fetch_offsets(client, GROUP, [PLACE])
    fetch_offsets(client, GROUP, None, require_stable=False)


def _producers(client: KafkaClient) -> None:
    ProducerScan(client, 1).run([PLACE])


def _marker(client: KafkaClient) -> None:
    broker_ids(client)
    partitions_of(client, [TOPIC], 1)
    write_end_marker(client, PLACE, 77, 0, 0, commit=True)


def _end(client: KafkaClient) -> None:
    end_txns(
        client,
        [OpenTransaction(name, ProducerIdentity(1, 1), version) for name, version in ((ID, 2), ("old", 1))],
        commit=True,
    )


QUESTIONS: Mapping[str, Callable[[KafkaClient], None]] = {
    "features": _features,
    "topics": _topics,
    "create": _create,
    "configs": _configs,
    "coordinators": _coordinators,
    "offsets": _offsets,
    "records": _records,
    "transactions 1": lambda client: _produce(client, 1),
    "transactions 2": lambda client: _produce(client, 2),
    "describe": _describe,
    "list": _list,
    "group": _group,
    "producers": _producers,
    "marker": _marker,
    "end": _end,
}
# The reader of a range gets this error and reports the loss or continues after it.
ALSO_DECLARED = (OffsetsGoneError,)
