"""The fetch with responses that a healthy broker seldom sends, on a scripted client."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker_core.errors import ErrorCode
from broker_core.records.control import build_end_txn_marker
from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.client.aborted_filter import visible_in
from spark_eos.client.fetch import FetchedChunk, Gone, OffsetsGoneError, RangeFetch, fetch_once
from spark_eos.client.metadata import MISSING_TOPIC_GRACE_SECONDS, TopicMetadata
from spark_eos.client.offset_lookup import PartitionPlace
from spark_eos.errors import AuthorizationError, BrokerError, UnansweredError
from tests.support.spark_eos.scripted_fetch import LIMITS, TP, ScriptedClient, answer, batch, topic

THROTTLED = SimpleNamespace(error_code=0, responses=[])
NO_TOPIC = {"t": TopicMetadata("t", None, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})}
ID, OTHER_ID = UUID(int=1), UUID(int=2)


def reading(client: Any, topic_id: UUID | None = None, epoch: int = 0) -> RangeFetch:
    return RangeFetch(client, TP, PartitionPlace(topic_id, 1, epoch), IsolationLevel.READ_COMMITTED, LIMITS)


def read(client: Any, start: int = 0, end: int = 4) -> list[FetchedChunk]:
    return list(reading(client).chunks(start, end))


def test_next_fetch_is_in_flight_before_a_response_is_returned() -> None:
    client = ScriptedClient(answer(batch(0, 2)), answer(batch(2, 2)))
    chunks = reading(client).chunks(0, 4)
    assert next(chunks).next_position == 2
    assert [offset for _, _, offset in client.fetched] == [0, 2]
    assert [chunk.next_position for chunk in chunks] == [4]
    assert len(client.fetched) == 2


@pytest.mark.parametrize("trouble", [
    None,
    answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    answer(error=ErrorCode.FENCED_LEADER_EPOCH),
    answer(error=ErrorCode.KAFKA_STORAGE_ERROR),
    answer(error=ErrorCode.UNKNOWN_SERVER_ERROR),
    THROTTLED,
])  # fmt: skip
def test_retriable_fetch_error_is_retried_at_the_current_leader(trouble: Any) -> None:
    client = ScriptedClient(trouble, answer(batch(0, 4)))
    assert [chunk.next_position for chunk in read(client)] == [4]
    assert [node for node, _, _ in client.fetched] == [1, 2]


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (None, "the connection was lost"),
        (answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), r"broker 2 answered NOT_LEADER_OR_FOLLOWER \(6\)"),
        (THROTTLED, "broker 2 left the partition out"),
    ],
)
def test_fetch_that_gives_up_says_why(trouble: Any, reason: str) -> None:
    with pytest.raises(UnansweredError, match=rf"made no progress at offset 0 \(planned end 4\): {reason}"):
        read(ScriptedClient(*[trouble] * 10))


@pytest.mark.parametrize(
    ("code", "family"), [(ErrorCode.CORRUPT_MESSAGE, BrokerError), (ErrorCode.UNSUPPORTED_VERSION, BrokerError)]
)
def test_fatal_fetch_error_is_raised(code: ErrorCode, family: type[Exception]) -> None:
    with pytest.raises(family, match=code.name):
        read(ScriptedClient(answer(error=code)))


def test_refusal_is_raised_when_it_lasts() -> None:
    """A right can be taken away and given back."""
    refused = answer(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert [chunk.next_position for chunk in read(ScriptedClient(refused, answer(batch(0, 4))))] == [4]
    client = ScriptedClient(*[refused] * 10)
    with pytest.raises(AuthorizationError, match="TOPIC_AUTHORIZATION_FAILED"):
        read(client)
    assert client.clock.seconds >= MISSING_TOPIC_GRACE_SECONDS


GONE = answer(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize(
    ("said", "said_by_all", "reason"),
    [
        (NO_TOPIC, [NO_TOPIC, NO_TOPIC], Gone.TOPIC_DELETED),
        (topic(topic_id=OTHER_ID), [topic(topic_id=OTHER_ID)], Gone.TOPIC_RECREATED),
        (topic(topic_id=OTHER_ID), [topic(topic_id=OTHER_ID), NO_TOPIC], Gone.TOPIC_RECREATED),
    ],
)
def test_topic_that_no_broker_has_is_reported(said: Any, said_by_all: Any, reason: Gone) -> None:
    client: Any = ScriptedClient(GONE, said=[said], said_by_all=said_by_all)
    with pytest.raises(OffsetsGoneError) as caught:
        list(reading(client, ID).chunks(0, 4))
    assert caught.value.reason is reason
    assert client.clock.seconds >= MISSING_TOPIC_GRACE_SECONDS, "one answer is no proof"


@pytest.mark.parametrize(
    "said", [NO_TOPIC, topic(topic_id=OTHER_ID), topic(2, 1, ID)], ids=["no topic", "another one", "an earlier leader"]
)
def test_topic_that_one_broker_does_not_know_is_read_from_the_leader_that_another_one_names(said: Any) -> None:
    """The broker that answers has just started, or is cut off from the others."""
    client: Any = ScriptedClient(
        GONE, answer(batch(0, 4)), said=[said], said_by_all=[said, topic(3, 2, ID), topic(4, 3, ID)]
    )
    assert [chunk.next_position for chunk in reading(client, ID, 2).chunks(0, 4)] == [4]
    assert [node for node, _, _ in client.fetched] == [1, 4]
    assert client.clock.seconds < MISSING_TOPIC_GRACE_SECONDS, "what another broker says needs no wait"


def test_topic_of_which_a_broker_says_nothing_is_waited_for() -> None:
    client: Any = ScriptedClient(GONE, said=[NO_TOPIC], said_by_all=[NO_TOPIC, None])
    with pytest.raises(UnansweredError, match="made no progress at offset 0"):
        list(reading(client, ID).chunks(0, 4))


def test_next_batch_proves_that_no_records_remain_below_the_last_stable_offset() -> None:
    client = ScriptedClient(answer(batch(0, 2)), answer(), answer(batch(10)))
    assert [chunk.next_position for chunk in read(client)] == [2]
    assert (client.fetched[-1][2], client.levels[-1]) == (2, IsolationLevel.READ_UNCOMMITTED)


@pytest.mark.parametrize("probe", [answer(), answer(batch(3))])
def test_empty_response_alone_is_not_taken_as_the_end(probe: Any) -> None:
    with pytest.raises(UnansweredError, match="made no progress at offset 2"):
        read(ScriptedClient(answer(batch(0, 2)), *[answer(), probe] * 10))


def test_fetch_continues_when_the_last_stable_offset_moves() -> None:
    client = ScriptedClient(answer(stable=0), answer(stable=0), answer(batch(0, 4)))
    assert [chunk.next_position for chunk in read(client)] == [4]


def test_invalid_batch_bytes_are_reported() -> None:
    with pytest.raises(BrokerError, match="at offset 0 that is not a record batch"):
        read(ScriptedClient(answer(b"\x01" * 100)))


MARKER = build_end_txn_marker(commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0).data


# Rule D.2/7. A bit that makes a control batch of records, one that leaves a batch without records, one that skips later
# offsets, one that gives records to another producer, and one that turns a commit into an abort.
@pytest.mark.parametrize(
    ("data", "position", "bit"),
    [(batch(0), 22, 0x20), (batch(0), 60, 0x01), (MARKER, 26, 0x02), (batch(0), 50, 0x40), (MARKER, 69, 0x01)],
    ids=["control", "empty", "skipping", "producer", "abort"],
)
def test_a_damaged_header_never_hides_records(data: bytes, position: int, bit: int) -> None:
    """Such a batch is never decoded, so its checksum must show the damage before anything in it is believed."""
    damaged = bytearray(data)
    damaged[position] ^= bit
    with pytest.raises(BrokerError, match="the batch at offset 0 is corrupt: the CRC-32C is not"):
        read(ScriptedClient(answer(bytes(damaged) + batch(1, 3))))
    client: Any = ScriptedClient(answer(bytes(damaged) + batch(1, 3)))
    limits = replace(LIMITS, check_crcs=False)
    unchecked = RangeFetch(client, TP, PartitionPlace(None, 1, 0), IsolationLevel.READ_COMMITTED, limits)
    assert len(list(unchecked.chunks(0, 4))) == 1


@pytest.mark.parametrize("position", [22, 26, 65])
def test_damage_behind_the_range_stops_no_read_that_ends_before_it(position: int) -> None:
    """A user who reads up to a damaged batch, or a micro-batch that ends before it, needs nothing of it."""
    damaged = bytearray(batch(4, 2))
    damaged[position] ^= 0xA0
    data = batch(0, 4) + bytes(damaged)
    client = ScriptedClient(answer(data))
    [chunk] = reading(client).chunks(0, 4, until=4)
    assert [header.base_offset for _, header in chunk.batches] == [0]
    assert len(client.fetched) == 1, "what a damaged header says of its last offset is not believed"
    assert not list(visible_in(next(reading(ScriptedClient(answer(bytes(damaged)))).chunks(0, 4, until=4))))
    with pytest.raises(BrokerError, match="the batch at offset 4 is corrupt"):
        list(reading(ScriptedClient(answer(data))).chunks(0, 5, until=5))
    # A range of which compaction has left nothing.
    assert not read(ScriptedClient(answer(), answer(bytes(damaged))))


def test_damage_in_one_partition_hides_no_other_one(caplog: pytest.LogCaptureFixture) -> None:
    """What is searched in many partitions is found in another one, and the log says why not in this one."""
    [topic] = answer(batch(0)[:-1] + b"\x01").responses
    [whole] = answer(batch(0)).responses[0].partitions
    topic.topic, topic.partitions[0].partition_index, whole.partition_index = "t", 0, 1
    topic.partitions.append(whole)
    response = SimpleNamespace(error_code=0, responses=[topic])
    client: Any = SimpleNamespace(send_all=lambda *_, **__: [response])
    wanted = {TopicPartition("t", number): (PartitionPlace(None, 1, 0), 0) for number in (0, 1)}
    found = fetch_once(client, wanted, IsolationLevel.READ_COMMITTED, LIMITS, 1)
    assert found.keys() == {TopicPartition("t", 1)}
    assert "t-0 has data at offset 0 that is not a record batch: the batch at offset 0 is corrupt" in caplog.text
