"""Mistakes in the arguments of `EmbeddedBroker` and its methods: refused by the call, with what is expected."""

import os
from pathlib import Path

import pytest

from broker_core import ConfigError, Delay, Disconnect, EmbeddedBroker, Error, Hold, KafkaError


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"topics": ["orders"]}, TypeError, r"expected names with numbers of partitions"),
        ({"topics": {"orders": "4"}}, TypeError, r"partitions='4' of topic 'orders'; expected a number"),
        ({"topics": {"orders": 0}}, ConfigError, r"topics: 'orders': .*a topic has at least one"),
        ({"topics": {"orders": 1_000_000}}, ConfigError, r"topics: 'orders': .*created with 9999 at most"),
        ({"config": {"num.partitions": 3}}, TypeError, r"num.partitions=3 is int; settings are text: write '3'"),
        ({"config": {"auto.create.topics.enable": False}}, TypeError, r"write 'false'"),
        ({"config": ["num.partitions"]}, TypeError, r"expected names with values"),
        ({"kafka_version": 3.9}, ConfigError, r"write it as text, '3.9'"),
        ({"brokers": 0}, ConfigError, r"a cluster has at least one"),
        ({"brokers": "3"}, TypeError, r"brokers='3'; expected a whole number"),
        ({"listeners": ["SECURE"]}, TypeError, r"listeners=\['SECURE'\]; expected a dictionary such as"),
        ({"users": ["alice"]}, TypeError, r"users=\['alice'\]; expected a dictionary such as"),
        ({"requests_kept": -1}, ValueError, r"requests_kept=-1: expected 0 or more"),
        ({"copy_of": 5}, TypeError, r"copy_of=5; expected a Snapshot or a folder"),
        ({"port": "9092"}, TypeError, r"port='9092'; expected a whole number"),
        ({"host": None}, TypeError, r"host=None; expected an address such as '127.0.0.1'"),
        ({"host": ""}, ValueError, r"host='' is empty; expected an address such as"),
        ({"data_dir": ""}, ValueError, r"data_dir='' is empty; expected a folder"),
        ({"data_dir": b"logs"}, TypeError, r"data_dir=b'logs'; expected a folder"),
        ({"tls": "server.pem"}, TypeError, r"tls='server.pem'; expected an ssl.SSLContext"),
        ({"token_validator": "jwt"}, TypeError, r"token_validator='jwt'; expected a function"),
        (
            {"users": {"alice": 5}},
            TypeError,
            r"users has 'alice' with a value of type int; expected a dictionary such as",
        ),
        (
            {"listeners": {5: "SSL"}},
            TypeError,
            r"listeners has 5 with a value of type str; expected a dictionary such as",
        ),
        ({"config": {5: "x"}}, TypeError, r"config has 5: 'x'; expected names of settings"),
    ],
)
def test_arguments_of_the_broker(arguments, kind, message):
    with pytest.raises(kind, match=message):
        EmbeddedBroker(**arguments)


async def _soon():
    return True


@pytest.fixture(scope="module")
def kafka():
    with EmbeddedBroker(listeners={}, topics={"orders": 1}) as broker:
        yield broker


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda kafka: kafka.create_topic(None), TypeError, "the topic is None; expected its name"),
        (lambda kafka: kafka.create_topic("t", True), TypeError, "partitions=True of topic 't'"),
        (lambda kafka: kafka.create_topic("t", 2.0), TypeError, "partitions=2.0 of topic 't'"),
        (lambda kafka: kafka.create_topic("t", 0), KafkaError, "INVALID_PARTITIONS"),
        (lambda kafka: kafka.create_topic("t", 10_000), KafkaError, "POLICY_VIOLATION.*created with 9999 at most"),
        (lambda kafka: kafka.create_topic("t", 1, {"retention.ms": 5}), TypeError, "settings are text: write '5'"),
        (lambda kafka: kafka.produce("orders", ["x"], transactional=""), ValueError, "a transactional id is not empty"),
        (lambda kafka: kafka.leader("orders"), TypeError, "expected topic and number"),
        (lambda kafka: kafka.move_leader(("orders",), 1), TypeError, "expected topic and number"),
        (lambda kafka: kafka.move_leader(("orders", 0), True), TypeError, "broker=True; expected a whole number"),
        (lambda kafka: kafka.move_coordinator(1.0, group="g"), TypeError, "broker=1.0; expected a whole number"),
        (lambda kafka: kafka.broker("1"), TypeError, "broker_id='1'; expected a whole number"),
        (lambda kafka: kafka.stale_broker(1.0), TypeError, "broker=1.0; expected a whole number"),
        (lambda kafka: kafka.without_leader(("orders", "0")), TypeError, "expected topic and number"),
        (lambda kafka: kafka.coordinator(group=""), ValueError, "cannot be empty"),
        (lambda kafka: kafka.fault(action=Disconnect), ValueError, "action=Disconnect is a class"),
        (lambda kafka: kafka.fault(action=Disconnect(), broker=9), ValueError, "there is no broker 9"),
        (lambda kafka: kafka.requests(api="Produc"), ValueError, "did you mean 'Produce'"),
        (lambda kafka: kafka.requests(api="Fetch", transactional_id="t"), ValueError, "no Fetch request names trans"),
        (lambda kafka: kafka.restore("prepared"), TypeError, "expected a Snapshot, as `Snapshot.read` makes"),
        (lambda kafka: kafka.restore(None), TypeError, "expected a Snapshot"),
        (lambda kafka: kafka.records(["orders"]), TypeError, r"topic=\['orders'\]; expected text"),
        (lambda kafka: kafka.records("orders", "0"), TypeError, "partition='0'; expected a whole number"),
        (lambda kafka: kafka.wait_for_records("orders", "1"), TypeError, "count='1'; expected a number"),
        (lambda kafka: kafka.wait_for_records("orders", 1, timeout=None), TypeError, "timeout=None; expected a number"),
        (lambda kafka: kafka.wait_for(kafka.topics), TypeError, "expected a function, such as `lambda:"),
        (lambda kafka: kafka.wait_for(_soon), TypeError, "the condition returns an awaitable"),
        (lambda kafka: kafka.partition("orders", "0"), TypeError, "partition='0'; expected a whole number"),
        (lambda kafka: kafka.transaction(None), TypeError, "transactional_id=None; expected text"),
        (lambda kafka: kafka.group(5), TypeError, "group_id=5; expected text"),
        (lambda kafka: kafka.delete_topic(None), TypeError, "name=None; expected text"),
        (lambda kafka: kafka.broker(9), ValueError, "there is no broker 9"),
        (lambda kafka: kafka.produce("a b", ["x"]), KafkaError, "Topic name is invalid: 'a b' contains"),
        (lambda kafka: kafka.fault(action=Disconnect(), partition="0"), TypeError, "partition='0'; expected a whole"),
        (lambda kafka: kafka.fault(action=Disconnect(), topic=["orders"]), TypeError, r"topic=\['orders'\]; expected"),
        (lambda kafka: kafka.fault(action=Disconnect(), times="1"), TypeError, "times='1'; expected a whole number"),
        (lambda kafka: kafka.fault(action=Disconnect(), api=["Produce"]), TypeError, r"api=\['Produce'\]; expected"),
        (lambda kafka: kafka.metrics.requests("Produc"), ValueError, "did you mean 'Produce'"),
        (lambda _: Error("not_leader_or_follower"), ValueError, "such as NOT_LEADER_OR_FOLLOWER"),
        (lambda _: Delay("1"), TypeError, "seconds='1'; expected a number"),
        (lambda _: Delay(-1), ValueError, "expected 0 or more seconds"),
        (lambda _: Delay(float("nan")), ValueError, "seconds=nan; expected a finite number"),
        (lambda _: Hold(5), TypeError, r"expected an event with is_set, such as threading.Event\(\)"),
        (lambda kafka: kafka.throttle("1"), TypeError, "seconds='1'; expected a number"),
        (lambda kafka: kafka.network(latency_ms="5"), TypeError, "latency_ms='5'; expected a number"),
        (lambda kafka: kafka.network(bytes_per_s=float("nan")), ValueError, "bytes_per_s=nan; expected a finite"),
    ],
    ids=range(46),
)
def test_arguments_of_methods(kafka, call, kind, message):
    before = kafka.records("orders").values
    with pytest.raises(kind, match=message):
        call(kafka)
    assert kafka.topics == {"orders": 1}
    assert kafka.records("orders").values == before


def test_a_transaction_without_records_ends_by_itself(kafka):
    for end in ("commit", "abort", "open"):
        assert kafka.produce("orders", [], transactional="empty", end=end) == []
    assert kafka.transaction("empty").state == "Empty"
    kafka.assert_quiescent()


def test_broker_is_not_started_twice():
    broker = EmbeddedBroker(listeners={})
    with broker, pytest.raises(RuntimeError, match="already running"):
        broker.start()
    with pytest.raises(RuntimeError, match="has been closed; create another one"):
        broker.start()


def test_two_brokers_do_not_use_one_folder(tmp_path):
    second = EmbeddedBroker(listeners={}, data_dir=tmp_path)
    with EmbeddedBroker(listeners={}, data_dir=tmp_path, topics={"orders": 1}) as first:
        words = f"another broker uses {tmp_path}, or makes a copy of it, in this process or in another one"
        with pytest.raises(ConfigError, match=words):
            second.start()
        first.produce("orders", ["kept"])
        # What has crashed keeps its folder: `restart` uses it again.
        first.crash()
        with pytest.raises(ConfigError, match="another broker uses"):
            second.start()
        first.restart()
    with second:
        assert second.records("orders").values == [b"kept"]


def test_folder_that_cannot_be_written_is_named(tmp_path):
    # Root may write to any folder of a disk, but not to this one.
    folder = tmp_path if os.geteuid() else Path("/sys")
    if not folder.is_dir():
        pytest.skip("this system has no folder that root cannot write to")
    mode = tmp_path.stat().st_mode
    tmp_path.chmod(0o500)
    broker = EmbeddedBroker(listeners={}, data_dir=folder)
    try:
        with pytest.raises(ConfigError, match=f"cannot write and lock files in {folder}, .*; give another folder"):
            broker.start()
    finally:
        tmp_path.chmod(mode)
