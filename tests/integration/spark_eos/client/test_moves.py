"""Leaders and coordinators move during a transaction; throttling, and the memory of a waiting transaction."""

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from kafka.net.connection import KafkaConnection

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.group_offsets import OffsetAndMetadata, fetch_offsets, txn_offset_commit
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import metadata_request
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import end_txn, end_txns, init_producer_id
from spark_eos.errors import UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.sink.messages import Place
from spark_eos.sink.task.identity_pool import IdentityPool
from spark_eos.sink.task.transaction import TaskTransaction
from spark_eos.sink.task.writer import TaskWriter
from tests.support.spark_eos.client_world import FakeClient, encoded, make_topic, produced, read_values, unique
from tests.support.spark_eos.sink_cluster import MemoryCluster
from tests.support.waiting import wait_until

BROKERS = (1, 2, 3)
SETTINGS = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"}


@pytest.fixture(scope="module", params=[2, 1], ids=["TV2", "TV1"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3, transaction_version=request.param, config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[KafkaClient]:
    with KafkaClient(ClientOptions(tuple(broker.bootstrap_servers.split(",")))) as client:
        yield client


def begin(client: KafkaClient) -> tuple[OpenTransaction, TransactionalProducer]:
    identity = init_producer_id(client, unique("id"), transaction_timeout_ms=60_000)
    producer = TransactionalProducer(client)
    producer.begin(identity)
    return identity, producer


def another(node_id: int) -> int:
    return BROKERS[node_id % len(BROKERS)]


def test_leaders_move_while_requests_carry_many_partitions(broker: EmbeddedBroker, client: KafkaClient) -> None:
    topic = make_topic(client, 30)
    identity, producer = begin(client)
    for turn in range(4):
        for number in range(30):
            producer.send(TopicPartition(topic, number), encoded([f"{turn}a", f"{turn}b"]))
        if turn % 2:
            producer.flush()
        for number in range(turn, 30, 4):
            place = TopicPartition(topic, number)
            broker.move_leader(place, another(broker.leader(place)))
    assert {result.record_count for result in producer.flush().values()} == {8}
    assert producer.retries > 0
    assert end_txn(client, identity, commit=True).code == 0
    expected = [[f"{turn}{letter}" for turn in range(4) for letter in "ab"]] * 30
    wait_until(lambda: read_values(broker.bootstrap_servers, topic) == expected, "all rows are visible in order")


def test_coordinators_that_move_between_prepare_and_commit_are_found_again(
    broker: EmbeddedBroker, client: KafkaClient
) -> None:
    topic, group = make_topic(client), unique("group")
    place = TopicPartition(topic, 0)
    prepared = []
    for number in range(4):
        identity, producer = begin(client)
        producer.send(place, encoded([str(number)]))
        producer.flush()
        txn_offset_commit(client, identity, f"{group}{number}", {place: OffsetAndMetadata(number)})
        prepared.append(identity)
    for number, identity in enumerate(prepared):
        now = broker.coordinator(transactional_id=identity.transactional_id)
        broker.move_coordinator(another(now), transactional_id=identity.transactional_id)
        broker.move_coordinator(another(broker.coordinator(group=f"{group}{number}")), group=f"{group}{number}")
    described = describe_transactions(client, [each.transactional_id for each in prepared])
    assert {each.state for each in described.values()} == {"Ongoing"}
    results = end_txns(client, prepared, commit=True)
    assert {result.code for result in results.values()} == {0}
    for number in range(4):
        assert fetch_offsets(client, f"{group}{number}", [place])[place].offset == number
    wait_until(lambda: read_values(broker.bootstrap_servers, topic) == [["0", "1", "2", "3"]], "all are visible")


def test_coordinator_that_moves_while_partitions_are_added_is_found_again(
    broker: EmbeddedBroker, client: KafkaClient
) -> None:
    topic = make_topic(client, 2)
    identity, producer = begin(client)
    for partition in range(2):
        now = broker.coordinator(transactional_id=identity.transactional_id)
        broker.move_coordinator(another(now), transactional_id=identity.transactional_id)
        producer.send(TopicPartition(topic, partition), encoded([str(partition)]))
        producer.flush()
    assert end_txn(client, identity, commit=True).code == 0
    wait_until(lambda: read_values(broker.bootstrap_servers, topic) == [["0"], ["1"]], "all are visible")


def test_throttled_client_pauses_for_the_throttle_time(kafka_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        _check_silence(client, monkeypatch)


def _check_silence(client: KafkaClient, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = make_topic(client)
    throttled_at: list[float] = []
    sent_at: list[float] = []
    throttle, send = KafkaConnection._maybe_throttle, KafkaConnection.send_request

    def throttle_once(connection: Any, response: Any) -> None:
        if type(response).__name__.startswith("ProduceResponse") and not throttled_at:
            response.throttle_time_ms = 700
            throttled_at.append(time.monotonic())
        throttle(connection, response)

    def watch(connection: Any, request: Any, **more: Any) -> Any:
        if type(request).__name__.startswith("ProduceRequest"):
            sent_at.append(time.monotonic())
        return send(connection, request, **more)

    identity, producer = begin(client)
    monkeypatch.setattr(KafkaConnection, "_maybe_throttle", throttle_once)
    monkeypatch.setattr(KafkaConnection, "send_request", watch)
    producer.send(TopicPartition(topic, 0), encoded(["a"]) + encoded(["b"]))
    assert producer.flush()[TopicPartition(topic, 0)].record_count == 2
    later = [at - throttled_at[0] for at in sent_at if at > throttled_at[0]]
    assert min(later) >= 0.7
    end_txn(client, identity, commit=False)


def test_error_of_a_request_that_a_quota_holds_back_names_the_quota() -> None:
    with EmbeddedBroker() as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        with kafka.throttle(60, api="Metadata"):
            client.metadata([])
        with pytest.raises(UnansweredError, match=r"broker 1 throttles this client, .* for another (5\d|60) s"):
            client.send(1, metadata_request([]), timeout_ms=50)


class _Late:
    """An exchange that ends when its caller waits for it, as over a slow network."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.exception = None
        self.is_done = False


class _SlowNetwork:
    """A network that delivers no response until a caller waits."""

    def __init__(self) -> None:
        self.started: list[_Late] = []
        self.waits = 0

    def poll(self, timeout_ms: float) -> None:
        """Deliver nothing."""

    def wait(self, pending: Any, deadline: float) -> None:
        """Deliver every response."""
        self.wait_any(pending, deadline)

    def wait_any(self, pending: Any, until: float) -> None:
        """Deliver the responses to all exchanges started so far."""
        self.waits += 1
        for each in self.started:
            each.is_done = True
        self.started.clear()

    def pause(self, seconds: float) -> None:
        """Return at once."""


class _SlowClient(FakeClient):
    """A cluster whose leaders accept everything, late."""

    def __init__(self, partitions: int) -> None:
        super().__init__("t", partitions, ())
        self.slow = _SlowNetwork()
        self.transport = self.slow  # type: ignore[assignment]
        self.offset = 0

    def start(self, leader: int, request: Any, deadline: float) -> Any:
        """Start an exchange without keeping a copy of the data."""
        late = _Late(produced(_sent(request), 0, self.offset))
        self.offset += 1_000_000
        self.slow.started.append(late)
        return late


def _sent(request: Any) -> Any:
    class Sent:
        batches = {
            TopicPartition(topic.name, each.index): b"" for topic in request.topic_data for each in topic.partition_data
        }

    return Sent


@pytest.mark.parametrize("partitions", [1, 8])
def test_partition_of_any_size_passes_through_the_buffer(partitions: int) -> None:
    """Spark's partition is 12 times the buffer; peak memory stays near the buffer, including Arrow's part."""
    buffer_bytes, chunk_rows, row_bytes = 1_000_000, 1_000, 500
    client = _SlowClient(partitions)
    options = SinkOptions(
        client.options, topic="t", transaction_timeout_ms=60_000, buffer_bytes=buffer_bytes, batch_bytes=200_000
    )
    cluster = MemoryCluster()
    cluster.partition_count = lambda topic: partitions  # type: ignore[method-assign]
    transaction = TaskTransaction(client, options)  # type: ignore[arg-type]
    writer = TaskWriter(
        options, Place("q", "r", 0, 0), cluster, IdentityPool(cluster, "p", "q", "r", "w"), transaction, None
    )
    unit = pa.array([bytes(row_bytes)] * chunk_rows, pa.binary())
    keys = pa.array([str(number) for number in range(chunk_rows)])
    chunks = 12 * buffer_bytes // (chunk_rows * row_bytes)
    arrow_peak = [0]

    def rows() -> Iterator[pa.RecordBatch]:
        for _ in range(chunks):
            arrow_peak[0] = max(arrow_peak[0], pa.total_allocated_bytes())
            yield pa.record_batch({"key": keys, "value": unit})

    arrow_before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        message = writer.write(rows())
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message.transaction.record_count == chunks * chunk_rows  # type: ignore[union-attr]
    assert message.size_bytes > 12 * buffer_bytes  # type: ignore[union-attr]
    held = python_peak + arrow_peak[0] - arrow_before
    # Brokers of other tests run in this process too. Without the limit, the task would keep more than 12 buffers.
    assert held < 6 * buffer_bytes, held
