"""A rolling upgrade of three nodes of Apache Kafka under running queries: `python -m tests.crash.rolling_upgrade`.

One query copies files, one reads the topic of the first with `eos-kafka` and copies it, and two are held in a commit:
one from before the first node stops until all feature levels are raised, the other while the levels are raised. Each
node is stopped and started with the new version, and leaders move to it. The last line printed is a JSON object that
sums up the run, or the reason why it failed.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.metadata import ApiVersionsRequest

from spark_eos.client.kafka_client import KafkaClient
from spark_eos.options.client import ClientOptions
from tests.crash.case import Case
from tests.crash.cluster_rounds import PARTITION_COUNTS, Place
from tests.crash.drivers import drivers
from tests.crash.feed import Feed, Sent
from tests.crash.judge import read_committed, read_decisions, read_placed
from tests.crash.streams import Streams, committed
from tests.crash.world import NO_ANSWER, PARTITIONS, World
from tests.support.apache_cluster import NODES, REPLICAS, ApacheCluster, apache_cluster
from tests.support.apache_kafka import Unavailable
from tests.support.broker_processes import APACHE_SETTINGS
from tests.support.waiting import wait_until

FIRST, LAST = "3.9.2", "4.4.0"
# Longer than a slow upgrade: what is held must be there when it goes on. The brokers allow no more.
TRANSACTION_TIMEOUT: Final = "900s"
FILES, HELD_FOR_ALL, HELD_FOR_LEVELS, COPY = range(4)
OFFSETS_OF_COPY = 200
READ_DEADLINE_S = 180
# The exit status where Java, Maven or the jars are missing.
UNAVAILABLE = 3
# The tasks have prepared their transactions, and the decision is not begun.
PREPARED: Final = "driver.before_decide"
# The decision is in an open transaction of the driver.
DECIDING: Final = "driver.mid_decide"
METADATA, TRANSACTIONS = "metadata.version", "transaction.version"
# The quorum keeps its voters as they were configured.
NOT_RAISED = frozenset({"kraft.version"})
_started = time.monotonic()


class Upgrade:
    """One run on a fresh cluster."""

    def __init__(self, cluster: ApacheCluster, here: World, streams: Streams, copy: Case) -> None:
        self._cluster = cluster
        self._here = here
        self._streams = streams
        self._copy = copy
        self._chance = random.Random(16)

    def run(self, version: str) -> dict[str, str]:
        """Upgrade all nodes, then the feature levels; return what was seen."""
        streams, cases = self._streams, self._streams.cases
        streams.wait_for_progress(2)
        self._start_copy()
        first = cases[FILES].micro_batches
        self._hold(cases[HELD_FOR_ALL], PREPARED)
        for number in NODES:
            self._cluster.upgrade(number, version)
            say(f"node {number} starts with {version}")
            self._let_commit(cases[FILES])
            self._cluster.wait_in_sync()
            self._cluster.move_leaders(self._chance)
            self._let_commit(cases[FILES], cases[HELD_FOR_LEVELS])
            say(f"node {number} runs {version}, leaders have moved, micro-batches are committed")
        self._hold(cases[HELD_FOR_LEVELS], DECIDING)
        levels = self._raise_levels()
        say(levels)
        self._let_commit(cases[FILES])
        streams.release()
        streams.wait_for_progress(3)
        streams.finish(lambda: None)
        rows = self._judge()
        assert not streams.stops, f"queries stopped: {'; '.join(map(str, streams.stops))}"
        assert not self._here.ended_hanging, f"Apache Kafka left hanging: {self._here.ended_hanging}"
        batches = sum(case.micro_batches for case in cases) - first
        return {
            "queries": f"3 from files, 1 from Kafka; {batches} micro-batches during the upgrade",
            "held": "of one query for all of it, of another while the levels rise",
            "levels": levels,
            "seen": f"{rows:,} rows once each; no query stopped",
        }

    def _start_copy(self) -> None:
        # Its source is the topic of the first query, so what it must write is known when that has ended.
        self._copy.feed = Feed(self._streams.cases[FILES].topic, offsets_of_micro_batch=OFFSETS_OF_COPY)
        self._streams.driver.start(self._copy)

    def _hold(self, case: Case, point: str) -> None:
        self._streams.hold(case, point)
        assert self._streams.is_held(case), f"{case.prefix} does not come to {point}"
        say(f"{case.prefix} is held at {point}")

    def _let_commit(self, *cases: Case) -> None:
        """Wait until queries commit, the copy of the first included."""
        wanted = {each.prefix: committed(each) + 1 for each in (*cases, self._copy)}
        self._streams.wait_until(
            lambda: all(committed(each) >= wanted[each.prefix] for each in (*cases, self._copy)),
            f"{', '.join(wanted)} commit",
        )

    def _raise_levels(self) -> str:
        """Raise all feature levels, `metadata.version` first, as the documents of Kafka tell an operator to."""
        with KafkaClient(ClientOptions(tuple(self._cluster.bootstrap_servers.split(",")))) as client:
            before, highest = _levels(client)
            _update(client, {METADATA: highest[METADATA]})
            _update(client, {name: level for name, level in highest.items() if name != METADATA})
            wait_until(lambda: _levels(client)[0] == highest, "all levels are finalized")
        return ", ".join(f"`{name}` {before.get(name, 0)} to {highest[name]}" for name in (METADATA, TRANSACTIONS))

    def _judge(self) -> int:
        """Count the rows that readers see, after all checks; the copy is over when it has all rows of the first."""
        streams, cases = self._streams, self._streams.cases
        address, original = self._cluster.bootstrap_servers, cases[FILES].topic
        placed = read_placed(address, [original], PARTITIONS)[original]
        assert self._copy.feed is not None
        self._copy.feed.transactions[:] = _transactions(placed)
        expected = self._copy.expected.total()

        def is_copied() -> bool:
            assert not streams.driver.has_ended(self._copy), streams.driver.error(self._copy)
            read = read_committed(address, [self._copy.topic], PARTITIONS)[self._copy.topic]
            return sum(map(len, read.values())) >= expected

        wait_until(is_copied, "all rows are copied", deadline_s=READ_DEADLINE_S, pause_s=1)
        streams.driver.stop(self._copy)
        wait_until(lambda: streams.driver.has_ended(self._copy), "the copy ends")
        assert streams.driver.error(self._copy) is None, streams.driver.error(self._copy)
        wrong = self._here.judge([*cases, self._copy])
        assert not wrong, "; ".join(wrong)
        seen = self._transaction_versions([*cases, self._copy])
        assert len(seen) == 2 and 2 in seen, f"micro-batches by transaction.version: {seen}"
        say(f"transactions by the level they began with: {dict(seen)}")
        return sum(case.expected.total() for case in (*cases, self._copy))

    def _transaction_versions(self, cases: list[Case]) -> Counter[int]:
        """Count the transactions of all decisions by the feature level that they began with."""
        topics = {case.more_options["decisionTopic"] for case in cases}
        found: Counter[int] = Counter()
        for value in read_decisions(self._cluster.bootstrap_servers, topics):
            found.update(each["transaction_version"] for each in json.loads(value).get("transactions", ()))
        return found


def _transactions(placed: Mapping[int, list[tuple[int, str]]]) -> list[Sent]:
    """Return what a topic holds, a transaction for each micro-batch that wrote it."""
    places: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for partition, records in placed.items():
        for offset, line in records:
            places[line.split(".")[1]][line] = partition, offset
    return [Sent(f"micro-batch {number}", True, each) for number, each in sorted(places.items(), key=_number)]


def _number(item: tuple[str, object]) -> int:
    return int(item[0])


def _levels(client: KafkaClient) -> tuple[dict[str, int], dict[str, int]]:
    """Return the finalized levels, and the highest that the brokers support."""
    answer = client.send(None, ApiVersionsRequest(client_software_name="upgrade", client_software_version="1"))
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: each.max_version for each in answer.supported_features}
    return (
        {name: level for name, level in finalized.items() if name not in NOT_RAISED},
        {name: level for name, level in supported.items() if name not in NOT_RAISED and level},
    )


def _update(client: KafkaClient, levels: Mapping[str, int]) -> None:
    form = UpdateFeaturesRequest.FeatureUpdateKey
    updates = [form(feature=name, max_version_level=level, upgrade_type=1) for name, level in levels.items()]
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=updates, validate_only=False, min_version=1)
    answer = client.send(None, request)
    assert answer.error_code == 0, answer


def say(text: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"[{time.monotonic() - _started:5.0f} s] {text}", flush=True)


def upgraded(first: str, last: str, folder: Path, *, note: Callable[[str], None] = say) -> dict[str, str]:
    """Run three nodes of a version, and upgrade them to another under four queries."""
    with drivers(folder, ahead=1) as pool:
        with apache_cluster(folder / "cluster", APACHE_SETTINGS | PARTITION_COUNTS, version=first) as cluster:
            note(f"three nodes run {first}")
            here = World(
                Place(cluster.nodes[1].address),
                Place(cluster.bootstrap_servers),
                folder,
                forgets_markers=True,
                replicas=REPLICAS,
            )
            here.was_killed = True
            *cases, copy = here.new_cases(4, 0, transactionTimeout=TRANSACTION_TIMEOUT)
            for case in (*cases, copy):
                case.endless = True
            streams = Streams(pool, pool.take(last=True), cases, note)
            try:
                return Upgrade(cluster, here, streams, copy).run(last)
            finally:
                streams.release()
                streams.close()


def main() -> int:
    """Run one upgrade; the exit status is 1 where rows are lost or doubled, or a query stops."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.rolling_upgrade", description=__doc__)
    parser.add_argument("--from", dest="first", default=FIRST, metavar="VERSION")
    parser.add_argument("--to", dest="last", default=LAST, metavar="VERSION")
    named = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upgrade-") as folder:
        try:
            print(json.dumps(upgraded(named.first, named.last, Path(folder))), flush=True)
        except Unavailable as problem:
            print(problem, flush=True)
            return UNAVAILABLE
        except (AssertionError, *NO_ANSWER) as failure:
            print(f"FAILED: {failure}".replace("\n", " "), flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
