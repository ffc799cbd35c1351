"""Writes of a streaming query that do not see their query are refused."""

import pyspark
import pytest

from spark_eos import ClientStateError
from spark_eos.sink.stream_sessions import refuse_unseen_query

CHECKPOINTED = (
    'write_operation { input { cached_remote_relation {\n relation_id: "1" } } } client_type: "_SPARK_CONNECT_PYTHON'
)


class Task:
    def __init__(self, **properties: str) -> None:
        self._properties = {name.replace("__", "."): value for name, value in properties.items()}

    def getLocalProperty(self, key: str, /) -> str | None:  # noqa: N802 (Spark's name)
        return self._properties.get(key)


def test_session_of_micro_batches_is_refused() -> None:
    task = Task(spark__sql__streaming__internal__stateStore__partitions="2")
    with pytest.raises(ClientStateError, match=r"belongs to a streaming query.*jobId.*InheritableThread"):
        refuse_unseen_query(task)


@pytest.mark.parametrize("version", ["4.0.5", "4.2.1", "4.1.0.dev1"])
def test_relation_of_an_older_connect_server_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(ClientStateError, match=f"may belong to a streaming query.*{version}.*jobId"):
        refuse_unseen_query(Task(callSite__long=CHECKPOINTED))


@pytest.mark.parametrize("version", ["4.3.0", "5.0.0"])
def test_relation_of_a_newer_connect_server_is_a_checkpointed_frame(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    refuse_unseen_query(Task(callSite__long=CHECKPOINTED))


@pytest.mark.parametrize("call_site", ["", "save at App.scala:7", 'range { } client_type: "_SPARK_CONNECT_PYTHON"'])
def test_batch_job_is_not_refused(call_site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    refuse_unseen_query(Task(callSite__long=call_site))
