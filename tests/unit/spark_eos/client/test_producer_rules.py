"""The producer with scripted leaders: retries, sequence numbers, splits, timeouts and errors."""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from broker_core.errors import ErrorCode
from broker_core.records.compression import Compression
from broker_core.records.header import BatchHeader, crc_matches
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.client.kafka_client import BatchLimits
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.send_queue import PartitionResult
from spark_eos.codec.encode import encode_batches
from spark_eos.errors import (
    AbortableError,
    DeliveryTimeoutError,
    FencedError,
    RecordTooLargeError,
    TopicError,
    UnansweredError,
)
from spark_eos.open_transaction import OpenTransaction
from tests.support.clocks import StandingClock
from tests.support.function_calls import count_calls
from tests.support.spark_eos.client_world import FakeClient, SentProduce, encoded, produced

TOPIC = "t"
FIRST = TopicPartition(TOPIC, 0)
SECOND = TopicPartition(TOPIC, 1)
IDENTITY = OpenTransaction("id", ProducerIdentity(7, 3), 2)


def code(number: int, *, base_offset: int | None = None) -> Any:
    """Script one response with the same code for every partition."""
    return lambda sent: produced(sent, number, base_offset)


def unanswered(sent: SentProduce) -> Any:
    raise UnansweredError("the connection broke")


def begun(client: FakeClient, **settings: Any) -> TransactionalProducer:
    producer = TransactionalProducer(client, **settings)  # type: ignore[arg-type]
    producer.begin(IDENTITY)
    return producer


def flushed(client: FakeClient, *places: TopicPartition) -> dict[TopicPartition, PartitionResult]:
    """Send one record to each partition and return the results."""
    producer = begun(client)
    for place in places:
        producer.send(place, encoded(["a"]))
    return producer.flush()


def headers(client: FakeClient, topic_partition: TopicPartition = FIRST) -> list[BatchHeader]:
    """Parse the batches sent to a partition, and check that each one has a valid CRC."""
    found = []
    for sent in client.sent:
        if topic_partition in sent.batches:
            header = BatchHeader.parse(sent.batches[topic_partition])
            assert crc_matches(sent.batches[topic_partition], 0, header)
            found.append(header)
    return found


def test_batches_of_one_partition_are_sent_in_sequence() -> None:
    client = FakeClient(TOPIC, 1, [code(0, base_offset=10), code(0, base_offset=13)])
    producer = begun(client)
    producer.send(FIRST, encoded(["a", "b", "c"]) + encoded(["d"]))
    assert producer.flush() == {
        FIRST: PartitionResult(10, 13, 4, sum(len(s.batches[FIRST]) for s in client.sent), 0, 4)
    }
    assert [(h.producer_id, h.producer_epoch, h.base_sequence) for h in headers(client)] == [(7, 3, 0), (7, 3, 3)]
    assert all(h.is_transactional for h in headers(client))


@pytest.mark.parametrize("base_offset", [0, 11])
def test_offset_that_a_log_gives_twice_shows_that_records_are_lost(base_offset: int) -> None:
    """A leader without any state of a producer takes its batches with any sequence."""
    client = FakeClient(TOPIC, 1, [code(0, base_offset=10), code(0, base_offset=base_offset)])
    producer = begun(client)
    producer.send(FIRST, encoded(["a", "b"]) + encoded(["c"]))
    with pytest.raises(AbortableError, match=f"t-0 has lost .* 2 records up to offset 11.* at offset {base_offset}"):
        producer.flush()


@pytest.mark.parametrize("trouble", [code(6), code(19), code(7), code(51), code(14), unanswered])
def test_retry_keeps_its_sequence_numbers_and_bytes(trouble: Any) -> None:
    client = FakeClient(TOPIC, 1, [trouble, trouble, code(0), code(0)])
    producer = begun(client)
    producer.send(FIRST, encoded(["a", "b"]) + encoded(["c"]))
    producer.flush()
    first, second, third, _fourth = [sent.batches[FIRST] for sent in client.sent]
    assert first == second == third
    assert [h.base_sequence for h in headers(client)] == [0, 0, 0, 2]
    assert producer.retries == 2


def test_moved_leader_is_looked_up() -> None:
    def move(sent: SentProduce) -> Any:
        client.leaders[0] = 2
        return produced(sent, 6)

    client = FakeClient(TOPIC, 1, [move, code(0)])
    flushed(client, FIRST)
    assert [sent.leader for sent in client.sent] == [1, 2]
    assert client.asked_for_metadata == 1


def test_retriable_code_alone_triggers_no_metadata_request() -> None:
    client = FakeClient(TOPIC, 1, [code(19), code(0)])
    flushed(client, FIRST)
    assert client.asked_for_metadata == 0


def test_a_partition_without_a_leader_waits_for_one() -> None:
    client = FakeClient(TOPIC, 1, [code(0)])
    client.leaders[0] = -1
    producer = begun(client)
    producer.send(FIRST, encoded(["a"]))
    client.leaders[0] = 4
    producer.flush()
    assert [sent.leader for sent in client.sent] == [4]


def test_batch_that_is_too_large_is_split_and_renumbered() -> None:
    client = FakeClient(TOPIC, 1, [code(10)] * 2 + [code(0)] * 5 + [code(0, base_offset=5)])
    producer = begun(client)
    producer.send(FIRST, encoded(["a", "b", "c", "d", "e"]) + encoded(["f"]))
    result = producer.flush()[FIRST]
    sent = headers(client)
    assert [(h.base_sequence, h.record_count) for h in sent] == [
        (0, 5),
        (0, 2),
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (5, 1),
    ], "a batch as large as the refused half is not sent"
    assert (result.record_count, result.last_offset) == (6, 5)


def test_refused_batch_of_one_partition_keeps_the_order_of_the_others() -> None:
    """Of five partitions in one request, one refuses a batch as too large, one has moved, one is short of replicas."""
    places = [TopicPartition(TOPIC, number) for number in range(5)]
    script = [lambda sent: produced(sent, {1: 18, 2: 6, 3: 19})] + [code(0)] * 20
    client = FakeClient(TOPIC, 5, script)
    producer = begun(client)
    for _ in range(2):
        for place in places:
            producer.send(place, encoded(["a", "b" * 100] if place.partition == 1 else ["a", "b"]))
    results = producer.flush()
    assert {place: result.record_count for place, result in results.items()} == dict.fromkeys(places, 4)
    assert set(client.sent[0].batches) == set(places)
    sequences = {place: [(h.base_sequence, h.record_count) for h in headers(client, place)] for place in places}
    assert sequences[places[0]] == sequences[places[4]] == [(0, 2), (2, 2)]
    assert sequences[places[2]] == sequences[places[3]] == [(0, 2), (0, 2), (2, 2)], "resent, then the next one"
    assert sequences[places[1]] == [(0, 2), (0, 1), (1, 1), (2, 1), (3, 1)], "split, and the next one too"


@pytest.mark.parametrize("number", [10, 18])
def test_refused_batch_size_is_not_tried_by_the_next_transaction(number: int) -> None:
    large = lambda sent: produced(sent, number if max(map(len, sent.batches.values())) > 1_500 else 0)  # noqa: E731
    client = FakeClient(TOPIC, 1, [large] * 100)
    tried = []
    for epoch in range(2):
        producer = TransactionalProducer(client)  # type: ignore[arg-type]
        producer.begin(OpenTransaction("id", ProducerIdentity(7, epoch), 2))
        producer.send(FIRST, encoded(["x" * 100] * 100) + encoded(["x" * 100] * 100))
        assert producer.flush()[FIRST].record_count == 200
        tried.append([len(sent.batches[FIRST]) for sent in client.sent])
        client.sent.clear()
    assert sum(size > 1_500 for size in tried[0]) == 3, "halved until it fits; then the second one too"
    assert max(tried[1]) <= 1_500
    assert client.batch_limits.batch_bytes(TOPIC, 1_000_000) < 1_500
    assert client.batch_limits.batch_bytes("another", 1_000_000) == 1_000_000


def test_refused_batch_size_is_tried_again_after_its_expiry() -> None:
    clock = StandingClock()
    limits = BatchLimits(clock)
    [batch] = encoded(["x" * 100] * 100)
    limits.note_refused(TOPIC, batch)
    assert limits.is_too_large(TOPIC, batch)
    clock.sleep(601)
    assert not limits.is_too_large(TOPIC, batch) and limits.batch_bytes(TOPIC, 77_777) == 77_777


def test_refused_batch_size_is_measured_before_compression() -> None:
    limits = BatchLimits(StandingClock())
    [batch] = encode_batches(
        key=None,
        value=pa.array(["x" * 100] * 100),
        headers=None,
        timestamp_ms=0,
        max_batch_bytes=1_000_000,
        compression=Compression.ZSTD,
    )
    limits.note_refused(TOPIC, batch)
    assert batch.size_bytes < 1_000 and 5_000 < limits.batch_bytes(TOPIC, 1_000_000) < 5_500


def test_work_per_batch_is_independent_of_the_number_of_partitions() -> None:
    [batch] = encoded(["a" * 1_000])

    def calls_to_send(partitions: int) -> int:
        client = FakeClient(TOPIC, partitions, [code(0)] * 1_000)
        producer = begun(client, max_request_bytes=20_000)
        producer.expect([TopicPartition(TOPIC, number) for number in range(partitions)])

        def send() -> None:
            for number in range(400):
                producer.send(TopicPartition(TOPIC, number % partitions), [replace(batch, data=bytearray(batch.data))])
            producer.flush()

        return count_calls(send, builtins=True)

    few, many = calls_to_send(20), calls_to_send(400)
    assert many < 1.5 * few, (few, many)


def test_requests_to_each_leader_respect_the_size_limit() -> None:
    client = FakeClient(TOPIC, 40, [code(0)] * 100)
    client.leaders = {number: number % 4 for number in range(40)}
    producer = begun(client, max_request_bytes=5_500)
    for number in range(40):
        producer.send(TopicPartition(TOPIC, number), encoded(["a" * 1_000]))
    producer.flush()
    assert sorted((sent.leader, len(sent.batches)) for sent in client.sent) == [
        (leader, 5) for leader in range(4) for _ in range(2)
    ]


def test_leader_that_did_not_answer_is_dropped_from_the_topic_cache() -> None:
    client = FakeClient(TOPIC, 1, [unanswered, code(0)])
    client.recent.note({**client.require_topics([TOPIC])}, time.monotonic())
    flushed(client, FIRST)
    assert client.recent.since([TOPIC], 0.0) is None


@pytest.mark.parametrize(
    ("script", "rows", "error", "words"),
    [
        ([code(10)], ["a" * 1000], RecordTooLargeError, r"1 record is too large for t-0.*max.message.bytes"),
        # A batch that may have been appended is never split.
        *(([unsure, code(10)], ["a", "b"], RecordTooLargeError, "") for unsure in (unanswered, code(7), code(20))),
        ([code(0, base_offset=-1)], ["a"], AbortableError, "without an offset"),
    ],
    ids=["one record", "no answer", "timeout", "replicas", "no offset"],
)
def test_answer_that_cannot_be_used_is_an_error(
    script: list[Any], rows: list[str], error: type[Exception], words: str
) -> None:
    producer = begun(FakeClient(TOPIC, 1, script))
    producer.send(FIRST, encoded(rows))
    with pytest.raises(error, match=words or None):
        producer.flush()


@pytest.mark.parametrize(
    ("number", "family"),
    [
        (47, FencedError),
        (90, FencedError),
        (45, AbortableError),
        (46, AbortableError),
        (48, AbortableError),
        (120, AbortableError),
        (9999, AbortableError),
    ],
)
def test_fatal_code_fails_the_transaction_until_the_next_begin(number: int, family: type[Exception]) -> None:
    client = FakeClient(TOPIC, 1, [code(number), code(0)])
    producer = begun(client)
    producer.send(FIRST, encoded(["a"]))
    for _ in range(2):
        with pytest.raises(family) as caught:
            producer.flush()
        assert caught.value.error_code == number  # type: ignore[attr-defined]
    with pytest.raises(family):
        producer.send(FIRST, encoded(["b"]))
    with pytest.raises(AssertionError, match="failed or was aborted"):
        producer.begin(IDENTITY)
    producer.begin(OpenTransaction("id", ProducerIdentity(7, 4), 2))
    producer.send(FIRST, encoded(["c"]))
    assert producer.flush()[FIRST].record_count == 1
    assert headers(client)[-1].base_sequence == 0


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (5, r"LEADER_NOT_AVAILABLE \(5\)\. Check the partition's leader and its in-sync replicas, or raise"),
        (19, r"NOT_ENOUGH_REPLICAS \(19\): fewer replicas are in sync .* Restart the missing brokers\. If it"),
        (51, r"CONCURRENT_TRANSACTIONS \(51\): an earlier transaction .*min\.insync\.replicas in sync\. If it"),
    ],
)
def test_delivery_timeout_says_what_the_last_error_means(number: int, words: str) -> None:
    client = FakeClient(TOPIC, 1, [code(number)] * 10_000)
    producer = begun(client, delivery_timeout_ms=200)
    producer.send(FIRST, encoded(["a"]))
    started = time.monotonic()
    with pytest.raises(DeliveryTimeoutError, match=rf"t-0 were not acknowledged within 200 ms.*{words}"):
        producer.flush()
    assert 0.2 <= time.monotonic() - started < 10


@pytest.mark.parametrize("is_answered_once", [False, True])
def test_size_of_a_request_that_never_gets_a_response_is_named(is_answered_once: bool) -> None:
    """As if it is larger than socket.request.max.bytes: the broker closes the connection."""
    answers = [code(ErrorCode.NOT_LEADER_OR_FOLLOWER)] if is_answered_once else []
    client = FakeClient(TOPIC, 1, [*answers, *[unanswered] * 1_000])
    producer = begun(client, delivery_timeout_ms=20)
    producer.send(FIRST, encoded(["x" * 5_000]))
    with pytest.raises(DeliveryTimeoutError, match="Check the partition's leader") as caught:
        producer.flush()
    size_bytes = len(client.sent[-1].batches[FIRST])
    named = f"If {size_bytes} bytes with a header are more than socket.request.max.bytes" in str(caught.value)
    assert named is not is_answered_once


# Rule I.2/2.
@pytest.mark.parametrize(("transaction_version", "versions"), [(0, (3, 11)), (1, (3, 11)), (2, (12, 13))])
def test_transaction_version_limits_the_produce_version(
    monkeypatch: pytest.MonkeyPatch, transaction_version: int, versions: tuple[int, int]
) -> None:
    added: list[list[TopicPartition]] = []
    monkeypatch.setattr(
        "spark_eos.client.producer.add_partitions_to_txn",
        lambda client, identity, partitions, **_: added.append(list(partitions)),
    )
    # Two responses more than needed: on a busy machine the partitions are sent again one by one.
    client = FakeClient(TOPIC, 2, [code(6), *[code(0)] * 4])
    producer = begun(client)
    producer.begin(OpenTransaction("id", ProducerIdentity(7, 3), transaction_version))
    producer.send(FIRST, encoded(["a"]))
    producer.send(SECOND, encoded(["b"]))
    producer.flush()
    producer.send(FIRST, encoded(["c"]))
    producer.flush()
    assert {sent.versions for sent in client.sent} == {versions}
    assert added == ([] if transaction_version == 2 else [[FIRST, SECOND]])


# Rule I.2/4.
def test_sequences_continue_within_an_epoch_and_restart_with_a_new_one() -> None:
    client = FakeClient(TOPIC, 1, [code(0)] * 4)
    producer = begun(client)
    for identity in (IDENTITY, IDENTITY, OpenTransaction("id", ProducerIdentity(7, 4), 2)):
        producer.begin(identity)
        producer.send(FIRST, encoded(["a", "b"]))
        written = producer.flush()
    assert written[FIRST].next_sequence == 2
    assert [h.base_sequence for h in headers(client)] == [0, 2, 0]


class SlowClient(FakeClient):
    """A client whose first request in flight is answered when the producer waits."""

    def start(self, leader: int, request: Any, deadline: float) -> Any:
        pending = super().start(leader, request, deadline)
        pending.is_done = False
        self.transport.wait_any = lambda waiting, until: setattr(waiting[0], "is_done", True)  # type: ignore[method-assign]
        return pending


def test_producer_memory_is_bounded() -> None:
    limit = 50_000
    client = SlowClient(TOPIC, 1, [code(0)] * 200)
    producer = begun(client, buffer_memory_bytes=limit, max_request_bytes=10_000)
    for _ in range(100):
        producer.send(FIRST, encoded(["x" * 4_000]))
        # What is in flight is there twice.
        assert producer._queued_bytes + producer._in_flight_bytes <= limit
    assert producer.flush()[FIRST].record_count == 100


def test_batch_larger_than_the_buffer_is_sent() -> None:
    client = FakeClient(TOPIC, 1, [code(0)])
    producer = begun(client, buffer_memory_bytes=100)
    producer.send(FIRST, encoded(["x" * 4_000]))
    assert producer.flush()[FIRST].record_count == 1


def test_missing_partition_is_refused_before_sending() -> None:
    client = FakeClient(TOPIC, 2, [])
    producer = begun(client)
    with pytest.raises(TopicError, match="Topic 't' has no partition 2. The topic has 2"):
        producer.send(TopicPartition(TOPIC, 2), encoded(["a"]))


def made_again(client: FakeClient, partitions: int) -> Callable[[SentProduce], Any]:
    """Refuse a request because its topic was deleted and created again."""

    def refuse(sent: SentProduce) -> Any:
        client._topic_id, client.leaders = uuid.uuid4(), dict.fromkeys(range(partitions), 2)
        return produced(sent, int(ErrorCode.UNKNOWN_TOPIC_ID))

    return refuse


def test_topic_made_again_with_fewer_partitions_is_refused_without_a_wait_for_a_leader() -> None:
    client = FakeClient(TOPIC, 2, [])
    client.script += [made_again(client, 1), code(int(ErrorCode.UNKNOWN_TOPIC_ID))]
    producer = begun(client)
    producer.send(SECOND, encoded(["a"]))
    with pytest.raises(TopicError, match="Topic 't' has no partition 1.*created again with fewer partitions, restart"):
        producer.flush()


def test_topic_made_again_takes_all_rows_or_none_of_a_transaction() -> None:
    client = FakeClient(TOPIC, 2, [])
    client.script += [made_again(client, 2), code(int(ErrorCode.UNKNOWN_TOPIC_ID)), code(0)]
    producer = begun(client)
    producer.send(FIRST, encoded(["a"]))
    producer.flush()
    assert [sent.leader for sent in client.sent] == [1, 1, 2]
    assert producer.topic_ids([TOPIC]) == {TOPIC: client._topic_id}
    client.script += [made_again(client, 2), code(int(ErrorCode.UNKNOWN_TOPIC_ID))]
    producer.send(SECOND, encoded(["b"]))
    with pytest.raises(AbortableError, match="created again while .* 1 record for partition 0 are gone"):
        producer.flush()


@pytest.mark.parametrize("partitions", [2, 1])
def test_one_answer_of_a_broker_that_lags_behind_changes_nothing(partitions: int) -> None:
    """It shows the topic before it grew, or the topic of this name that was deleted before."""
    client = FakeClient(TOPIC, 2, [])
    now = client._topic_id

    def lag(sent: SentProduce) -> Any:
        client.leaders = dict.fromkeys(range(partitions), 1)
        client._topic_id = uuid.uuid4() if partitions == 2 else now
        return produced(sent, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def catch_up(sent: SentProduce) -> Any:
        client.leaders, client._topic_id = {0: 1, 1: 3}, now
        return produced(sent, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    client.script += [code(0), lag, catch_up, code(0)]
    producer = begun(client)
    producer.send(FIRST, encoded(["a"]))
    producer.flush()
    producer.send(SECOND, encoded(["b"]))
    producer.flush()
    assert [sent.leader for sent in client.sent] == [1, 1, 1, 3]


def test_calls_out_of_order_are_refused() -> None:
    producer = TransactionalProducer(FakeClient(TOPIC, 1, []))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="no transaction is open"):
        producer.send(FIRST, encoded(["a"]))
    with pytest.raises(AssertionError, match="no transaction is open"):
        producer.abort()
    producer.begin(IDENTITY)
    assert producer.abort() is None, "without records there is nothing to end"


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (["no key."] * 50, "INVALID_RECORD (87), 50 records: no key. If"),
        (["no key.", "too old", "no key."], "(87), 2 records: no key; 1 record: too old. If"),
        (["a", "b", "c", "d", "e"], "1 record: a; 1 record: b; 1 record: c; 2 other reasons. If"),
        ([None, None], "(87), 2 records were refused. If"),
        ([], "(87), 2 records were refused. If"),
    ],
)
def test_reason_for_refused_records_is_given_once(reasons: list[str | None], words: str) -> None:
    def refuse(sent: SentProduce) -> Any:
        answer = produced(sent, ErrorCode.INVALID_RECORD)
        [part] = answer.responses[0].partition_responses
        part.record_errors = [SimpleNamespace(batch_index=0, batch_index_error_message=each) for each in reasons]
        part.error_message = "2 records were refused"
        return answer

    producer = begun(FakeClient(TOPIC, 1, [refuse]))
    producer.send(FIRST, encoded(["a", "b"]))
    with pytest.raises(AbortableError) as caught:
        producer.flush()
    assert words in str(caught.value)
