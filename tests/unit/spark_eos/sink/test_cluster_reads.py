"""What the sink believes of answers about output topics, by brokers of which some say less than others."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import pytest

from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.errors import UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.sink.cluster import KafkaCluster
from tests.support.clocks import StandingClock, runtime_by

ID = UUID(int=1)


class Client(KafkaClient):
    """Has one answer after the other about the topic `t`: its id, and the epoch of its leader."""

    def __init__(self, *answers: tuple[UUID | None, int]) -> None:
        self.clock = StandingClock()
        super().__init__(ClientOptions(("fake:1",)), runtime_by(self.clock))
        self.left = list(answers)

    def metadata(self, *_: Any, **__: Any) -> dict[str, TopicMetadata]:
        topic_id, epoch = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        found = TopicMetadata("t", topic_id, False, 0, {0: PartitionMetadata(0, 1, epoch, 0)})
        return self.recent.note({"t": found}, self.clock.monotonic())

    def back_off(self, *_: Any, **__: Any) -> bool:
        return False


class Cluster(KafkaCluster):
    """A cluster in which any broker is as good as a coordinator."""

    def _topics_near(self, topics: Collection[str], _ids: Collection[str]) -> Mapping[str, TopicMetadata]:
        return self.client.metadata(topics)


def cluster(*answers: tuple[UUID | None, int]) -> KafkaCluster:
    return Cluster(Client(*answers), "decisions")


def test_topic_whose_answers_have_no_id_any_more_is_not_known_to_be_the_same() -> None:
    asked = cluster((ID, 0), (None, 0))
    assert asked.replaced_topics({"t": {ID}}, ["id"]) == []
    with pytest.raises(UnansweredError, match="unknown whether topic 't' was made again since tasks wrote to it"):
        asked.replaced_topics({"t": {ID}}, ["id"])


def test_broker_that_is_cut_off_hides_no_election_from_the_identity_pool() -> None:
    """An id whose transaction may have lost its marker would be used again."""
    asked = cluster((ID, 5), (ID, 4), (None, 4))
    for since in (0.0, 1.0, 2.0):
        assert asked.leader_epochs(["t"], since) == {TopicPartition("t", 0): 5}
        asked.client.runtime.clock.sleep(1)
