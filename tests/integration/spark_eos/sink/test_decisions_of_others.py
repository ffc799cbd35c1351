"""What a new query reads of a shared decision topic, on a broker that counts requests."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from broker_core import EmbeddedBroker
from broker_core.records.batch import NewRecord, build_batch
from broker_core.records.compression import Compression
from broker_core.types import TopicPartition
from spark_eos.client import transactions
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.topics import describe_topic_config
from spark_eos.codec.encode import encode_batches
from spark_eos.options.client import ClientOptions
from spark_eos.sink.driver.broker_capabilities import BrokerCapabilities
from spark_eos.sink.driver.decision_topic import Durability, ensure_decision_topic
from spark_eos.sink.naming import DECISION_TOPIC_PARTITIONS, decision_partition, driver_id
from spark_eos.sink.protocol import settlement
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.driving import end_all, settle
from tests.support.spark_eos.sink_world import World
from tests.support.waiting import wait_until

OTHERS = 10_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(requests_kept=100_000) as broker:
        yield broker


@pytest.fixture
def world(kafka: EmbeddedBroker) -> Iterator[World]:
    with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        made = World(kafka.bootstrap_servers, client)
        made.decisions = unique("decisions")
        ensure_decision_topic(client, made.decisions, Durability(1, 1), BrokerCapabilities())
        made.cluster = made.cluster_of(made.decisions)
        yield made


def write_others(kafka: EmbeddedBroker, topic: str, count: int) -> None:
    """Append decisions of other queries to the logs: one compressed batch for each, without markers."""
    value = b'{"version":3,"transactions":[%s]}' % (b'{"split":0,"timeout_ms":60000},' * 20)

    def write(cluster: Any) -> None:
        places = [TopicPartition(topic, number) for number in range(DECISION_TOPIC_PARTITIONS)]
        logs = [cluster.logs.get(place, cluster.now_ms) for place in places]
        for number in range(count):
            key = f"other/{number:08}-0000-4000-8000-000000000001".encode()
            batch = build_batch([NewRecord(key, value, (), cluster.now_ms)], compression=Compression.GZIP)
            logs[number % len(logs)].append_as_leader(bytearray(batch), now_ms=cluster.now_ms, leader_epoch=0)
        for place in places:
            cluster.logs.appended(place)

    kafka._call(write)


def leave_open(world: World) -> None:
    """Leave an open transaction in each partition of the decision topic."""
    identity = transactions.init_producer_id(world.client, unique("others"), transaction_timeout_ms=60_000)
    producer = TransactionalProducer(world.client)
    producer.begin(identity)
    for number in range(DECISION_TOPIC_PARTITIONS):
        batches = encode_batches(
            key=pa.array([b"foreign/x"], pa.binary()),
            value=pa.array([b"{}"], pa.binary()),
            headers=None,
            timestamp_ms=1,
            max_batch_bytes=1_000,
        )
        producer.send(TopicPartition(world.decisions, number), batches)
    producer.flush()


def asked(kafka: EmbeddedBroker, api: str) -> int:
    return len(kafka.requests(api=api))


def test_new_query_reads_its_decision_partition_once_despite_other_decisions(
    kafka: EmbeddedBroker, world: World
) -> None:
    write_others(kafka, world.decisions, OTHERS)
    fetches, looks = asked(kafka, "Fetch"), asked(kafka, "ListOffsets")
    committer = world.committer("run1")
    committer.commit([world.prepare("run1")], 0)
    # The topic's first records, then those of at most two partitions with each request.
    assert asked(kafka, "Fetch") - fetches <= 4
    # Start and end of the first partition, then of at most two, and their ends again: after InitProducerId, and at
    # the first decision.
    assert asked(kafka, "ListOffsets") - looks <= 6
    fetches, looks = asked(kafka, "Fetch"), asked(kafka, "ListOffsets")
    for micro_batch in range(1, 4):
        committer.commit([world.prepare("run1", micro_batch)], micro_batch)
    assert (asked(kafka, "Fetch"), asked(kafka, "ListOffsets")) == (fetches, looks)


def test_open_transactions_of_others_do_not_delay_a_new_query(world: World) -> None:
    """Any client that may write to the topic can leave one in every partition, until its transaction timeout."""
    leave_open(world)
    world.committer("run1").commit([world.prepare("run1")], 0)
    assert world.visible() == ["row of 0"]
    # The marker behind the open transaction proves the decision.
    log = world.log()
    log.scan_again()
    assert log._newest_by_scan(0).run == "run1"


def test_aborted_decision_behind_an_open_transaction_is_ignored(world: World) -> None:
    leave_open(world)
    log = world.log()
    with pytest.raises(Exception, match="too long"):
        log.decide(world.decision(world.prepare("run1")), log.take_over(), decide_by_ms=1)
    [left] = describe_transactions(world.client, [driver_id("p", world.query)]).values()
    assert left.state == "CompleteAbort", "the driver has ended what it does not decide"
    world.committer("run2").commit([world.prepare("run2")], 0)
    assert world.log()._newest_by_scan(0).run == "run2"


def test_created_decision_topic_is_compacted_and_records_its_partitioning(world: World) -> None:
    config = describe_topic_config(world.client, world.decisions)
    assert (config["cleanup.policy"], config["segment.bytes"], config["segment.ms"]) == (
        "compact",
        "67108864",
        "21600000",
    )
    assert (config["max.compaction.lag.ms"], float(config["min.cleanable.dirty.ratio"] or 0)) == ("86400000", 0.1)
    log = world.log()
    assert log._newest_by_scan(0) is None
    assert [place.partition for place in log.scan._starts] == [decision_partition(world.query, 8)]


@pytest.mark.parametrize("is_described", [True, False])
def test_lost_transactions_are_resolved_with_few_requests(
    kafka: EmbeddedBroker, world: World, monkeypatch: pytest.MonkeyPatch, is_described: bool
) -> None:
    prepared = [world.prepare("run1", split=split) for split in range(30)]
    decision = world.decision(*prepared)
    end_all(world.cluster, decision.transactions, commit=False)
    if not is_described:
        monkeypatch.setattr(settlement, "described_fate", lambda *_: None)
    wait_until(lambda: {world.state_of(each) for each in prepared} == {"CompleteAbort"}, "all are aborted")
    before = {api: asked(kafka, api) for api in ("DescribeTransactions", "Fetch", "ListOffsets")}
    assert settle(world.cluster, decision).took_no_effect
    spent = {api: asked(kafka, api) - count for api, count in before.items()}
    assert spent == {"DescribeTransactions": 1, "Fetch": 1, "ListOffsets": 0}
