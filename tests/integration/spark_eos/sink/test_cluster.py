"""The sink on a real broker that is slow, has expired state, or lags behind."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from kafka.protocol.metadata import MetadataResponse

from broker_core import EmbeddedBroker
from broker_core.errors import ErrorCode
from broker_core.types import ProducerIdentity, TopicPartition
from spark_eos.admin.command import ExitCode, main
from spark_eos.client import transactions
from spark_eos.client.coordinator_cache import CoordinatorType
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import RecentTopics
from spark_eos.client.producer import TransactionalProducer
from spark_eos.client.response_decoders import FilteredMetadata
from spark_eos.errors import EosKafkaError, TopicError, UnansweredError, UnreachableError
from spark_eos.open_transaction import EndAnswer, OpenTransaction
from spark_eos.options.client import ClientOptions
from spark_eos.options.sink import SinkOptions
from spark_eos.sink import decision_writer
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.factory import driver_timeout_ms
from spark_eos.sink.naming import TaskId, decision_partition
from spark_eos.sink.prepared import PreparedTransaction
from spark_eos.sink.protocol import settlement
from spark_eos.sink.protocol.action_table import Fate
from spark_eos.sink.protocol.answers import ShortLogError
from spark_eos.sink.protocol.retirement import Retirement
from tests.support.spark_eos import driving
from tests.support.spark_eos.client_world import FakeClient, encoded, unique
from tests.support.spark_eos.driving import LogOn, fates_of
from tests.support.spark_eos.prepared_tasks import prepare
from tests.support.spark_eos.sink_world import PLACE, World
from tests.support.spark_eos.source_data import delete_records
from tests.support.waiting import wait_until


@pytest.fixture
def world(kafka_address: str) -> Iterator[World]:
    with KafkaClient(ClientOptions((kafka_address,))) as client:
        yield World(kafka_address, client)


def _forget_topic(world: World, monkeypatch: pytest.MonkeyPatch, answers: float) -> None:
    """Remove the decision topic from metadata responses, as on a broker that has just started."""
    ask, left = world.client.metadata, [answers]

    def lagging(topics: Any, **more: Any) -> Any:
        found = ask(topics, **more)
        if world.decisions not in found or left[0] <= 0:
            return found
        left[0] -= 1
        unknown = replace(found[world.decisions], error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions={})
        return {**found, world.decisions: unknown}

    ask_filtered = world.client.ask_metadata

    def lagging_look_up(*asked: Any, **more: Any) -> Any:
        response = ask_filtered(*asked, **more)
        if isinstance(response, FilteredMetadata) and left[0] > 0:
            response.topics.pop(world.decisions, None)
        return response

    monkeypatch.setattr(world.client, "metadata", lagging)
    # From a new process: one that asked a moment ago uses what it knows, and the leaders check that.
    monkeypatch.setattr(world.client, "recent", RecentTopics())
    monkeypatch.setattr(world.client, "ask_metadata", lagging_look_up)


def _lag(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any broker answer a new process from before the decision topic had its last two partitions."""
    ask = world.client.ask_metadata

    def lagging(*asked: Any, **more: Any) -> Any:
        response = ask(*asked, **more)
        for topic in response.topics if isinstance(response, MetadataResponse) else ():
            if topic.name == world.decisions:
                topic.partitions = [each for each in topic.partitions if each.partition_index < 2]
        return response

    monkeypatch.setattr(world.client, "ask_metadata", lagging)
    monkeypatch.setattr(world.client, "recent", RecentTopics())


def test_broker_briefly_unaware_of_the_decision_topic_duplicates_no_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.committer("run1").commit([world.prepare("run1")], 0)
    again = world.prepare("run2")
    _forget_topic(world, monkeypatch, answers=2)
    world.committer("run2").commit([again], 0)
    assert world.visible() == ["row of 0"]


@pytest.mark.parametrize(
    "read",
    [
        lambda world: world.log().newest(),
        lambda world: world.cluster.find_records({TopicPartition(world.decisions, 0): None}, lambda *_: True),
        lambda world: world.cluster.read_records(TopicPartition(world.decisions, 0), 0, 1),
        lambda world: world.cluster.read_records(TopicPartition(world.topic, 99), 0, 1),
    ],
    ids=["pointer", "scan", "record", "record of no partition"],
)
def test_missing_decision_topic_is_not_treated_as_empty(
    world: World, monkeypatch: pytest.MonkeyPatch, read: Callable[[World], object]
) -> None:
    _forget_topic(world, monkeypatch, answers=float("inf"))
    with pytest.raises(TopicError):
        read(world)


def test_leader_whose_log_ends_before_a_decision_is_asked_until_the_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.committer("run1").commit([world.prepare("run1")], 0)
    waits: list[int] = []

    def back_off(attempt: int, _: float, **__: Any) -> bool:
        waits.append(attempt)
        return attempt < 3

    monkeypatch.setattr(world.client, "back_off", back_off)
    with pytest.raises(ShortLogError, match="does not have offset 1000"):
        world.cluster.read_records(TopicPartition(world.decisions, 0), 1_000, 1)
    assert waits == [0, 1, 2, 3]


def test_abort_ends_nothing_while_the_decision_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = world.prepare("run1")
    world.log().decide(world.decision(prepared), world.log().take_over())
    with monkeypatch.context() as lagging:
        _forget_topic(world, lagging, answers=float("inf"))
        with pytest.raises(TopicError):
            world.committer("run1").abort([prepared], 0)
    assert world.state_of(prepared) == "Ongoing"
    world.committer("run1").abort([prepared], 0)
    assert world.state_of(prepared) == "Ongoing"


@pytest.mark.parametrize("applied", [False, True])
def test_failed_end_txn_of_the_decision_is_resolved_by_the_pointer(
    world: World, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    """A decision that certainly failed is made again, in another transaction of the driver."""
    end, failed = decision_writer.end_txn, []

    def fail(client: KafkaClient, opened: OpenTransaction, **more: Any) -> EndAnswer:
        if failed:
            return end(client, opened, **more)
        failed.append(opened)
        if applied:
            end(client, opened, **more)
        raise UnreachableError("No coordinator found")

    prepared = world.prepare("run1")
    monkeypatch.setattr(decision_writer, "end_txn", fail)
    world.committer("run1").commit([prepared], 0)
    assert world.log().newest().run == "run1"
    assert world.state_of(prepared) == "CompleteCommit"
    assert world.visible() == ["row of 0"]


def test_id_forgotten_by_the_coordinator_is_recognized_by_its_error_code(world: World) -> None:
    """The committer relies on this code when a query was idle for so long that the driver's id expired."""
    log = world.log()
    driver = log.take_over()
    producer = driver.producer._replace(producer_id=driver.producer.producer_id + 1_000_000)
    stranger = replace(driver, transaction=driver.transaction._replace(producer=producer))
    with pytest.raises(EosKafkaError) as caught:
        log.decide(world.decision(world.prepare("run1")), stranger)
    assert caught.value.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("commit", [True, False])
def test_records_blocked_by_a_foreign_transaction_are_resolved_by_their_marker(
    world: World, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    foreign = transactions.init_producer_id(world.client, unique("foreign"), transaction_timeout_ms=60_000)
    producer = TransactionalProducer(world.client)
    producer.begin(foreign)
    producer.send(TopicPartition(world.topic, PLACE), encoded(["foreign"]))
    producer.flush()
    transaction = world.prepare("run1").transaction
    with monkeypatch.context() as forgetful:
        forgetful.setattr(settlement, "described_fate", lambda *_: None)
        assert fates_of(world.cluster, [transaction]) == {transaction: Fate.HIDDEN}
    driving.end_all(world.cluster, [transaction], commit=commit)
    # After further InitProducerIds the id's coordinator no longer knows the outcome.
    transactions.init_producer_id(world.client, transaction.transactional_id, transaction_timeout_ms=60_000)
    transactions.init_producer_id(world.client, transaction.transactional_id, transaction_timeout_ms=60_000)
    fate = Fate.COMMITTED if commit else Fate.LOST
    wait_until(lambda: fates_of(world.cluster, [transaction])[transaction] is fate, "the marker is found")
    assert world.visible() == []
    producer.abort()
    wait_until(lambda: fates_of(world.cluster, [transaction])[transaction] is fate, "readers see the same")


@pytest.mark.parametrize("version", [1, 2])
def test_open_transactions_are_aborted_when_part_of_the_batch_timed_out(
    kafka_address: str, tv1_address: str, version: int
) -> None:
    """Under the old protocol only the marker shows the outcome, and the open transaction before it blocks readers."""
    with KafkaClient(ClientOptions((kafka_address if version == 2 else tv1_address,))) as client:
        world = World(client.options.bootstrap_servers[0], client)
        still_open, lost = world.prepare("run1"), world.prepare("run1", split=1, timeout_ms=1_000)
        log = world.log()
        log.decide(world.decision(still_open, lost), log.take_over())
        wait_until(lambda: world.state_of(lost) == "CompleteAbort", "one transaction times out")
        assert world.state_of(still_open) == "Ongoing"
        world.committer("run2").commit([world.prepare("run2"), world.prepare("run2", split=1)], 0)
        # The driver of run 1 resumes.
        assert driving.end_all(world.cluster, [still_open.transaction, lost.transaction], commit=True) == set()
        assert world.visible() == ["row of 0"] * 2
        newest = world.log().newest()
    assert newest is not None and (newest.attempt, newest.run) == (2, "run2")


@pytest.mark.parametrize(("version", "retirement"), [(2, Retirement.MARK), (1, Retirement.FORGET)])
def test_finished_job_is_reported_or_leaves_no_state(
    kafka_address: str, tv1_address: str, version: int, retirement: Retirement
) -> None:
    address = kafka_address if version == 2 else tv1_address
    with KafkaClient(ClientOptions((address,))) as client:
        world = World(address, client)
        committer = world.committer("run1")
        committer.own.retirement = retirement
        committer.commit([world.prepare("run1")], 0)
        values = [record.value for _, record in world.cluster.all_records(world.decisions)]
        assert world.visible() == ["row of 0"]
        newest = world.log().newest()
    assert len(values) == 2
    assert (values[-1] is None) == (retirement is Retirement.FORGET)
    if retirement is Retirement.MARK:
        assert newest is not None
        assert newest.completed_at_ms is not None


@pytest.mark.parametrize("key_type", CoordinatorType)
def test_removed_coordinator_is_forgotten_and_looked_up_again(world: World, key_type: CoordinatorType) -> None:
    prepared = world.prepare("run1")
    transactional_id = prepared.transaction.transactional_id
    keys = {CoordinatorType.GROUP: f"p.{world.query}", CoordinatorType.TRANSACTION: transactional_id}
    world.client.find_coordinator(key_type, keys[key_type])
    world.client._coordinators._nodes[key_type, keys[key_type]] = 4711
    world.committer("run1").commit([prepared], 0)
    assert world.visible() == ["row of 0"]


@pytest.mark.parametrize(
    ("timeout_ms", "expected_ms"),
    [(None, 5_000), (2_000, 2_000), (60_000, 5_000), (200_000, 10_000), (900_000, 15_000)],
)
def test_driver_timeout_is_within_the_margin_where_possible(timeout_ms: int | None, expected_ms: int) -> None:
    options = SinkOptions(ClientOptions(("h:1",)), transaction_timeout_ms=timeout_ms)
    assert driver_timeout_ms(options) == expected_ms


def test_partitions_without_a_leader_are_reported_and_uncertainty_does_not_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client: Any = FakeClient("t", 3, [])
    cluster = KafkaCluster(client, "decisions")
    assert cluster.leaderless_partitions(["t"]) == {"t": []}
    client.leaders[1] = -1
    assert cluster.leaderless_partitions(["t"]) == {"t": [1]}

    def unanswered(*_: object, **__: object) -> None:
        raise UnreachableError("no broker answers")

    monkeypatch.setattr(client, "require_topics", unanswered)
    assert not cluster.leaderless_partitions(["t"])


def test_job_killed_during_completion_is_reported_and_completed_by_a_command(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a jobId no later run finds the transactions, so only the command can complete them."""
    world.query = unique("job")
    job = world.committer("run1")
    job.own.retirement = Retirement.FORGET
    tasks = [world.prepare("run1", split=split) for split in range(2)]

    async def killed(prepared: Any, *, commit: bool) -> None:
        await end_all(prepared[:1], commit=commit)
        raise KeyboardInterrupt

    end_all = settlement.end_all
    monkeypatch.setattr("spark_eos.sink.protocol.settlement.end_all", killed)
    with pytest.raises(KeyboardInterrupt):
        job.commit(tasks, 0)
    monkeypatch.undo()

    def states() -> list[str]:
        return [world.state_of(task) for task in tasks]

    # EndTxn is answered before the markers are written.
    wait_until(lambda: states() == ["CompleteCommit", "Ongoing"], "one transaction is completed, one is open")
    reach = ["--bootstrap-server", world.address, "--prefix", "p", "--decision-topic", world.decisions]
    assert main(["decisions", "list", *reach]) == ExitCode.DONE
    assert world.query in capsys.readouterr().out
    words = ["complete", "--yes", "--watch-seconds", "0.1", "--query", world.query]
    assert main(["decisions", *words, *reach]) == ExitCode.DONE
    wait_until(lambda: states() == ["CompleteCommit"] * 2, "both are completed")
    assert world.visible() == ["row of 0"] * 2


class NotingDeadlines(KafkaClient):
    """Notes for how long a request is repeated, and sends none."""

    def deadline(self, timeout_ms: float | None = None) -> Any:
        raise UnansweredError(f"repeated for {timeout_ms}")


@pytest.mark.parametrize(("commit", "repeated_for_ms"), [(True, 5_000), (False, 30_000)])
def test_commit_is_repeated_for_the_api_timeout_at_most(commit: bool, repeated_for_ms: int) -> None:
    with NotingDeadlines(ClientOptions(("h:1",), api_timeout_ms=5_000)) as client:
        opened = OpenTransaction("id", ProducerIdentity(1, 0), 2)
        with pytest.raises(UnansweredError, match=f"repeated for {repeated_for_ms}"):
            KafkaCluster(client, "decisions").end_transactions([opened], commit, 30_000)


def test_view_of_records_that_are_gone_is_empty_and_not_hidden() -> None:
    """The log of a partition tells a transaction's fate; records that are gone tell none, and are not waited for."""
    with EmbeddedBroker(topics={"t": 2}) as kafka, KafkaClient(ClientOptions((kafka.bootstrap_servers,))) as client:
        for value in "abc":
            kafka.produce("t", [value], partition=0)
        delete_records(kafka.bootstrap_servers, "t", 2)
        cluster, kept, emptied = KafkaCluster(client, "decisions"), TopicPartition("t", 0), TopicPartition("t", 1)
        assert cluster.views({kept: 1, emptied: 5}, 10_000) == {kept: None, emptied: None}
        view = cluster.views({kept: 2}, 10_000)[kept]
        assert view is not None and [each.first_offset for each in view.batches] == [2]


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (lambda cluster, topic: cluster.partition_counts([topic]), lambda topic: {topic: 4}),
        (lambda cluster, topic: cluster.views({TopicPartition(topic, 3): 0}, 500), lambda topic: {}),
    ],
    ids=["a count is of the broker that knows most", "a partition is not gone"],
)
def test_broker_that_has_just_started_and_lacks_partitions_is_not_believed(
    world: World,
    read: Callable[[KafkaCluster, str], object],
    found: Callable[[str], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _lag(world, monkeypatch)
    assert read(world.cluster, world.decisions) == found(world.decisions)


def test_decision_in_a_partition_that_a_broker_lacks_is_found_without_its_pointer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a scan finds it under another prefix; to miss it would write the micro-batch again."""
    while decision_partition(world.query, 4) < 2:
        world.query = unique("query")
    world.committer("run1").commit([world.prepare("run1")], 0)
    _lag(world, monkeypatch)
    newest = LogOn(world.cluster, "other", world.query, world.decisions, run="run1").newest()
    assert newest is not None and newest.run == "run1"


@pytest.mark.parametrize("wait_ms", [None, 5_000])
def test_ids_of_all_writes_of_a_query_are_listed_under_any_prefix_with_what_became_of_them(
    world: World, wait_ms: int | None
) -> None:
    query_id = str(uuid4())

    def prepared(prefix: str, number: int, query: str = query_id) -> PreparedTransaction:
        place = TopicPartition(world.topic, PLACE)
        return prepare(
            world.client, TaskId(prefix, query, "run1", "w", number), number, place, ["row"], timeout_ms=60_000
        )

    names = ("p", query_id), ("q.r", query_id), ("p", f"{query_id}/orders")
    still_open, committed, aborted = ([prepared(prefix, n, query) for prefix, query in names] for n in range(3))
    prepared("p", 0, f"{query_id}-2")
    driving.end_all(world.cluster, committed, commit=True)
    driving.end_all(world.cluster, aborted, commit=False)
    found = world.cluster.used_ids(f"{query_id}/other", wait_ms)
    assert {str(task): end for task, end in found.items()} == {
        each.transactional_id: each in committed for each in (*still_open, *committed)
    }
