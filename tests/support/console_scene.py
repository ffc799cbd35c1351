"""A cluster in which everything that the console shows occurs once, on either broker.

`python -m tests.support.console_scene` runs it until it is interrupted, to look at the console by hand.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker_core import EmbeddedBroker
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import TaskId
from spark_eos.sink.prepared import PreparedTransaction, TopicRows
from spark_eos.sink.protocol.state import QueryRun
from tests.support.hanging import HANGING_SETTINGS, hang, open_up
from tests.support.raw_client import RawClient
from tests.support.raw_session import RawSession
from tests.support.spark_eos.driving import LogOn
from tests.support.spark_eos.prepared_tasks import prepare

DEADLINE_S: Final = 30
PREFIX: Final = "eos-kafka"
TIMEOUT_MS: Final = 600_000
# A transactional id may be any text.
SCRIPT_ID: Final = "<img src=x onerror=\"window.hit='id'\">'\"</script><script>window.hit='script'</script>"
SCRIPT_GROUP: Final = "<svg onload=\"window.hit='group'\">"


@dataclass
class Scene:
    """The names in a cluster."""

    address: str
    tag: str
    open_name: str = SCRIPT_ID
    group_name: str = SCRIPT_GROUP
    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    run: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def orders(self) -> str:
        """Return the topic of the query and of the transactions that stay open."""
        return f"orders.{self.tag}"

    @property
    def decisions(self) -> str:
        """Return the decision topic."""
        return f"decisions.{self.tag}"

    @property
    def hanging_id(self) -> str:
        """Return the transactional id with a transaction that hangs in partition 1."""
        return f"billing-2.{self.tag}"

    @property
    def open_id(self) -> str:
        """Return the transactional id with a transaction that is open in partition 0."""
        return f"{self.open_name}.{self.tag}"

    @property
    def copier_id(self) -> str:
        """Return the transactional id with pending offsets of the group."""
        return f"copier-1.{self.tag}"

    @property
    def group(self) -> str:
        """Return the group that waits for its offsets."""
        return f"{self.group_name}.{self.tag}"


@contextmanager
def staged(address: str, scene: Scene | None = None, *, micro_batches: int = 4) -> Iterator[Scene]:
    """Set the scene; what is open ends at its timeout."""
    scene = scene or Scene(address, uuid.uuid4().hex[:8])
    make_topics(address, {scene.orders: 4, scene.decisions: 8}, compacted=scene.decisions)
    with ExitStack() as stack:
        raw = stack.enter_context(RawClient(address))
        client = stack.enter_context(KafkaClient(ClientOptions((address,))))
        hang(RawSession(raw, scene.hanging_id), scene.orders, partition=1, age_ms=3_600_000)
        open_up(RawSession(raw, scene.open_id), scene.orders, 0)
        copier = RawSession(raw, scene.copier_id)
        identity = open_up(copier, scene.orders, 0)
        assert copier.add_offsets(identity, scene.group) == 0
        assert copier.commit_in_transaction(identity, scene.group, scene.orders, 1, version=3) == 0
        query = SceneQuery(scene, client)
        for number in range(micro_batches):
            query.commit(number)
        query.abort(query.prepare(micro_batches, 0, worker="lost").transaction)
        query.decide(micro_batches)
        yield scene


class SceneQuery:
    """The driver and two tasks of a query of the sink, without Spark; they write to partitions 2 and 3."""

    def __init__(self, scene: Scene, client: KafkaClient) -> None:
        self.scene, self.client = scene, client
        self.cluster = KafkaCluster(client, scene.decisions)
        self.log = LogOn(self.cluster, PREFIX, scene.query, scene.decisions, run=scene.run)
        self.committer = Committer(
            self.cluster, QueryRun(self.log.log, PREFIX, scene.query, scene.run, OnLostTransaction.FAIL)
        )

    def prepare(self, micro_batch: int, task: int, worker: str = "w", rows: int = 50) -> Prepared:
        """Write the rows of one task and leave its transaction open."""
        topic = self.scene.orders
        transaction = prepare(
            self.client,
            TaskId(PREFIX, self.scene.query, self.scene.run, f"{worker}{task}", 0),
            task,
            TopicPartition(topic, 2 + task),
            [f"{micro_batch}-{task}-{row}" for row in range(rows)],
            timeout_ms=TIMEOUT_MS,
            written=[TopicRows(topic, rows, 7919 * (micro_batch + 1) + task)],
        )
        return Prepared(Place(self.scene.query, self.scene.run, micro_batch, task), transaction)

    def commit(self, micro_batch: int) -> None:
        """Write, decide and complete a micro-batch."""
        self.committer.commit([self.prepare(micro_batch, task) for task in (0, 1)], micro_batch)

    def decide(self, micro_batch: int) -> None:
        """Decide a micro-batch and end no transaction, like a driver that is killed at that point."""
        found = tuple(self.prepare(micro_batch, task).transaction for task in (0, 1))
        now_ms = int(time.time() * 1000)
        decision = Decision(PREFIX, self.scene.query, self.scene.run, micro_batch, 1, len(found), now_ms, found)
        self.log.decide(decision, self.log.take_over())

    def abort(self, orphan: PreparedTransaction) -> None:
        """Abort a transaction that no decision names, as a sweep does."""
        self.cluster.end_transactions([orphan.opened], commit=False)


def make_topics(address: str, partitions: dict[str, int], *, compacted: str = "") -> None:
    """Create topics and wait until they exist."""
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics(
        [
            NewTopic(name, count, 1, config={"cleanup.policy": "compact"} if name == compacted else {})
            for name, count in partitions.items()
        ]
    )
    for each in made.values():
        each.result(DEADLINE_S)


def main() -> None:
    """Run a broker with the scene, and a query that goes on."""
    with EmbeddedBroker(config=HANGING_SETTINGS) as kafka, staged(kafka.bootstrap_servers) as scene:
        print(
            f".venv/bin/eos-kafka console --bootstrap-server {scene.address} --decision-topic {scene.decisions} "
            "--allow-changes",
            flush=True,
        )
        with KafkaClient(ClientOptions((scene.address,))) as client:
            live = SceneQuery(Scene(scene.address, scene.tag), client)
            number = 0
            while True:
                live.commit(number)
                number += 1
                threading.Event().wait(1.5)


if __name__ == "__main__":
    main()
