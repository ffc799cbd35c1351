"""The control port's routes for topics, records, transactions, groups and snapshots."""

import threading

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.broker_core.control_client import controlled, refused

TIMEOUT = 30


@pytest.fixture(scope="module")
def control():
    with controlled(brokers=2) as found:
        yield found


@pytest.fixture
def topic(request, control):
    name = request.node.name
    control.client.post("create_topic", name=name, partitions=2)
    yield name
    if name in control.kafka.topics:
        control.kafka.delete_topic(name)


def test_topic_is_created_with_its_settings_listed_and_deleted(control):
    client, kafka = control
    assert client.call("create_topic", name="t", partitions=3, config={"retention.ms": "5"}).status == 201
    assert client.get("topics")["topics"]["t"] == kafka.topics["t"] == 3
    refused(client.call("create_topic", name="t"), 409, "TOPIC_ALREADY_EXISTS", "/delete_topic")
    client.post("delete_topic", name="t")
    assert "t" not in kafka.topics
    refused(client.call("delete_topic", name="t"), 404, "UNKNOWN_TOPIC_OR_PARTITION", "GET /topics")
    refused(client.call("delete_topic", name="__consumer_offsets"), 400, "internal topic")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "../escape"}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": ""}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": "x", "partitions": 0}, "INVALID_PARTITIONS"),
        ({"name": "x", "partitions": -1}, "INVALID_PARTITIONS"),
        ({"name": "x", "partitions": 10**9}, "partitions"),
        ({"name": "x", "config": {"no.such.setting": "1"}}, "no.such.setting"),
        ({"name": "x", "config": {"retention.ms": "soon"}}, "retention.ms"),
    ],
)
def test_topic_that_cannot_be_created_is_refused(control, fields, error):
    refused(control.client.call("create_topic", **fields), 400, error)
    assert "x" not in control.kafka.topics


def test_records_of_every_form_are_written_and_read(control, topic):
    client, _ = control
    values = [
        "text",
        "ü\u0000",
        None,
        {"base64": "//8="},
        {"key": "k", "value": {"base64": "//8="}, "headers": {"a": "b"}, "timestamp_ms": 5},
        {"key": {"base64": "/w=="}, "headers": [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]]},
    ]
    written = client.post("produce", topic=topic, values=values, partition=1)["records"]
    assert [(each["topic"], each["partition"], each["offset"]) for each in written] == [
        (topic, 1, offset) for offset in range(6)
    ]
    records = client.get("records", topic=topic)["records"]
    assert [each["value"] for each in records] == [
        "text",
        "ü\u0000",
        None,
        {"base64": "//8="},
        {"base64": "//8="},
        None,
    ]
    assert [each["key"] for each in records] == [None] * 4 + ["k", {"base64": "/w=="}]
    assert records[4]["headers"] == [["a", "b"]]
    assert records[5]["headers"] == [["a", "1"], ["a", None], ["b", {"base64": "/w=="}]]
    assert (records[4]["timestamp_ms"], records[4]["producer_id"], records[4]["marker"]) == (5, -1, None)
    # What was read can be written again.
    again = client.post("produce", topic=topic, values=[each["value"] for each in records], partition=0)["records"]
    assert [each["offset"] for each in again] == list(range(6))


def test_partition_of_a_record_wins(control, topic):
    written = control.client.post("produce", topic=topic, values=[{"value": "x", "partition": 1}], partition=0)
    assert written["records"][0]["partition"] == 1
    refused(control.client.call("produce", topic=topic, values=["x"], partition=2), 404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_isolation_decides_what_is_read(control, topic):
    client, _ = control
    for value, end in (("kept", "commit"), ("dropped", "abort"), ("pending", "open")):
        client.post("produce", topic=topic, values=[value], partition=0, transactional=f"{topic} {value}", end=end)

    def read(**more):
        return [each["marker"] or each["value"] for each in client.get("records", topic=topic, **more)["records"]]

    assert read(isolation="read_committed") == ["kept"]
    assert read(isolation="read_uncommitted", partition=0) == ["kept", "dropped", "pending"]
    assert read(partition=1) == []
    assert read() == ["kept", "dropped", "pending"]
    assert read(control="true") == ["kept", "COMMIT", "dropped", "ABORT", "pending"]
    client.post("end_transaction", transactional_id=f"{topic} pending")
    assert client.get("wait_for_records", topic=topic, count=2)["records"][1]["value"] == "pending"
    problem = client.call("end_transaction", transactional_id=f"{topic} pending", commit=False)
    refused(problem, 409, "INVALID_TXN_STATE", "GET /transaction")
    refused(client.call("end_transaction", transactional_id="absent"), 404, "unknown to every coordinator")


def test_wait_ends_when_the_record_comes(control, topic):
    client, kafka = control
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(client.get("wait_for_records", topic=topic, count=1, timeout=TIMEOUT))
    )
    waiting.start()
    Producer({"bootstrap.servers": kafka.bootstrap_servers}).produce(topic, b"x")
    kafka.produce(topic, "late")
    waiting.join(TIMEOUT)
    assert found[0]["records"]


def test_wait_that_ends_without_its_records_says_what_is_there(control, topic):
    client = control.client
    client.post("produce", topic=topic, values=["x"])
    refused(client.ask("wait_for_records", topic=topic, count=2, timeout=0.1), 409, "1 record of 2", "GET /report")
    refused(client.ask("wait_for_records", topic="later", count=1, timeout=0), 409, "it does not exist")


def test_group_is_shown_and_waited_for(control, topic):
    client, kafka = control
    absent = {"group": "absent", "state": "Dead", "members": [], "offsets": [], "total_lag": None}
    assert client.get("group", group="absent") == absent
    client.post("produce", topic=topic, values=["a", "b"], partition=0)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"{topic}/readers",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        assert consumer.poll(TIMEOUT).value() == b"a"
        stable = client.get("wait_stable", group=f"{topic}/readers", members=1, timeout=TIMEOUT)
        assert [(each["client_id"], len(each["partitions"])) for each in stable["members"]] == [("reader", 2)]
        problem = client.ask("wait_caught_up", group=f"{topic}/readers", timeout=0.1)
        refused(problem, 409, "not caught up")
        assert consumer.poll(TIMEOUT).value() == b"b"
        consumer.commit(asynchronous=False)
        caught_up = client.get("wait_caught_up", group=f"{topic}/readers", timeout=TIMEOUT)
        assert {(each["partition"], each["committed"], each["lag"]) for each in caught_up["offsets"]} >= {(0, 2, 0)}
        assert f"{topic}/readers" in client.get("groups")["groups"]
    finally:
        consumer.close()
    refused(client.ask("wait_stable", group=f"{topic}/readers", members=3, timeout=0), 409, "not stable with 3 members")
    refused(client.ask("group", group=""), 400, "cannot be empty")


def test_snapshot_is_restored_and_removed(control, topic):
    client, _ = control
    client.post("produce", topic=topic, values=["kept"])
    taken = client.post("snapshot")
    assert taken["size_bytes"] > 0
    client.post("produce", topic=topic, values=["dropped"])
    client.post("restore", id=taken["id"])
    assert [each["value"] for each in client.get("records", topic=topic)["records"]] == ["kept"]
    assert taken in client.get("snapshots")["snapshots"]
    client.post("remove_snapshot", id=taken["id"])
    refused(client.call("restore", id=taken["id"]), 404, f"there is no snapshot '{taken['id']}'")
    assert taken not in client.get("snapshots")["snapshots"]


def test_snapshot_under_load_has_a_prefix_of_what_was_acknowledged(control, topic):
    client, kafka = control
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    delivered = []
    stop = threading.Event()

    def load():
        number = 0
        while not stop.is_set():
            producer.produce(topic, b"%d" % number, partition=0, on_delivery=lambda _, m: delivered.append(m.value()))
            producer.poll(0.001)
            number += 1
        producer.flush(TIMEOUT)

    loading = threading.Thread(target=load)
    loading.start()
    try:
        kafka.wait_for_records(topic, 10, timeout=TIMEOUT)
        before = len(delivered)
        taken = client.post("snapshot")
        kafka.wait_for(lambda: len(delivered) > before + 10, timeout=TIMEOUT)
    finally:
        stop.set()
        loading.join(TIMEOUT)
    client.post("restore", id=taken["id"])
    values = [each["value"].encode() for each in client.get("records", topic=topic)["records"]]
    assert before <= len(values) < len(delivered)
    assert values == [b"%d" % number for number in range(len(values))]
    client.post("remove_snapshot", id=taken["id"])
