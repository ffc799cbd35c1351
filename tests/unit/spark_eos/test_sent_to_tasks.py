"""What Spark sends to tasks: the version of the package is compared, and a missing package has a clear error."""

import io
import os
import pickle
import re
import struct
import sys
from contextlib import nullcontext
from functools import partial

import pytest
from pyspark import cloudpickle
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions

import spark_eos.sent_to_tasks
from spark_eos import ClientStateError, EosKafkaDataSource
from spark_eos.sent_to_tasks import SentToTasks, for_same_version, opened


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


def test_version_without_a_build_is_explained() -> None:
    with pytest.raises(ClientStateError, match=r"; the driver has no build: the files are in an archive.*same wheel"):
        opened(spark_eos.__version__, b"")


@pytest.mark.parametrize(
    ("error", "is_refused"), [(PermissionError, False), (OSError, False), (FileNotFoundError, True)]
)
def test_files_that_cannot_be_read_have_not_been_replaced(
    error: type[OSError], is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str) -> None:
        raise error(folder)

    files = spark_eos.sent_to_tasks._OwnFiles()
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ClientStateError, match="a part of it is missing now") if is_refused else nullcontext():
        files.find_spec("spark_eos.a_new_one")


def test_call_of_another_version_is_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call = for_same_version(partial(pytest.fail, "called"))
    monkeypatch.setattr(spark_eos.sent_to_tasks, "OWN_VERSION", "9.9.9")
    call()
    assert "has left open is not ended here, where the version is 9.9.9" in caplog.text


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
    # As pip takes it.
    assert re.search(r"install the same wheel of eos-kafka [\d.]+ with", str(raised.value))
    assert sys.executable in str(raised.value)
