"""Mistakes in the arguments of `EmbeddedBroker` and its methods: refused by the call, with what is expected."""

import pytest

from broker_core import EmbeddedBroker, Snapshot, replay


@pytest.fixture(scope="module")
def kafka():
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        yield broker


def test_broker_can_be_started_after_its_port_has_become_free():
    with EmbeddedBroker() as other:
        port = int(other.bootstrap_servers.rpartition(":")[2])
        broker = EmbeddedBroker(port=port)
        with pytest.raises(OSError, match="in use"):
            broker.start()
    with broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


# pytest's `tmpdir` is such an object.
def test_paths_are_objects_of_any_library(tmpdir):
    with EmbeddedBroker(topics={"orders": 1}, data_dir=tmpdir / "logs") as kafka, kafka.recording(tmpdir / "requests"):
        (tmpdir / "orders.jsonl").write('{"id": 7}\n')
        kafka.load("orders", tmpdir / "orders.jsonl")
        kafka.snapshot().save(tmpdir / "saved")
    for folder in ("logs", "saved"):
        with EmbeddedBroker(copy_of=tmpdir / folder) as copy:
            assert copy.records("orders").values == [b'{"id": 7}']
            copy.restore(Snapshot.read(tmpdir / "saved"))
            # It is read, and nothing in it can differ.
            with pytest.raises(ValueError, match="the recording has no request"):
                replay(tmpdir / "requests", copy.bootstrap_servers)
