"""A query, a foreachBatch function or a job whose users act between its runs, and what came of its rows.

The writers of Spark are played here: each write checks the cluster, runs its tasks and commits, in processes that Spark
chooses. A driver may die or freeze at any of the sink's failpoints.
"""

import contextlib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import SinkOptions, sink_options
from spark_eos.sink.commit_report import report_of
from spark_eos.sink.driver.committer import Committer
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer
from spark_eos.sink.messages import Place, TaskMessage
from spark_eos.sink.protocol.retirement import Retirement
from tests.simulation.acted import RUNS, RUNS_WITH_ACTS, Acted
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.judge import records_of
from tests.simulation.sink import Executors, JobFailedError, Rows
from tests.support.history.format import READ_COMMITTED
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

QUERY, JOB = "8a6e0804-2bd0-4672-b79d-d97027f9071a", "daily"
TOPICS, PREFIXES = ("sunk", "other"), ("sim", "sim2")
DECISION_TOPICS = ("eos-kafka-decisions", "eos-kafka-decisions-2")
PARTITIONS = 2
_POINTS: Final = (
    *("task.begin", "task.before_write", "task.prepared"),
    *("driver.before_verify", "driver.taken_over", "driver.before_settle", "driver.settled"),
    *("driver.before_decide", "driver.decision_flushed", "driver.mid_decide", "driver.after_decide"),
    *("driver.mid_complete", "driver.after_complete", "driver.mid_sweep", "driver.after_sweep"),
)
_LOST_IN_PART: Final = "was decided, but"
# What a user does between two runs, and the words of an error that it explains.
USERS_ACTS: Final = {
    "death": _LOST_IN_PART,
    "zombie": _LOST_IN_PART,
    "topic": "written to|was written by run|already written",
    "prefix": "transactionalIdPrefix",
    "decision topic": "decisionTopic|are gone",
    "timeout": _LOST_IN_PART,
    "policy": "onLostTransaction",
    "older checkpoint": "is already decided|different rows|already written",
    "other rows": "different rows|already decided",
    "other splits": "onLostTransaction",
    "other order": "different rows|already written|was written by run",
    "retried function": "already written under the name",
    "name": "was written by run|already written|already decided",
}


@dataclass
class Journal:
    """The rows of each try by micro-batch and write, which try was reported, and what readers have seen."""

    tries: dict[tuple[int, int], list[list[Rows]]] = field(default_factory=lambda: defaultdict(list))
    reported: dict[tuple[int, int], int] = field(default_factory=dict)
    # What was visible and is deleted, how often, and all that was there.
    seen: Counter[str] = field(default_factory=Counter)
    deleted: set[str] = field(default_factory=set)


class ActedQuery(Acted):
    """The query: its options, its checkpoint and its runs."""

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
        # The topic and the name of each write of a micro-batch.
        self.writes = [[TOPICS[0], ""]]
        if self.mode == "foreachBatch" and self.random.random() < 0.8:
            self.writes.append(self.random.choice(([TOPICS[1], ""], [TOPICS[0], "second"], [TOPICS[1], "second"])))
        self.done: set[int] = set()
        self._repeats = 0
        # Where the driver of this run dies or freezes, and after how many visits.
        self._fate: tuple[str, str, int] | None = None
        self._frozen: list[Any] = []
        self._replace_processes()

    def name_of(self, write: int) -> str:
        """Return the name under which a write is decided."""
        topic, name = self.writes[write]
        return {"job": JOB, "stream": QUERY}.get(self.mode, f"{QUERY}/{name or topic}")

    def _replace_drivers(self) -> None:
        self._processes = [self.world.new_process_id() for _ in range(3)]

    def _replace_processes(self) -> None:
        self._replace_drivers()
        # Longer than a task waits before it fails.
        self._executors = Executors(self.world, f"executor{self.run_number}", self.random, lost_after_ms=60_000)

    # Runs

    def run(self) -> None:
        """Run the query until it is done, or has stopped again and again."""
        while self.run_number < RUNS and self._is_due():
            self.run_number += 1
            if self.run_number > 1:
                self._act_between_runs()
            name, self._fate = f"run{self.run_number}", None
            for kind, chance in (("death", 0.5), ("zombie", 0.3)):
                if self._fate is None and kind in self.kinds and self.run_number <= RUNS_WITH_ACTS:
                    visits = self.random.randint(0, self.micro_batches)
                    if self.random.random() < chance:
                        self._fate = kind, self.random.choice(_POINTS), visits
            fiber = self.world.fibers.spawn(f"driver/{name}", lambda name=name: self._run(name))
            fiber.process_id = self._processes[0]
            while not fiber.is_done and fiber not in self._frozen:
                self.world.fibers.sleep_ms(50)
            self.world.fibers.sleep_ms(self.random.choice((100, 2_000, 2_000, 12_000, 40_000)))
        for each in self._frozen:
            each.go_on()

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
        for kind, option, values in (
            ("prefix", "transactionalIdPrefix", PREFIXES),
            ("decision topic", "decisionTopic", DECISION_TOPICS),
            ("timeout", "transactionTimeout", ("4000", "15000", "25000")),
            ("policy", "onLostTransaction", ("fail", "rewrite")),
        ):
            if self.happens(kind):
                self.options[option] = self.random.choice(values)
        if self.done and self.happens("older checkpoint", 0.2):
            kept = self.random.randint(0, max(self.done))
            self.done = {each for each in self.done if each < kept}

    def _run(self, name: str) -> None:
        error: Exception | None = None
        try:
            self._write_micro_batches(name)
        except (EosKafkaError, JobFailedError) as caught:
            error = caught
            self.note(f"{name} stops: {type(error).__name__}: {error}")
        if name == f"run{self.run_number}":
            self.error = error

    def _write_micro_batches(self, name: str) -> None:
        while (number := next((n for n in range(self.micro_batches) if n not in self.done), None)) is not None:
            order = list(range(len(self.writes)))
            if self.happens("other order"):
                order.reverse()
            written = {}
            for write in order:
                try:
                    written[number, write] = self._write(name, number, write)
                except EosKafkaError:
                    if not self.happens("retried function", 0.5):
                        raise
                    written[number, write] = self._write(name, number, write)
            self.done.add(number)
            self.journal.reported = written | self.journal.reported
            self.note(f"{name} reports {written}")
            self.world.fibers.sleep_ms(self.random.randint(1, 1_500))

    def _write(self, run: str, number: int, write: int) -> int:
        """Write as Spark's writers do; return the number of the try."""
        tries = self.journal.tries[number, write]
        tries.append(self._rows(tries, f"b{number}.w{write}.v{len(tries)}"))
        at, (topic, name), query = len(tries) - 1, self.writes[write], self.name_of(write)
        given = {**self.options, "topic": topic}
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
            fiber.process_id = self.random.choice(self._processes)
            options = preflight(self.world.processes.current, base)
            place = Place(query, run, number, 0, call)
            messages = self._executors.run(place, tries[at], lambda _: options)
            fiber.process_id = self.random.choice(self._processes)
            if self.mode == "stream":
                options = preflight(self.world.processes.current, options, plans=False)
            driver = self._driver(options, place)
            driver.commit(messages, number)
            if driver.committed:
                self._executors.report = report_of(run, number, driver.committed, self._executors.report)
        except (EosKafkaError, JobFailedError):
            # What a failed write leaves for the next one in a file, other processes do not have.
            self._replace_drivers()
            if messages:
                fiber.process_id = self._processes[0]
                with contextlib.suppress(EosKafkaError):
                    self._driver(base, place).abort(messages, number)
            raise
        return at

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
        count = self.random.randint(1, 3)
        return [shuffled[at::count] for at in range(count)]

    def reach(self, point: str, _: int | None = None) -> None:
        """Die or freeze at a failpoint of the sink, with all tasks of the run."""
        if self._fate is None or self._fate[1] != point:
            return
        kind, _, visits = self._fate
        self._fate = (kind, point, visits - 1) if visits else None
        if visits:
            return
        name = f"run{self.run_number}"
        self.note(f"{name}: {kind} at {point}")
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
        self._replace_processes()

    # What came of it

    def note_deletion(self, log: Any, end: int) -> None:
        """Remember what readers saw of a log before an offset, and what was there."""
        if log.topic_partition.topic in TOPICS:
            self.journal.seen.update(value for at, value in records_of(log, READ_COMMITTED) if at < end)
            self.journal.deleted.update(value for at, value in records_of(log, READ_UNCOMMITTED) if at < end)

    def any_topic(self) -> str:
        return str(self.random.choice(self.writes)[0])

    def judge(self, explained: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong in the end: rows that are twice there, or missing, or a stop without a reason."""
        journal, seen = self.journal, Counter(self.journal.seen)
        for topic in TOPICS:
            for log in self.logs_of(topic):
                seen.update(value for _, value in records_of(log, READ_COMMITTED))
        yield from (f"{value} is there {count} times" for value, count in seen.items() if count > 1)
        text = str(self.error or "")
        for unit, tries in journal.tries.items():
            values = [[value for split in rows for _, value in split] for rows in tries]
            if len({tuple(sorted(each)) for each in values if any(seen[value] for value in each)}) > 1:
                yield f"{unit} has rows of several runs"
            wanted = values[journal.reported.get(unit, -1)]
            missing = [value for value in wanted if not seen[value] and value not in journal.deleted]
            if unit in journal.reported and missing:
                yield f"{unit} was reported, and {missing} are not there"
            if missing and any(seen[value] for value in wanted) and not re.search("fate|lost", text):
                yield f"a part of {unit} is there, {missing} are not, and the query ends with {text!r}"
        if self.error is None and len(self.done) < self.micro_batches:
            yield "the query did not end"
        yield from self.unexplained(explained)
