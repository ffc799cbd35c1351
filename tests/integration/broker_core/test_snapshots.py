"""`snapshot` and `restore` of the embedded broker, and brokers that start from a copy."""

import os
import shutil
import subprocess
import threading
import time
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from broker_core import ConfigError, DamageError, EmbeddedBroker, Hold, KafkaError, Snapshot
from broker_core.server import disk
from tests.support.raw_client import RawClient
from tests.support.share_session import ShareMember

DEADLINE_S = 30


def _send(producer: Producer, topic: str, *values: str) -> None:
    errors = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * len(values)


def test_everything_stored_returns(kafka):
    kafka.create_topic("kept", 2, {"retention.ms": "-1"})
    kafka.create_topic("deleted")
    kafka.produce("kept", ["1"])
    kafka.produce("deleted", ["returns"])
    kafka.produce("kept", ["aborted"], transactional="a", end="abort")
    kafka.produce("kept", ["open"], transactional="t", end="open")
    snapshot = kafka.snapshot()
    for _ in range(2):
        kafka.end_transaction("t")
        kafka.produce("kept", ["2"])
        kafka.create_topic("new")
        kafka._call(lambda cluster: cluster.controller.delete_topic("deleted"))
        kafka.restore(snapshot)
        assert kafka.topics == {"kept": 2, "deleted": 1}
        assert kafka.records("deleted").values == [b"returns"]
        assert kafka.records("kept", isolation="read_uncommitted").values == [b"1", b"open", b"aborted"]
        assert kafka.records("kept", isolation="read_committed").values == [b"1"]
        assert kafka.transaction("t").state == "Ongoing"
        with pytest.raises(KafkaError):
            kafka.records("new")


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


def test_files_in_a_folder_return_and_survive(tmp_path):
    with EmbeddedBroker(data_dir=tmp_path / "data") as kafka:
        kafka.produce("in", ["1"])
        snapshot = kafka.snapshot()
        kafka.produce("in", ["2"])
        kafka.produce("other", ["x"])
        kafka.restore(snapshot)
        kafka.produce("in", ["3"])
    with EmbeddedBroker(data_dir=tmp_path / "data") as kafka:
        assert kafka.topics == {"in": 1}
        assert kafka.records("in").values == [b"1", b"3"]


def test_snapshot_of_a_folder_syncs_nothing_for_each_partition(tmp_path, monkeypatch):
    syncs = []

    def counted(sync, descriptor):
        syncs.append(descriptor)
        sync(descriptor)

    for module, name in ((disk, "_sync_descriptor"), (os, "fsync")):
        monkeypatch.setattr(module, name, partial(counted, getattr(module, name)))
    with EmbeddedBroker(data_dir=tmp_path / "data", topics={"in": 20}) as kafka:
        kafka.produce("in", [(None, str(each), (), None, each) for each in range(20)])
        kafka.produce("in", ["open"], transactional="t", end="open")
        assert len(syncs) > 20, "the test counts no syncs"
        syncs.clear()
        snapshot = kafka.snapshot()
        # One of each kind for what is not acknowledged yet.
        assert len(syncs) <= 2
    with EmbeddedBroker(copy_of=snapshot) as kafka:
        assert len(kafka.records("in", isolation="read_uncommitted")) == 21
        assert len(kafka.records("in", isolation="read_committed")) == 20
        assert kafka.transaction("t").state == "Ongoing"
        assert [log.findings for log in kafka._call(lambda cluster: cluster.logs.opened()) if log.findings] == []


def test_restore_reads_only_the_logs_that_clients_use(kafka):
    kafka.create_topic("in", 20)
    kafka.produce("in", [(None, str(each), (), None, each) for each in range(20)])
    snapshot = kafka.snapshot()
    kafka.produce("in", ["more"])
    kafka.restore(snapshot)
    assert kafka._call(lambda cluster: cluster.logs.opened()) == []
    (record,) = kafka.records("in", partition=3)
    assert record.value == b"3"
    opened = kafka._call(lambda cluster: cluster.logs.opened())
    assert [(log.topic_partition, log.findings) for log in opened] == [(("in", 3), [])]


def test_brokers_start_from_copies(tmp_path):
    with EmbeddedBroker() as kafka:
        kafka.produce("in", ["1"])
        snapshot = kafka.snapshot()
    snapshot.save(tmp_path / "saved")
    files = {path: path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    for source in (snapshot, tmp_path / "saved", str(tmp_path / "saved")):
        with EmbeddedBroker(copy_of=source, topics={"in": 4, "new": 1}) as kafka:
            assert kafka.topics == {"in": 1, "new": 1}
            kafka.produce("in", ["2"])
            assert kafka.records("in").values == [b"1", b"2"]
            kafka.crash()
            kafka.restart()
            assert kafka.records("in").values == [b"1", b"2"]
            kafka.restore(Snapshot.read(tmp_path / "saved"))
            assert kafka.records("in").values == [b"1"]
    assert files == {path: path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError, match="is not empty"):
        snapshot.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="is not a folder"):
        EmbeddedBroker(copy_of=tmp_path / "missing")
    # The folder around it, such as one with the test data of a repository.
    with pytest.raises(ConfigError, match="has no __cluster_metadata-0, so it is no data of a broker: expected"):
        EmbeddedBroker(copy_of=tmp_path)
    with pytest.raises(ConfigError, match="exclude each other"):
        EmbeddedBroker(copy_of=snapshot, data_dir=tmp_path)


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


def test_pointers_of_git_lfs_are_refused(tmp_path):
    with EmbeddedBroker(topics={"in": 1}) as kafka:
        kafka.produce("in", ["1"])
        kafka.snapshot().save(tmp_path / "saved")
    (log,) = (tmp_path / "saved" / "in-0").glob("*.log")
    log.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n")
    with pytest.raises(ConfigError, match=rf"in-0/{log.name} is a pointer of Git LFS, .* Run `git lfs pull`"):
        EmbeddedBroker(copy_of=tmp_path / "saved")


def test_folder_without_its_log_files_is_refused(tmp_path):
    with EmbeddedBroker(topics={"in": 1}) as kafka:
        kafka.produce("in", ["1"])
        kafka.snapshot().save(tmp_path / "saved")
    (log,) = (tmp_path / "saved" / "in-0").glob("*.log")
    log.unlink()
    missing = r"the \.log files of 1 partition are missing, such as those of in-0\. .* `git check-ignore -v`"
    with pytest.raises(ConfigError, match=missing):
        EmbeddedBroker(copy_of=tmp_path / "saved")
    (log,) = (tmp_path / "saved" / "__cluster_metadata-0").glob("*.log")
    log.unlink()
    for _ in range(2):
        with pytest.raises(DamageError, match=r"its \.log files are missing, so the topics are not known: copy"):
            EmbeddedBroker(data_dir=tmp_path / "saved").start()


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


def test_virtual_time_goes_on():
    with EmbeddedBroker(clock="virtual", topics={"in": 1}) as kafka:
        kafka.produce("in", ["open"], transactional="t", end="open")
        snapshot = kafka.snapshot()
        kafka.clock.advance(3600)
        assert kafka.transaction("t").state == "CompleteAbort"
        now = kafka.clock.now_ms()
        kafka.restore(snapshot)
        assert kafka.clock.now_ms() == now
        # The transaction began an hour ago, so the coordinator aborts it at its next check.
        assert kafka.transaction("t").state == "Ongoing"
        kafka.clock.advance(60)
        assert kafka.transaction("t").state == "CompleteAbort"


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
    consumer = kafka_consumer()
    consumer.assign([Place("in", 0, 0)])
    assert [consumer.poll(DEADLINE_S).value() for _ in range(3)] == [b"1", b"2", b"3"]
    kafka.restore(snapshot)
    kafka.produce("in", ["new"])
    assert consumer.poll(DEADLINE_S).value() == b"new"


@pytest.mark.kafka(topics={"in": 2}, config={"group.initial.rebalance.delay.ms": "0"})
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_restore_during_a_rebalance(kafka, kafka_consumer, protocol):
    kafka.produce("in", [(None, "a", None, None, 0), (None, "b", None, None, 1)])
    settings = {"group.id": "g", "group.protocol": protocol, "enable.auto.commit": False}
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


@pytest.mark.kafka(topics={"in": 1, "other": 1})
def test_topic_that_a_transaction_has_open_is_deleted_and_restored(kafka):
    kafka.produce("in", ["of the snapshot"], transactional="writer", end="open")
    snapshot = kafka.snapshot()
    kafka.delete_topic("in")
    kafka.end_transaction("writer")
    assert kafka.transaction("writer").state == "CompleteCommit"
    kafka.restore(snapshot)
    assert kafka.transaction("writer").state == "Ongoing"
    assert kafka.records("in", isolation="read_committed") == []
    kafka.end_transaction("writer")
    assert kafka.records("in", isolation="read_committed").values == [b"of the snapshot"]
    kafka.assert_quiescent()


@pytest.mark.kafka(topics={"in": 1})
def test_share_group_is_shown_and_restored(kafka):
    kafka.produce("in", ["a"])
    snapshot = kafka.snapshot()
    with RawClient(kafka.bootstrap_servers) as client:
        ShareMember(client, "sharers", "in").join()
        (member,) = kafka.group("sharers").wait_stable(members=1).members
        assert (member.client_id, member.partitions) == ("raw-client", {("in", 0)})
        with_group = kafka.snapshot()
        kafka.restore(snapshot)
        assert "sharers" not in kafka.groups
        kafka.restore(with_group)
        assert kafka.group("sharers").state == "Empty"
        assert ShareMember(client, "sharers", "in").join().epoch > 0
