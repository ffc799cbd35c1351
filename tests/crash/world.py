"""A broker with its proxy and the cases on it; queries run to their end and their results are checked."""

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from spark_eos.errors import EosKafkaError
from tests.crash.case import Case
from tests.crash.drivers import Driver
from tests.crash.feed import PARTITIONS as FEED_PARTITIONS
from tests.crash.feed import Feed, fill
from tests.crash.hanging import Hanging, end_hanging
from tests.crash.judge import Query, judge
from tests.crash.wire import Wire
from tests.support.broker_processes import Broker, make_broker
from tests.support.clients import LOG_NOTHING
from tests.support.spark_eos.brokers import LATEST_TRANSACTION_VERSION, finalize
from tests.support.waiting import wait_until

PARTITIONS = 2
END_DEADLINE_S = 900
MOST_STARTS = 4
# More concurrent queries would only wait for one another.
AT_A_TIME = 8
MEND_INTERVAL_S = 3
NO_ANSWER = (EosKafkaError, KafkaException, OSError)


class World:
    """One broker behind its wire; queries use the wire, the judge does not.

    `ended_hanging` has the transactions that Apache Kafka left hanging after a kill, and that an operator ended. Topics
    have as many `replicas` as given.
    """

    def __init__(
        self, broker: Broker, wire: Wire, folder: Path, *, forgets_markers: bool = False, replicas: int = 1
    ) -> None:
        self.broker = broker
        self.wire = wire
        self.ended_hanging: list[Hanging] = []
        self.was_killed = False
        self._folder = folder
        self._replicas = replicas
        self._forgets_markers = forgets_markers
        self._mended_at = 0.0

    def new_case(self, micro_batches: int = 2, **options: str) -> Case:
        """Make a case with its own topic; an option's name is written with `_` for `.`."""
        return self.new_cases(1, micro_batches, **options)[0]

    def new_cases(
        self, count: int, micro_batches: int = 2, feeds: Sequence[Feed | None] = (), **options: str
    ) -> list[Case]:
        """Make cases with their own topics; those with a feed read it, and it is filled."""
        if not count:
            return []
        more = {name.replace("_", "."): value for name, value in options.items()}
        # A decision topic for these cases only, because a query without decisions reads all of it.
        more.setdefault("decisionTopic", f"decisions-{uuid.uuid4().hex[:8]}")
        cases = [
            Case(self._folder, self.wire.address, micro_batches, dict(more), feed=feed)
            for feed in (feeds or [None] * count)
        ]
        fed = [(case.feed, [case.lines_of(number) for number in range(micro_batches)]) for case in cases if case.feed]
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": LOG_NOTHING})
        topics = [NewTopic(case.topic, PARTITIONS, self._replicas) for case in cases]
        topics += [NewTopic(feed.topic, FEED_PARTITIONS, self._replicas) for feed, _ in fed]
        for made in admin.create_topics(topics, operation_timeout=30).values():
            made.result(60)
        if fed:
            fill(self.broker.address, fed)
        return cases

    def run_to_end(self, driver: Driver, cases: Sequence[Case], running: Sequence[Case] = ()) -> dict[str, list[str]]:
        """Start queries until each has ended well; return the errors that each had before, by prefix.

        Those of `running` are started already. A query that reports lost transactions is restarted as its error
        suggests: with onLostTransaction=rewrite.
        """
        errors: dict[str, list[str]] = {case.prefix: [] for case in cases}
        current = list(running)
        waiting = [case for case in cases if case not in current]

        def all_ended() -> bool:
            for case in [case for case in current if driver.has_ended(case)]:
                current.remove(case)
                error = driver.error(case)
                if error is not None:
                    errors[case.prefix].append(error)
                    assert len(errors[case.prefix]) < MOST_STARTS, f"{case.prefix} does not end well: {error}"
                    if "set onLostTransaction=rewrite" in error:
                        case.more_options["onLostTransaction"] = "rewrite"
                    waiting.append(case)
            while waiting and len(current) < AT_A_TIME:
                current.append(waiting.pop(0))
                driver.start(current[-1])
            self.end_left_hanging_periodically()
            return not current

        wait_until(all_ended, f"{len(cases)} queries end", deadline_s=END_DEADLINE_S)
        return errors

    def make_again(self, cases: Sequence[Case]) -> None:
        """Delete the topics that queries write to, and create them again."""
        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": LOG_NOTHING})
        names = [case.topic for case in cases]
        for deleted in admin.delete_topics(names, operation_timeout=30).values():
            deleted.result(60)
        topics = [NewTopic(name, PARTITIONS, self._replicas) for name in names]
        for made in admin.create_topics(topics, operation_timeout=30).values():
            made.result(60)

    def restart_broker(self, pause_s: float = 0) -> None:
        """Kill the broker and start it again."""
        self.broker.kill()
        time.sleep(pause_s)
        self.broker.start()
        self.was_killed = True

    def end_left_hanging(self) -> None:
        """End what Apache Kafka has left hanging since it was killed; what hangs for another reason fails a run."""
        if self._forgets_markers and self.was_killed:
            self.ended_hanging += [each for each in end_hanging(self.broker.address) if each not in self.ended_hanging]
        self._mended_at = time.monotonic()

    def end_left_hanging_periodically(self) -> None:
        """End hanging transactions while queries run, which may wait for them."""
        # A broker that was restarted may not know everything yet.
        if time.monotonic() > self._mended_at + MEND_INTERVAL_S:
            with suppress(*NO_ANSWER):
                self.end_left_hanging()

    def judge(self, cases: Sequence[Case]) -> list[str]:
        """Return what is wrong in the cases' topics."""
        self.end_left_hanging()
        self.was_killed = False
        queries = {
            case.topic: Query(
                case.expected, case.more_options["decisionTopic"], case.feed, sorted(case.last_inputs().values())
            )
            for case in cases
        }
        return judge(self.broker.address, queries, PARTITIONS)


@contextmanager
def world(kind: str, folder: Path, transaction_version: int = LATEST_TRANSACTION_VERSION) -> Iterator[World]:
    """Run a broker of a kind ("broker_core", "apache") behind a wire until the block ends."""
    broker = make_broker(kind, folder / "broker")
    try:
        broker.start()
        if transaction_version != LATEST_TRANSACTION_VERSION:
            finalize(broker.address, transaction_version)
        wire = Wire(broker.address)
        try:
            yield World(broker, wire, folder, forgets_markers=kind == "apache")
        finally:
            wire.close()
    finally:
        broker.close()
