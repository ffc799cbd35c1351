"""A streaming query whose users act between its runs, and what it has read.

Spark is played here: it stores the end of each micro-batch, plans it, reads its ranges in tasks, and marks it as done.
It reads a micro-batch again that was not marked, from the same start to the same end.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker_core.types import IsolationLevel
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.offset_lookup import OffsetLookup
from spark_eos.errors import EosKafkaError
from spark_eos.options.source import SourceOptions, batch_options, stream_options
from spark_eos.source.driver_side import DriverSide
from spark_eos.source.offsets import OffsetRange, SourceOffset, default_limit
from spark_eos.source.planner import Planner
from spark_eos.source.range_reader import read_range
from tests.simulation.acted import NOTHING, RUNS_WITH_ACTS, Acted
from tests.simulation.client import Client, GaveUpError
from tests.simulation.history import READ_UNCOMMITTED
from tests.simulation.judge import records_of
from tests.simulation.producers import (
    CLASSIC,
    V2,
    AbortableError,
    FencedError,
    TransactionalProducer,
    become_owner,
    finish,
    recalled,
)
from tests.simulation.sink import JobFailedError
from tests.support.history.format import READ_COMMITTED
from tests.support.simulated.scheduler import US_PER_MS

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPICS = ("sunk", "other")
_ATTEMPTS: Final = 4
_QUIET_RUNS: Final = 3
# Longer than any transaction stays open that will end.
_REST_US: Final = 60_000 * US_PER_MS
READERS_POINTS: Final = ("source.before_plan", "source.before_read", "source.mid_read", "driver.logged", "driver.read")
_SUBSCRIPTIONS: Final = (("subscribe", ",".join(TOPICS)), ("subscribePattern", "sunk|oth.*"))
_NARROWER: Final = (("subscribe", TOPICS[0]), ("assign", json.dumps({TOPICS[0]: [0, 1], TOPICS[1]: [1]})))
# What a user does between two runs, and the words of an error that it explains.
READERS_ACTS: Final = {
    **dict.fromkeys(("death", "retried task", "policy", "limit", "trigger", "older checkpoint", "version"), NOTHING),
    "start": "No offset matched",
    "subscription": NOTHING,
    "narrower": "leaves out partitions",
    "isolation": NOTHING,
    "Spark's source": NOTHING,
}


class Row(NamedTuple):
    """One record as it was read."""

    topic: str
    partition: int
    offset: int
    value: str


class ActedReader(Acted):
    """The query: its options, its checkpoint and its runs, and producers that write what it reads."""

    def __init__(self, world: "World", kinds: Collection[str]) -> None:
        super().__init__(world, kinds)
        subscribed = self.random.choice((("subscribe", TOPICS[0]), *_SUBSCRIPTIONS))
        self.options |= {
            subscribed[0]: subscribed[1],
            "startingOffsets": self.random.choice(("earliest", "earliest", "latest")),
            "failOnDataLoss": "true",
            "lagWarningAfter": "24h",
            "outageTimeout": "90s",
        }
        self.is_available_now = self.random.random() < 0.3
        # PySpark 4.0 and 4.1 ask for an end without a start and a limit.
        self.names_starts = self.random.random() < 0.8
        # What Spark stores: the end of each micro-batch, and which ones are done.
        self.ends: list[dict[str, Any]] = []
        self.done: set[int] = set()
        # The rows of each time that a micro-batch was read.
        self.read: dict[int, list[list[Row]]] = defaultdict(list)
        # What was visible and is deleted.
        self.deleted: set[Row] = set()
        # What had been aborted when its marker was lost, and what is aborted in the log that is about to lose records.
        self.unmarked: set[Row] = set()
        self._aborted: set[Row] = set()
        # What was read at read_uncommitted, visible or not.
        self.uncommitted: set[Row] = set()
        self.is_over = False
        self._still_since_us = 0
        # Where its driver may die, and after how many visits.
        self.points: Sequence[str] = READERS_POINTS
        self._death: tuple[str, int] | None = None
        # The option that a narrower one has replaced for a run.
        self._wider: tuple[str, str] | None = None
        self._feeders = [
            world.fibers.spawn(f"feeder{number}", partial(self._feed, f"feeder{number}"))
            for number in range(self.random.randint(1, 3))
        ]

    # What it reads

    def _feed(self, name: str) -> None:
        """Write transactions, some of which are aborted, stay open for long, or are left open."""
        random = self.world.random_of(name)
        protocol = random.choice((CLASSIC, V2))
        client = Client(self.world, name, recalled=recalled(protocol, verifies=True))
        producer = TransactionalProducer(client, f"id-{name}", protocol, timeout_ms=random.choice((4_000, 20_000)))
        is_owner = False
        for number in range(random.randint(10, 30)):
            self.world.fibers.sleep_ms(random.randint(1, 3_000))
            try:
                if not is_owner:
                    become_owner(producer)
                    is_owner = True
                producer.begin()
                for step in range(random.randint(1, 3)):
                    topic = random.choice(TOPICS)
                    count = len(list(self.logs_of(topic))) if self.world.server.is_running else 0
                    if count:
                        values = [f"{name}.{number}.{step}.{at}" for at in range(random.randint(1, 3))]
                        producer.send(topic, random.randrange(count), values)
                    self.world.fibers.sleep_ms(random.choice((1, 1, 200, 2_000)))
                is_owner = random.random() < 0.9 and finish(producer, wants_commit=random.random() < 0.7)[2]
            except (AbortableError, FencedError, GaveUpError):
                is_owner = False

    def _is_quiet(self) -> bool:
        """Return whether nothing more is written, or done to the cluster, and no transaction will end.

        Nothing ends a transaction whose marker was lost with the end of a log.
        """
        acting = [each for each in self.world.fibers.all if each.name == "acts"]
        if not self.world.server.is_running or not all(each.is_done for each in (*self._feeders, *acting)):
            return False
        self._still_since_us = self._still_since_us or self.world.scheduler.now_us
        if self.world.scheduler.now_us - self._still_since_us > _REST_US:
            return True
        return all(log.last_stable_offset == log.high_watermark for topic in TOPICS for log in self.logs_of(topic))

    # Runs

    def run(self) -> None:
        batches = self.world.fibers.spawn("batches", self._read_batches)
        batches.process_id = self.world.new_process_id()
        quiet_runs = 0
        while quiet_runs < _QUIET_RUNS and not self.is_over:
            self.run_number += 1
            quiet_runs += self.run_number > RUNS_WITH_ACTS and self._is_quiet()
            if self.run_number > 1:
                self._act_between_runs()
            self._death = None
            if self.happens("death", 0.5):
                self._death = self.random.choice(self.points), self.random.randint(0, 6)
            fiber = self.world.fibers.spawn(f"driver/run{self.run_number}", self._run)
            fiber.process_id = self.world.new_process_id()
            while not fiber.is_done:
                self.world.fibers.sleep_ms(50)
            self.world.fibers.sleep_ms(self.random.choice((100, 2_000, 12_000)))

    def _act_between_runs(self) -> None:
        self._change_reading()
        if self.run_number > RUNS_WITH_ACTS:
            self.options.pop("minOffsetsPerTrigger", None)
        if self._wider is not None:
            self._subscribe(self._wider)
            self._wider = None
        if self.happens("subscription"):
            self._subscribe(self.random.choice(_SUBSCRIPTIONS))
        if self.error is not None and self.happens("policy", 0.7):
            self.options["failOnDataLoss"] = "false"
        has_both = self.options.get("subscribe") != TOPICS[0]
        if has_both and self.options["failOnDataLoss"] == "true" and self.happens("narrower"):
            self._wider = self._subscribe(self.random.choice(_NARROWER))
        if len(self.ends) > 1 and self.happens("Spark's source"):
            # It has written the end of the last micro-batch.
            self.ends[-1] = {name: end for name, end in self.ends[-1].items() if name in TOPICS}
        if self.ends and self.happens("older checkpoint", 0.2):
            kept = self.random.randrange(len(self.ends))
            self.note(f"{kept} micro-batches are kept of {len(self.ends)}")
            del self.ends[kept:]
            self.done = {each for each in self.done if each < kept}
            for number in [each for each in self.read if each >= kept]:
                del self.read[number]

    def _change_reading(self) -> None:
        if self.happens("limit"):
            for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxRecordsPerPartition"):
                self.options.pop(name, None)
                if self.random.random() < 0.4:
                    self.options[name] = str(self.random.choice((1, 3, 10)))
            if int(self.options.get("minOffsetsPerTrigger", 0)) > int(self.options.get("maxOffsetsPerTrigger", 99)):
                # The source refuses it.
                del self.options["minOffsetsPerTrigger"]
            self.options |= {"minPartitions": str(self.random.choice((1, 4, 9))), "maxTriggerDelay": "20s"}
        if self.happens("start"):
            self.options["startingOffsets"] = self.random.choice(("earliest", "latest"))
            self.options.pop("startingTimestamp", None)
            if self.random.random() < 0.4:
                ago_ms = self.random.choice((0, 3_000, 30_000))
                self.options["startingTimestamp"] = str(self.world.clock.now_ms() - ago_ms)
        if self.happens("version"):
            self.names_starts = not self.names_starts
        if self.happens("isolation"):
            self.options["isolation.level"] = self.random.choice(("read_committed", "read_uncommitted"))
        if self.happens("trigger"):
            self.is_available_now = not self.is_available_now

    def _subscribe(self, chosen: tuple[str, str]) -> tuple[str, str]:
        """Choose other topics; return the option that did."""
        before = next(name for name in ("subscribe", "subscribePattern", "assign") if name in self.options)
        was = before, self.options.pop(before)
        self.options[chosen[0]] = chosen[1]
        return was

    def _run(self) -> None:
        options = stream_options(self.options)
        self.error = None
        try:
            with closing(DriverSide(options, self.world.processes.current)) as driver:
                self._read_micro_batches(driver, options)
        except (EosKafkaError, JobFailedError) as error:
            self.error = error
            self.note(f"run{self.run_number} stops: {type(error).__name__}: {error}")

    def _read_batches(self) -> None:
        """Read all that is visible now, as batch queries do: nothing less, and nothing that is not visible."""
        settings = {name: value for name, value in self.options.items() if name.startswith("kafka.")}
        options = batch_options({**settings, "startingOffsets": "earliest", "subscribe": ",".join(TOPICS)})
        for _ in range(self.random.randint(0, 5)):
            self.world.fibers.sleep_ms(self.random.randint(1, 20_000))
            before = self._visible_rows() if self.world.server.is_running else None
            process = self.world.processes.current
            try:
                with KafkaClient(options.client, process.runtime) as client:
                    planner = Planner(OffsetLookup(client), options)
                    start, end, _ = planner.batch_bounds()
                    pieces = planner.plan(start, end)
                rows = [row for piece in pieces for row in self._task(piece, options, is_last=True)]
            except EosKafkaError as error:
                self.note(f"a batch query stops: {type(error).__name__}: {error}")
                continue
            if before is None or not self.world.server.is_running:
                continue
            there = self._visible_rows() | self.deleted
            self.world.problems += [f"a batch query read {row}" for row in rows if row not in there]
            missing = before.difference(rows, self.deleted) if "cut off" not in self.kinds else ()
            self.world.problems += [f"a batch query did not read {row}" for row in missing]
            if len(rows) > len(set(rows)):
                self.world.problems.append(f"a batch query read rows twice: {rows}")

    def _visible_rows(self) -> set[Row]:
        return {row for topic in TOPICS for log in self.logs_of(topic) for row in _visible(log)}

    def _read_micro_batches(self, driver: DriverSide, options: SourceOptions) -> None:
        limit = default_limit(options)
        was_quiet = self._is_quiet()
        if self.is_available_now:
            driver.outages.wait_out(driver.remember_target)
        last = len(self.ends) - 1
        if self.ends and last not in self.done:
            self._read_one(driver, options, last, self.ends[last - 1] if last else _stored(driver.first_start()))
        elif self.ends:
            driver.position = SourceOffset.from_json(self.ends[-1])
        pauses = self.random.randint(3, 40)
        while True:
            start = self.ends[-1] if self.ends else _stored(driver.first_start())
            # A query of Trigger.AvailableNow reads what was there when it began.
            is_quiet = was_quiet if self.is_available_now else self._is_quiet()
            known = SourceOffset.from_json(start)
            ask = partial(driver.next_end, known, limit) if self.names_starts else driver.next_end_from_position
            end = _stored(driver.outages.wait_out(ask))
            if json.dumps(end) != json.dumps(start):
                self.ends.append(end)
                self.reach("driver.logged")
                self._read_one(driver, options, len(self.ends) - 1, start)
                continue
            # Fewer offsets than that wait for more, and what is left out now is read by the next run.
            self.is_over = is_quiet and "minOffsetsPerTrigger" not in self.options and self._wider is None
            pauses -= 1
            if is_quiet or self.is_available_now or (not pauses and self.run_number <= RUNS_WITH_ACTS):
                return
            self.world.fibers.sleep_ms(self.random.choice((50, 500, 3_000)))

    def _read_one(self, driver: DriverSide, options: SourceOptions, number: int, start: dict[str, Any]) -> None:
        begin, end = SourceOffset.from_json(start), SourceOffset.from_json(self.ends[number])
        found: list[list[Row]] = []
        for piece in driver.outages.wait_out(partial(driver.plan, begin, end)):
            self.world.fibers.sleep_ms(self.random.choice((1, 1, 1, 50, 1_000)))
            found.append(self._task(piece, options, is_last=False))
        rows = [row for split in found for row in split]
        # Before they are used: a use that refuses other rows than before shows that the source has read others.
        self.read[number].append(sorted(rows))
        self.use(number, found)
        self.reach("driver.read")
        self.done.add(number)
        self.note(f"run{self.run_number} has read micro-batch {number}: {len(rows)} rows")

    def use(self, number: int, found: list[list[Row]]) -> None:
        """Do something with the rows of a micro-batch, by task."""

    def _task(self, piece: OffsetRange, options: SourceOptions, *, is_last: bool) -> list[Row]:
        """Read a range, again if that fails, as Spark does."""
        fiber = self.world.fibers.current
        driver, fiber.process_id = fiber.process_id, self.world.new_process_id()
        try:
            for attempt in range(_ATTEMPTS):
                try:
                    found = [
                        Row(piece.topic, piece.partition, offset, value.decode())
                        for batch in read_range(piece, options, self.world.processes.current, is_last=is_last)
                        for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
                    ]
                except EosKafkaError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    continue
                if options.isolation is IsolationLevel.READ_UNCOMMITTED:
                    self.uncommitted.update(found)
                if attempt < _ATTEMPTS - 1 and self.happens("retried task", 0.1):
                    continue
                return found
            raise AssertionError("the last attempt returns or raises")
        finally:
            fiber.process_id = driver

    def reach(self, point: str, _: int | None = None) -> None:
        if self._death is None or self._death[0] != point:
            return
        _, visits = self._death
        self._death = (point, visits - 1) if visits else None
        if not visits:
            self.note(f"run{self.run_number}: death at {point}")
            self.die()

    def die(self) -> None:
        """End the driver."""
        fiber = self.world.fibers.current
        fiber.kill()
        fiber.sleep_until(None)

    # What came of it

    def any_topic(self) -> str:
        return self.random.choice(TOPICS)

    def note_deletion(self, log: Any, end: int) -> None:
        visible = set(_visible(log))
        self.deleted |= {row for row in visible if row.offset < end}
        ended = {row for row in _visible(log, READ_UNCOMMITTED) if row.offset < log.last_stable_offset}
        self._aborted = ended - visible

    def note_kept(self, log: Any) -> None:
        self.deleted.difference_update(_visible(log))
        self.unmarked |= self._aborted.intersection(_visible(log, READ_UNCOMMITTED))

    def judge(self, explained: dict[str, str]) -> Iterator[str]:
        there = self._visible_rows()
        seen: dict[str, int] = {}
        for number, tries in sorted(self.read.items()):
            is_changed = "isolation" in self.kinds or (self.options["failOnDataLoss"] == "false" and self.deleted)
            removed = self.deleted if "compact" in self.kinds else ()
            kept = [[row for row in each if row not in removed] for each in tries]
            if any(each != kept[0] for each in kept) and not is_changed:
                yield f"micro-batch {number} was read with different rows: {tries}"
            for row in tries[-1]:
                if row.value in seen:
                    yield f"{row} was read in micro-batches {seen[row.value]} and {number}"
                seen[row.value] = number
                if row not in there and row not in self.deleted and row not in self.uncommitted:
                    yield f"{row} was read, and was not visible"
        yield from self.unexplained(explained)
        if self.error is None and not self.is_over:
            yield "the query did not catch up"
        if self.error is not None:
            return
        first = self._first_start()
        there -= self.unmarked
        missing = [row for row in sorted(there) if row.value not in seen and row.offset >= first.get(row[:2], 0)]
        if "subscribe" in self.options and self.options["subscribe"] == TOPICS[0]:
            missing = [row for row in missing if row.topic == TOPICS[0]]
        if missing:
            yield f"it never read {missing}"

    def _first_start(self) -> dict[tuple[str, int], int]:
        """Return where it began to read the topics that are still the same."""
        first = SourceOffset.from_json(self.ends[0]) if self.ends else SourceOffset({})
        topics = self.world.server.cluster.metadata.topics
        return {
            (place.topic, place.partition): offset
            for place, offset in (first.begins or {}).items()
            if place.topic in topics and first.topic_ids.get(place.topic) == topics[place.topic].topic_id
        }


def _visible(log: Any, level: str = READ_COMMITTED) -> Iterator[Row]:
    place = log.topic_partition
    for offset, value in records_of(log, level):
        yield Row(place.topic, place.partition, offset, value)


def _stored(offset: SourceOffset) -> dict[str, Any]:
    """Return an offset as Spark stores it."""
    stored: dict[str, Any] = json.loads(json.dumps(offset.to_json()))
    return stored
