"""Writes of a streaming query that do not see their query are refused."""

import pkgutil
from collections.abc import Iterator
from typing import Any

import pyspark
import pytest

from spark_eos import ClientStateError
from spark_eos.sink import stream_sessions
from spark_eos.sink.messages import Empty, Place
from spark_eos.sink.spark_writers import BatchWriter, StreamWriter
from spark_eos.sink.stream_sessions import refuse_ended_micro_batch, refuse_unseen_query

CHECKPOINTED = (
    'write_operation { input { cached_remote_relation {\n relation_id: "1" } } } client_type: "_SPARK_CONNECT_PYTHON'
)
SETTING = "spark.sql.connect.streaming.foreachBatch.useClonedSession"


class Task:
    def __init__(self, **properties: str) -> None:
        self._properties = {name.replace("__", "."): value for name, value in properties.items()}

    def getLocalProperty(self, key: str, /) -> str | None:  # noqa: N802 (Spark's name)
        return self._properties.get(key)


def test_session_of_micro_batches_is_refused() -> None:
    task = Task(spark__sql__streaming__internal__stateStore__partitions="2")
    with pytest.raises(ClientStateError, match=r"belongs to a streaming query.*jobId.*InheritableThread"):
        refuse_unseen_query(task)


def pretend(monkeypatch: pytest.MonkeyPatch, program: bytes | None) -> None:
    """Let PySpark's program for functions over Connect be another one, or missing."""

    def found(_: str, resource: str) -> bytes:
        assert resource.endswith("foreach_batch_worker.py")
        if program is None:
            raise FileNotFoundError
        return program

    monkeypatch.setattr(pkgutil, "get_data", found)
    stream_sessions._has_own_sessions.cache_clear()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    stream_sessions._has_own_sessions.cache_clear()


@pytest.mark.parametrize("program", [b"def process(df_id, batch_id):", None])
def test_relation_of_an_older_connect_server_is_refused(program: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, program)
    with pytest.raises(ClientStateError, match=f"may belong to a streaming query.*{pyspark.__version__}.*jobId"):
        refuse_unseen_query(Task(callSite__long=CHECKPOINTED))


@pytest.mark.parametrize("setting", [{}, {SETTING: "true"}, {SETTING: "TRUE "}])
def test_relation_of_a_newer_connect_server_is_a_checkpointed_frame(setting: dict[str, str]) -> None:
    assert stream_sessions._has_own_sessions(), "the installed PySpark has the program that is looked for"
    refuse_unseen_query(Task(callSite__long=CHECKPOINTED, **setting))


@pytest.mark.parametrize("value", ["false", "False "])
def test_relation_is_refused_where_functions_run_in_the_clients_session(value: str) -> None:
    with pytest.raises(ClientStateError, match=f"may belong to a streaming query.*useClonedSession={value}.*jobId"):
        refuse_unseen_query(Task(callSite__long=CHECKPOINTED, **{SETTING: value}))
    refuse_unseen_query(Task(callSite__long='range { } client_type: "_SPARK_CONNECT_PYTHON"', **{SETTING: value}))


@pytest.mark.parametrize("call_site", ["", "save at App.scala:7", 'range { } client_type: "_SPARK_CONNECT_PYTHON"'])
def test_batch_job_is_not_refused(call_site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, None)
    refuse_unseen_query(Task(callSite__long=call_site))


# What the writers refuse before they ask a cluster


@pytest.mark.parametrize(("kind", "micro_batch"), [(BatchWriter, ()), (StreamWriter, (4,))])
def test_commit_without_the_result_of_a_task_is_refused(kind: Any, micro_batch: tuple[int, ...]) -> None:
    """Spark's type allows it: the rows of such a task would be lost."""
    results = [None, Empty(Place("q", "run", 4, 1)), None]
    with pytest.raises(ClientStateError, match=r"without the results of tasks 0, 2 of 3.*nothing of it.*continuous"):
        kind.__new__(kind).commit(results, *micro_batch)


class Driver(Task):
    """A driver whose platform refuses calls of Spark that it does not know."""

    @property
    def _jvm(self) -> object:
        raise RuntimeError("SQLExecution is not allowed")


def test_thread_is_not_refused_where_its_execution_is_hidden() -> None:
    refuse_ended_micro_batch(Driver(spark__sql__execution__id="1"), Place("q/t", "run1", 0, 0))  # type: ignore[arg-type]
