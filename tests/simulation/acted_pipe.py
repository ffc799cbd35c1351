"""A query from Kafka to Kafka whose users act between its runs: the real source feeds the real sink.

Spark is played here as in `acted_reader`; the rows of a micro-batch go through the sink before it is marked as done.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import sink_options
from spark_eos.sink.commit_report import report_of
from spark_eos.sink.driver.preflight import preflight
from spark_eos.sink.factory import committer
from spark_eos.sink.messages import Place, TaskMessage
from tests.simulation.acted_query import DECISION_TOPICS, PARTITIONS, POINTS, PREFIXES, QUERY, USERS_ACTS, Spark
from tests.simulation.acted_reader import READERS_ACTS, READERS_POINTS, ActedReader, Row
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.judge import records_of
from tests.simulation.sink import JobFailedError
from tests.support.history.format import READ_COMMITTED

if TYPE_CHECKING:
    from tests.simulation.world import World

COPIED: Final = "copied"
OTHER_ROWS: Final = "different rows|already decided|already written|onLostTransaction"
PIPES_ACTS: Final = {
    **{kind: f"{words}|{OTHER_ROWS}" for kind, words in READERS_ACTS.items()},
    **{kind: USERS_ACTS[kind] for kind in ("death", "timeout")},
}


class ActedPipe(ActedReader):
    """The query: what it reads is written to one topic."""

    decision_topic = DECISION_TOPICS[0]
    names = (QUERY,)

    def __init__(self, world: "World", kinds: Collection[str]) -> None:
        super().__init__(world, kinds)
        self._sink = {name: value for name, value in self.options.items() if name.startswith("kafka.")} | {
            "topic": COPIED,
            "transactionalIdPrefix": PREFIXES[0],
            "decisionTopic": self.decision_topic,
            "transactionTimeout": self.random.choice(("15000", "25000")),
            "onLostTransaction": self.random.choice(("fail", "rewrite")),
            "kafka.delivery.timeout.ms": "8000",
        }
        # The rows of all commits that have succeeded.
        self._reported: set[str] = set()
        # Logs in which a transaction may hang.
        self._cut: set[object] = set()
        self._spark = Spark(world, "executor", self.random)
        self.points = (*READERS_POINTS, *POINTS)

    def use(self, number: int, found: list[list[Row]]) -> None:
        """Write the rows of a micro-batch as Spark does."""
        run = f"{self.run_number:08x}-0000-4000-8000-000000000000"
        rows = [[(len(row.value) % PARTITIONS, row.value) for row in split] for split in found]
        if self.happens("timeout"):
            self._sink["transactionTimeout"] = self.random.choice(("4000", "15000", "25000"))
        base, place = sink_options(self._sink), Place(QUERY, run, number, 0, "")
        messages: list[TaskMessage] = []
        fiber = self.world.fibers.current
        source = fiber.process_id
        try:
            fiber.process_id = self.random.choice(self._spark.processes)
            options = preflight(self.world.processes.current, base)
            messages = self._spark.executors.run(place, rows, lambda _: options)
            fiber.process_id = self.random.choice(self._spark.processes)
            options = preflight(self.world.processes.current, options, plans=False)
            driver = committer(self.world.processes.current, options, QUERY, run)
            driver.commit(messages, number)
            self._reported.update(row.value for split in found for row in split)
            if driver.committed:
                self._spark.executors.report = report_of(run, number, driver.committed, self._spark.executors.report)
        except (EosKafkaError, JobFailedError):
            self._spark.replace_drivers()
            fiber.process_id = self._spark.processes[0]
            if messages:
                with contextlib.suppress(EosKafkaError):
                    committer(self.world.processes.current, base, QUERY, run).abort(messages, number)
            raise
        finally:
            fiber.process_id = source

    def die(self) -> None:
        """End the driver and its tasks."""
        run = re.compile(rf"/(run{self.run_number}$|{self.run_number:08x}-)")
        for each in [one for one in self.world.fibers.all if run.search(one.name)]:
            each.kill()
        self._spark = Spark(self.world, f"executor{self.run_number}", self.random)
        self.world.fibers.sleep_ms(1)

    def note_hanging(self) -> None:
        super().note_hanging()
        self._cut.update(log.topic_partition for log in self.logs_of(COPIED))

    def judge(self, explained: dict[str, str]) -> Iterator[str]:
        """Yield what is wrong in the end: in what was read, or in what was written."""
        yield from super().judge(explained)
        seen = Counter(value for log in self.logs_of(COPIED) for _, value in records_of(log, READ_COMMITTED))
        yield from (f"{value} was written {count} times" for value, count in seen.items() if count > 1)
        # Nothing shows what follows a transaction that hangs.
        hidden = {
            value
            for log in self.logs_of(COPIED)
            if log.topic_partition in self._cut
            for at, value in records_of(log, READ_UNCOMMITTED)
            if at >= log.last_stable_offset
        }
        if missing := sorted(self._reported - seen.keys() - hidden):
            yield f"{missing} were reported, and are not there"
        ever = {row.value for row in (*self._visible_rows(), *self.deleted, *self.uncommitted)}
        if strange := sorted(seen.keys() - ever):
            yield f"{strange} were written, and were never visible in the input"
