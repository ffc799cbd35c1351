"""The tasks and drivers of one query on a real broker, without Spark."""

from broker_core.types import TopicPartition
from spark_eos.client.inspection import describe_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.sink import OnLostTransaction
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.decision import Decision
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.messages import Place, Prepared
from spark_eos.sink.naming import TaskId
from spark_eos.sink.protocol.state import QueryRun
from tests.support.spark_eos.client_world import make_topic, read_values, unique
from tests.support.spark_eos.driving import LogOn
from tests.support.spark_eos.prepared_tasks import prepare

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
        return KafkaCluster(self.client, decisions)

    def log(self, decisions: str | None = None) -> LogOn:
        topic = decisions or self.decisions
        return LogOn(self.cluster_of(topic), "p", self.query, topic)

    def committer(self, run: str) -> Committer:
        return Committer(self.cluster, QueryRun(self.log().log, "p", self.query, run, OnLostTransaction.FAIL))

    def prepare(self, run: str, micro_batch: int = 0, split: int = 0, timeout_ms: int = 60_000) -> Prepared:
        place = TopicPartition(self.topic, PLACE)
        task_id = TaskId("p", self.query, run, "w", split)
        transaction = prepare(self.client, task_id, split, place, [f"row of {micro_batch}"], timeout_ms=timeout_ms)
        return Prepared(Place(self.query, run, micro_batch, split), transaction)

    def decision(self, *prepared: Prepared) -> Decision:
        found = tuple(each.transaction for each in prepared)
        return Decision("p", self.query, prepared[0].place.run, prepared[0].place.micro_batch, 1, len(found), 0, found)

    def visible(self) -> list[str]:
        return read_values(self.address, self.topic)[PLACE]

    def state_of(self, prepared: Prepared) -> str:
        name = prepared.transaction.transactional_id
        return describe_transactions(self.client, [name])[name].state
