"""`snapshot` and `restore` of the embedded broker, and brokers that start from a copy."""

import errno
import os
from functools import partial

import pytest

from broker_core import ConfigError, DamageError, EmbeddedBroker, KafkaError, Snapshot
from broker_core.server import disk

# Nothing here needs a port.
pytestmark = pytest.mark.kafka(listeners={})


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


def test_snapshot_of_a_folder_syncs_nothing_for_each_partition(tmp_path, monkeypatch):
    syncs = []

    def counted(sync, descriptor):
        syncs.append(descriptor)
        sync(descriptor)

    for module, name in ((disk, "_sync_descriptor"), (os, "fsync")):
        monkeypatch.setattr(module, name, partial(counted, getattr(module, name)))
    with EmbeddedBroker(listeners={}, data_dir=tmp_path / "data", topics={"in": 20}) as kafka:
        kafka.produce("in", [(None, str(each), (), None, each) for each in range(20)])
        kafka.produce("in", ["open"], transactional="t", end="open")
        assert len(syncs) > 20, "the test counts no syncs"
        syncs.clear()
        snapshot = kafka.snapshot()
        # One of each kind for what is not acknowledged yet.
        assert len(syncs) <= 2
    with EmbeddedBroker(listeners={}, copy_of=snapshot) as kafka:
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
    with EmbeddedBroker(listeners={}) as kafka:
        kafka.produce("in", ["1"])
        snapshot = kafka.snapshot()
    snapshot.save(tmp_path / "saved")
    files = {path: path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    for source in (snapshot, tmp_path / "saved", str(tmp_path / "saved")):
        with EmbeddedBroker(listeners={}, copy_of=source, topics={"in": 4, "new": 1}) as kafka:
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
        EmbeddedBroker(listeners={}, copy_of=tmp_path / "missing")
    # The folder around it, such as one with the test data of a repository.
    with pytest.raises(ConfigError, match="has no __cluster_metadata-0, so it is no data of a broker: expected"):
        EmbeddedBroker(listeners={}, copy_of=tmp_path)
    with pytest.raises(ConfigError, match="exclude each other"):
        EmbeddedBroker(listeners={}, copy_of=snapshot, data_dir=tmp_path)


def test_folder_of_a_running_broker_is_refused(tmp_path):
    with EmbeddedBroker(listeners={}, data_dir=tmp_path) as kafka:
        kafka.produce("in", ["1"])
        for read in (Snapshot.read, lambda folder: EmbeddedBroker(listeners={}, copy_of=folder)):
            with pytest.raises(ConfigError, match="another broker uses .*: stop it"):
                read(tmp_path)
        kafka.produce("in", ["2"])
    first, second = Snapshot.read(tmp_path), Snapshot.read(tmp_path)
    for source in (first, second):
        with EmbeddedBroker(listeners={}, copy_of=source) as kafka:
            assert kafka.records("in").values == [b"1", b"2"]
    with EmbeddedBroker(listeners={}, data_dir=tmp_path) as kafka:
        assert len(kafka.records("in")) == 2


def test_folder_without_locks_is_read(tmp_path, monkeypatch):
    with EmbeddedBroker(listeners={}, data_dir=tmp_path) as kafka:
        kafka.produce("in", ["1"])

    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("broker_core.server.disk.fcntl.flock", flock)
    with EmbeddedBroker(listeners={}, copy_of=tmp_path) as kafka:
        assert kafka.records("in").values == [b"1"]


def test_pointers_of_git_lfs_are_refused(tmp_path):
    with EmbeddedBroker(listeners={}, topics={"in": 1}) as kafka:
        kafka.produce("in", ["1"])
        kafka.snapshot().save(tmp_path / "saved")
    (log,) = (tmp_path / "saved" / "in-0").glob("*.log")
    log.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n")
    with pytest.raises(ConfigError, match=rf"in-0/{log.name} is a pointer of Git LFS, .* Run `git lfs pull`"):
        EmbeddedBroker(listeners={}, copy_of=tmp_path / "saved")


def test_folder_without_its_log_files_is_refused(tmp_path):
    with EmbeddedBroker(listeners={}, topics={"in": 1}) as kafka:
        kafka.produce("in", ["1"])
        kafka.snapshot().save(tmp_path / "saved")
    (log,) = (tmp_path / "saved" / "in-0").glob("*.log")
    log.unlink()
    missing = r"the \.log files of 1 partition are missing, such as those of in-0\. .* `git check-ignore -v`"
    with pytest.raises(ConfigError, match=missing):
        EmbeddedBroker(listeners={}, copy_of=tmp_path / "saved")
    (log,) = (tmp_path / "saved" / "__cluster_metadata-0").glob("*.log")
    log.unlink()
    for _ in range(2):
        with pytest.raises(DamageError, match=r"its \.log files are missing, so the topics are not known: copy"):
            EmbeddedBroker(listeners={}, data_dir=tmp_path / "saved").start()


def test_virtual_time_goes_on():
    with EmbeddedBroker(listeners={}, clock="virtual", topics={"in": 1}) as kafka:
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


@pytest.mark.kafka(listeners={}, topics={"in": 1, "other": 1})
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
