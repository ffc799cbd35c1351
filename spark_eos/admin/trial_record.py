"""The trial of `doctor` that writes a record and aborts it, to see whether readers at read_committed get it.

Clients filter aborted records by what brokers list in their responses. A service that lists none shows them all.
"""

from typing import Final

from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import TopicPartition
from spark_eos.admin.doctor_findings import CheckResult, Finding
from spark_eos.admin.rights import TRIAL_TIMEOUT_MS, Examination
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import places_of
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import end_txn, init_producer_id
from spark_eos.codec.encoded_batch import EncodedBatch
from spark_eos.errors import DeliveryTimeoutError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.runtime import now_ms
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.performing import perform
from spark_eos.sink.prepared import PreparedTransaction, WrittenRange
from spark_eos.sink.protocol.action_table import Fate
from spark_eos.sink.protocol.log_fates import logged_fates
from spark_eos.transactions.standstills import ends

_CHECK: Final = "aborted records"
_RECORD: Final = NewRecord(b"eos-kafka doctor", None)


def fate_of_record(client: KafkaClient, opened: OpenTransaction, topic: str, *, commit: bool = False) -> Fate:
    """Write one record to partition 0 in a transaction, end it, and return what a reader sees of it."""
    producer = TransactionalProducer(client, delivery_timeout_ms=client.options.api_timeout_ms)
    place = TopicPartition(topic, 0)
    producer.begin(opened)
    at_ms = now_ms(client.runtime.clock)
    try:
        record = _RECORD._replace(timestamp_ms=at_ms)
        producer.send(place, [EncodedBatch(bytearray(build_batch([record])), 1)])
        offset = producer.flush()[place].first_offset
        if commit:
            end_txn(client, opened, commit=True)
    finally:
        if not commit:
            producer.abort()
    if not _is_reached(client, place, offset):
        return Fate.HIDDEN
    written = WrittenRange(topic, 0, offset, offset, 1)
    transaction = PreparedTransaction(0, opened, 0, at_ms, (written,))
    return perform(KafkaCluster(client, topic), logged_fates([transaction]))[transaction]


def _is_reached(client: KafkaClient, place: TopicPartition, offset: int) -> bool:
    """Return whether readers at read_committed get as far as an offset, or do so before the time is up."""
    places = places_of(client.metadata([place.topic]).values())
    for _ in client.attempts(client.deadline()):
        stable, _ = ends(client, places, [place])
        if (stable.get(place) or 0) > offset:
            return True
    return False


def try_aborted_record(client: KafkaClient, examined: Examination, topic: str) -> Finding:
    """Write a record in a transaction that is aborted, and look for it as a reader at read_committed does."""
    if examined.is_read_only:
        return Finding(_CHECK, CheckResult.SKIPPED, "--read-only is given")
    client.require_topics([topic])
    opened = init_producer_id(client, examined.probe, transaction_timeout_ms=TRIAL_TIMEOUT_MS)
    try:
        return what_it_means(fate_of_record(client, opened, topic))
    except DeliveryTimeoutError as error:
        error.remedy = error.remedy.replace("kafka.delivery.timeout.ms", "--timeout-seconds")
        raise


def what_it_means(fate: Fate) -> Finding:
    """Return what the fate of an aborted record, as readers see it, says of a service."""
    if fate is Fate.COMMITTED:
        return Finding(
            _CHECK,
            CheckResult.PROBLEM,
            "a reader at read_committed gets the record of an aborted transaction",
            "Do not use the sink with this service: readers would get the rows of attempts that failed, and rows twice",
        )
    if fate is Fate.HIDDEN:
        return Finding(
            _CHECK,
            CheckResult.WARNING,
            "not known: a reader at read_committed does not get to the record, which is behind the last stable offset",
            "Repeat the command with a topic that has no open transaction. If this one has none, the trial's own has "
            "not ended: look into the logs of the brokers",
        )
    return Finding(_CHECK, CheckResult.OK, "hidden from a reader at read_committed")
