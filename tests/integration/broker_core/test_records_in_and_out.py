"""`produce`, `records`, `wait_for_records` and `group` of the embedded broker, which need no Kafka client."""

import doctest
import os
import subprocess
import sys
import threading

import numpy
import pandas
import pytest
from confluent_kafka import Consumer
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from broker_core import Disconnect, EmbeddedBroker, Error, ErrorCode, KafkaError, ProducerRecord
from broker_core.testing import data_controls, groups, inspection_controls, record_list
from broker_core.testing.partitioner import murmur2, partition_of_key
from broker_core.types import TopicPartition
from tests.support.broker_core.broker_command import ROOT
from tests.support.broker_core.produce_consume import consume

DEADLINE_S = 30
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.fixture(scope="module")
def shared():
    with EmbeddedBroker(topics={"four": 4}) as broker:
        yield broker


def test_records_come_back_as_they_were_written(shared):
    shared.create_topic("all-fields", 2)
    sent = [
        b"value",
        "text",
        None,
        ("key", "value"),
        (b"key", None, {"h": b"1", "n": None}),
        ("key", "late", [("h", "1"), ("h", "2")], 5, 1),
        ProducerRecord(value="named", partition=1),
    ]
    places = shared.produce("all-fields", sent, partition=0)
    assert [(each.partition, each.offset) for each in places] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
        (1, 0),
        (1, 1),
    ]
    found = shared.records("all-fields")
    assert found.values == [b"value", b"text", None, b"value", None, b"late", b"named"]
    assert found.keys == [None, None, None, b"key", b"key", b"key", None]
    assert found[4].headers == (("h", b"1"), ("n", None))
    assert found[5].headers == (("h", b"1"), ("h", b"2"))
    assert (found[5].timestamp_ms, places[5].timestamp_ms) == (5, 5)
    assert [each.timestamp_ms for each in found[:5]] == [each.timestamp_ms for each in places[:5]]
    assert sorted(filter(None, consume(shared.bootstrap_servers, "all-fields", 7))) == sorted(
        filter(None, found.values)
    )


def test_keys_go_to_the_partitions_of_kafkas_partitioner(shared):
    keys = [b"k%d" % number for number in range(200)] + [
        bytes([number]) * length for number, length in [(255, 7), (0, 1)]
    ]
    assert all(murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF for key in keys)
    # The partitions that Java's producer chooses; see Kafka's own test of `Utils.murmur2`.
    assert [murmur2(each) - 2**32 for each in (b"21", b"foobar", b"a-little-bit-long-string")] == [
        -973932308,
        -790332482,
        -985981536,
    ]
    places = shared.produce("four", [(key, b"") for key in keys])
    assert [each.partition for each in places] == [partition_of_key(key, 4) for key in keys]


def test_records_without_key_stay_together_and_calls_take_turns(shared):
    shared.create_topic("turns", 2)
    calls = [{each.partition for each in shared.produce("turns", ["a", "b", "c"])} for _ in range(3)]
    assert calls == [{0}, {1}, {0}]


def test_many_records_are_written_in_batches_that_the_topic_allows(shared):
    shared.create_topic("small-batches", 1, {"max.message.bytes": "2000"})
    values = [b"%0100d" % number for number in range(100)]
    shared.produce("small-batches", values, transactional="batches")
    assert shared.records("small-batches", isolation="read_committed").values == values
    with pytest.raises(KafkaError) as raised:
        shared.produce("small-batches", b"x" * 3000)
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("transaction_version", [2, 0])
def test_transactions_end_as_asked(transaction_version):
    with EmbeddedBroker(topics={"in": 2}, transaction_version=transaction_version) as kafka:
        kafka.produce("in", ["1", "2"], transactional=True)
        kafka.produce("in", ["dropped"], transactional="other", end="abort")
        kafka.produce("in", [("k", "open")], transactional="open", end="open")
        assert kafka.transaction("open").state == "Ongoing"
        assert kafka.records("in", isolation="read_committed").values == [b"1", b"2"]
        assert sorted(kafka.records("in", isolation="read_uncommitted").values) == [b"1", b"2", b"dropped", b"open"]
        assert [each.marker for each in kafka.records("in") if each.is_control].count("COMMIT") == 1
        kafka.end_transaction("open")
        assert sorted(kafka.wait_for_records("in", 3).values) == [b"1", b"2", b"open"]
        with pytest.raises(KafkaError, match="not Ongoing"):
            kafka.end_transaction("open")
        with pytest.raises(KeyError):
            kafka.end_transaction("unknown")
        # A failed write leaves nothing open.
        with pytest.raises(KafkaError):
            kafka.produce("in", ["ok", b"x" * 2_000_000], transactional=True)
        assert kafka.records("in", isolation="read_committed").values.count(b"ok") == 0
        kafka.assert_quiescent()


def test_a_new_transaction_fences_the_client_of_the_same_id(kafka, kafka_producer):
    producer = kafka_producer({"transactional.id": "t"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("in", b"client's")
    producer.flush(DEADLINE_S)
    kafka.produce("in", b"test's", transactional="t")
    assert kafka.records("in", isolation="read_committed").values == [b"test's"]


def test_writes_of_the_test_are_not_those_of_the_code_under_test(kafka):
    with kafka.fault(api="Produce", action=Disconnect()) as fault, kafka.fault(action=Error("UNKNOWN_SERVER_ERROR")):
        kafka.produce("in", ["one"])
    assert fault.hits == 0
    assert kafka.requests() == []


@pytest.mark.kafka(config=AUTHORIZER, topics={"in": 1})
def test_access_control_does_not_apply_to_writes_of_the_test(kafka):
    kafka.produce("in", ["one"], transactional=True)
    assert kafka.records("in", isolation="read_committed").values == [b"one"]


@pytest.mark.kafka(brokers=2, topics={"in": 2})
def test_writes_go_to_the_leader_of_each_partition(kafka):
    kafka.broker(1).stop()
    kafka.produce("in", [(None, "a", (), None, 0), (None, "b", (), None, 1)], transactional=True)
    assert kafka.records("in", isolation="read_committed").values == [b"a", b"b"]
    with kafka.without_leader(("in", 0)), pytest.raises(KafkaError, match="in-0 has no leader"):
        kafka.produce("in", "c", partition=0)


def test_a_topic_is_created_only_where_the_broker_creates_topics():
    with EmbeddedBroker() as kafka:
        kafka.produce("made", ["one"])
        assert kafka.topics == {"made": 1}
    with EmbeddedBroker(config={"auto.create.topics.enable": "false"}) as kafka:
        with pytest.raises(KafkaError, match=r"topic 'in' does not exist.*create_topic\('in'\)"):
            kafka.produce("in", ["one"])
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            kafka.records("in")


@pytest.mark.parametrize(
    ("values", "arguments", "message"),
    [
        ([{"a": 1}], {}, "record 0: the value is dict; expected bytes, str or None: serialize it"),
        (["a", ("k", 7)], {}, "record 1: the value is int"),
        ([("only",)], {}, "record 0 is a tuple of 1"),
        (("k", "v"), {}, "the values are a tuple; write"),
        (
            pandas.DataFrame({"key": ["k"]}),
            {},
            "the values are a DataFrame, which iterates over the names of its",
        ),
        ("v", {"partition": numpy.bool_(True)}, "record 0: partition"),
        ({"k": "v"}, {}, "the values are dict"),
        (7, {}, "the values are int"),
        ([("k", "v", {1: b""})], {}, "the name of a header is 1"),
        ([("k", "v", 5)], {}, "record 0: headers 5"),
        ([("k", "v", (), 1.5)], {}, "record 0: timestamp 1.5"),
        ([("k", "v", (), None, "0")], {}, "record 0: partition '0'"),
        (["v"], {"partition": 4}, "record 0 is for partition 4; topic 'four' has 4, from 0"),
        (["v"], {"end": "abort"}, "end='abort' needs a transaction"),
        (["v"], {"transactional": "t", "end": "rollback"}, "end='rollback': expected one of commit, abort, open"),
        (["v"], {"transactional": 7}, "transactional=7; expected True or"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(shared, values, arguments, message):
    before = [shared.partition("four", number).log_end_offset for number in range(4)]
    with pytest.raises((TypeError, ValueError, KafkaError)) as raised:
        shared.produce("four", values, **arguments)
    assert message in str(raised.value)
    assert [shared.partition("four", number).log_end_offset for number in range(4)] == before


def test_numbers_and_columns_of_numpy_and_pandas_are_written(shared):
    frame = pandas.DataFrame({"key": ["a", None], "value": ["1", "2"]})
    places = shared.produce("four", frame.itertuples(index=False), partition=numpy.int64(3))
    places += shared.produce("four", [("k", "3", (), numpy.int64(1000), numpy.int32(2))])
    places += shared.produce("four", frame["value"], partition=1)
    assert [(each.partition, type(each.partition)) for each in places] == [(n, int) for n in (3, 3, 2, 1, 1)]
    assert shared.records("four", numpy.int64(2))[-1].timestamp_ms == 1000
    assert shared.leader(("four", numpy.int64(2))) == 1


def test_a_partition_may_be_a_number_of_numpy_whose_log_was_not_opened_before():
    with EmbeddedBroker(topics={"t": 3}) as kafka:
        assert kafka.records("t", numpy.int64(1)) == []
        assert kafka.wait_for_records("t", 0, partition=numpy.int64(2)) == []
        assert kafka.partition("t", numpy.int64(0)).log_end_offset == 0


def test_the_transaction_of_the_methods_own_id_is_ended(kafka):
    kafka.produce("in", ["kept"], transactional=True, end="open")
    kafka.end_transaction(True)
    kafka.produce("in", ["dropped"], transactional=True, end="open")
    kafka.end_transaction(True, commit=False)
    assert kafka.records("in", isolation="read_committed").values == [b"kept"]


def test_a_part_of_the_records_converts_too(kafka):
    kafka.produce("in", ["1", "2", "3"])
    newest = kafka.records("in")[-2:]
    assert newest.values == [b"2", b"3"]
    assert newest[0].value == b"2"
    assert list(newest.to_pandas()["offset"]) == [1, 2]


def test_unknown_isolation_level_is_refused(shared):
    with pytest.raises(ValueError, match="isolation='committed'"):
        shared.records("four", isolation="committed")


def test_records_convert_to_dictionaries_and_frames(shared):
    shared.create_topic("frames")
    shared.produce("frames", [("k", "v", {"h": "1"}, 1000), (None, None, (), 2000)])
    found = shared.records("frames")
    assert found.dicts()[0] == {
        "topic": "frames",
        "partition": 0,
        "offset": 0,
        "timestamp_ms": 1000,
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"1")],
    }
    table = found.to_arrow()
    assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
    assert table.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}], []]
    frame = found.to_pandas()
    assert list(frame["value"]) == [b"v", None]
    assert str(frame["timestamp"][0]) == "1970-01-01 00:00:01+00:00"
    assert shared.records("frames", 0)[:1] == found[:1]


def test_waiting_for_records_says_what_is_there(kafka):
    with pytest.raises(AssertionError, match="topic 'in' has 0 records of 1 .*; it does not exist"):
        kafka.wait_for_records("in", 1, timeout=0)
    kafka.produce("in", ["one"])
    kafka.produce("in", ["two", "three"], transactional=True, end="open")
    with pytest.raises(AssertionError, match="has 1 record of 2 .*; 2 more records of open or aborted transactions"):
        kafka.wait_for_records("in", 2, timeout=0)
    later = threading.Timer(0.05, lambda: kafka.produce("other", ["late"]))
    later.start()
    assert kafka.wait_for_records("other", 1).values == [b"late"]
    later.join(DEADLINE_S)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_shows_members_offsets_and_lag(kafka, kafka_consumer, protocol):
    kafka.create_topic("in", 2)
    group = kafka.group("g")
    assert (group.state, group.members, group.committed, group.lag) == ("Dead", (), {}, {})
    with pytest.raises(AssertionError, match="group 'g' is not stable with any member after 0 s: it is Dead"):
        group.wait_stable(timeout=0)
    kafka.produce("in", [(None, "1", (), None, 0), (None, "2", (), None, 1), (None, "3", (), None, 1)])
    consumer: Consumer = kafka_consumer(
        "in", {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False, "client.id": "reader"}
    )
    got = [consumer.poll(DEADLINE_S) for _ in range(3)]
    assert all(got)
    (member,) = group.wait_stable(members=1).members
    assert member.client_id == "reader"
    assert member.partitions == {TopicPartition("in", 0), TopicPartition("in", 1)}
    assert group.lag == {("in", 0): 1, ("in", 1): 2}
    with pytest.raises(AssertionError, match="not caught up; records left: 1 of in-0, 2 of in-1"):
        group.wait_caught_up(timeout=0)
    consumer.commit(asynchronous=False)
    assert group.wait_caught_up().committed == {("in", 0): 1, ("in", 1): 2}
    kafka.produce("in", [(None, "4", (), None, 0)], transactional=True, end="abort")
    assert group.lag == {("in", 0): 2, ("in", 1): 0}
    group.wait_caught_up(timeout=0)


def test_controls_of_records_cannot_be_used_in_a_faults_function(kafka, kafka_producer):
    errors = []

    def act(_: object) -> None:
        try:
            kafka.produce("in", ["no"])
        except RuntimeError as error:
            errors.append(str(error))

    with kafka.fault(api="Produce", action=act, times=1):
        producer = kafka_producer()
        producer.produce("in", b"yes")
        assert producer.flush(DEADLINE_S) == 0
    assert errors == ["the function of a fault cannot send requests: it runs in the brokers' thread"]
    assert kafka.records("in").values == [b"yes"]


def test_writes_after_a_crash_of_all_brokers_say_what_to_do(kafka):
    kafka.crash()
    with pytest.raises(RuntimeError, match=r"restart\(\)"):
        kafka.produce("in", ["no"])


def test_records_and_groups_need_no_librdkafka(tmp_path):
    """The program cannot import confluent-kafka; pytest's own process has imported it."""
    (tmp_path / "seed.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "seed.csv").write_text("id\n2\n")
    program = """
import sys
sys.modules["confluent_kafka"] = None
from kafka import KafkaConsumer
from broker_core import EmbeddedBroker
with EmbeddedBroker(topics={"t": 1}) as kafka:
    kafka.produce("t", ["0"], transactional=True)
    kafka.load("t", "seed.jsonl")
    kafka.load("t", "seed.csv", value="id")
    print(kafka.wait_for_records("t", 3).values, kafka.records("t", isolation="read_uncommitted").values)
    with KafkaConsumer(
        "t", bootstrap_servers=kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.poll(timeout_ms=30_000, max_records=1)
        print(kafka.groups, len(kafka.group("g").wait_stable(timeout=30).members))
        consumer.commit()
        print(list(kafka.group("g").committed.values()))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    values = [b"0", b'{"id": 1}', b"2"]
    assert ran.stdout.splitlines() == [f"{values} {values}", "['g'] 1", "[1]"]


@pytest.mark.parametrize("module", [data_controls, groups, inspection_controls, record_list])
def test_docstring_examples_are_correct(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(module, extraglobs={"EmbeddedBroker": EmbeddedBroker})
    assert (found.failed, found.attempted > 0) == (0, True)
