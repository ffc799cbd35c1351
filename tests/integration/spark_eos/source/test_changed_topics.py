"""Topics that an answer lacks for a moment, that are deleted, and that are deleted and created again."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest

from broker_core import Disconnect, EmbeddedBroker, Error
from broker_core.types import TopicPartition
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.metadata import metadata_request
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import DataLossError, EosKafkaError, OptionError, UnansweredError, UnreachableError
from spark_eos.options.source import batch_options
from spark_eos.source.planner import Planner
from tests.support.spark_eos.source_data import add_partitions, delete_topic, send_plain
from tests.support.spark_eos.source_query import Query, offsets_in, running
from tests.support.waiting import wait_until

ALWAYS_NEW = {"kafka.metadata.max.age.ms": "0"}


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"a": 2, "b": 1}) as broker:
        for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
            send_plain(broker.bootstrap_servers, topic, "vwxyz", partition=partition)
        yield broker


def caught_up(kafka: EmbeddedBroker, **options: str) -> Query:
    """Start a query that has read everything; its position is as in a checkpoint."""
    query = Query(kafka.bootstrap_servers, startingOffsets="earliest", **ALWAYS_NEW | options)
    assert len(query.trigger()) == 5 * len(query.position and [tp for each in query.position.values() for tp in each])
    assert query.trigger() == []
    return query


def connected(query: Query) -> Query:
    """Let a query that waits a moment only, which may be too short on a busy machine, find that there is no record."""

    def has_read() -> bool:
        with suppress(UnansweredError, UnreachableError):
            return query.texts() == []
        return False

    wait_until(has_read, "the broker answers in time")
    return query


SUBSCRIPTIONS = [{"subscribe": "a"}, {"subscribe": "a,b"}, {"subscribePattern": "a|b"}, {"assign": '{"a":[0,1]}'}]


CODES = ["UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_SERVER_ERROR"]
# Each code with both settings, and each kind of subscription with two of the codes and with both settings.
LACKING = [
    (SUBSCRIPTIONS[(number + place) % 4], code, fail)
    for number, code in enumerate(CODES)
    for place, fail in enumerate(("true", "false"))
]


@pytest.mark.parametrize(("subscription", "code", "fail"), LACKING)
def test_answers_without_a_topic_neither_lose_nor_repeat_its_records(
    kafka: EmbeddedBroker, subscription: dict[str, str], code: str, fail: str
) -> None:
    query = caught_up(kafka, failOnDataLoss=fail, **subscription)
    kafka.fault(api="Metadata", action=Error(code), topic="a", times=2)
    assert query.trigger() == []
    send_plain(kafka.bootstrap_servers, "a", "!")
    assert query.texts() == ["!"]
    query.reader.stop()


@pytest.mark.parametrize("api", ["ListOffsets", "Fetch"])
def test_one_refusal_stops_no_query(kafka: EmbeddedBroker, api: str) -> None:
    query = caught_up(kafka, subscribe="a")
    send_plain(kafka.bootstrap_servers, "a", "!")
    kafka.fault(api=api, action=Error("TOPIC_AUTHORIZATION_FAILED"), topic="a", times=1)
    assert query.texts() == ["!"]
    query.reader.stop()


@pytest.mark.parametrize("prepared", [True, False])
def test_restart_survives_an_answer_without_a_topic(kafka: EmbeddedBroker, prepared: bool) -> None:
    query = caught_up(kafka, subscribe="a,b", failOnDataLoss="false")
    send_plain(kafka.bootstrap_servers, "a", "!")
    kafka.fault(api="Metadata", action=Error("UNKNOWN_TOPIC_OR_PARTITION"), topic="a", times=1)
    query = query.restarted()
    if prepared:
        query.reader.prepareForTriggerAvailableNow()
    assert query.texts() == ["!"]
    assert query.texts() == []
    query.reader.stop()


@pytest.mark.parametrize("fail", ["true", "false"])
@pytest.mark.parametrize("subscription", [{"subscribe": "a,b"}, {"subscribePattern": "a|b"}], ids=str)
def test_available_now_goes_on_after_a_topic_was_deleted(
    kafka: EmbeddedBroker, subscription: dict[str, str], fail: str
) -> None:
    query = caught_up(kafka, **subscription)
    delete_topic(kafka.bootstrap_servers, "b")
    send_plain(kafka.bootstrap_servers, "a", "!")
    query = query.restarted(failOnDataLoss=fail)
    query.reader.prepareForTriggerAvailableNow()
    if fail == "true":
        with pytest.raises(DataLossError, match="PARTITIONS_DELETED.*b-0"):
            query.trigger()
    else:
        assert query.texts() == ["!"]
        assert query.texts() == []
    query.reader.stop()


def test_new_query_survives_an_answer_without_its_topic(kafka: EmbeddedBroker) -> None:
    kafka.fault(api="Metadata", action=Error("UNKNOWN_TOPIC_OR_PARTITION"), topic="b", times=2)
    with running(kafka.bootstrap_servers, subscribe="b", startingOffsets="earliest") as query:
        assert query.texts() == list("vwxyz")


@pytest.mark.parametrize("subscription", [{"subscribePattern": "a|b|c"}, {"subscribe": "a,b"}])
def test_read_begins_with_what_several_brokers_know(subscription: dict[str, str]) -> None:
    """One that is cut off knows no new topic, partition or leader, and does not know that a topic is gone."""
    with EmbeddedBroker(brokers=3, topics={"a": 1, "c": 1}) as kafka:
        kafka.move_leader(("a", 0), 1)
        first = kafka.bootstrap_servers.split(",")[0]
        options = batch_options({"kafka.bootstrap.servers": first} | subscription)
        with kafka.stale_broker(1), KafkaClient(options.client) as client:
            kafka.create_topic("b")
            kafka.move_leader(("a", 0), 2)
            add_partitions(kafka.bootstrap_servers.split(",")[1], "a", 2)
            delete_topic(kafka.bootstrap_servers.split(",")[1], "c")
            for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
                kafka.produce(topic, "x", partition=partition)
            # Where any broker will do, the client uses the one that is connected.
            client.send(1, metadata_request([]))
            _, end, _ = Planner(OffsetLookup(client), options).batch_bounds()
            assert end == {TopicPartition(*place): 1 for place in (("a", 0), ("a", 1), ("b", 0))}


REFUSED = Error("REBOOTSTRAP_REQUIRED")


@pytest.mark.parametrize(
    ("api", "action", "short_times", "long_times", "raised", "text"),
    [
        ("ListOffsets", Disconnect(), 8, 20, UnansweredError, ""),
        ("Metadata", REFUSED, 12, None, UnreachableError, "REBOOTSTRAP_REQUIRED"),
    ],
    ids=["no answers", "metadata that all brokers refuse"],
)
def test_outage_longer_than_the_api_timeout_does_not_stop_a_running_query(
    kafka: EmbeddedBroker,
    caplog: pytest.LogCaptureFixture,
    api: str,
    action: Disconnect | Error,
    short_times: int,
    long_times: int | None,
    raised: type[EosKafkaError],
    text: str,
) -> None:
    short = {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200", "kafka.retry.backoff.ms": "50"}
    query = connected(caught_up(kafka, subscribe="b").restarted(**short))
    send_plain(kafka.bootstrap_servers, "b", "!")
    kafka.fault(api=api, action=action, times=short_times)
    assert query.texts() == ["!"]
    assert "outageTimeout" in caplog.text and text in caplog.text
    query = connected(query.restarted(outageTimeout="0"))
    kafka.fault(api=api, action=action, times=long_times)
    with pytest.raises(raised, match=text or None):
        query.trigger()
    query.reader.stop()


def test_deleted_topic_is_named_and_a_restart_finds_it_again(
    kafka: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    query = caught_up(kafka, subscribe="a,b")
    delete_topic(kafka.bootstrap_servers, "b")
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*b-0 \(read up to offset 5\)"):
        query.trigger()
    query = query.restarted(failOnDataLoss="false")
    send_plain(kafka.bootstrap_servers, "a", "1")
    assert query.texts() == ["1"]
    assert "PARTITIONS_DELETED" in caplog.text
    kafka.create_topic("b", 1)
    send_plain(kafka.bootstrap_servers, "b", range(7))
    assert query.texts() == [str(number) for number in range(7)], "a new topic, longer than what was read of the old"
    query.reader.stop()


@pytest.mark.parametrize(
    ("subscription", "length"), [(SUBSCRIPTIONS[0], 2), (SUBSCRIPTIONS[0], 5), *((each, 9) for each in SUBSCRIPTIONS)]
)
def test_topic_created_again_is_read_from_its_first_record(
    kafka: EmbeddedBroker, subscription: dict[str, str], length: int
) -> None:
    """The query is stopped meanwhile; the restart after the error does not skip the records either."""
    query = caught_up(kafka, **subscription)
    delete_topic(kafka.bootstrap_servers, "a")
    kafka.create_topic("a", 2)
    send_plain(kafka.bootstrap_servers, "a", range(length))
    for _ in range(2):
        query = query.restarted()
        with pytest.raises(DataLossError, match=r"TOPIC_RECREATED.*a-0 was read up to offset 5 of the topic with id"):
            query.trigger()
    query = query.restarted(failOnDataLoss="false", maxOffsetsPerTrigger="4")
    found = query.texts()
    pending = query.position
    # The micro-batch runs again after a crash, and the option is as before by then.
    query = query.restarted(failOnDataLoss="true")
    while rows := query.texts():
        found += rows
    assert found == [str(number) for number in range(length)]
    assert offsets_in(pending)["a"] == {"0": min(length, 4), "1": 0}
    query.reader.stop()


def test_running_query_reads_a_topic_created_again_from_its_first_record(
    kafka: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    query = caught_up(kafka, subscribe="a,b", failOnDataLoss="false")
    send_plain(kafka.bootstrap_servers, "b", "!")
    delete_topic(kafka.bootstrap_servers, "a")
    kafka.create_topic("a", 1)
    send_plain(kafka.bootstrap_servers, "a", range(6))
    start, end = query.position, query.end()
    assert query.run_to(end) == [("a", 0, number, str(number)) for number in range(6)] + [("b", 0, 5, "!")]
    assert caplog.text.count("TOPIC_RECREATED") == 1
    again = Query(kafka.bootstrap_servers, start, **query.options)
    assert len(again.run_to(end)) == 7
    assert again.trigger() == []
    again.reader.stop()
    query.reader.stop()


def test_planned_records_of_a_topic_that_was_created_again_are_not_replaced_by_others(kafka: EmbeddedBroker) -> None:
    query = caught_up(kafka, subscribe="b", failOnDataLoss="false")
    send_plain(kafka.bootstrap_servers, "b", "!?")
    end = query.end()
    delete_topic(kafka.bootstrap_servers, "b")
    kafka.create_topic("b", 1)
    send_plain(kafka.bootstrap_servers, "b", range(9))
    assert query.run_to(end) == []
    assert query.texts() == [str(number) for number in range(9)]
    query.reader.stop()


def test_deleted_topic_keeps_no_group_commit_waiting(kafka: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A broker refuses offsets of a missing topic, as it does for a moment of a new one, so a commit is repeated."""
    group = {"commitOffsetsToGroup": "true", "kafka.group.id": "g"}
    query = caught_up(kafka, subscribe="a,b", failOnDataLoss="false", **group)
    delete_topic(kafka.bootstrap_servers, "b")
    send_plain(kafka.bootstrap_servers, "a", "1")
    assert query.texts() == ["1"]
    before = len(kafka.requests(api="OffsetCommit"))
    assert query.trigger() == []
    assert len(kafka.requests(api="OffsetCommit")) == before + 1
    assert kafka.group("g").committed[TopicPartition("a", 0)] == 6
    assert "could not be committed" not in caplog.text
    query.reader.stop()


def test_checkpoint_without_topic_ids_gets_them_at_its_first_trigger(kafka: EmbeddedBroker) -> None:
    """As Spark's own source and earlier versions write it."""
    query = Query(kafka.bootstrap_servers, {"b": {"0": 5}}, subscribe="b", **ALWAYS_NEW)
    assert query.trigger() == []
    assert offsets_in(query.position) == {"b": {"0": 5}}
    assert "topicIds" in json.dumps(query.position)
    delete_topic(kafka.bootstrap_servers, "b")
    kafka.create_topic("b", 1)
    send_plain(kafka.bootstrap_servers, "b", range(9))
    query = query.restarted()
    with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
        query.trigger()
    query.reader.stop()


def test_topic_of_another_cluster_is_named_and_read_on_without_the_ids_in_the_checkpoint(kafka: EmbeddedBroker) -> None:
    query = caught_up(kafka, subscribe="b")
    query.reader.stop()
    with EmbeddedBroker(topics={"b": 1}) as mirror:
        send_plain(mirror.bootstrap_servers, "b", "vwxyz!")
        moved = Query(mirror.bootstrap_servers, query.position, **query.options)
        with pytest.raises(DataLossError, match="TOPIC_RECREATED.*or these brokers are another cluster.*#move"):
            moved.trigger()
        moved.reader.stop()
        moved = Query(mirror.bootstrap_servers, offsets_in(query.position), **query.options)
        assert moved.texts() == ["!"]
        assert moved.trigger() == []
        moved.reader.stop()


def test_topic_that_grows_costs_no_doubt(kafka: EmbeddedBroker) -> None:
    query = caught_up(kafka, subscribe="a")
    add_partitions(kafka.bootstrap_servers, "a", 3)
    send_plain(kafka.bootstrap_servers, "a", "!", partition=2)
    assert query.texts() == ["!"]
    query.reader.stop()


def test_option_that_names_another_topic_is_named(kafka: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    query = caught_up(kafka, subscribe="a")
    with pytest.raises(OptionError, match=r"Option 'subscribe' leaves out partitions .*: a-0 \(read up to offset 5\)"):
        query.restarted(subscribe="b").trigger()
    query = query.restarted(subscribe="b", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert query.texts() == list("vwxyz")
    assert "PARTITIONS_DELETED" not in caplog.text
    query.reader.stop()


@pytest.mark.parametrize("length", [0, 3, 9])
def test_available_now_reads_a_topic_created_again_since_its_ends_were_fixed(
    kafka: EmbeddedBroker, length: int
) -> None:
    """The end is in the checkpoint before it is checked, so it must not be that of the old topic."""
    query = caught_up(kafka, subscribe="a,b", failOnDataLoss="false").restarted()
    send_plain(kafka.bootstrap_servers, "a", "12")
    send_plain(kafka.bootstrap_servers, "a", "3", partition=1)
    query.reader.prepareForTriggerAvailableNow()
    delete_topic(kafka.bootstrap_servers, "a")
    kafka.create_topic("a", 1)
    send_plain(kafka.bootstrap_servers, "a", range(length))
    assert query.texts() == [str(number) for number in range(length)]
    assert query.texts() == []
    query = query.restarted()
    send_plain(kafka.bootstrap_servers, "a", "!")
    assert query.texts() == ["!"]
    query.reader.stop()
