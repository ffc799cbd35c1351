"""The requests of a task, whose number must not grow with partitions, topics or earlier tasks."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from broker_core import EmbeddedBroker
from broker_core.broker.request_log import RequestSeen
from broker_core.errors import ErrorCode
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.task.identity_pool import IdentityPool
from spark_eos.sink.task.partitioning import DataError
from spark_eos.sink.task.transaction import TaskTransaction
from spark_eos.sink.task.writer import TaskWriter
from tests.support.clocks import AheadClock, runtime_by
from tests.support.spark_eos.client_world import unique
from tests.support.spark_eos.source_data import add_partitions

BROKERS = 3
SETTINGS = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5"}


@pytest.fixture(scope="module", params=[2, 1], ids=["TV2", "TV1"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=BROKERS, transaction_version=request.param, config=SETTINGS) as broker:
        yield broker


@pytest.fixture
def worker(broker: EmbeddedBroker) -> Iterator["Worker"]:
    with Worker(broker) as worker:
        yield worker


class Worker:
    """A worker process that writes one task after another, and its requests since the last count."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.name = unique("worker")
        options = ClientOptions(tuple(broker.bootstrap_servers.split(",")), client_id=self.name)
        # On a busy machine, a broker that is late would be looked up again.
        self.clock = AheadClock()
        self.clock.stand()
        self.client = KafkaClient(options, runtime_by(self.clock))
        self.cluster = KafkaCluster(self.client, "decisions")
        self.pool = IdentityPool(self.cluster, "p", unique("q"), "r", "w")
        self.counted = Counter[str]()
        self.tasks = 0

    def __enter__(self) -> "Worker":
        self.client.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def write(self, batches: Sequence[pa.RecordBatch], topic: str | None = None, **settings: int) -> Prepared:
        options = SinkOptions(self.client.options, topic=topic, transaction_timeout_ms=60_000, **settings)
        self.tasks += 1
        self.clock.ahead_seconds += 1
        task = TaskWriter(
            options,
            Place("q", "r", self.tasks, 0),
            self.cluster,
            self.pool,
            TaskTransaction(self.client, options),
            None,
        )
        message = task.write(iter(batches))
        assert isinstance(message, Prepared)
        return message

    def make_topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic that is new to the worker."""
        name = unique("topic")
        self.broker.create_topic(name, partitions, {key.replace("_", "."): value for key, value in config.items()})
        return name

    def seen(self, api: str) -> list[RequestSeen]:
        return self.broker.requests(client_id=self.name, api=api)

    def asked(self) -> Counter[str]:
        """Count the requests by API since the last call."""
        seen = Counter(each.api for each in self.broker.requests(client_id=self.name))
        new, self.counted = seen - self.counted, seen
        return new


def rows(count: int, **columns: object) -> pa.RecordBatch:
    return pa.record_batch({"key": [str(n) for n in range(count)], "value": ["v" * 50] * count, **columns})


@pytest.mark.parametrize("partitions", [1, 300])
def test_task_sends_one_request_per_broker_for_any_number_of_partitions(worker: Worker, partitions: int) -> None:
    topic = worker.make_topic(partitions)
    batches = [rows(1_000) for _ in range(5)]
    worker.asked()
    for _ in range(3):
        message = worker.write(batches, topic, partition_count=partitions)
        # A few partitions are the hash of no key, by chance.
        assert len(message.transaction.ranges) >= 0.9 * partitions and message.transaction.record_count == 5_000
        asked = worker.asked()
        assert asked["Produce"] == min(partitions, BROKERS)
        # Each is in a micro-batch of its own: another leader may have been elected.
        assert asked["Metadata"] == 1
        assert asked["AddPartitionsToTxn"] == (worker.client.transaction_version() < 2)


def test_thousand_topics_are_requested_together_once_for_a_micro_batch(worker: Worker) -> None:
    names = [worker.make_topic() for _ in range(1_000 if worker.client.transaction_version() == 2 else 50)]
    batches = [rows(len(names), topic=names) for _ in range(3)]
    worker.asked()
    for _ in range(2):
        assert worker.write(batches).transaction.record_count == 3 * len(names)
        asked = worker.asked()
        assert asked["Metadata"] == 1 and asked["Produce"] == BROKERS
        assert asked["AddPartitionsToTxn"] == (worker.client.transaction_version() < 2)


def test_keyless_rows_do_not_request_leaders_separately(worker: Worker) -> None:
    names = [worker.make_topic(2) for _ in range(20)]
    value = pa.record_batch({"topic": names * 10, "value": ["v"] * 200})
    worker.asked()
    for _ in range(2):
        worker.write([value] * 3)
        assert worker.asked()["Metadata"] == 1


def test_newly_added_partition_is_found_and_an_unknown_one_refused(worker: Worker) -> None:
    topic = worker.make_topic(2)
    worker.write([rows(5)], topic)
    add_partitions(worker.broker.bootstrap_servers, topic, 4)
    named = rows(4, partition=pa.array([0, 1, 2, 3], pa.int32()))
    assert len(worker.write([named], topic).transaction.ranges) == 4
    with pytest.raises(DataError, match=r"has the value 4 for topic .* which has 4 partitions"):
        worker.write([rows(1, partition=pa.array([4], pa.int32()))], topic)


def test_batch_size_refused_by_a_topic_is_tried_once(worker: Worker) -> None:
    topic = worker.make_topic(max_message_bytes=str(64 * 1024))
    wide = pa.record_batch({"value": ["x" * 1_000] * 4_000})
    refusals = []
    for _ in range(2):
        assert worker.write([wide], topic).transaction.record_count == 4_000
        refusals.append(sum(ErrorCode.MESSAGE_TOO_LARGE in each.error_codes for each in worker.seen("Produce")))
    # Half a MiB, a quarter, ... until a batch fits.
    assert refusals == [4, 4], "no batch size was refused twice"
