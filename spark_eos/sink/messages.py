"""What a task tells the driver: a prepared transaction, nothing to write, or already committed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.taskcontext import TaskContext

from spark_eos.errors import TransactionError
from spark_eos.sink.prepared import PreparedTransaction, TopicRows, WrittenRange

__all__ = [
    "MESSAGE_VERSION",
    "AlreadyCommitted",
    "Empty",
    "Place",
    "Prepared",
    "PreparedTransaction",
    "TaskMessage",
    "TopicRows",
    "WrittenRange",
    "check_messages",
    "show_other_attempts",
]

MESSAGE_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Which task of which micro-batch this is."""

    query: str
    run: str
    micro_batch: int
    split: int
    # One call of a batch write; a stream has none.
    write: str = ""


def _may_have_other_attempts() -> bool:
    """Say whether another attempt at the present task was made, or may be: it can leave a transaction open.

    Spark numbers the attempts at a task within a stage from 0 on, whatever became of the ones before. Under speculation
    the first attempt may be the one that wins.
    """
    context = TaskContext.get()
    if context is None:
        return False
    return context.attemptNumber() > 0 or context.getLocalProperty("spark.speculation") == "true"


def _task_attempt_id() -> int | None:
    context = TaskContext.get()
    return None if context is None else context.taskAttemptId()


@dataclass(frozen=True)
class _FromTask(WriterCommitMessage):
    query: str
    run: str
    micro_batch: int
    split: int
    has_other_attempts: bool = field(default_factory=_may_have_other_attempts, kw_only=True)
    # Unique in a Spark application, counted up with each attempt that is launched.
    task_attempt_id: int | None = field(default_factory=_task_attempt_id, kw_only=True)


@dataclass(frozen=True)
class Prepared(_FromTask):
    """A transaction that awaits the driver's verdict; `retries` counts the produce requests sent again.

    `is_worker_kept` says whether Spark keeps the task's Python process, and so its transactional id, for other tasks.
    """

    transaction: PreparedTransaction
    size_bytes: int = 0
    retries: int = 0
    version: int = MESSAGE_VERSION
    is_worker_kept: bool = True


@dataclass(frozen=True)
class Empty(_FromTask):
    """A task without rows: no transaction was begun."""

    version: int = MESSAGE_VERSION


@dataclass(frozen=True)
class AlreadyCommitted(_FromTask):
    """A task that wrote nothing: its micro-batch took effect before, or an operator has closed it.

    `rows` are those that it read and would have written, for the driver to compare.
    """

    rows: tuple[TopicRows, ...] = ()
    version: int = MESSAGE_VERSION


TaskMessage: TypeAlias = Prepared | Empty | AlreadyCommitted


def show_other_attempts(messages: Sequence[TaskMessage]) -> bool:
    """Say whether the tasks of a micro-batch show that other attempts at them were made, or may be.

    In a stage that is tried again as a whole, as after a lost shuffle file, Spark numbers the attempts at a task from 0
    on again. But the ids of those that have won are then not consecutive. They are not either where the session runs
    something else at the same time, which is taken for a sign too many.
    """
    ids = [message.task_attempt_id for message in messages if message.task_attempt_id is not None]
    return any(message.has_other_attempts for message in messages) or (bool(ids) and max(ids) - min(ids) >= len(ids))


def check_messages(messages: Iterable[TaskMessage], query: str, run: str, micro_batch: int) -> None:
    """Refuse messages of another version of this package, or of another micro-batch."""
    for message in messages:
        if message.version != MESSAGE_VERSION:
            raise TransactionError(
                f"A task sent a message of version {message.version}; this driver reads {MESSAGE_VERSION}",
                remedy="Install the same version of this package on the driver and on all executors",
            )
        if (message.query, message.run, message.micro_batch) != (query, run, micro_batch):
            raise TransactionError(
                f"A message of query {message.query}, run {message.run}, micro-batch {message.micro_batch} came to "
                f"the commit of query {query}, run {run}, micro-batch {micro_batch}"
            )
