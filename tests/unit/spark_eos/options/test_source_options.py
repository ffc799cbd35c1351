"""Every option of the source is parsed, and an invalid one is rejected with Spark's message."""

import pickle
import re
from collections.abc import Callable

import pytest

from broker_core.types import IsolationLevel, TopicPartition
from spark_eos.errors import OptionError
from spark_eos.options.positions import (
    EARLIEST,
    LATEST,
    Assign,
    Edge,
    Offsets,
    Subscribe,
    SubscribePattern,
    Timestamp,
    Timestamps,
)
from spark_eos.options.source import NoMatch, SourceOptions, batch_options, include_headers, stream_options

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def test_defaults_match_spark_except_isolation_level() -> None:
    options = stream_options(BASE)
    assert options.subscription == Subscribe(("t",))
    assert options.isolation is IsolationLevel.READ_COMMITTED
    assert options.starting == Edge(LATEST)
    assert options.starting_no_match is NoMatch.ERROR
    assert options.fail_on_data_loss is True
    assert options.include_headers is False
    assert options.max_trigger_delay_ms == 15 * 60 * 1000
    assert options.fetch.poll_timeout_ms == 120_000
    assert (options.offset_retries, options.offset_retry_interval_ms) == (3, 10)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (None, None)
    assert (options.min_partitions, options.max_records_per_partition) == (None, None)
    batch = batch_options(BASE)
    assert (batch.starting, batch.ending) == (Edge(EARLIEST), Edge(LATEST))


def test_options_survive_pickling() -> None:
    options = stream_options(BASE | {"startingOffsets": '{"t":{"0":3}}'})
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"assign": '{"b":[1,0],"a":[2]}'},
         Assign((TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)))),
        ({"subscribe": " a , b,a,"}, Subscribe(("a", "b"))),
        ({"SUBSCRIBEPATTERN": "a.*"}, SubscribePattern("a.*")),
        # A space around it would find no topic.
        ({"subscribePattern": " a.* \n"}, SubscribePattern("a.*")),
    ],
)  # fmt: skip
def test_subscription_options_are_parsed(given: dict[str, str], expected: object) -> None:
    address = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    assert stream_options(address | given).subscription == expected


@pytest.mark.parametrize(("pattern", "missed"), [
    ("lines-[0-9]+", set()),
    ("^lines-[0-9]+", {"my-lines-12"}),
    ("lines-[0-9]+$", {"lines-12x"}),
    ("^lines-[0-9]+$", {"my-lines-12", "lines-12x"}),
])  # fmt: skip
def test_pattern_is_searched_in_topic_names(pattern: str, missed: set[str]) -> None:
    topics = {"lines-12", "my-lines-12", "lines-12x"}
    assert {topic for topic in topics if SubscribePattern(pattern).matches(topic)} == topics - missed
    assert not SubscribePattern(pattern).matches("lines-")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "Earliest"}, Edge(EARLIEST)),
        ({"startingOffsets": '{"t":{"0":23,"1":-1,"2":-2}}'},
         Offsets({TopicPartition("t", 0): 23, TopicPartition("t", 1): -1, TopicPartition("t", 2): -2})),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":9}}'},
         Timestamps({TopicPartition("t", 0): 9})),
        ({"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":9}}', "startingTimestamp": "7"},
         Timestamp(7)),
    ],
)  # fmt: skip
def test_starting_timestamp_takes_precedence_over_timestamps_and_offsets(
    given: dict[str, str], expected: object
) -> None:
    assert stream_options(BASE | given).starting == expected


def test_ending_options_follow_the_same_precedence() -> None:
    given = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"t":{"0":9}}'}
    assert batch_options(BASE | given).ending == Timestamps({TopicPartition("t", 0): 9})
    assert batch_options(BASE | given | {"endingTimestamp": "5"}).ending == Timestamp(5)


@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level"])
def test_isolation_level_can_be_lowered(name: str) -> None:
    assert stream_options(BASE | {name: "read_uncommitted"}).isolation is IsolationLevel.READ_UNCOMMITTED


def test_durations_are_parsed() -> None:
    for text, expected_ms in {"5s": 5_000, "15m": 900_000, "250": 250, "250ms": 250, "2 h": 7_200_000}.items():
        assert stream_options(BASE | {"maxTriggerDelay": text}).max_trigger_delay_ms == expected_ms


def test_include_headers_is_read_without_validating_other_options() -> None:
    assert include_headers({"INCLUDEHEADERS": "true"})
    assert not include_headers({})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": None}, "One of the following options must be specified for Kafka source"),
        ({"assign": '{"t":[0]}'}, "Only one of the following options can be specified"),
        ({"subscribe": None, "assign": "t"}, "No topicpartitions to assign"),
        ({"subscribe": None, "assign": "{}"}, "No topicpartitions to assign"),
        ({"subscribe": None, "assign": '{"t":0}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}'),
        ({"subscribe": None, "assign": '{"t":[0]'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}'),
        ({"subscribe": " ,"}, "No topics to subscribe"),
        ({"subscribe": None, "subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribe": None, "subscribePattern": "a("}, "not a regular expression"),
        ({"subscribe": None, "subscribePattern": "[a-z&&[^b]]+"}, "would match other topics than in Java's syntax"),
        ({"subscribe": None, "subscribePattern": "[[ab]c]"}, "Possible nested set at position 1"),
        ({"subscribe": None, "subscribePattern": "[a-c[x-z]]+"}, "Possible nested set at position 4"),
        ({"subscribe": None, "subscribePattern": "a{77777777777}"}, "not a regular expression"),
        ({"subscribe": None, "subscribePattern": "(" * 5_000}, "not a regular expression"),
        ({"kafka.bootstrap.servers": None}, "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "a"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"maxOffsetsPerTrigger": "15", "minOffsetsPerTrigger": "20"},
         "minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(15)"),
        ({"subscribe": None, "assign": '{"t":[0],"t":[1]}'}, "Option 'assign' has 't' twice: "),
        ({"startingOffsets": '{"t":{"0":1,"0":5}}'}, "Option 'startingOffsets' has '0' twice: "),
        ({"startingOffsets": '{"t":{"0":1,"00":5}}'}, "Option 'startingOffsets' has 't-0' twice: "),
        ({"startingOffsets": "soon"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'),
        ({"startingOffsets": '{"t":{"0":-3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"startingOffsets": '{"t":{"x":3}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"startingOffsets": '{"t":{"0":1.5}}'}, 'Expected e.g. {"topicA":{"0":23,"1":-1}'),
        ({"startingTimestamp": "today"}, "Expected a single long value, got today"),
        ({"startingTimestamp": str(2**63)}, "Expected a single long value, got 9223372036854775808"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":9223372036854775808}}'}, "has 9223372036854775808 for t-0"),
        ({"startingOffsets": '{"t":{"0":9223372036854775808}}'}, "Give a number up to 9223372036854775807"),
        ({"maxOffsetsPerTrigger": str(2**63)}, "Give a whole number up to 9223372036854775807"),
        ({"minPartitions": str(2**31)}, "Give a whole number up to 2147483647"),
        ({"maxTriggerDelay": f"{2**63}h"}, "Give a whole number up to 9223372036854775807"),
        ({"kafka.fetch.max.bytes": str(2**31)}, "Give a whole number up to 2147483647"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-2}}'}, "negative time"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "Unknown value for option"),
        ({"failOnDataLoss": "maybe"}, "Option 'failOnDataLoss' is 'maybe'"),
        ({"includeHeaders": "1"}, "Option 'includeHeaders' is '1'"),
        ({"isolation.level": "serializable"}, "read_committed or read_uncommitted"),
        ({"isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"}, "Keep one of the two"),
        ({"maxTriggerDelay": "soon"}, "Option 'maxTriggerDelay' is 'soon'"),
        ({"fetchOffset.numRetries": "none"}, "fetchOffset.numRetries"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs"),
        ({"startingOfsets": "earliest"}, "Did you mean 'startingOffsets'?"),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"kafka.fetch.max.bytes": "many"}, "kafka.fetch.max.bytes"),
        ({"commitOffsetsToGroup": "true"}, "no group is set"),
        ({"commitOffsetsToGroup": "g", "kafka.group.id": "g"}, "Option 'commitOffsetsToGroup' is 'g'"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(given: dict[str, str | None], message: str) -> None:
    options = {name: value for name, value in (BASE | given).items() if value is not None}
    for parse in (batch_options, stream_options):
        with pytest.raises(OptionError) as caught:
            parse(options)
        assert message.lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest"),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "starts at 9 and ends before that, at 8. The options for the start and the end of all partitions",
        ),
        (
            {"startingOffsets": '{"t":{"0":1,"1":9}}', "endingOffsets": '{"t":{"0":-1,"1":8}}'},
            "starts at 9 and ends before that, at 8. .* of t-1",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9}}', "endingOffsetsByTimestamp": '{"t":{"0":8}}'},
            "starts at 9 and ends before that, at 8. .* of t-0",
        ),
    ],
)
def test_wrong_batch_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        batch_options(BASE | given)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("Offsets", "latest", "offset"),
        ("Timestamp", "5", "timestamp"),
        ("OffsetsByTimestamp", '{"t":{"0":5}}', "timestamp"),
    ],
)
def test_stream_refuses_ending_offsets(name: str, value: str, what: str) -> None:
    with pytest.raises(OptionError, match=f"ending {what} not valid in streaming queries"):
        stream_options(BASE | {f"ending{name}": value})


@pytest.mark.parametrize(
    "name", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"]
)
def test_example_of_an_error_is_accepted(name: str) -> None:
    parse = stream_options if name == "startingOffsets" else batch_options
    with pytest.raises(OptionError) as caught:
        parse(BASE | {name: "soon"})
    example = re.search(r"Expected e\.g\. (.*), got soon", caught.value.happened)
    assert example
    parse(BASE | {name: example[1]})


def test_commit_group_option_is_parsed(caplog: pytest.LogCaptureFixture) -> None:
    setting = {"commitOffsetsToGroup": "true"}
    assert stream_options(BASE).commit_group_id is None
    assert stream_options(BASE | {"groupIdPrefix": "p"}).commit_group_id is None
    assert not caplog.records
    assert stream_options(BASE | setting | {"kafka.group.id": "g", "groupIdPrefix": "p"}).commit_group_id == "g"
    assert "Kafka option 'kafka.group.id' has been set on this query" in caplog.text
    named = stream_options(BASE | setting | {"groupIdPrefix": "p"}).commit_group_id
    assert named is not None and named.startswith("p-")
    assert stream_options(BASE | setting | {"groupIdPrefix": "p", "maxOffsetsPerTrigger": "5"}).commit_group_id == named
    assert stream_options(BASE | setting | {"groupIdPrefix": "p", "subscribe": "u"}).commit_group_id != named


def test_secrets_are_hidden_in_repr() -> None:
    secret = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
              "kafka.sasl.username": "u", "kafka.sasl.password": "hush"}  # fmt: skip
    assert "hush" not in repr(stream_options(BASE | secret))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("bootstrap.servers", "Did you mean 'kafka.bootstrap.servers'"),
        ("security.protocol", "'security.protocol' has no effect without the prefix 'kafka.'.*kafka.security.protocol"),
        ("fetch.max.bytes", "Did you mean 'kafka.fetch.max.bytes'"),
        ("fetch.max.byte", "Did you mean 'kafka.fetch.max.bytes'"),
        ("max.poll.records", "Did you mean 'kafka.max.poll.records'"),
        ("group.id", "Did you mean 'kafka.group.id'"),
        ("auto.offset.reset", "Remove it: use the option startingOffsets"),
    ],
)
@pytest.mark.parametrize("read", [batch_options, stream_options])
def test_kafka_setting_without_prefix_is_refused(
    read: Callable[[dict[str, str]], SourceOptions], written: str, text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        read(BASE | {written: "1"})


@pytest.mark.parametrize("written", ["compression.type", "batch.size", "path", "checkpointLocation", "topic"])
def test_options_of_the_sink_and_of_spark_are_accepted(written: str) -> None:
    stream_options(BASE | {written: "x"})
