"""What Spark sends to tasks: the version of the package is compared, and a missing package has a clear error."""

import io
import pickle
import struct
import sys

import pytest
from pyspark import cloudpickle
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions

import spark_eos.sent_to_tasks
from spark_eos import ClientStateError, EosKafkaDataSource
from spark_eos.sent_to_tasks import SentToTasks


class Sent(SentToTasks):
    def __init__(self, value: int) -> None:
        self.value = value


@pytest.fixture
def sent() -> bytes:
    return bytes(cloudpickle.dumps(Sent(7)))


def test_same_version_is_unpickled(sent: bytes) -> None:
    received = pickle.loads(sent)
    assert type(received) is Sent and received.value == 7


def test_function_that_spark_sends_for_a_read_reports_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EosKafkaDataSource({"subscribe": "orders", "kafka.bootstrap.servers": "h:1"})
    schema = source.schema()
    written = io.BytesIO()
    # Spark's own function, which puts the data source beside the reader.
    write_read_func_and_partitions(
        written,
        reader=source.streamReader(schema),
        data_source=source,
        schema=schema,
        max_arrow_batch_size=1,
        binary_as_bytes=True,
    )
    (size,) = struct.unpack_from(">i", written.getvalue())
    sent = written.getvalue()[4 : 4 + size]
    assert callable(pickle.loads(sent)[0])
    for name in [each for each in sys.modules if each.partition(".")[0] == "spark_eos"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "spark_eos", None)
    with pytest.raises(ImportError, match="A task cannot import eos-kafka, and the driver has version"):
        pickle.loads(sent)


def test_other_version_is_refused_with_both_versions(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_eos.sent_to_tasks, "OWN_VERSION", "9.9.9")
    with pytest.raises(ClientStateError, match=r"driver has version \d.*task has version 9\.9\.9.*Install the same"):
        pickle.loads(sent)


@pytest.mark.parametrize("module", ["spark_eos.sent_to_tasks", "spark_eos", "broker_core"])
def test_missing_package_is_reported_with_the_interpreter(
    module: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each == module or each.startswith(module + ".")]:
        monkeypatch.delitem(sys.modules, name)
    if module == "broker_core":
        # The package is there, and something it imports is not.
        monkeypatch.delitem(sys.modules, "spark_eos.sent_to_tasks")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ImportError, match=r"cannot import eos-kafka, and the driver has version \d.*Python \d"
    ) as raised:
        pickle.loads(sent)
    assert sys.executable in str(raised.value)
