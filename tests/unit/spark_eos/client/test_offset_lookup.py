"""The leaders that a look-up remembers, when brokers name different ones."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataResponse

from broker_core.errors import ErrorCode
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.broker_client import BrokerClient
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import PartitionMetadata, TopicMetadata, metadata_request
from spark_eos.client.offset_lookup import OffsetLookup, PartitionPlace
from spark_eos.client.response_decoders import FilteredMetadata
from spark_eos.errors import UnansweredError
from spark_eos.options.client import ClientOptions
from spark_eos.options.positions import LATEST
from spark_eos.runtime import REAL
from tests.support.clocks import StandingClock, runtime_by

TP, ID, OTHER_ID = TopicPartition("t", 0), UUID(int=1), UUID(int=2)


def topic(leader: int, epoch: int, topic_id: UUID | None = ID) -> dict[str, TopicMetadata]:
    return {"t": TopicMetadata("t", topic_id, False, 0, {0: PartitionMetadata(0, leader, epoch, 0)})}


def looking(
    *answers: dict[str, TopicMetadata],
    of_each: dict[int, dict[str, TopicMetadata] | None],
    others: Sequence[dict[str, TopicMetadata]] = (),
) -> OffsetLookup:
    left = list(answers)
    client: Any = SimpleNamespace(
        deadline=lambda: 0.0,
        attempts=lambda _: iter([0]),
        ask_metadata=lambda _: FilteredMetadata(None, left.pop(0)),  # type: ignore[arg-type]
        topics_by_broker=lambda _: of_each,
        brokers=lambda: [SimpleNamespace(node_id=number) for number in range(1 + len(others))],
        send_all=lambda *_, **__: [FilteredMetadata(None, each) for each in others],  # type: ignore[arg-type]
        runtime=REAL,
        transport=SimpleNamespace(cluster=SimpleNamespace(update_metadata=lambda _: None)),
    )
    return OffsetLookup(client)


@pytest.mark.parametrize(
    ("later", "leader"),
    [
        (topic(1, 4), 2),
        (topic(1, 5), 1),
        (topic(1, 6), 1),
        (topic(-1, -1), -1),
        (topic(1, 0, OTHER_ID), 1),
        # An older broker, or a proxy, states no id.
        (topic(1, 4, None), 2),
        (topic(1, 6, None), 1),
    ],
)
def test_an_earlier_leader_replaces_no_later_one_of_the_same_topic(
    later: dict[str, TopicMetadata], leader: int
) -> None:
    lookup = looking(topic(2, 5), later, topic(2, 5), later, of_each={})
    topic_id = later["t"].topic_id or ID
    lookup.places(["t"])
    assert lookup.places(["t"])[TP][:2] == (topic_id, leader)
    lookup.places_matching("t".__eq__)
    assert lookup.places_matching("t".__eq__)[TP][:2] == (topic_id, leader)


def test_the_newest_leader_that_any_broker_names_is_found_and_kept() -> None:
    lookup = looking(
        topic(1, 3), topic(1, 3), of_each={1: topic(1, 3), 2: topic(2, 4), 3: None, 4: topic(4, 9, OTHER_ID), 5: {}}
    )
    lookup.places(["t"])
    newest = {TP: PartitionPlace(ID, 2, 4)}
    assert lookup.newest_places([TP]) == newest
    assert lookup.places(["t"]) == newest


def test_brokers_that_all_name_an_earlier_leader_replace_no_later_one() -> None:
    """The only broker that knows it does not respond."""
    lookup = looking(topic(1, 3), of_each={1: topic(2, 1), 2: None, 3: topic(2, 2, None), 4: topic(4, 9, OTHER_ID)})
    known = lookup.places(["t"])
    assert lookup.at_all_brokers({TP: ID}) == lookup.newest_places([TP]) == known == {TP: PartitionPlace(ID, 1, 3)}


def test_a_partition_that_the_last_response_left_out_has_no_newest_leader() -> None:
    """The topic was deleted, or the broker lags behind: what is known of it now is for the next look."""
    lookup = looking(topic(1, 3), {}, of_each={2: topic(2, 4)})
    lookup.places(["t"])
    assert not lookup.places(["t"])
    assert not lookup.newest_places([TP])


@pytest.mark.parametrize(
    ("others", "place"),
    [
        ([topic(2, 6), topic(3, 4)], PartitionPlace(ID, 2, 6)),
        ([topic(2, 5), topic(3, 4)], PartitionPlace(ID, 1, 5)),
        ([topic(2, 9, OTHER_ID), {}], PartitionPlace(ID, 1, 5)),
        ([topic(2, 9, None), {}], PartitionPlace(ID, 1, 5)),
    ],
)
def test_a_first_look_takes_the_newest_leader_of_those_that_brokers_name(
    others: list[dict[str, TopicMetadata]], place: PartitionPlace
) -> None:
    lookup = looking(topic(1, 5), of_each={}, others=others)
    assert lookup.places(["t"], compare=True) == {TP: place}


def test_a_first_look_without_topic_ids_finds_a_topic_that_one_broker_does_not_know() -> None:
    lookup = looking({}, topic(1, 5, None), of_each={}, others=[{}, topic(2, -1, None)])
    assert lookup.places(["t"], compare=True) == {TP: PartitionPlace(None, 2, -1)}
    assert lookup.places(["t"], compare=True) == {TP: PartitionPlace(None, 1, 5)}, "later looks ask one broker"


UNKNOWN = {"t": TopicMetadata("t", None, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})}


class Leaders:
    """Brokers of which one, which answers all questions that any broker may answer, does not know a topic."""

    def __init__(self, of_each: Sequence[dict[str, TopicMetadata] | None], trouble: ErrorCode = ErrorCode.NONE) -> None:
        self.of_each, self.trouble = of_each, trouble
        self.clock = StandingClock()
        self.runtime = runtime_by(self.clock)
        self.transport = SimpleNamespace(cluster=SimpleNamespace(update_metadata=lambda _: None))

    def deadline(self, _timeout_ms: float | None) -> float:
        return 10.0

    def remaining_ms(self, deadline: float) -> float:
        return (deadline - self.clock.seconds) * 1_000

    attempts = BrokerClient.attempts

    def back_off(self, _attempt: int, deadline: float, **_: Any) -> bool:
        self.clock.seconds += 0.5
        return self.clock.seconds < deadline

    def ask_metadata(self, _make: Any) -> FilteredMetadata:
        return FilteredMetadata(None, UNKNOWN)  # type: ignore[arg-type]

    def topics_by_broker(self, _topics: Any) -> dict[int, Any]:
        return dict(enumerate(self.of_each))

    def send_all(self, requests: Sequence[tuple[int, Any]], **_: Any) -> list[Any]:
        """Answer for leader 2 that a partition ends at offset 7, after an error, if there is one."""
        code, self.trouble = self.trouble, ErrorCode.NONE
        partition = SimpleNamespace(partition_index=0, error_code=code, offset=7, leader_epoch=5)
        response = SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[partition])])
        return [response for leader, _ in requests if leader == 2]


def ends_by(*of_each: dict[str, TopicMetadata] | None) -> dict[TopicPartition, int | None]:
    client: Any = Leaders(of_each)
    return OffsetLookup(client).offsets({TP: LATEST}, IsolationLevel.READ_COMMITTED)


def test_offsets_of_a_topic_that_one_broker_does_not_know_are_found() -> None:
    """A read without them would have no row of the topic, and a stream would read it from its first record later."""
    assert ends_by(UNKNOWN, topic(1, 4), topic(2, 5)) == {TP: 7}
    assert ends_by(UNKNOWN, UNKNOWN) == {}, "no broker has it"
    with pytest.raises(UnansweredError, match="1 partition could not be looked up, among them t-0"):
        ends_by(UNKNOWN, None)


@pytest.mark.parametrize("trouble", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_leader_that_cannot_read_its_log_now_is_asked_again(trouble: ErrorCode) -> None:
    """A remote storage that is away is UNKNOWN_SERVER_ERROR, and Kafka's own consumer looks up again."""
    client: Any = Leaders([topic(2, 5)], trouble)
    assert OffsetLookup(client).offsets({TP: 1_000}, IsolationLevel.READ_COMMITTED) == {TP: 7}


def test_responses_that_leave_the_partition_out_are_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leaders, "send_all", lambda *_, **__: [SimpleNamespace(topics=[])])
    with pytest.raises(UnansweredError, match="last response: it leaves out the partition"):
        ends_by(UNKNOWN, topic(2, 5))


# Two brokers, of which the client would always ask the first.

SEEDS, BROKERS = (
    [MetadataResponse.MetadataResponseBroker(node_id=each, host="h", port=1, rack=None) for each in node_ids]
    for node_ids in (["seed"], [1, 2])
)
T = MetadataResponse.MetadataResponseTopic(name="t", error_code=0, is_internal=False, partitions=[])


class TwoBrokers:
    """Connections to two brokers, of which the second one says all of topic `t`."""

    def __init__(self, first: MetadataResponse) -> None:
        whole = MetadataResponse(brokers=BROKERS, topics=[T])
        self.said = {"seed": whole, 1: first, 2: whole}
        self.asked: list[int | str] = []
        self.clock = StandingClock()
        self.pause = self.clock.sleep
        self.cluster = SimpleNamespace(
            bootstrap_brokers=lambda: SEEDS, brokers=lambda: BROKERS, update_metadata=lambda _: None,
            broker_metadata=lambda node_id: BROKERS[node_id - 1],
        )  # fmt: skip

    def client(self) -> KafkaClient:
        transport: Any = self
        runtime = replace(runtime_by(self.clock), open_transport=lambda *_: transport)
        return KafkaClient(ClientOptions(("h:1",)), runtime)

    def check_usable(self) -> None:
        pass

    def close_connection(self, _node_id: int | str) -> None:
        pass

    def any_node(self) -> int:
        return 1

    def start(self, node_id: int | str, _request: Any, _deadline: float) -> int | str:
        self.asked.append(node_id)
        return node_id

    def wait(self, _pending: Any, _deadline: float) -> None:
        pass

    def outcome(self, node_id: int | str, _described: str) -> MetadataResponse:
        return self.said[node_id]


@pytest.mark.parametrize("first", [
    MetadataResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, brokers=BROKERS, topics=[T]),
    MetadataResponse(brokers=[], topics=[]),
    MetadataResponse(brokers=BROKERS, topics=[]),
], ids=["error", "no brokers", "no topic"])  # fmt: skip
def test_broker_whose_metadata_says_nothing_is_left_for_another(first: MetadataResponse) -> None:
    brokers = TwoBrokers(first)
    client = brokers.client()
    assert client.metadata(["t"]).keys() == {"t"}
    assert brokers.asked == ["seed", 1, 2]
    brokers.said[1] = brokers.said[2]
    client.send(1, metadata_request([]))
    client.metadata(["t"])
    assert brokers.asked[3:] == [1, 1], "it says something again"


def test_brokers_that_all_said_nothing_are_asked_in_turn() -> None:
    brokers = TwoBrokers(MetadataResponse(brokers=[], topics=[]))
    whole, brokers.said[2] = brokers.said[2], brokers.said[1]

    def pause(seconds: float) -> None:
        brokers.clock.sleep(seconds)
        if len(brokers.asked) > 3:
            brokers.said[2] = whole

    brokers.pause = pause
    assert brokers.client().metadata(["t"]).keys() == {"t"}
    assert brokers.asked == ["seed", 1, 2, 1, 2]
