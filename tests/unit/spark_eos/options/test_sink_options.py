"""Every option of the sink is parsed, and an invalid one is refused with its remedy."""

import pickle

import pytest

from broker_core.records.compression import Compression
from spark_eos.errors import OptionError
from spark_eos.options.catalog import SINK_OPTIONS
from spark_eos.options.sink import NAMES, OnLostTransaction, sink_options
from spark_eos.options.write_options import WriteOptions
from spark_eos.sink.driver.preflight import choose_timeout

BASE = {"kafka.bootstrap.servers": "h:1"}


def test_type_checkers_know_every_option() -> None:
    assert WriteOptions.__annotations__.keys() == {"kafka.bootstrap.servers", *(each.name for each in SINK_OPTIONS)}
    flags = {each.name for each in SINK_OPTIONS if set(each.choices) == {"true", "false"}} | {"includeHeaders"}
    numbers = {each.name for each in SINK_OPTIONS if each.minimum is not None}
    numbers |= {"transactionTimeout", "compression.level"}
    for name, annotation in WriteOptions.__annotations__.items():
        extra = bool if name in flags else int if name in numbers else str
        assert annotation == extra | str | None, name


def test_defaults() -> None:
    options = sink_options(BASE)
    assert (options.topic, options.prefix, options.decision_topic) == (None, "eos-kafka", "eos-kafka-decisions")
    assert (options.transaction_timeout_ms, options.job_id, options.compression_level) == (None, None, None)
    assert options.on_lost_transaction is OnLostTransaction.FAIL
    assert options.compression is Compression.NONE
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_are_case_insensitive_and_topics_are_trimmed() -> None:
    written = {"TOPIC": " t ", "TransactionalIDprefix": "p.q", "ONLOSTTRANSACTION": "Rewrite", "jobid": "j"}
    options = sink_options(BASE | written)
    assert (options.topic, options.prefix, options.job_id) == ("t", "p.q", "j")
    assert options.on_lost_transaction is OnLostTransaction.REWRITE


@pytest.mark.parametrize(
    ("text", "timeout_ms"),
    [
        ("60000", 60_000),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2 h", 7_200_000),
        ("1500 ms", 1_500),
        ("2147483647", 2**31 - 1),
    ],
)
def test_timeouts_are_parsed(text: str, timeout_ms: int) -> None:
    assert sink_options(BASE | {"transactionTimeout": text}).transaction_timeout_ms == timeout_ms
    if text.isdigit():
        assert sink_options(BASE | {"kafka.transaction.timeout.ms": text}).transaction_timeout_ms == timeout_ms


@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_compression_and_sizes_are_accepted_under_both_names(prefix: str) -> None:
    options = sink_options(BASE | {f"{prefix}compression.type": "ZSTD", f"{prefix}batch.size": "1000"})
    assert (options.compression, options.batch_bytes) == (Compression.ZSTD, 1000)


def test_compression_levels_are_parsed() -> None:
    assert sink_options(BASE | {"compression.type": "gzip", "compression.level": "9"}).compression_level == 9
    assert sink_options(BASE | {"compression.type": "zstd", "kafka.compression.zstd.level": "3"}).compression_level == 3
    for kind, level in (("zstd", None), ("zstd:3", 3), ("zstd:-1", -1)):
        options = BASE | {"compression.type": kind, "kafka.compression.level": "-1"}
        assert sink_options(options).compression_level == level
    for more in ({}, {"compression.level": "4"}):
        options = sink_options(BASE | {"compression.type": " LZ4:4 "} | more)
        assert (options.compression, options.compression_level) == (Compression.LZ4, 4)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"topik": "t"}, "Did you mean 'topic'"),
        ({"transactionIdPrefix": "t"}, "Did you mean 'transactionalIdPrefix'"),
        ({"onLostTransactions": "t"}, "Did you mean 'onLostTransaction'"),
        ({"batchsize": "1"}, "Did you mean 'batch.size'"),
        ({"topic": "a b"}, "letters, digits"),
        ({"topic": ".."}, "letters, digits"),
        ({"decisionTopic": ""}, "letters, digits"),
        ({"transactionalIdPrefix": ""}, "1 to 200 bytes"),
        ({"transactionalIdPrefix": "a\nb"}, "control characters"),
        ({"jobId": "x" * 201}, "201 bytes"),
        ({"jobId": "ü" * 101}, "202 bytes"),
        ({"jobId": " "}, "no space at either end"),
        ({"jobId": "report "}, "no space at either end"),
        ({"writeName": " w"}, "no space at either end"),
        ({"transactionalIdPrefix": " p"}, "no space at either end"),
        ({"onLostTransaction": "ignore"}, "fail or rewrite"),
        ({"compression.type": "brotli"}, "none, gzip, snappy, lz4 or zstd"),
        ({"compression.type": "gzip", "compression.level": "10"}, "from 1 to 9"),
        ({"compression.type": "snappy", "compression.level": "1"}, "no effect"),
        ({"compression.type": "none:1"}, "no effect"),
        ({"compression.type": "gzip:"}, "from 1 to 9"),
        ({"compression.type": "zstd:23"}, "from -131072 to 22"),
        ({"compression.type": "zstd:3", "compression.level": "4"}, "different levels"),
        ({"compression.type": "gzip", "kafka.compression.type": "lz4"}, "contradict"),
        ({"transactionTimeout": "soon"}, "milliseconds"),
        ({"transactionTimeout": "999"}, "from 1000"),
        ({"transactionTimeout": "-1"}, "milliseconds"),
        ({"transactionTimeout": "2147483648"}, "milliseconds"),
        ({"batch.size": "big"}, "whole number"),
        ({"batch.size": ""}, "whole number"),
        ({"buffer.memory": "1"}, "whole number from 65536"),
        ({"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ({"kafka.key.serializer": "x"}, "not supported"),
        ({"kafka.acks": "1"}, "acks"),
        ({"kafka.secruity.protocol": "SSL"}, r"Unknown option 'kafka.secruity.protocol'.*Did you mean 'kafka.security"),
        ({"kafka.ssl.truststore.type": "BCFKS"}, "Use one of PEM, PKCS12, JKS"),
        ({"kafka.enable.idempotence": "false"}, "idempotence"),
        ({"allowHangingTransactions": "yes"}, "Use true or false"),
        ({"kafka.acks": "0"}, "a transaction needs acks=all"),
        ({"acks": "all"}, "Option 'acks' has no effect without the prefix 'kafka.'.*Did you mean 'kafka.acks'"),
        ({"Security.Protocol": "SSL"}, "'Security.Protocol' has no effect.*Did you mean 'kafka.security.protocol'"),
        ({"delivery.timeout.ms": "1"}, "Did you mean 'kafka.delivery.timeout.ms'"),
        ({"delivery.timout.ms": "1"}, "Did you mean 'kafka.delivery.timeout.ms'"),
        ({"linger.ms": "1"}, "Did you mean 'kafka.linger.ms'"),
        ({"sasl.mechanisms": "PLAIN"}, "Did you mean 'kafka.sasl.mechanisms'"),
        ({"transactional.id": "x"}, "Did you mean 'transactionalIdPrefix'"),
        ({"key.serializer": "x"}, "has no effect.*Remove it: keys are written as they are"),
    ],
)
def test_wrong_options_are_refused_with_a_remedy(wrong: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        sink_options(BASE | wrong)


@pytest.mark.parametrize("setting", ["acks", "request.required.acks"])
@pytest.mark.parametrize("value", ["all", "-1", "ALL"])
def test_acks_all_is_accepted(setting: str, value: str) -> None:
    sink_options(BASE | {f"kafka.{setting}": value})


def test_bootstrap_servers_without_prefix_are_reported_by_name() -> None:
    with pytest.raises(OptionError, match=r"Did you mean 'kafka\.bootstrap\.servers'"):
        sink_options({"bootstrap.servers": "h:1", "topic": "t"})


@pytest.mark.parametrize(
    "foreign",
    [
        "checkpointLocation",
        "path",
        "queryName",
        "outputMode",
        "mergeSchema",
        "subscribe",
        "startingOffsets",
        "isolation.level",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "spark.sql.shuffle.partitions",
    ],
)
def test_options_of_spark_itself_are_accepted(foreign: str) -> None:
    sink_options(BASE | {foreign: "x"})


@pytest.mark.parametrize("name", NAMES)
def test_own_options_are_never_reported_as_misspelled(name: str) -> None:
    good = {
        "transactionTimeout": "60000",
        "onLostTransaction": "fail",
        "compression.type": "gzip",
        "compression.level": "1",
        "batch.size": "100",
        "buffer.memory": "100000",
        "metricsPort": "9404",
        "metricsTextfile": "/eos.prom",
        "metricsOtlpEndpoint": "http://localhost:4318/v1/metrics",
        "discardDifferingRows": "TRUE",
        "allowHangingTransactions": "true",
        "allowDecisionRetention": "true",
    }
    needed = {key: good[key] for key in ("compression.type", "metricsPort")}
    sink_options(BASE | needed | {name: good.get(name, "x")})


@pytest.mark.parametrize(
    ("requested_ms", "limit_ms", "expected_ms"),
    [
        (None, 900_000, 900_000),
        (None, None, 60_000),
        (5_000, 900_000, 5_000),
        (5_000, None, 5_000),
        (900_000, 900_000, 900_000),
        (None, 2**31 - 1, 900_000),
        (3_600_000, 2**31 - 1, 3_600_000),
        (None, 5_000, 5_000),
    ],
)
def test_transaction_timeout_defaults_to_the_broker_maximum(
    requested_ms: int | None, limit_ms: int | None, expected_ms: int
) -> None:
    assert choose_timeout(requested_ms, limit_ms) == expected_ms


def test_timeout_above_the_broker_maximum_is_refused() -> None:
    with pytest.raises(OptionError, match="900001 ms, but the brokers allow at most 900000 ms"):
        choose_timeout(900_001, 900_000)
