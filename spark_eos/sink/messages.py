"""The messages of tasks to the driver: a prepared transaction, nothing to write, or already committed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from pyspark.taskcontext import TaskContext

from spark_eos.errors import TransactionError
from spark_eos.sink.prepared import PreparedTransaction, TopicRows
from spark_eos.spark_api import WriterCommitMessage

SPECULATION: Final = "spark.speculation"


class Place(NamedTuple):
    """The query, run, micro-batch and task that rows belong to."""

    query: str
    run: str
    micro_batch: int
    split: int
    # One call of a batch write; a stream has none.
    write: str = ""


class LocalProperties(Protocol):
    """What Spark's TaskContext and SparkContext have in common."""

    def getLocalProperty(self, key: str, /) -> str | None:  # noqa: N802 (Spark's name)
        """Return a local property of the task, or of the thread that starts jobs."""


def is_true(context: LocalProperties, setting: str, default: str = "false") -> bool:
    """Return a setting of the session, which tasks see as a local property, spelled as the user did.

    Spark reads it without regard to case and surrounding spaces.
    """
    return (context.getLocalProperty(setting) or default).strip().lower() == "true"


def _may_have_other_attempts() -> bool:
    """Return whether the current task may have another attempt; under speculation the first attempt may win."""
    context = TaskContext.get()
    if context is None:
        return False
    return context.attemptNumber() > 0 or is_true(context, SPECULATION)


@dataclass(frozen=True)
class _FromTask(WriterCommitMessage):
    place: Place
    has_other_attempts: bool = field(default_factory=_may_have_other_attempts, kw_only=True)
    # Unique in a Spark application; increases with each attempt that is started.
    task_attempt_id: int | None = field(
        default_factory=lambda: None if (task := TaskContext.get()) is None else task.taskAttemptId(), kw_only=True
    )


@dataclass(frozen=True)
class Prepared(_FromTask):
    """A transaction that waits for the driver's decision; `retries` counts the produce requests sent again.

    `is_worker_kept` is True if Spark keeps the task's Python process, and so its transactional id, for other tasks.
    `newest_ms` has the newest time that rows were given, by topic.
    """

    transaction: PreparedTransaction
    size_bytes: int = 0
    retries: int = 0
    is_worker_kept: bool = True
    newest_ms: Mapping[str, int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Empty(_FromTask):
    """A task without rows: no transaction was begun."""


@dataclass(frozen=True)
class AlreadyCommitted(_FromTask):
    """A task that wrote nothing: its micro-batch took effect before, or an operator has closed it.

    `rows` is what it read and would have written, for the driver to compare.
    """

    rows: tuple[TopicRows, ...] = ()


TaskMessage: TypeAlias = Prepared | Empty | AlreadyCommitted


def show_other_attempts(messages: Sequence[TaskMessage]) -> bool:
    """Return whether the messages of a micro-batch show that tasks had, or may have had, other attempts.

    If a stage is retried as a whole, as after a lost shuffle file, Spark numbers the attempts of a task from 0 again,
    but the ids of the winning attempts are not consecutive: nor are they beside another job, which does no harm.
    """
    ids = [message.task_attempt_id for message in messages if message.task_attempt_id is not None]
    return any(message.has_other_attempts for message in messages) or (bool(ids) and max(ids) - min(ids) >= len(ids))


def check_messages(messages: Iterable[TaskMessage], query: str, run: str, micro_batch: int) -> None:
    for message in messages:
        if (found := message.place)[:3] != (query, run, micro_batch):
            raise TransactionError(
                f"The commit of query {query}, run {run}, micro-batch {micro_batch} received a message of query "
                f"{found.query}, run {found.run}, micro-batch {found.micro_batch}"
            )
