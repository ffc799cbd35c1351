"""What Spark sends to tasks: the version of the package is compared, and a missing package has a clear error."""

import pickle
import sys

import pytest
from pyspark import cloudpickle

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


def test_data_source_that_spark_sends_with_a_read_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = bytes(cloudpickle.dumps(EosKafkaDataSource({"subscribe": "orders"})))
    assert pickle.loads(sent).options == {"subscribe": "orders"}
    monkeypatch.setitem(sys.modules, "spark_eos.sent_to_tasks", None)
    with pytest.raises(ImportError, match="cannot import eos-kafka"):
        pickle.loads(sent)


def test_other_version_is_refused_with_both_versions(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_eos.sent_to_tasks, "__version__", "9.9.9")
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
