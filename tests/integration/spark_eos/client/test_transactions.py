"""Transactions prepared on one connection and ended from another, in both versions of the protocol."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.client.group_offsets import OffsetAndMetadata, commit_offsets, fetch_offsets, txn_offset_commit
from spark_eos.client.inspection import describe_transactions, list_transactions
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.transactions import add_partitions_to_txn, end_txn, end_txns, init_producer_id
from spark_eos.errors import EosKafkaError, FencedError, UnansweredError
from spark_eos.open_transaction import OpenTransaction
from spark_eos.options.client import ClientOptions
from tests.support.spark_eos.client_world import encoded, make_topic, read_values, unique
from tests.support.waiting import wait_until

TIMEOUT_MS = 60_000
INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, PRODUCER_FENCED = 49, 48, 90
NO_SUCH_ID = 105


@dataclass
class World:
    """A task's client, a driver's client, and what differs between the two protocol versions."""

    address: str
    task: KafkaClient
    driver: KafkaClient
    version: int

    def begin(self, transactional_id: str | None = None, timeout_ms: int = TIMEOUT_MS) -> OpenTransaction:
        return init_producer_id(self.task, transactional_id or unique("id"), transaction_timeout_ms=timeout_ms)

    def prepare(self, topic: str, values: list[str], identity: OpenTransaction | None = None) -> OpenTransaction:
        identity = identity or self.begin()
        producer = TransactionalProducer(self.task)
        producer.begin(identity)
        producer.send(TopicPartition(topic, 0), encoded(values))
        producer.flush()
        return identity

    def state(self, identity: OpenTransaction) -> str:
        return describe_transactions(self.driver, [identity.transactional_id])[identity.transactional_id].state

    def settled(self, identity: OpenTransaction) -> str:
        def state() -> str:
            now = self.state(identity)
            return now if now.startswith("Complete") else ""

        return wait_until(state, f"{identity} settles")


@contextmanager
def opened(address: str, version: int) -> Iterator[World]:
    options = ClientOptions((address,))
    with KafkaClient(options) as task, KafkaClient(options) as driver:
        assert task.transaction_version() == version
        yield World(address, task, driver, version)


@pytest.fixture
def tv2(kafka_address: str) -> Iterator[World]:
    with opened(kafka_address, 2) as world:
        yield world


@pytest.fixture
def tv1(tv1_address: str) -> Iterator[World]:
    with opened(tv1_address, 1) as world:
        yield world


@pytest.fixture(params=["tv2", "tv1"])
def either(request: pytest.FixtureRequest, kafka_address: str, tv1_address: str) -> Iterator[World]:
    """Run the test on a broker of each version; the brokers are shared, so no test waits for a start."""
    address, version = (kafka_address, 2) if request.param == "tv2" else (tv1_address, 1)
    with opened(address, version) as world:
        yield world


def test_transaction_prepared_by_one_client_is_committed_by_another(either: World) -> None:
    topic = make_topic(either.task, 2)
    identity = either.begin()
    producer = TransactionalProducer(either.task)
    producer.begin(identity)
    producer.send(TopicPartition(topic, 0), encoded(["a", "b"]) + encoded(["c"]))
    producer.send(TopicPartition(topic, 1), encoded(["d"]))
    results = producer.flush()
    assert {each: (r.first_offset, r.last_offset, r.record_count) for each, r in results.items()} == {
        TopicPartition(topic, 0): (0, 2, 3),
        TopicPartition(topic, 1): (0, 0, 1),
    }
    [description] = describe_transactions(either.driver, [identity.transactional_id]).values()
    assert (description.state, description.producer_id) == ("Ongoing", identity.producer.producer_id)
    assert description.producer_epoch == identity.producer.producer_epoch
    assert description.transaction_timeout_ms == TIMEOUT_MS
    assert description.topic_partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert abs(description.start_time_ms / 1000 - time.time()) < 300
    assert read_values(either.address, topic) == [[], []]
    assert read_values(either.address, topic, isolation="read_uncommitted") == [["a", "b", "c"], ["d"]]
    result = end_txn(either.driver, identity, commit=True)
    assert result.code == 0
    assert either.settled(identity) == "CompleteCommit"
    assert read_values(either.address, topic) == [["a", "b", "c"], ["d"]]


# Rule I.2/5.
def test_repeated_commit_gets_the_same_response(either: World) -> None:
    identity = either.prepare(make_topic(either.task), ["a"])
    first = end_txn(either.driver, identity, commit=True)
    with KafkaClient(either.driver.options) as another:
        again = end_txn(another, identity, commit=True)
    assert again == first
    assert first.code == 0


def test_producer_aborts_its_transaction(either: World) -> None:
    topic = make_topic(either.task)
    identity = either.begin()
    producer = TransactionalProducer(either.task)
    producer.begin(identity)
    producer.send(TopicPartition(topic, 0), encoded(["a"]))
    producer.flush()
    producer.send(TopicPartition(topic, 0), encoded(["b"]))
    result = producer.abort()
    assert result is not None
    assert result.code == 0
    assert either.settled(identity) == "CompleteAbort"
    assert read_values(either.address, topic) == [[]]


def test_many_transactions_are_ended_concurrently(either: World) -> None:
    topic = make_topic(either.task)
    identities = [either.prepare(topic, [str(number)]) for number in range(8)]
    results = end_txns(either.driver, identities, commit=True)
    assert {name: answer.code for name, answer in results.items()} == {each.transactional_id: 0 for each in identities}
    for identity in identities:
        assert either.settled(identity) == "CompleteCommit"
    assert sorted(read_values(either.address, topic)[0]) == [str(number) for number in range(8)]


# Rule I.2/4.
def test_tv2_continues_with_the_bumped_epoch_without_init(tv2: World) -> None:
    topic = make_topic(tv2.task)
    identity = tv2.begin()
    for number in range(5):
        tv2.prepare(topic, [f"{number}a", f"{number}b"], identity)
        following = end_txn(tv2.driver, identity, commit=True).next_identity
        assert following == ProducerIdentity(identity.producer.producer_id, identity.producer.producer_epoch + 1)
        identity = identity._replace(producer=following)
    everything = [f"{number}{letter}" for number in range(5) for letter in "ab"]
    assert wait_until(lambda: read_values(tv2.address, topic) == [everything], "all is visible in order")


def test_tv1_keeps_the_epoch_and_continues_with_init(tv1: World) -> None:
    topic = make_topic(tv1.task)
    identity = tv1.prepare(topic, ["a"])
    assert end_txn(tv1.driver, identity, commit=True).next_identity == identity.producer
    following = tv1.begin(identity.transactional_id)
    assert following.producer.producer_epoch == identity.producer.producer_epoch + 1
    tv1.prepare(topic, ["b"], following)
    end_txn(tv1.driver, following, commit=True)
    assert wait_until(lambda: read_values(tv1.address, topic) == [["a", "b"]], "both are visible")


# Rule I.2/4.
def test_tv1_continues_in_one_producer_with_the_same_epoch(tv1: World) -> None:
    topic = make_topic(tv1.task)
    identity = tv1.begin()
    producer = TransactionalProducer(tv1.task)
    for value in ("a", "b", "c"):
        producer.begin(identity)
        producer.send(TopicPartition(topic, 0), encoded([value]))
        producer.flush()
        assert end_txn(tv1.driver, identity, commit=True).code == 0
    assert wait_until(lambda: read_values(tv1.address, topic) == [["a", "b", "c"]], "all are visible")


# Rule I.1/3.
def test_transactions_v2_can_be_disabled(tv2: World) -> None:
    """A transaction of the older protocol ends with it, even if the cluster supports the newer one."""
    topic = make_topic(tv2.task)
    identity = tv2.begin()._replace(transaction_version=1)
    tv2.prepare(topic, ["a"], identity)
    for _ in range(2):
        assert end_txn(tv2.driver, identity, commit=True).code == 0
    assert tv2.settled(identity) == "CompleteCommit"
    assert read_values(tv2.address, topic) == [["a"]]


# Rule I.2/1.
def test_zombie_is_refused_by_leader_and_coordinator(either: World) -> None:
    topic = make_topic(either.task)
    old = either.prepare(topic, ["old"])
    new = either.begin(old.transactional_id)
    assert new.producer != old.producer
    zombie = TransactionalProducer(either.driver)
    zombie.begin(old)
    zombie.send(TopicPartition(topic, 0), encoded(["zombie"]))
    with pytest.raises(FencedError) as caught:
        zombie.flush()
    assert caught.value.error_code in (47, PRODUCER_FENCED)
    assert end_txn(either.driver, old, commit=True).code in (INVALID_TXN_STATE, PRODUCER_FENCED)
    either.prepare(topic, ["new"], new)
    assert end_txn(either.driver, new, commit=True).code == 0
    either.settled(new)
    assert read_values(either.address, topic) == [["new"]]


def test_describing_an_unused_id_is_not_an_error(either: World) -> None:
    missing, used = unique("missing"), either.prepare(make_topic(either.task), ["a"])
    found = describe_transactions(either.driver, [missing, used.transactional_id])
    assert (found[missing].exists, found[missing].error_code) == (False, NO_SUCH_ID)
    assert found[used.transactional_id].exists
    unknown = used._replace(transactional_id=missing)
    assert end_txn(either.driver, unknown, commit=True).code == INVALID_PRODUCER_ID_MAPPING
    end_txn(either.driver, used, commit=False)


def test_open_transactions_are_listed(either: World) -> None:
    prefix = unique("list.ed")
    topic = make_topic(either.task)
    open_one = either.prepare(topic, ["a"], either.begin(f"{prefix}.open"))
    done = either.prepare(topic, ["b"], either.begin(f"{prefix}.done"))
    end_txn(either.driver, done, commit=True)
    either.settled(done)
    listed = list_transactions(either.driver, states=["Ongoing"])
    assert [each.transactional_id for each in listed if each.transactional_id.startswith(prefix)] == [f"{prefix}.open"]
    both = list_transactions(either.driver, id_pattern=prefix.replace(".", "\\.") + ".*")
    mine = {each.transactional_id: each.state for each in both if each.transactional_id.startswith(prefix)}
    assert mine == {f"{prefix}.open": "Ongoing", f"{prefix}.done": "CompleteCommit"}
    assert end_txn(either.driver, open_one, commit=False).code == 0


def test_offsets_become_visible_with_the_commit(either: World) -> None:
    topic, group = make_topic(either.task), unique("group")
    where = TopicPartition(topic, 0)
    identity = either.prepare(topic, ["a"])
    txn_offset_commit(either.task, identity, group, {where: OffsetAndMetadata(17, "batch 4")})
    assert fetch_offsets(either.driver, group, [where], require_stable=False) == {}

    def is_called_unstable() -> bool:
        with pytest.raises(UnansweredError) as caught:
            fetch_offsets(either.driver, group, [where], timeout_ms=300)
        # An attempt that its own time limit ends has no error code of the broker.
        return caught.value.error_code == 88

    wait_until(is_called_unstable, "UNSTABLE_OFFSET_COMMIT")
    assert end_txn(either.driver, identity, commit=True).code == 0
    found = fetch_offsets(either.driver, group, [where])
    assert (found[where].offset, found[where].metadata) == (17, "batch 4")
    assert fetch_offsets(either.driver, group, None) == found


# Rule I.2/3.
@pytest.mark.parametrize(
    ("level", "expected"), [(1, {"AddOffsetsToTxn": 4, "TxnOffsetCommit": 4}), (2, {"TxnOffsetCommit": 5})]
)
def test_offsets_are_added_by_the_client_or_the_group_coordinator(level: int, expected: dict[str, int]) -> None:
    with EmbeddedBroker(transaction_version=level) as kafka, opened(kafka.bootstrap_servers, level) as world:
        identity = world.begin()
        txn_offset_commit(
            world.task, identity, "group", {TopicPartition(make_topic(world.task), 0): OffsetAndMetadata(1)}
        )
        seen = {
            each.api: each.version for each in kafka.requests() if each.api in ("AddOffsetsToTxn", "TxnOffsetCommit")
        }
        assert seen.keys() == expected.keys()
        assert all(seen[api] <= expected[api] for api in seen)
        assert (seen["TxnOffsetCommit"] == 5) == (level == 2)
        assert end_txn(world.driver, identity, commit=False).code == 0


def test_aborted_offsets_are_discarded(either: World) -> None:
    topic, group = make_topic(either.task), unique("group")
    identity = either.begin()
    txn_offset_commit(either.task, identity, group, {TopicPartition(topic, 0): OffsetAndMetadata(17)})
    assert end_txn(either.driver, identity, commit=False).code == 0
    assert fetch_offsets(either.driver, group, [TopicPartition(topic, 0)]) == {}


def test_missing_partition_cannot_be_added(tv1: World) -> None:
    topic, identity = make_topic(tv1.task), tv1.begin()

    def is_named() -> bool:
        with pytest.raises(EosKafkaError) as caught:
            add_partitions_to_txn(tv1.task, identity, [TopicPartition(topic, 9)], timeout_ms=500)
        # An attempt that its own time limit ends has no error code of the broker.
        return "UNKNOWN_TOPIC_OR_PARTITION" in str(caught.value)

    wait_until(is_named, "the partition is named as missing")


def test_timeout_above_the_broker_maximum_is_refused_with_a_remedy(either: World) -> None:
    with pytest.raises(EosKafkaError, match=r"asked with a transaction timeout of 3600000 ms.*transactionTimeout"):
        either.begin(timeout_ms=3_600_000)


@pytest.mark.parametrize("call", ["OffsetFetch", "OffsetCommit"])
def test_answer_without_the_partition_says_nothing_of_its_offset(
    tv2: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    group, where = unique("group"), TopicPartition(make_topic(tv2.task), 0)
    commit_offsets(tv2.driver, group, {where: OffsetAndMetadata(7)})
    send_all, sent = tv2.driver.send_all, 0

    def without_topics(requests: Any, **options: Any) -> Any:
        nonlocal sent
        answers = send_all(requests, **options)
        if call in type(requests[0][1]).__name__:
            sent += 1
            for part in [answers[0], *(getattr(answers[0], "groups", None) or ())] if sent == 1 else ():
                part.topics = []
        return answers

    monkeypatch.setattr(tv2.driver, "send_all", without_topics)
    if call == "OffsetCommit":
        commit_offsets(tv2.driver, group, {where: OffsetAndMetadata(7)})
    assert fetch_offsets(tv2.driver, group, [where]) == {where: OffsetAndMetadata(7)}
    assert sent == 2
