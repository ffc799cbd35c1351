"""`snapshot` and `restore` of the embedded broker, and brokers that start from a copy."""

import shutil
import subprocess
import threading
import time
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from broker_core import EmbeddedBroker, Hold
from tests.support.raw_client import RawClient
from tests.support.share_session import ShareMember

DEADLINE_S = 30


def _send(producer: Producer, topic: str, *values: str) -> None:
    errors = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * len(values)


def test_open_clients_go_on(kafka, kafka_producer, kafka_consumer):
    kafka.create_topic("in")
    producer, consumer = kafka_producer({"enable.idempotence": False}), kafka_consumer("in", {"group.id": "g"})
    _send(producer, "in", "1", "2")
    assert [consumer.poll(DEADLINE_S).value() for _ in range(2)] == [b"1", b"2"]
    consumer.commit(offsets=[Place("in", 0, 1)], asynchronous=False)
    snapshot = kafka.snapshot()
    consumer.commit(asynchronous=False)
    _send(producer, "in", "3")
    assert consumer.poll(DEADLINE_S).value() == b"3"
    connected = len(kafka.requests(api="ApiVersions"))

    kafka.restore(snapshot)
    assert kafka.group("g").members == ()
    assert kafka.group("g").committed == {("in", 0): 1}
    _send(producer, "in", "4")
    assert kafka.records("in").values == [b"1", b"2", b"4"]
    got = []
    kafka.wait_for(
        lambda: got.append(consumer.poll(0.1)) or [each for each in got if each and each.value() == b"4"], 30
    )
    assert len(kafka.requests(api="ApiVersions")) == connected, "a client connected again"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_new_consumers_do_not_wait_for_members_of_the_snapshot(kafka, kafka_consumer, protocol):
    kafka.produce("in", ["1", "2"])
    settings = {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False}
    first: Consumer = kafka_consumer("in", settings)
    assert first.poll(DEADLINE_S).value() == b"1"
    first.commit(offsets=[Place("in", 0, 1)], asynchronous=False)
    snapshot = kafka.snapshot()
    assert kafka.group("g").members
    first.close()
    kafka.restore(snapshot)
    assert kafka.group("g").members == ()
    began = time.monotonic()
    assert kafka_consumer("in", settings).poll(DEADLINE_S).value() == b"2"
    assert time.monotonic() - began < 10


def test_transactional_producer_goes_on(kafka, kafka_producer):
    kafka.create_topic("in")
    producer = kafka_producer({"transactional.id": "t"})
    producer.init_transactions(DEADLINE_S)
    snapshot = kafka.snapshot()
    for _ in range(2):
        producer.begin_transaction()
        producer.produce("in", "value")
        producer.commit_transaction(DEADLINE_S)
        assert kafka.records("in", isolation="read_committed").values == [b"value"]
        kafka.restore(snapshot)
        assert kafka.records("in") == []


def test_waiting_and_delayed_requests(kafka, kafka_consumer, kafka_producer):
    """A waiting fetch is answered; a request that a fault holds loses its connection, and the client repeats it."""
    kafka.create_topic("in")
    snapshot = kafka.snapshot()
    consumer = kafka_consumer("in", {"fetch.wait.max.ms": 60_000, "group.id": "g"})
    consumer.poll(0)
    kafka.wait_for(lambda: consumer.poll(0.05) or kafka.requests(api="Fetch"))
    release = threading.Event()
    with kafka.fault(api="Produce", action=Hold(release), times=1) as fault:
        producer = kafka_producer()
        producer.produce("in", b"held")
        kafka.wait_for(lambda: producer.poll(0.01) or fault.hits)
        kafka.restore(snapshot)
        # The first one waited; the consumer may have sent another one since.
        assert kafka.requests(api="Fetch")[0].outcome == "answered"
        release.set()
        assert producer.flush(DEADLINE_S) == 0
    assert kafka.records("in").values == [b"held"]


@pytest.mark.kafka(brokers=3, topics={"in": 3})
def test_brokers_stay_as_they_are(kafka, kafka_producer):
    kafka.produce("in", ["1"], partition=0)
    snapshot = kafka.snapshot()
    kafka.broker(1).stop()
    with kafka.stale_broker(3):
        kafka.restore(snapshot)
        assert [kafka.broker(each).is_running for each in kafka.broker_ids] == [False, True, True]
    assert kafka.leader(("in", 0)) != 1
    kafka.broker(1).start()
    assert kafka.leader(("in", 0)) == 1
    _send(kafka_producer(), "in", "2")
    assert kafka.records("in").values == [b"1", b"2"]


@pytest.mark.kafka(listeners={"SECURE": "SASL_PLAINTEXT"}, users={"alice": "secret"})
def test_authenticated_clients_stay_authenticated(kafka, kafka_producer):
    producer = kafka_producer(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "enable.idempotence": False,
        }
    )
    _send(producer, "in", "1")
    snapshot = kafka.snapshot()
    _send(producer, "in", "2")
    sign_ins = len(kafka.requests(api="SaslAuthenticate"))
    kafka.restore(snapshot)
    _send(producer, "in", "3")
    assert kafka.records("in").values == [b"1", b"3"]
    assert len(kafka.requests(api="SaslAuthenticate")) == sign_ins


@pytest.mark.parametrize(
    ("name", "text"),
    [(".gitignore", "*.log\n"), (".gitattributes", "* text eol=crlf\n")],
    ids=["excluded", "converted"],
)
def test_saved_folder_survives_the_settings_of_a_repository(tmp_path, name, text):
    if (git := shutil.which("git")) is None:
        pytest.skip("git is not installed")
    with EmbeddedBroker(topics={"in": 1}) as kafka:
        kafka.produce("in", ["1\n2\r\n"])
        kafka.snapshot().save(tmp_path / "repository" / "prepared")
    (tmp_path / "repository" / name).write_text(text)
    run = partial(subprocess.run, cwd=tmp_path / "repository", check=True, capture_output=True)
    run([git, "init", "--quiet"])
    run([git, "add", "."])
    run([git, "checkout-index", "--all", f"--prefix={tmp_path}/clone/"])
    with EmbeddedBroker(copy_of=tmp_path / "clone" / "prepared") as kafka:
        assert kafka.records("in").values == [b"1\n2\r\n"]
        assert name not in kafka.snapshot().to_memory().list_folder("")
    saved, cloned = (
        {path.name: path.read_bytes() for path in (tmp_path / tree / "prepared" / "in-0").iterdir()}
        for tree in ("repository", "clone")
    )
    assert cloned == saved


def test_restore_is_refused_where_it_cannot_work(kafka, kafka_producer):
    snapshot = kafka.snapshot()
    errors = []

    def act(_: object) -> None:
        try:
            kafka.restore(snapshot)
        except RuntimeError as error:
            errors.append(str(error))

    with kafka.fault(api="Produce", action=act, times=1):
        _send(kafka_producer(), "in", "1")
    assert errors == ["the function of a fault cannot restore a snapshot: its request is in progress"]
    kafka.crash()
    with pytest.raises(RuntimeError, match=r"restart\(\)"):
        kafka.restore(snapshot)


@pytest.mark.parametrize(("before", "after"), [(["1"], ["2"]), ([], ["2"]), (["1"], [])])
def test_idempotent_producer_goes_on(kafka, kafka_producer, before, after):
    kafka.create_topic("in")
    producer = kafka_producer({"enable.idempotence": True})
    _send(producer, "in", *before)
    snapshot = kafka.snapshot()
    _send(producer, "in", *after)
    kafka.restore(snapshot)
    _send(producer, "in", "3")
    _send(producer, "in", "4")
    assert kafka.records("in").values == [*(each.encode() for each in before), b"3", b"4"]


def test_consumer_beyond_the_restored_log_goes_on_at_its_end(kafka, kafka_consumer):
    kafka.produce("in", ["1", "2"])
    snapshot = kafka.snapshot()
    kafka.produce("in", ["3"])
    consumer = kafka_consumer({"enable.auto.commit": False})
    consumer.assign([Place("in", 0, 0)])
    assert [consumer.poll(DEADLINE_S).value() for _ in range(3)] == [b"1", b"2", b"3"]
    kafka.restore(snapshot)
    kafka.produce("in", ["new"])
    assert consumer.poll(DEADLINE_S).value() == b"new"


# Members learn with a heartbeat of what has changed.
@pytest.mark.kafka(
    topics={"in": 2},
    config={
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
    },
)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_restore_during_a_rebalance(kafka, kafka_consumer, protocol):
    kafka.produce("in", [(None, "a", None, None, 0), (None, "b", None, None, 1)])
    settings = {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False}
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = 200
    first = kafka_consumer("in", settings)
    assert first.poll(DEADLINE_S) is not None
    group = kafka.group("g")
    group.wait_stable(members=1)
    snapshot = kafka.snapshot()
    # The first member does not poll, so it gives nothing up.
    second = kafka_consumer("in", settings)
    second.poll(0)
    kafka.wait_for(lambda: len(group.members) == 2 or group.state == "PreparingRebalance", DEADLINE_S)
    kafka.restore(snapshot)
    assert (group.state, group.members) == ("Empty", ())

    def are_both_assigned():
        for each in (first, second):
            each.poll(0.05)
        return len(first.assignment()) == len(second.assignment()) == 1

    kafka.wait_for(are_both_assigned, timeout=60)
    members = group.wait_stable(members=2).members
    assert sorted(place for each in members for place in each.partitions) == [("in", 0), ("in", 1)]


@pytest.mark.kafka(topics={"in": 1})
def test_share_group_is_shown_and_restored(kafka):
    kafka.produce("in", ["a"])
    snapshot = kafka.snapshot()
    with RawClient(kafka.bootstrap_servers) as client:
        ShareMember(client, "sharers", "in").join()
        (member,) = kafka.group("sharers").wait_stable(members=1).members
        assert (member.client_id, member.partitions) == ("raw-client", {("in", 0)})
        with pytest.raises(KeyError, match="or a share group, which never has one here"):
            _ = kafka.group("sharers").total_lag
        with_group = kafka.snapshot()
        kafka.restore(snapshot)
        assert "sharers" not in kafka.groups
        kafka.restore(with_group)
        assert kafka.group("sharers").state == "Empty"
        assert ShareMember(client, "sharers", "in").join().epoch > 0
