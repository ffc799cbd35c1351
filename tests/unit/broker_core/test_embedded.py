"""The embedded broker: it starts fast, leaves nothing behind, and explains what it does not support."""

import shutil
from functools import partialmethod

import pytest

from broker_core import EmbeddedBroker
from broker_core.errors import ConfigError, KafkaError
from broker_core.records.batch import NewRecord, build_batch
from broker_core.server.disk import DiskStorage
from broker_core.types import TopicPartition


def test_writes_of_a_failing_fault_action_are_durable_and_reported(tmp_path):
    with EmbeddedBroker(listeners={}, data_dir=tmp_path, topics={"t": 1}) as kafka:

        def write_and_fail(cluster):
            log = cluster.logs.get(TopicPartition("t", 0), cluster.now_ms)
            log.append_as_leader(build_batch([NewRecord(None, b"1")]), now_ms=cluster.now_ms, leader_epoch=0)
            cluster.logs.appended(TopicPartition("t", 0))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            kafka._call(write_and_fail)
        # An action runs before the server syncs, so this one sees what the failed action left.
        assert not kafka._call(lambda cluster: any(log.unsynced_bytes for log in cluster.logs.opened()))


def test_unknown_setting_is_reported():
    with pytest.raises(ConfigError, match=r"unknown setting 'no.such.key'"):
        EmbeddedBroker(listeners={}, config={"no.such.key": "1"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "0"),
        ("auto.create.topics.enable", "yes"),
        ("log.cleanup.policy", "burn"),
    ],
)
def test_invalid_value_is_reported_with_its_key(key, value):
    with pytest.raises(ConfigError, match=f"{key}='?{value}"):
        EmbeddedBroker(listeners={}, config={key: value})


def test_unstarted_broker_reports_how_to_start_it():
    with pytest.raises(RuntimeError, match="with EmbeddedBroker"):
        _ = EmbeddedBroker(listeners={}).bootstrap_servers


def test_invalid_data_directory_is_an_immediate_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is not a folder"):
        EmbeddedBroker(listeners={}, data_dir=tmp_path / "file").start()


def test_call_during_which_the_broker_stops_reports_why(monkeypatch):
    with EmbeddedBroker(listeners={}, topics={"t": 1}) as kafka:

        def failing():
            raise OSError(5, "the disk is gone")

        def break_it(cluster):
            monkeypatch.setattr(cluster.logs, "check_disk", failing)

        kafka._call(break_it)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="the broker has stopped: .*the disk is gone"):
                kafka.produce("t", ["lost"])


def test_folder_that_is_removed_while_the_broker_runs(tmp_path, monkeypatch, caplog):
    """A test may remove its folder before it closes the broker; a person may clean up too much."""
    # A file that is used again has to be opened again.
    monkeypatch.setattr(DiskStorage, "__init__", partialmethod(DiskStorage.__init__, max_open_files=1))
    with EmbeddedBroker(listeners={}, data_dir=tmp_path / "data", topics={"orders": 1, "others": 1}) as kafka:
        kafka.produce("orders", ["one"])
        shutil.rmtree(tmp_path / "data" / "orders-0")
        kafka.produce("others", ["one"])
        with pytest.raises(FileNotFoundError, match="orders-0"):
            kafka.records("orders")
        with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
            kafka.produce("orders", ["two"])
        assert caplog.text.count("orders-0: the batch was not written: [Errno 2] No such file") == 1
        assert len(kafka.records("others")) == 1
    assert "the files of the broker were not closed cleanly" in caplog.text
    with EmbeddedBroker(listeners={}, data_dir=tmp_path / "data") as kafka:
        assert (len(kafka.records("orders")), len(kafka.records("others"))) == (0, 1)
