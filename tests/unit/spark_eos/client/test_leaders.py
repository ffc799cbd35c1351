"""What a producer takes over from the brokers' answers about a topic that it knows."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker_core.errors import ErrorCode
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.leaders import Leaders, leaderless_partitions
from spark_eos.client.metadata import BrokerAddress, PartitionMetadata, RecentTopics, TopicMetadata
from spark_eos.errors import TopicError, UnansweredError, UnreachableError
from spark_eos.options.client import client_options
from tests.support.clocks import StandingClock, runtime_by

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


def test_leaders_of_long_ago_are_looked_up_again_for_the_next_transaction() -> None:
    """A leader that was away between two transactions takes batches as before, at another epoch."""

    class Noting(Client):
        def require_topics(self, topics: Any, **_: Any) -> dict[str, TopicMetadata]:
            return self.recent.note(super().require_topics(topics), clock.monotonic())

    def at_epoch(epoch: int) -> TopicMetadata:
        return replace(topic(OLD), partitions={0: PartitionMetadata(0, 1, epoch, 0)})

    clock = StandingClock()
    client: Any = Noting([at_epoch(0), at_epoch(2)])
    client.runtime, client.recent = runtime_by(clock), RecentTopics()
    leaders, place = Leaders(client), TopicPartition("t", 0)
    for seconds, epoch in ((0, 0), (299, 0), (2, 2)):
        clock.sleep(seconds)
        leaders.keep_only({"t"})
        leaders.require([place])
        assert leaders.leader(place)[1] == epoch
    # Another producer of the process has asked.
    client.recent.note({"t": at_epoch(3)}, clock.monotonic())
    leaders.keep_only({"t"})
    assert leaders.leader(place)[1] == 3


def described(*leaders: tuple[int, int], topic_id: UUID | None = OLD, error_code: int = 0) -> TopicMetadata:
    """Describe a topic by the leader of each of its partitions, with its epoch."""
    found = {number: PartitionMetadata(number, *leader, 0) for number, leader in enumerate(leaders)}
    return TopicMetadata("t", topic_id, False, error_code, found)


@pytest.mark.parametrize(("answers", "known"), [
    ([((1, 4), (2, 5)), ((3, 5), (3, 4))], described((3, 5), (2, 5))),
    ([((1, 4), (2, 5)), ((1, 3),)], described((1, 4), (2, 5))),
    ([((1, 4),), ((-1, 5), (2, 0))], described((-1, 5), (2, 0))),
    # An older broker, or a proxy, states no epoch: where the leader is, is known then.
    ([((1, 4),), ((2, -1),)], described((2, -1))),
], ids=["earlier leader", "fewer partitions", "news", "no epoch"])  # fmt: skip
def test_answer_about_the_same_topic_takes_nothing_from_what_is_known(
    answers: Sequence[Sequence[tuple[int, int]]], known: TopicMetadata
) -> None:
    """A broker that is cut off describes an earlier state, and one that lags behind lacks partitions."""
    for topic_id in (OLD, None):
        recent = RecentTopics()
        recent.note({"t": described(*answers[0])}, 0.0)
        # Each row in between says nothing.
        for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            row = described(topic_id=None, error_code=code)
            assert recent.note({"t": row}, 0.0) == {"t": row}
            assert recent.since(["t"], 0.0) is None
        answer = described(*answers[1], topic_id=topic_id)
        assert recent.note({"t": answer}, 0.0) == {"t": replace(known, topic_id=topic_id)}, "no id looks new"
        assert recent.since(["t"], 0.0) == {"t": known}


def test_answer_about_another_topic_of_the_name_is_left_as_it_is() -> None:
    recent, made_again = RecentTopics(), described((1, 0), topic_id=NEW)
    recent.note({"t": described((1, 4), (2, 5))}, 0.0)
    assert recent.note({"t": made_again}, 0.0) == {"t": made_again}


MISSING = SimpleNamespace(
    error_code=0, topics=[SimpleNamespace(name="t", topic_id=OLD, is_internal=False, error_code=3, partitions=[])]
)
PRESENT = SimpleNamespace(
    error_code=0, topics=[SimpleNamespace(name="t", topic_id=OLD, is_internal=False, error_code=5, partitions=[])]
)

REFUSED = SimpleNamespace(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, topics=[])


class Brokers(Client):
    """Brokers of which any one lacks the topic from the second answer on, and that answer one by one as given."""

    def __init__(self, each: Sequence[Any]) -> None:
        gone = TopicMetadata("t", None, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})
        super().__init__([topic(OLD), *[gone] * 3])
        self.runtime = SimpleNamespace(clock=StandingClock())
        self._each = each

    topics_by_broker = KafkaClient.topics_by_broker

    def ask_each_broker(self, _: Any, **__: Any) -> dict[BrokerAddress, Any]:
        """Return the answers in order."""
        return {BrokerAddress(number, "host", 9092): each for number, each in enumerate(self._each)}


@pytest.mark.parametrize(("each", "seconds", "is_gone"), [
    ([MISSING, MISSING], 3, True),
    ([MISSING, MISSING], 1, False),
    ([MISSING, PRESENT], 3, False),
    ([MISSING, UnansweredError("no answer")], 3, False),
    ([MISSING, REFUSED], 3, False),
], ids=["all", "too early", "one has it", "one is silent", "one refuses the whole request"])  # fmt: skip
def test_topic_is_gone_when_all_brokers_say_so_after_a_while(each: list[Any], seconds: float, is_gone: bool) -> None:
    client: Any = Brokers(each)
    leaders = Leaders(client)
    leaders.require([TopicPartition("t", 0)])
    raised = []
    for _ in range(2):
        leaders.doubt("t")
        try:
            leaders.refresh()
        except TopicError as error:
            raised.append(str(error))
        client.runtime.clock.sleep(seconds)
    assert len(raised) == is_gone
    assert leaders.leader(TopicPartition("t", 0))[0] == 1


def test_broker_that_does_not_respond_hides_no_partition_without_a_leader() -> None:
    """A marker that is sent while the partition has no leader is lost (KAFKA-20734)."""

    class SilentFirst(Client):
        is_silent = True

        def require_topics(self, topics: Any, **more: Any) -> dict[str, TopicMetadata]:
            if self.is_silent:
                self.is_silent = False
                raise UnreachableError("No broker answered a metadata request")
            return super().require_topics(topics, **more)

    client: Any = SilentFirst([topic(OLD, leader=-1)])
    assert leaderless_partitions(client, ["t"]) == {"t": [0, 1]}
