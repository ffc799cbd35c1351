"""What a producer takes over from the brokers' answers about a topic that it knows."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from broker_core.types import TopicPartition
from spark_eos.client.leaders import Leaders
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata
from spark_eos.options.client import client_options

OLD, NEW = UUID(int=5), UUID(int=6)


def topic(topic_id: UUID | None, partitions: int = 2, leader: int = 1) -> TopicMetadata:
    found = {number: PartitionMetadata(number, leader, 0, 0) for number in range(partitions)}
    return TopicMetadata("t", topic_id, False, 0, found)


class Client:
    """The answers to requests for metadata, in order."""

    options = client_options({"kafka.bootstrap.servers": "127.0.0.1:1"})

    def __init__(self, answers: Sequence[TopicMetadata]) -> None:
        self._answers = list(answers)

    def deadline(self, _timeout_ms: int) -> float:
        return 0.0

    def require_topics(self, _topics: Any, **_: Any) -> dict[str, TopicMetadata]:
        return {"t": self._answers.pop(0)}

    metadata = require_topics


@pytest.mark.parametrize(("answers", "topic_id", "is_replaced"), [
    ([OLD, NEW], OLD, False),
    ([OLD, NEW, NEW], NEW, True),
    ([OLD, NEW, OLD, NEW], OLD, False),
    # A cluster of which only some brokers have topic ids.
    ([OLD, None, None], OLD, False),
    ([None, OLD], OLD, False),
    ([None, None], None, False),
], ids=str)  # fmt: skip
def test_topic_with_another_id_is_another_when_seen_twice(
    answers: list[UUID | None], topic_id: UUID | None, is_replaced: bool
) -> None:
    client: Any = Client([topic(each) for each in answers])
    leaders = Leaders(client)
    leaders.require([TopicPartition("t", 0)])
    for _ in answers[1:]:
        leaders.doubt("t")
        leaders.refresh()
    assert leaders.topic_ids(["t"]) == {"t": topic_id}
    assert leaders.take_replaced() == ({"t"} if is_replaced else set())
