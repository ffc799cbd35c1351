"""`produce`, `records`, `wait_for_records` and `group` of the embedded broker, which need no Kafka client."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pandas
import pytest
from kafka.partitioner.default import murmur2

from broker_core import Disconnect, EmbeddedBroker, Error, ErrorCode, KafkaError
from broker_core.testing.producing import partition_of_key

# Nothing here needs a port.
pytestmark = pytest.mark.kafka(listeners={})

DEADLINE_S = 30
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.fixture(scope="module")
def shared():
    with EmbeddedBroker(listeners={}, topics={"four": 4}) as broker:
        yield broker


def test_keys_go_to_the_partitions_of_kafkas_partitioner(shared):
    keys = [b"k%d" % number for number in range(200)] + [
        bytes([number]) * length for number, length in [(255, 7), (0, 1)]
    ]
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
    with EmbeddedBroker(listeners={}, topics={"in": 2}, transaction_version=transaction_version) as kafka:
        kafka.produce("in", ["1", "2"], transactional=True)
        kafka.produce("in", ["dropped"], transactional="other", end="abort")
        kafka.produce("in", [("k", "open")], transactional="open", end="open")
        assert kafka.transaction("open").state == "Ongoing"
        assert kafka.records("in", isolation="read_committed").values == [b"1", b"2"]
        assert sorted(kafka.records("in").values) == [b"1", b"2", b"dropped", b"open"]
        everything = kafka.records("in", control=True)
        assert [each for each in everything if not each.is_control] == kafka.records("in")
        assert {each.marker for each in everything if each.is_control} == {"COMMIT", "ABORT"}
        assert "COMMIT" in {each.marker for each in kafka.records("in", isolation="read_committed", control=True)}
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


def test_writes_of_the_test_are_not_those_of_the_code_under_test(kafka):
    with kafka.fault(api="Produce", action=Disconnect()) as fault, kafka.fault(action=Error("UNKNOWN_SERVER_ERROR")):
        kafka.produce("in", ["one"])
    assert fault.hits == 0
    assert kafka.requests() == []


@pytest.mark.kafka(listeners={}, config=AUTHORIZER, topics={"in": 1})
def test_access_control_does_not_apply_to_writes_of_the_test(kafka):
    kafka.produce("in", ["one"], transactional=True)
    assert kafka.records("in", isolation="read_committed").values == [b"one"]


@pytest.mark.kafka(listeners={}, brokers=2, topics={"in": 2})
def test_writes_go_to_the_leader_of_each_partition(kafka):
    kafka.broker(1).stop()
    kafka.produce("in", [(None, "a", (), None, 0), (None, "b", (), None, 1)], transactional=True)
    assert kafka.records("in", isolation="read_committed").values == [b"a", b"b"]
    with kafka.without_leader(("in", 0)), pytest.raises(KafkaError, match="in-0 has no leader"):
        kafka.produce("in", "c", partition=0)


def test_a_topic_is_created_only_where_the_broker_creates_topics():
    with EmbeddedBroker(listeners={}) as kafka:
        kafka.produce("made", ["one"])
        assert kafka.topics == {"made": 1}
    with EmbeddedBroker(listeners={}, config={"auto.create.topics.enable": "false"}) as kafka:
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
        (pandas.DataFrame({"key": ["k"]}), {}, "the values are a DataFrame, which iterates over the names of its"),
        ("v", {"partition": numpy.bool_(True)}, "record 0: partition"),
        ({"k": "v"}, {}, "the values are dict"),
        (7, {}, "the values are int"),
        ([("k", "v", {1: b""})], {}, "the name of a header is 1"),
        (["ok", "\ud800"], {}, "record 1: the value is not text in UTF-8"),
        ([("k", "v", {"\ud800": b""})], {}, "record 0: the name of a header is not text in UTF-8"),
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


@pytest.mark.parametrize("value", [b"one", bytearray(b"one"), memoryview(b"one"), "one"])
def test_a_value_alone_is_one_record(shared, value):
    shared.produce("alone", value)
    assert shared.records("alone").values[-1] == b"one"


@pytest.mark.parametrize("values", [["one"], []])
def test_a_write_while_no_broker_runs_says_so(kafka, values):
    kafka.broker(1).stop()
    with pytest.raises(KafkaError, match=r"BROKER_NOT_AVAILABLE: no broker is running"):
        kafka.produce("orders", values)


def test_numbers_and_columns_of_numpy_and_pandas_are_written(shared):
    frame = pandas.DataFrame({"key": ["a", None], "value": ["1", "2"]})
    places = shared.produce("four", frame.itertuples(index=False), partition=numpy.int64(3))
    places += shared.produce("four", [("k", "3", (), numpy.int64(1000), numpy.int32(2))])
    places += shared.produce("four", frame["value"], partition=1)
    assert [(each.partition, type(each.partition)) for each in places] == [(n, int) for n in (3, 3, 2, 1, 1)]
    assert shared.records("four", numpy.int64(2))[-1].timestamp_ms == 1000
    assert shared.leader(("four", numpy.int64(2))) == 1


def test_a_partition_may_be_a_number_of_numpy_whose_log_was_not_opened_before():
    with EmbeddedBroker(listeners={}, topics={"t": 3}) as kafka:
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


def test_wait_for_records_of_a_topic_that_is_made_again(kafka):
    def look_again() -> None:
        looks = kafka._thread.uses
        kafka.wait_for(lambda: kafka._thread.uses > looks + 1)

    kafka.produce("in", ["old"], partition=0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(kafka.wait_for_records, "in", 2)
        look_again()
        kafka.delete_topic("in")
        look_again()
        kafka.produce("in", ["new"])
        look_again()
        kafka.produce("in", ["newer"])
        assert sorted(waiting.result().values) == [b"new", b"newer"]
