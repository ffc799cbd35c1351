"""A query, a foreachBatch function or a job whose users act between its runs, and what came of its rows.

The writers of Spark are played here: each write checks the cluster, runs its tasks and commits, in processes that Spark
chooses. A driver may die or freeze at any of the sink's failpoints.
"""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker_core.coordinator.journal import JournalRecord
from broker_core.coordinator.transactions.records import TransactionImage, encode_key, encode_value
from broker_core.records.batch import NewRecord, build_batch
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import LAST_CLIENT_EPOCH, TopicPartition, TransactionState
from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.sink.commit_report import report_of
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer
from spark_eos.sink.messages import Place, TaskMessage
from spark_eos.sink.protocol.retirement import Retirement
from tests.simulation.acted import NOTHING, RUNS, RUNS_WITH_ACTS, Acted
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.judge import records_of
from tests.simulation.readers import batches_of
from tests.simulation.sink import Executors, JobFailedError, Rows
from tests.support.history.format import READ_COMMITTED
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

QUERY, JOB = "8a6e0804-2bd0-4672-b79d-d97027f9071a", "daily"
TOPICS, PREFIXES = ("sunk", "other"), ("sim", "sim2")
DECISION_TOPICS = ("eos-kafka-decisions", "eos-kafka-decisions-2")
PARTITIONS = 2
ENDED: Final = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
POINTS: Final = (
    *("task.begin", "task.before_write", "task.prepared"),
    *("driver.before_verify", "driver.taken_over", "driver.before_settle", "driver.settled"),
    *("driver.before_decide", "driver.decision_flushed", "driver.mid_decide", "driver.after_decide"),
    *("driver.mid_complete", "driver.after_complete", "driver.mid_sweep", "driver.after_sweep"),
)
_TASKS_POINTS: Final = tuple(each for each in POINTS if each.startswith("task"))
_DRIVERS_POINTS: Final = tuple(each for each in POINTS if each.startswith("driver"))
_LOST_IN_PART: Final = "was decided, but"
_OTHER_DRIVER: Final = "newer driver|may no longer decide"
_OTHER_NAME: Final = "was written by run|already written|already decided"
# What a user does between two runs, and the words of an error that it explains.
USERS_ACTS: Final = {
    "death": _LOST_IN_PART,
    "zombie": f"{_LOST_IN_PART}|{_OTHER_DRIVER}",
    "stop": _LOST_IN_PART,
    "copy": f"{_LOST_IN_PART}|{_OTHER_DRIVER}|{_OTHER_NAME}",
    "topic": "written to|was written by run|already written",
    "prefix": "transactionalIdPrefix",
    "decision topic": "decisionTopic|are gone",
    "timeout": _LOST_IN_PART,
    "policy": "onLostTransaction",
    "discard": NOTHING,
    "clock": f"{_LOST_IN_PART}|clock",
    "exhausted": NOTHING,
    "older cluster": _LOST_IN_PART,
    "mirror": "fate unknown|another cluster|deleted and created again|is gone",
    "mode": _OTHER_NAME,
    "left out": _OTHER_NAME,
    "older checkpoint": "is already decided|different rows|already written",
    "other rows": "different rows|already decided",
    "other splits": "onLostTransaction",
    "other order": "different rows|already written|was written by run",
    "retried function": "already written under the name",
    "name": _OTHER_NAME,
}
NEWER_USERS_ACTS: Final = {"executor": NOTHING, "neighbour": NOTHING}


@dataclass
class Journal:
    """The rows of each try by micro-batch and write, which try was reported, and what readers have seen."""

    tries: dict[tuple[int, int], list[list[Rows]]] = field(default_factory=lambda: defaultdict(list))
    reported: dict[tuple[int, int], int] = field(default_factory=dict)
    # What was visible and is deleted, how often, and all that was there.
    seen: Counter[str] = field(default_factory=Counter)
    deleted: set[str] = field(default_factory=set)
    # What was tried while differing rows might be discarded, and the partitions that lost their newest records.
    discarding: set[tuple[int, int]] = field(default_factory=set)
    cut: set[TopicPartition] = field(default_factory=set)


class Spark:
    """An application: the processes in which it commits, and its workers."""

    def __init__(self, world: "World", name: str, random: Any) -> None:
        self.world = world
        # Longer than a task waits before it fails.
        self.executors = Executors(world, name, random, lost_after_ms=60_000)
        self.replace_drivers()

    def replace_drivers(self) -> None:
        """Let it commit in other processes."""
        self.processes = [self.world.new_process_id() for _ in range(3)]


class ActedQuery(Acted):
    """The query: its options, its checkpoint and its runs."""

    query, job = QUERY, JOB

    def __init__(self, world: "World", kinds: Collection[str]) -> None:
        super().__init__(world, kinds)
        self.journal = Journal()
        self.options |= {
            "transactionalIdPrefix": PREFIXES[0],
            "decisionTopic": DECISION_TOPICS[0],
            "transactionTimeout": str(self.random.choice((15_000, 25_000))),
            "onLostTransaction": self.random.choice(("fail", "fail", "rewrite")),
            "kafka.delivery.timeout.ms": "8000",
        }
        self.mode = self.random.choice(("stream", "stream", "foreachBatch", "job"))
        self.micro_batches = 1 if self.mode == "job" else self.random.randint(2, 5)
        if self.mode == "job" and "topic" in kinds:
            # Under another prefix and to another topic, it is another job.
            self.kinds = [kind for kind in kinds if kind != "prefix"]
        # The topic and the name of each write of a micro-batch.
        self.writes = [[TOPICS[0], ""]]
        if self.mode == "foreachBatch" and self.random.random() < 0.8:
            self.writes.append(self.random.choice(([TOPICS[1], ""], [TOPICS[0], "second"], [TOPICS[1], "second"])))
        self.left_out: set[int] = set()
        self.done: set[int] = set()
        self._repeats = 0
        # Where the driver of this run dies or freezes, and after how many visits.
        self._fate: tuple[str, str, int] | None = None
        self._frozen: list[Any] = []
        # How the newest commit of a run is aborted.
        self._aborts: dict[str, Callable[[], None]] = {}
        # The disk of the cluster as it was, and what readers had seen of what was deleted by then.
        self._backup: tuple[Any, Counter[str]] | None = None
        self._driver_ahead_ms = 0
        self._spark = self._new_spark()

    @property
    def decision_topic(self) -> str:
        """Return the topic of its decisions now."""
        return self.options["decisionTopic"]

    @property
    def names(self) -> list[str]:
        """Return the names under which its writes are decided."""
        return [self.name_of(write) for write in range(len(self.writes))]

    def name_of(self, write: int) -> str:
        """Return the name under which a write is decided."""
        topic, name = self.writes[write]
        return {"job": self.job, "stream": self.query}.get(self.mode, f"{self.query}/{name or topic}")

    def _new_spark(self, name: str = "") -> Spark:
        return Spark(self.world, f"executor{self.label}{name or self.run_number}", self.random)

    @property
    def run_name(self) -> str:
        """Return the name of the newest run."""
        return f"run{self.run_number}"

    # Runs

    def run(self) -> None:
        """Run the query until it is done, or has stopped again and again."""
        while self.run_number < RUNS and self._is_due():
            self.run_number += 1
            if self.run_number > 1:
                self._act_between_runs()
            name, self._fate = self.run_name, None
            for kind, chance in (("death", 0.5), ("zombie", 0.3), ("stop", 0.5), ("executor", 0.8)):
                if self._fate is None and kind in self.kinds and self.run_number <= RUNS_WITH_ACTS:
                    visits = self.random.randint(0, self.micro_batches)
                    if self.random.random() < chance:
                        points = {"stop": _DRIVERS_POINTS, "executor": _TASKS_POINTS}.get(kind, POINTS)
                        self._fate = kind, self.random.choice(points), visits
            fiber = self._begin(self._spark, name, self.done)
            if self.happens("copy"):
                copy = f"copy{self.run_number}"
                self._begin(self._new_spark(copy), copy, set(self.done))
            while not fiber.is_done and fiber not in self._frozen:
                self.world.fibers.sleep_ms(50)
            self.world.fibers.sleep_ms(self.random.choice((100, 2_000, 2_000, 12_000, 40_000)))
        for each in self._frozen:
            each.go_on()

    def _begin(self, spark: Spark, name: str, done: set[int]) -> Any:
        """Start a run on a checkpoint, which has the micro-batches that are done."""
        fiber = self.world.fibers.spawn(f"driver/{name}", partial(self._run, spark, name, done))
        fiber.process_id, fiber.clock_offset_ms = spark.processes[0], self._driver_ahead_ms
        return fiber

    def _is_due(self) -> bool:
        if len(self.done) == self.micro_batches and self.mode == "job" and self._repeats < 2:
            # An orchestrator may run a job again.
            self._repeats += 1
            self.done.clear()
        return len(self.done) < self.micro_batches

    def _act_between_runs(self) -> None:
        if self.happens("topic"):
            self.random.choice(self.writes)[0] = self.random.choice(TOPICS)
        if self.mode == "foreachBatch" and self.happens("name"):
            self.random.choice(self.writes)[1] = self.random.choice(("", "second", "third"))
        if self.mode != "job" and self.happens("mode"):
            self.mode = self.random.choice(("stream", "foreachBatch"))
        if self.happens("left out"):
            self.left_out = self.random.choice((set(), {0}, {1})) if len(self.writes) > 1 else set()
        if self.happens("clock"):
            self._driver_ahead_ms = self.random.choice((0, -40_000, -2_000, 2_000, 40_000))
            self._spark.executors.ahead_ms = self.random.choice((0, -40_000, -2_000, 2_000, 40_000))
        if self.happens("exhausted"):
            self.world.server.act(self._exhaust)
        if self.world.server.is_running and self.happens("older cluster"):
            self._restore()
        if self.world.server.is_running and self.happens("mirror"):
            self._move_to_mirror()
        for kind, option, values in (
            ("prefix", "transactionalIdPrefix", PREFIXES),
            ("decision topic", "decisionTopic", DECISION_TOPICS),
            ("timeout", "transactionTimeout", ("4000", "15000", "25000")),
            ("policy", "onLostTransaction", ("fail", "rewrite")),
            ("discard", "discardDifferingRows", ("true", "false")),
        ):
            if self.happens(kind):
                self.options[option] = self.random.choice(values)
        if self.done and self.happens("older checkpoint", 0.2):
            kept = self.random.randint(0, max(self.done))
            self.done = {each for each in self.done if each < kept}

    def _exhaust(self, cluster: Any) -> None:
        """Let the epochs of the driver's ids be at their end, as after many take-overs."""
        for broker in cluster.brokers.values():
            store = broker.transactions.store
            for entry in store.entries():
                name, now_ms = entry.transactional_id, self.world.clock.now_ms()
                if name.endswith(".driver") and entry.image.state in ENDED:
                    epoch, place = LAST_CLIENT_EPOCH - self.random.randint(0, 2), store.partition_for(name)
                    last = TransactionImage(entry.image[0], epoch, 5_000, TransactionState.EMPTY, frozenset(), now_ms)
                    level = cluster.metadata.transaction_version
                    store._append(place, [JournalRecord(encode_key(name), encode_value(last, level))], now_ms)
                    store.load(place, store.led[place].coordinator_epoch)

    def _restore(self) -> None:
        """Back the cluster up, or restore it, as snapshots of its machine do."""
        server = self.world.server
        if self._backup is None:
            self._backup = server.disk.copy(), Counter(self.journal.seen)
            return
        for topic in TOPICS:
            for log in self.logs_of(topic):
                self.note_deletion(log, log.log_end_offset)
        server.kill(power=False)
        server.disk.replace(self._backup[0])
        self.journal.seen = Counter(self._backup[1])

    def _move_to_mirror(self) -> None:
        """Go on at another cluster, to which what was visible was copied, at other offsets.

        Without its decisions only a query moves that has finished its micro-batches.
        """
        server, copies = self.world.server, {}
        if any(log.last_stable_offset < log.high_watermark for topic in TOPICS for log in self.logs_of(topic)):
            # A person waits until the copy has all.
            return
        has_decisions = self.mode == "job" or any(each not in self.done for each, _ in self.journal.tries)
        topics = (*TOPICS, *DECISION_TOPICS) if has_decisions else TOPICS
        for log in (log for topic in topics for log in self.logs_of(topic)):
            there = {offset for offset, _ in records_of(log, READ_COMMITTED)}
            copies[log.topic_partition] = [
                NewRecord(each.key, each.value, (), each.timestamp)
                for segment in log.segments
                for batch in batches_of(segment.file.read(0, segment.size_bytes))
                for each in batch
                if each.offset in there
            ]
        server.kill(power=False)
        server.disk.replace(MemoryStorage())
        server.start()

        def copy(cluster: Any) -> None:
            for topic, count in Counter(place.topic for place in copies).items():
                policy = {"cleanup.policy": "compact"} if topic in DECISION_TOPICS else {}
                cluster.controller.create_topic(topic, count, policy)
            now_ms = self.world.clock.now_ms()
            for place, records in copies.items():
                if records:
                    log = cluster.logs.get(place, now_ms)
                    log.append_as_leader(build_batch(records), now_ms=now_ms, leader_epoch=0)
                    log.sync()

        server.act(copy)

    def _run(self, spark: Spark, name: str, done: set[int]) -> None:
        error: Exception | None = None
        try:
            self._write_micro_batches(spark, name, done)
        except (EosKafkaError, JobFailedError) as caught:
            error = caught
            self.note(f"{name} stops: {type(error).__name__}: {error}")
        if name == self.run_name:
            self.error = error

    def _write_micro_batches(self, spark: Spark, name: str, done: set[int]) -> None:
        while (number := next((n for n in range(self.micro_batches) if n not in done), None)) is not None:
            count = len(self.writes) if self.mode == "foreachBatch" else 1
            order = [each for each in range(count) if each not in self.left_out or count == 1]
            if self.happens("other order"):
                order.reverse()
            written = {}
            for write in order:
                try:
                    written[number, write] = self._write(spark, name, number, write)
                except EosKafkaError:
                    if not self.happens("retried function", 0.5):
                        raise
                    written[number, write] = self._write(spark, name, number, write)
            done.add(number)
            self.journal.reported = written | self.journal.reported
            self.note(f"{name} reports {written}")
            self.world.fibers.sleep_ms(self.random.randint(1, 1_500))

    def _write(self, spark: Spark, run: str, number: int, write: int) -> int:
        """Write as Spark's writers do; return the number of the try."""
        tries = self.journal.tries[number, write]
        tries.append(self._rows(tries, f"{self.label}b{number}.w{write}.v{len(tries)}"))
        at, (topic, name), query = len(tries) - 1, self.writes[write], self.name_of(write)
        given = {**self.options, "topic": topic}
        if given.get("discardDifferingRows") == "true":
            self.journal.discarding.add((number, write))
        if self.mode == "job":
            given["jobId"] = query
        elif name:
            given["writeName"] = name
        # A stream has no name for its one write.
        call = "" if self.mode == "stream" else str(self.world.new_process_id())
        base = sink_options(given)
        messages: list[TaskMessage] = []
        fiber = self.world.fibers.current
        try:
            fiber.process_id = self.random.choice(spark.processes)
            options = preflight(self.world.processes.current, base)
            place = Place(query, run, number, 0, call)
            messages = spark.executors.run(place, tries[at], lambda _: options)
            fiber.process_id = self.random.choice(spark.processes)
            self._aborts[run] = partial(self._abort, base, place, messages)
            if self.mode == "stream":
                options = preflight(self.world.processes.current, options, plans=False)
            driver = self._driver(options, place)
            driver.commit(messages, number)
            if driver.committed:
                spark.executors.report = report_of(run, number, driver.committed, spark.executors.report)
        except (EosKafkaError, JobFailedError):
            # What a failed write leaves for the next one in a file, other processes do not have.
            spark.replace_drivers()
            if messages:
                fiber.process_id = spark.processes[0]
                self._abort(base, place, messages)
            raise
        return at

    def _abort(self, options: SinkOptions, place: Place, messages: list[TaskMessage]) -> None:
        with contextlib.suppress(EosKafkaError):
            self._driver(options, place).abort(messages, place.micro_batch)

    def _driver(self, options: SinkOptions, place: Place) -> Committer:
        retirement = Retirement.MARK if self.mode == "job" else Retirement.REPLACE
        process = self.world.processes.current
        return committer(process, options, place.query, place.run, retirement=retirement, write=place.write)

    def _rows(self, tries: list[list[Rows]], name: str) -> list[Rows]:
        """Return the rows of this run: the rows of the run before, unless an act changes them."""
        if not tries or self.happens("other rows"):
            splits = (f"{name}.s{split}" for split in range(self.random.randint(1, 3)))
            counts = (0, 1, 2)
            return [
                [(self.random.randrange(PARTITIONS), f"{split}.{at}") for at in range(self.random.choice(counts))]
                for split in splits
            ]
        if not self.happens("other splits"):
            return tries[-1]
        shuffled = [row for split in tries[-1] for row in split]
        self.random.shuffle(shuffled)
        count = self.random.randint(1, 3) if shuffled else 0
        return [shuffled[at::count] for at in range(count)]

    def reach(self, point: str, _: int | None = None) -> None:
        """Die, freeze or be stopped at a failpoint of the sink, with all tasks of the run."""
        if self._fate is None or self._fate[1] != point:
            return
        if self._fate[0] == "stop" and self.world.fibers.current.name != f"driver/run{self.run_number}":
            return
        kind, _, visits = self._fate
        self._fate = (kind, point, visits - 1) if visits else None
        if visits:
            return
        name = f"run{self.run_number}"
        self.note(f"{name}: {kind} at {point}")
        if kind == "executor":
            self._lose_executor(self.world.fibers.current)
            return
        if kind == "stop":
            # Spark kills the process that commits, and aborts in another one.
            self.world.fibers.current.kill()
            fiber = self.world.fibers.spawn(f"abort/{name}", self._aborts[name])
            fiber.process_id = self.world.new_process_id()
            self._spark.replace_drivers()
            return
        for each in [one for one in self.world.fibers.all if re.search(rf"/{name}(\.|$)", one.name)]:
            if kind == "death":
                each.kill()
            else:
                each.pause()
                self._frozen.append(each)
        if kind == "zombie" and self.random.random() < 0.7:
            delay_us = self.random.choice((500, 5_000, 30_000)) * US_PER_MS
            for each in self._frozen:
                self.world.scheduler.after(delay_us, each.go_on)
        self._spark = self._new_spark()

    def _lose_executor(self, task: Any) -> None:
        """Lose a task's machine, which may go on when Spark has run the task elsewhere."""
        if self.random.random() < 0.3:
            task.kill()
        else:
            task.pause()
            self.world.scheduler.after(self.random.choice((500, 4_000, 12_000, 50_000)) * US_PER_MS, task.go_on)
        self.world.fibers.sleep_ms(1)

    # What came of it

    def note_deletion(self, log: Any, end: int) -> None:
        """Remember what readers saw of a log before an offset, and what was there."""
        if log.topic_partition.topic in TOPICS:
            self.journal.seen.update(value for at, value in records_of(log, READ_COMMITTED) if at < end)
            self.journal.deleted.update(value for at, value in records_of(log, READ_UNCOMMITTED) if at < end)

    def note_kept(self, log: Any) -> None:
        self.journal.cut.add(log.topic_partition)
        self.journal.deleted.difference_update(value for _, value in records_of(log, READ_COMMITTED))
        # A record whose marker is lost may be visible again.
        self.journal.seen.subtract(v for _, v in records_of(log, READ_UNCOMMITTED) if self.journal.seen[v])

    def note_hanging(self) -> None:
        self.journal.cut.update(log.topic_partition for topic in TOPICS for log in self.logs_of(topic))

    def any_topic(self) -> str:
        return str(self.random.choice(self.writes)[0])

    def judge(self, explained: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong in the end: rows that are twice there, or missing, or a stop without a reason."""
        journal, seen = self.journal, Counter(self.journal.seen)
        for topic in TOPICS:
            for log in self.logs_of(topic):
                seen.update(value for _, value in records_of(log, READ_COMMITTED))
                # Nothing ends a transaction whose marker was lost, nor shows what follows it.
                hidden = (value for at, value in records_of(log, READ_UNCOMMITTED) if at >= log.last_stable_offset)
                journal.deleted.update(hidden if log.topic_partition in journal.cut else ())
        yield from (f"{value} is there {count} times" for value, count in seen.items() if count > 1)
        journal.seen = seen
        yield from self.judge_rows(seen, explained)

    def judge_rows(self, seen: Mapping[str, int], explained: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong with the rows of this query, given how often readers have seen each row."""
        journal, text = self.journal, str(self.error or "")
        for unit, tries in journal.tries.items():
            values = [[value for split in rows for _, value in split] for rows in tries]
            if len({tuple(sorted(each)) for each in values if any(seen[value] for value in each)}) > 1:
                yield f"{unit} has rows of several runs"
            wanted = values[journal.reported.get(unit, -1)]
            if unit in journal.discarding:
                wanted = next((each for each in values if any(seen[value] for value in each)), wanted)
            missing = [value for value in wanted if not seen[value] and value not in journal.deleted]
            if unit in journal.reported and missing:
                yield f"{unit} was reported, and {missing} are not there"
            if missing and any(seen[value] for value in wanted) and not re.search("fate|lost", text):
                yield f"a part of {unit} is there, {missing} are not, and the query ends with {text!r}"
        if self.error is None and len(self.done) < self.micro_batches:
            yield "the query did not end"
        yield from self.unexplained(explained)
