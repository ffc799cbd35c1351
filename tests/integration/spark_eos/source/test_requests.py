"""The requests of the source, in a steady query and in one task; none may grow without need."""

import gc
import logging
import pickle
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from kafka.protocol.metadata import MetadataResponse
from pyspark import cloudpickle

from broker_core import Disconnect, EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace
from spark_eos.client.response_decoders import FilteredMetadataRequest
from spark_eos.options.client import ClientOptions
from spark_eos.options.positions import EARLIEST
from spark_eos.options.source import batch_options
from spark_eos.runtime import REAL, ProcessState
from spark_eos.source import doubted_partitions, driver_side, lag, range_reader, spark_readers
from spark_eos.source.offsets import OffsetRange
from spark_eos.source.range_reader import read_range
from spark_eos.source.schema import source_schema
from tests.support.clocks import StandingClock, runtime_by
from tests.support.spark_eos.source_data import DEADLINE_SECONDS, add_partitions, delete_topic, send_plain
from tests.support.spark_eos.source_query import Query, offsets_in, running

# As many triggers and partitions as show a request for each of them.
BROKERS, PARTITIONS, TRIGGERS = 3, 60, 10
OURS = {"kafka.client.id": "requests-of-ours"}
# Longer than any test.
NEVER_OLD = {"kafka.metadata.max.age.ms": "3600000"}


@pytest.fixture(autouse=True)
def look_at_the_lag_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_LONGEST_PAUSE_SECONDS", 3_600.0)


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> ProcessState:
    """Start without clients of other tests."""
    state = ProcessState(REAL)
    monkeypatch.setattr(range_reader, "process_state", lambda: state)
    return state


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[EmbeddedBroker, str, int]]:
    with EmbeddedBroker(brokers=BROKERS, requests_kept=50_000, topics={"many": PARTITIONS}) as kafka:
        yield kafka, "many", PARTITIONS


def counted(kafka: EmbeddedBroker, work: Callable[[], object]) -> Counter[str]:
    """Count the requests of a function by name."""
    before = len(kafka.requests(client_id=OURS["kafka.client.id"]))
    work()
    return Counter(each.api for each in kafka.requests(client_id=OURS["kafka.client.id"])[before:])


def steady(kafka: EmbeddedBroker, topic: str, **options: str) -> Query:
    """Start a query and run two triggers, so that it has checked its lag and has all its connections."""
    query = Query(kafka.bootstrap_servers, subscribe=topic, startingOffsets="latest", lagWarningAfter="10h",
                  **OURS | NEVER_OLD | options)  # fmt: skip
    query.trigger()
    query.trigger()
    return query


def fill(kafka: EmbeddedBroker, topic: str, partitions: int) -> None:
    """Write a record to each partition."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in range(partitions):
        producer.produce(topic, b"v", partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def test_idle_trigger_queries_each_leader_once(cluster: tuple[EmbeddedBroker, str, int]) -> None:
    kafka, topic, _ = cluster
    query = steady(kafka, topic)
    assert counted(kafka, lambda: [query.trigger() for _ in range(TRIGGERS)]) == {"ListOffsets": TRIGGERS * BROKERS}
    query.reader.stop()


def test_topic_metadata_is_cached_no_longer_than_configured(cluster: tuple[EmbeddedBroker, str, int]) -> None:
    kafka, topic, _ = cluster
    query = steady(kafka, topic, **{"kafka.metadata.max.age.ms": "0"})
    asked = counted(kafka, lambda: [query.trigger() for _ in range(TRIGGERS)])
    assert asked == {"ListOffsets": TRIGGERS * BROKERS, "Metadata": TRIGGERS}
    query.reader.stop()


def test_planning_a_micro_batch_requests_topics_and_ends_once(cluster: tuple[EmbeddedBroker, str, int]) -> None:
    kafka, topic, _ = cluster
    query = steady(kafka, topic)

    def plan() -> None:
        send_plain(kafka.bootstrap_servers, topic, "a")
        end = query.end()
        assert query.reader.partitions(query.position, end)
        query.position = end

    # An idle query reads the metadata again, with the present partitions, when there is data.
    assert counted(kafka, plan) == {"ListOffsets": 2 * BROKERS, "Metadata": 1}
    asked = counted(kafka, lambda: [plan() for _ in range(TRIGGERS)])
    assert asked == {"ListOffsets": TRIGGERS * BROKERS, "Metadata": TRIGGERS}
    query.reader.stop()


def test_batch_read_is_planned_with_the_metadata_of_three_brokers(cluster: tuple[EmbeddedBroker, str, int]) -> None:
    kafka, topic, _ = cluster
    send_plain(kafka.bootstrap_servers, topic, "a")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | OURS
    reader = spark_readers.BatchReader(options, source_schema(False))
    asked = counted(kafka, reader.partitions)
    # Both ends of the partitions, and their high watermarks; the fourth Metadata finds the brokers.
    assert asked.pop("ApiVersions") <= 1 + BROKERS
    assert asked == {"ListOffsets": 3 * BROKERS, "Metadata": 4}


def test_tasks_of_one_process_share_connections(cluster: tuple[EmbeddedBroker, str, int]) -> None:
    kafka, topic, partitions = cluster
    query = steady(kafka, topic)
    fill(kafka, topic, partitions)
    query.trigger()
    fill(kafka, topic, partitions)
    end = query.end()
    pieces = pickle.loads(cloudpickle.dumps(query.reader.partitions(query.position, end)))
    assert len(pieces) == partitions
    task = pickle.loads(cloudpickle.dumps(query.reader))

    def read() -> None:
        assert sum(batch.num_rows for piece in pieces for batch in task.read(piece)) == partitions

    assert counted(kafka, read) == {"Fetch": partitions}, "the tasks before have opened the connections"
    query.reader.stop()


def test_failing_task_leaks_no_client(process: ProcessState, cluster: tuple[EmbeddedBroker, str, int]) -> None:
    kafka, _topic, _ = cluster
    options = ClientOptions(tuple(kafka.bootstrap_servers.split(",")))
    with pytest.raises(ValueError, match="mid"), range_reader.task_client(process, options) as failing:
        failing.connect()
        raise ValueError("mid")
    with range_reader.task_client(process, options) as first, range_reader.task_client(process, options) as second:
        assert first is not second
        assert first is not failing
    with range_reader.task_client(process, options) as again:
        assert again in (first, second)


def test_cached_connection_closed_by_the_broker_loses_no_rows() -> None:
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        send_plain(kafka.bootstrap_servers, "t", "abc")
        options = batch_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "t"} | OURS)
        piece = OffsetRange("t", 0, 0, 3)
        for outage in (kafka.restart, lambda: kafka.fault(api="Fetch", action=Disconnect(), times=1), kafka.restart):
            assert sum(batch.num_rows for batch in read_range(piece, options)) == 3
            outage()
        assert sum(batch.num_rows for batch in read_range(piece, options)) == 3


def test_idle_clients_are_limited_in_number_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[KafkaClient] = []
    clock = StandingClock()
    process = ProcessState(runtime_by(clock))
    monkeypatch.setattr(KafkaClient, "close", lambda client: closed.append(client))
    for number in range(20):
        with range_reader.task_client(process, ClientOptions((f"127.0.0.1:{number + 1}",))):
            pass
    assert len(closed) == 12
    clock.sleep(61)
    with range_reader.task_client(process, ClientOptions(("127.0.0.1:20",))) as client:
        assert client not in closed
    assert len(closed) == 20


# Long runs


class BusyCluster:
    """A cluster that grows with every check, and in which one of two topics comes and goes."""

    def __init__(self) -> None:
        self.clock = REAL.clock
        self.looks = 0

    def places_matching(self, wanted: Callable[[str], bool]) -> dict[TopicPartition, PartitionPlace]:
        names = ["lines", f"lines-{self.looks // 20}"]
        return {TopicPartition(name, 0): PartitionPlace(UUID(int=7), 1, self.looks // 100) for name in names}

    def places(self, topics: Collection[str]) -> dict[TopicPartition, PartitionPlace]:
        return {tp: place for tp, place in self.places_matching(bool).items() if tp.topic in topics}

    def offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int | None]:
        self.looks += 1
        there = self.places_matching(bool)
        return {tp: 0 if edge == EARLIEST else self.looks for tp, edge in timestamps_ms.items() if tp in there}

    def from_each_broker(self, topics: Collection[str]) -> list[dict[str, TopicMetadata]]:
        there = self.places_matching(bool)
        only = PartitionMetadata(0, 1, 4, 0)
        found = {name: {0: only} if TopicPartition(name, 0) in there else {} for name in topics}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [{
            topic: TopicMetadata(topic, None, False, ErrorCode.NONE if each else unknown, each)
            for topic, each in found.items()
        }]  # fmt: skip

    def answered_epoch(self, _: TopicPartition) -> int:
        return self.looks // 100

    def epoch_ends(self, leader_epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(leader_epochs, 2**60)


def test_ten_thousand_triggers_leak_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = BusyCluster()
    monkeypatch.setattr(doubted_partitions, "MISSING_TOPIC_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(driver_side, "OffsetLookup", lambda _: cluster)
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1", "subscribePattern": "lines.*", "startingOffsets": "earliest",
        "failOnDataLoss": "false", "fetchOffset.retryIntervalMs": "0", "kafka.metadata.max.age.ms": "1",
    }  # fmt: skip
    logging.getLogger("spark_eos").setLevel(logging.CRITICAL)
    reader = spark_readers.StreamReader(options, source_schema(False))
    position: dict[str, Any] = reader.initialOffset()

    def objects_after(triggers: int) -> int:
        nonlocal position
        for _ in range(triggers):
            end = reader.latestOffset(position, reader.getDefaultReadLimit())
            reader.partitions(position, end)
            position = end
        gc.collect()
        return len(gc.get_objects())

    try:
        before = objects_after(1_000)
        assert objects_after(9_000) < before + 200
    finally:
        logging.getLogger("spark_eos").setLevel(logging.NOTSET)
        reader.stop()


# Patterns


def test_pattern_lists_all_topics_periodically_and_requests_matching_ones(
    cluster: tuple[EmbeddedBroker, str, int],
) -> None:
    kafka, topic, _ = cluster
    query = Query(kafka.bootstrap_servers, subscribePattern=f"{topic}|nothing.*", startingOffsets="latest",
                  lagWarningAfter="10h", **OURS | NEVER_OLD)  # fmt: skip
    query.trigger()
    query.trigger()
    assert counted(kafka, lambda: [query.trigger() for _ in range(TRIGGERS)]) == {"ListOffsets": TRIGGERS * BROKERS}
    send_plain(kafka.bootstrap_servers, topic, "a")
    asked = counted(kafka, query.end)
    assert asked == {"ListOffsets": 2 * BROKERS, "Metadata": 1}
    query.reader.stop()


def test_pattern_finds_new_topics_and_partitions_within_the_metadata_age() -> None:
    with EmbeddedBroker(topics={"lines-a": 1, "other": 1}) as kafka:
        address = kafka.bootstrap_servers
        fresh = {"kafka.metadata.max.age.ms": "0", "startingOffsets": "earliest"}
        with running(address, subscribePattern="lines-.*", **fresh) as query:
            assert query.trigger() == []
            kafka.create_topic("lines-b", 1)
            add_partitions(address, "lines-a", 2)
            for name, partition in (("lines-a", 1), ("lines-b", 0), ("other", 0)):
                send_plain(address, name, [name], partition=partition)
            assert [row[:2] for row in query.trigger()] == [("lines-a", 1), ("lines-b", 0)]
        with running(address, subscribePattern="lines-.*", startingOffsets="earliest", **NEVER_OLD) as query:
            assert len(query.trigger()) == 2
            kafka.create_topic("lines-c", 1)
            send_plain(address, "lines-c", "c")
            assert query.trigger() == [], "found when the age is over"


def test_deleted_topic_of_a_pattern_is_dropped_without_a_new_listing() -> None:
    with EmbeddedBroker(topics={"lines-a": 1, "lines-b": 1}) as kafka:
        address = kafka.bootstrap_servers
        send_plain(address, "lines-a", "a")
        options = {"startingOffsets": "earliest", "failOnDataLoss": "false"} | NEVER_OLD
        with running(address, subscribePattern="lines-.*", **options) as query:
            assert len(query.trigger()) == 1
            delete_topic(address, "lines-b")
            send_plain(address, "lines-a", "a")
            assert len(query.trigger()) == 1
            assert offsets_in(query.position) == {"lines-a": {"0": 2}}
            driver = query.reader._driver
            assert driver.planner.ends.keys() == driver.planner.places.keys() == {TopicPartition("lines-a", 0)}


# Cached metadata


# Of the partitions in turn, in number.
REPLICAS = (0, 3, 150)


def metadata_answer(version: int, topics: dict[str, int]) -> bytes:
    form = MetadataResponse.MetadataResponseTopic
    described = [
        form(
            version=version, error_code=0, name=name, topic_id=UUID(int=number), is_internal=name.startswith("__"),
            partitions=[
                form.MetadataResponsePartition(
                    version=version, error_code=0, partition_index=partition, leader_id=partition % 3, leader_epoch=7,
                    replica_nodes=list(range(REPLICAS[partition % 3])), isr_nodes=[0, 1], offline_replicas=[])
                for partition in range(count)
            ])
        for number, (name, count) in enumerate(topics.items(), 1)
    ]  # fmt: skip
    brokers = [MetadataResponse.MetadataResponseBroker(version=version, node_id=node, host=f"host{node}", port=9092,
                                                       rack=None if node else "r") for node in range(3)]  # fmt: skip
    response = MetadataResponse(version=version, throttle_time_ms=3, brokers=brokers, cluster_id="c", controller_id=1,
                                topics=described)  # fmt: skip
    return bytes(response.encode())


TOPICS = {"a": 2, "__consumer_offsets": 1, "wanted-1": 200, "b" * 200: 0, "wanted-2": 1}


@pytest.mark.parametrize("version", range(4, 14))
def test_matching_topics_are_parsed_from_every_metadata_version(version: int) -> None:
    request = FilteredMetadataRequest(None, re.compile("wanted-.").fullmatch)  # type: ignore[arg-type]
    read = request.read_response(version, memoryview(metadata_answer(version, TOPICS)))
    assert [broker.host for broker in read.cluster.brokers] == ["host0", "host1", "host2"]
    assert read.cluster.topics == []
    assert read.throttle_time_ms == 3
    assert list(read.topics) == ["wanted-1", "wanted-2"]
    first = read.topics["wanted-1"]
    assert first.topic_id == (UUID(int=3) if version >= 10 else None)
    assert list(first.partitions) == [each.partition for each in first.partitions.values()] == list(range(200))
    assert {each.leader for each in first.partitions.values()} == {0, 1, 2}
    assert {each.leader_epoch for each in first.partitions.values()} == {7 if version >= 7 else -1}


def test_truncated_or_modified_metadata_is_refused_or_read() -> None:
    whole = metadata_answer(12, {"wanted-1": 2, "x": 2})
    request = FilteredMetadataRequest(None, lambda name: name == "wanted-1")
    for size in range(len(whole)):
        with pytest.raises(Exception):  # noqa: B017 (the reader of answers names them)
            request.read_response(12, memoryview(whole[:size]))
    for position in range(len(whole)):
        for byte in (0, 0x7F, 0xFF):
            changed = bytearray(whole)
            changed[position] = byte
            try:
                request.read_response(12, memoryview(changed))
            except MemoryError:
                raise
            except Exception:
                continue


def test_only_matching_topics_of_the_cluster_are_kept() -> None:
    with EmbeddedBroker(topics={f"t{number}": 3 for number in range(200)}) as kafka:
        with KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
            lookup = OffsetLookup(client)
            found = lookup.places_matching(re.compile("t1.").fullmatch)  # type: ignore[arg-type]
            assert {tp.topic for tp in found} == {f"t1{number}" for number in range(10)}
            assert found == lookup.places([f"t1{number}" for number in range(10)])
            assert lookup.places_matching(lambda _: False) == {}
