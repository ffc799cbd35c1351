"""The tasks and drivers of one query on a real broker, without Spark."""

import time

from broker_core.types import TopicPartition
from spark_eos.client import transactions
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.driver.decision_log import DecisionLog
from spark_eos.sink.driver.decision_writer import DecisionWriter
from spark_eos.sink.messages import Prepared, PreparedTransaction, WrittenRange
from spark_eos.sink.naming import TaskId
from tests.support.spark_eos.client_world import encoded, make_topic, read_values, unique

PLACE = 0


class World:
    """The tasks and drivers of one query on a broker."""

    def __init__(self, address: str, client: KafkaClient) -> None:
        self.address = address
        self.client = client
        self.topic = make_topic(client)
        self.decisions = make_topic(client, 4, cleanup_policy="compact")
        self.query = unique("query")
        self.cluster = self.cluster_of(self.decisions)

    def cluster_of(self, decisions: str) -> KafkaCluster:
        return KafkaCluster(self.client, decisions, DecisionWriter)

    def log(self, decisions: str | None = None) -> DecisionLog:
        topic = decisions or self.decisions
        return DecisionLog(self.cluster_of(topic), "p", self.query, topic)

    def committer(self, run: str) -> Committer:
        return Committer(self.cluster, self.log(), "p", self.query, run, OnLostTransaction.FAIL)

    def prepare(self, run: str, micro_batch: int = 0, split: int = 0, timeout_ms: int = 60_000) -> Prepared:
        name = str(TaskId("p", self.query, run, "w", split))
        identity = transactions.init_producer_id(self.client, name, transaction_timeout_ms=timeout_ms)
        producer = TransactionalProducer(self.client)
        producer.begin(identity)
        place = TopicPartition(self.topic, PLACE)
        producer.send(place, encoded([f"row of {micro_batch}"]))
        result = producer.flush()[place]
        transaction = PreparedTransaction(
            split,
            name,
            identity.producer_id,
            identity.producer_epoch,
            identity.transaction_version,
            timeout_ms,
            int(time.time() * 1000),
            (WrittenRange(self.topic, PLACE, result.first_offset, result.last_offset, 1),),
        )
        return Prepared(self.query, run, micro_batch, split, transaction)

    def decision(self, *prepared: Prepared) -> Decision:
        found = tuple(each.transaction for each in prepared)
        return Decision("p", self.query, prepared[0].run, prepared[0].micro_batch, 1, len(found), 0, found)

    def visible(self) -> list[str]:
        return read_values(self.address, self.topic)[PLACE]

    def state_of(self, prepared: Prepared) -> str:
        name = prepared.transaction.transactional_id
        return describe_transactions(self.client, [name])[name].state
