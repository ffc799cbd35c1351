"""Spark around the real sink: micro-batches, tasks that are retried, drivers that die and restart.

The task writer and the committer are the code of `spark_eos.sink`; only Spark and the network are simulated. As in
Spark's checkpoint, the rows of a micro-batch are fixed before it runs, and it is marked as done after `commit` returns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from spark_eos.errors import EosKafkaError, FencedError, LostTransactionError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.sink.commit_report import CommitReport, report_of
from spark_eos.sink.factory import committer, task_writer
from spark_eos.sink.messages import Place, TaskMessage
from spark_eos.sink.naming import group_id
from tests.simulation.fibers import Fiber
from tests.simulation.history import key_of
from tests.support.history.format import INVOKE, OK
from tests.support.simulated.faults import FaultKind

if TYPE_CHECKING:
    from tests.simulation.world import World

# The rows of one task: the partition and the value of each.
Rows: TypeAlias = list[tuple[int, str]]
PREFIX, QUERY = "sim", "query"
GROUP = group_id(PREFIX, QUERY)
DECISIONS = "eos-kafka-decisions"
LONGEST_TIMEOUT_MS = 25_000
_TIMEOUTS_MS = (15_000, LONGEST_TIMEOUT_MS)
_ATTEMPTS = 4
_LOST_EXECUTOR_MS = 6_000
_RUN_LIMIT = 60


class JobFailedError(Exception):
    """A task of a micro-batch failed too often."""


@dataclass
class Checkpoint:
    """What Spark keeps of a query: the rows of each micro-batch by split, and which ones are done."""

    rows: list[list[Rows]]
    done: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    runs: int = 0
    calm_runs: int = 0
    # Why the query may not continue, if so.
    lost: str | None = None

    @property
    def next_micro_batch(self) -> int | None:
        """Return the first micro-batch that is not done."""
        return next((number for number in range(len(self.rows)) if number not in self.done), None)


@dataclass
class Attempt:
    """One attempt at a task; it continues even if its result is no longer used."""

    split: int
    fiber: Fiber
    message: TaskMessage | None = None
    error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Return whether the attempt has ended, has a result or is lost."""
        return self.fiber.is_done or self.fiber.is_paused or self.message is not None or self.error is not None


class Executors:
    """The tasks of one driver: workers that Spark keeps, attempts that are repeated, speculation, and kills."""

    def __init__(self, world: "World", name: str, random: Random, lost_after_ms: int = _LOST_EXECUTOR_MS) -> None:
        self.report: CommitReport | None = None
        # How far the clocks of its machines are ahead.
        self.ahead_ms = 0
        self._world = world
        self._name = name
        self._random = random
        self._lost_after_us = lost_after_ms * 1_000
        self._worker_count = 0
        # Python processes without a task.
        self._idle: list[tuple[str, int]] = []

    def forget(self) -> None:
        """Let go of the processes: Spark starts others."""
        self._idle.clear()

    def share(self, other: "Executors") -> None:
        """Use the processes of another query."""
        self._idle = other._idle

    def run(self, place: Place, rows: list[Rows], options_of: Callable[[int], SinkOptions]) -> list[TaskMessage]:
        """Run all tasks of a micro-batch, each with the options for its split; return their messages."""
        splits = range(len(rows))

        def begin(split: int) -> Attempt:
            return self._attempt(place._replace(split=split), rows[split], options_of(split))

        attempts: dict[int, list[Attempt]] = {split: [begin(split)] for split in splits}
        if self._random.random() < 0.15 and rows:
            # Speculation: two attempts run at once, and the first one wins.
            split = self._random.choice(splits)
            attempts[split].append(begin(split))
        since_us = self._world.scheduler.now_us
        while not all(any(each.message is not None for each in attempts[split]) for split in splits):
            self._world.fibers.sleep_ms(20)
            is_late = self._world.scheduler.now_us - since_us > self._lost_after_us
            if is_late:
                since_us = self._world.scheduler.now_us
            for split, tried in attempts.items():
                if any(each.message is not None for each in tried):
                    continue
                if all(each.is_over for each in tried) or is_late:
                    if len(tried) >= _ATTEMPTS:
                        raise JobFailedError(f"task {split} of micro-batch {place.micro_batch}: {tried[-1].error!r}")
                    tried.append(begin(split))
        return [_message_of(attempts[split]) for split in splits]

    def _attempt(self, place: Place, rows: Rows, options: SinkOptions) -> Attempt:
        if self._idle and self._random.random() < 0.9:
            host, process_id = self._idle.pop()
        else:
            self._worker_count += 1
            host, process_id = f"{self._name}.w{self._worker_count}", self._world.new_process_id()
        # A report may be lost: the workers then describe their ids.
        report = self.report if self._random.random() < 0.8 else None

        def work() -> None:
            try:
                writer = task_writer(
                    self._world.processes.current, options, place, may_be_decided=True, committed=report
                )
                attempt.message = writer.write(iter(_arrow(rows)))
            except EosKafkaError as error:
                attempt.error = error
                self._world.scheduler.note(f"{host}: {place}: {type(error).__name__}: {error}")
            self._idle.append((host, process_id))

        fiber = self._world.fibers.spawn(f"{host}/{place.run}.{place.micro_batch}.{place.split}", work)
        fiber.host, fiber.process_id = host, process_id
        fiber.clock_offset_ms = self._world.clock_offset_of(host) + self.ahead_ms
        attempt = Attempt(place.split, fiber)
        if not self._world.is_calm and self._random.random() < 0.05:
            self._world.faults.record(FaultKind.CLIENT_KILLED)
            self._world.scheduler.after(self._random.randint(1, 400_000), fiber.kill)
        return attempt


class QueryActor:
    """The driver of one query on its checkpoint, run after run."""

    def __init__(
        self,
        world: "World",
        name: str,
        checkpoint: Checkpoint,
        options: SinkOptions,
        topic: str,
        *,
        begins_after_ms: int = 0,
    ) -> None:
        self.world = world
        self.name = name
        self.checkpoint = checkpoint
        self._options = options
        self._topic = topic
        self._random = world.random_of(name)
        self._begins_after_ms = begins_after_ms
        self._executors = Executors(world, name, self._random)
        # The processes that commit: Spark takes any idle one.
        self._committing: list[int] = []
        self._switch = world.random_of(f"{name}'s processes")
        # What is being committed.
        self.messages: list[TaskMessage] = []

    def successor(self, name: str, begins_after_ms: int) -> "QueryActor":
        """Make another driver on the same checkpoint."""
        return QueryActor(
            self.world, name, self.checkpoint, self._options, self._topic, begins_after_ms=begins_after_ms
        )

    def run(self) -> None:
        """Run the query until it ends or may not continue."""
        self.world.fibers.sleep_ms(self._begins_after_ms)
        while self.checkpoint.next_micro_batch is not None and self.checkpoint.lost is None:
            self.checkpoint.runs += 1
            # During the trouble, drivers whose clocks are ahead by more than the timeout fail again and again.
            self.checkpoint.calm_runs += self.world.is_calm
            if self.checkpoint.calm_runs > _RUN_LIMIT:
                raise AssertionError(f"the query has failed {_RUN_LIMIT} times during the calm")
            run = f"run{self.checkpoint.runs}"
            is_undisturbed = self.world.is_calm and self._is_alone()
            late_count = self.world.faults.by_kind[FaultKind.LATE_REQUEST]
            try:
                self._run(run)
            except (EosKafkaError, JobFailedError) as error:
                self.world.scheduler.note(f"{self.name}: {run} ends: {type(error).__name__}: {error}")
                # A late request of a former run may arrive in the calm and take over an id.
                is_undisturbed &= late_count == self.world.faults.by_kind[FaultKind.LATE_REQUEST]
                if is_undisturbed and isinstance(error, FencedError):
                    raise AssertionError(f"{run} was alone, in the calm, and stops all the same: {error}") from error
                if isinstance(error, LostTransactionError) and "was decided, but" in error.happened:
                    self.checkpoint.lost = str(error)
            if self._random.random() < 0.7:
                self.world.fibers.current.process_id = self.world.new_process_id()
                self._committing.clear()
            self._executors.forget()
            self.world.fibers.sleep_ms(self._random.randint(200, 2_000))

    def _run(self, run: str) -> None:
        while (number := self.checkpoint.next_micro_batch) is not None:
            self._begin(number)
            messages: list[TaskMessage] = []
            driver = None
            try:
                messages = self.messages = self._tasks(run, number)
                self._go_to_any_process()
                driver = committer(self.world.processes.current, self._options, QUERY, run)
                driver.commit(messages, number)
                if driver.committed:
                    self._executors.report = report_of(run, number, driver.committed, self._executors.report)
            except (EosKafkaError, JobFailedError):
                self._abort(run, messages, number)
                raise
            self._end(number)
            self.world.fibers.sleep_ms(self._random.randint(1, 1_500))

    def _tasks(self, run: str, number: int) -> list[TaskMessage]:
        rows = self.checkpoint.rows[number]
        return self._executors.run(
            Place(QUERY, run, number, 0), rows, lambda split: self.world.death.options(self._options, split, rows)
        )

    def _is_alone(self) -> bool:
        """Return whether this is the only remaining driver of the query."""
        drivers = [each for each in self.world.fibers.all if each.host.startswith("sink") and "/" not in each.name]
        return [each.name for each in drivers if not each.is_done] == [self.name]

    def _go_to_any_process(self) -> None:
        """Commit in one of two processes, each of which remembers its state from the last time."""
        fiber = self.world.fibers.current
        if not self._committing:
            self._committing = [fiber.process_id, self.world.new_process_id()]
        fiber.process_id = self._switch.choice(self._committing)

    def _abort(self, run: str, messages: list[TaskMessage], number: int) -> None:
        """Abort as Spark does, whose first failure is the one that is reported."""
        if messages:
            try:
                committer(self.world.processes.current, self._options, QUERY, run).abort(messages, number)
            except EosKafkaError as error:
                self.world.scheduler.note(f"{self.name}: abort failed too: {error}")

    def _begin(self, number: int) -> None:
        if number not in self.checkpoint.begun:
            self.checkpoint.begun.add(number)
            self.world.record(f"{QUERY}.{number}", INVOKE, "send", self._sends(number))

    def _end(self, number: int) -> None:
        if number not in self.checkpoint.done:
            self.checkpoint.done.add(number)
            self.world.record(
                f"{QUERY}.{number}", OK, "send", [["send", key, [None, value]] for _, key, value in self._sends(number)]
            )

    def _sends(self, number: int) -> list[list[Any]]:
        return [
            ["send", key_of(self._topic, partition), value]
            for split in self.checkpoint.rows[number]
            for partition, value in split
        ]


def _message_of(tried: list[Attempt]) -> TaskMessage:
    """Return the message of the attempt that has won, and whether there were others."""
    message = next(each.message for each in tried if each.message is not None)
    return replace(message, has_other_attempts=len(tried) > 1)


def _arrow(rows: Rows) -> list[pa.RecordBatch]:
    if not rows:
        return []
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array([value.encode() for _, value in rows], pa.binary()),
                pa.array([partition for partition, _ in rows], pa.int32()),
            ],
            names=["value", "partition"],
        )
    ]


def query(world: "World", name: str, topic: str, partitions: int) -> QueryActor:
    """Make a query with rows for a few micro-batches."""
    random = world.random_of("query")
    rows = [
        [
            [(random.randrange(partitions), f"b{number}.s{split}.{at}") for at in range(random.choice((0, 1, 2, 3)))]
            for split in range(random.randint(1, 3))
        ]
        for number in range(random.randint(2, 4))
    ]
    options = sink_options(
        {
            "kafka.bootstrap.servers": ",".join(f"broker{each}:9092" for each in world.broker_ids),
            "topic": topic,
            "transactionalIdPrefix": PREFIX,
            "decisionTopic": DECISIONS,
            "transactionTimeout": str(random.choice(_TIMEOUTS_MS)),
            "onLostTransaction": random.choice(("rewrite", "fail")),
            "kafka.request.timeout.ms": "2000",
            "kafka.default.api.timeout.ms": "10000",
            "kafka.delivery.timeout.ms": "8000",
        }
    )
    if world.plan.dies_decided:
        options = replace(options, transaction_timeout_ms=LONGEST_TIMEOUT_MS)
    return QueryActor(world, name, Checkpoint(rows), options, topic)
