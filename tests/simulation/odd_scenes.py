"""Small worlds in which one answer is odd: a query that writes, one that reads, and the commands of an operator.

Each is played once without a change, to learn which answers there are and how they can be changed, and then again for
each change. In the end all is as without it, or what stopped has said why.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from broker_core.broker.cluster import Cluster
from broker_core.types import TRANSACTION_STATE_TOPIC, TopicPartition
from spark_eos import failpoints
from spark_eos.admin import doctor_checks
from spark_eos.admin.doctor_findings import CheckResult
from spark_eos.admin.inventory import read_inventory
from spark_eos.admin.rights import Examination
from spark_eos.client.inspection import list_transactions, sees_every_id
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transaction_admin import all_topics, partitions_of, sees_every_topic
from spark_eos.errors import EosKafkaError
from spark_eos.options.client import ClientOptions
from spark_eos.sink.cluster import KafkaCluster
from spark_eos.sink.naming import group_id
from spark_eos.transactions.judge import find_open
from tests.simulation.acted import Acted
from tests.simulation.acted_query import DECISION_TOPICS, PARTITIONS, PREFIXES, QUERY, TOPICS, ActedQuery
from tests.simulation.acted_reader import ActedReader
from tests.simulation.client import Client
from tests.simulation.odd_answers import Oddity
from tests.simulation.plan import calm
from tests.simulation.producers import V2, TransactionalProducer, become_owner, finish, recalled
from tests.simulation.world import World, calm_world, listening
from tests.support.simulated.scheduler import US_PER_MS

_LIMIT_US = 1_000_000 * US_PER_MS
_DIES_AT = "driver.after_decide"


class Played(NamedTuple):
    """What came of a world: what is wrong, why a run stopped, the possible changes, and how many were made."""

    problems: list[str]
    stops: list[str]
    seen: dict[tuple[str, int], list[str]]
    changed: int


class OddQuery(ActedQuery):
    """A stream of two micro-batches, whose first driver dies when the second one is decided."""

    def __init__(self, world: World, kinds: Collection[str]) -> None:
        super().__init__(world, kinds)
        self.mode, self.micro_batches, self.writes = "stream", 2, [[TOPICS[0], ""]]
        self.options["onLostTransaction"] = "fail"
        self._decided = 0

    def run_once(self) -> None:
        """Run it until its driver dies."""
        self.run_number = 1
        fiber = self._begin(self._spark, "run1", self.done)
        while not fiber.is_done:
            self.world.fibers.sleep_ms(50)

    def reach(self, point: str, _: int | None = None) -> None:
        if self.run_number == 1 and point == _DIES_AT:
            self._decided += 1
            if self._decided == self.micro_batches:
                self._fate = ("death", point, 0)
        super().reach(point)


class OddReader(ActedReader):
    """A stream and batch queries over transactions, one of which is aborted."""

    def __init__(self, world: World, kinds: Collection[str]) -> None:
        super().__init__(world, kinds)
        self.options |= {"subscribe": ",".join(TOPICS), "startingOffsets": "earliest"}
        self.options.pop("subscribePattern", None)
        self.is_available_now = False

    def _feed(self, name: str) -> None:
        producer = _owner(self.world, name)
        for number in range(3):
            producer.begin()
            for partition in range(PARTITIONS):
                producer.send(TOPICS[number % 2], partition, [f"{name}.{number}.{partition}"])
                self.world.fibers.sleep_ms(600)
            finish(producer, wants_commit=number != 1)


def play(scene: Callable[[World, Collection[str]], Acted], oddity: Oddity | None, seed: int = 1) -> Played:
    """Play a world of a query, with one oddity or none."""
    with listening() as complaints, calm_world(_plan(seed)) as world:
        world.odd_answers.begin(oddity)
        acted = scene(world, ())
        failpoints.reach = acted.reach
        acted.play_out([world.fibers.spawn("query", acted.run)], _LIMIT_US, {})
    stops = [text for each in acted.acts if (text := each.partition(" stops: ")[2])]
    return Played(world.problems + complaints, stops, world.odd_answers.seen or {}, world.odd_answers.done)


def _plan(seed: int) -> Any:
    plan = calm(TOPICS[0], PARTITIONS, DECISION_TOPICS[0], group_id(PREFIXES[0], QUERY), {"transaction.version": "2"})
    return replace(plan, seed=seed, brokers=2, topics={topic: (PARTITIONS, {}) for topic in TOPICS}, journals={})


_UNKNOWN = "unknown"
# What a command says of each thing that it is about.
Said = dict[str, str]


def _transactions(client: KafkaClient) -> Said:
    """Return the states and verdicts of transactions, and whether the client sees all of them."""
    unreadable: dict[TopicPartition, str] = {}
    found = find_open(client, partitions_of(client, all_topics(client)), unreadable=unreadable)
    said = {str(place): _UNKNOWN for place in unreadable}
    said |= {str(each.transaction.topic_partition): each.verdict.value for each in found}
    said |= {each.transactional_id: each.state for each in list_transactions(client)}
    return said | {"topics": str(sees_every_topic(client)), "ids": str(sees_every_id(client))}


def _decisions(client: KafkaClient) -> Said:
    found = read_inventory(KafkaCluster(client, DECISION_TOPICS[0]), DECISION_TOPICS[0])
    return {each.query: f"{each.state} {each.problem}" for each in found}


def _doctor(client: KafkaClient) -> Said:
    """Return what it finds good, and what it says of the rest; what it only notes is not known."""
    options = client.options
    examined = Examination(options, PREFIXES[0], DECISION_TOPICS[0], TOPICS, ("sink", "source"), True, False, None)
    # What is said of each broker depends on which are named.
    checks = doctor_checks._CHECKS
    found = [each for check in checks for each in check(client, examined, doctor_checks._Knowledge())]
    words = {CheckResult.OK: "good", CheckResult.NOTE: _UNKNOWN, CheckResult.SKIPPED: _UNKNOWN}
    return {each.check: words.get(each.verdict, each.found) for each in found}


COMMANDS: dict[str, Callable[[KafkaClient], Said]] = {
    "transactions": _transactions,
    "decisions": _decisions,
    "doctor": _doctor,
}


@contextmanager
def operated(*, is_offline: bool = False, seed: int = 1) -> Iterator[Callable[[str, Oddity | None], Played]]:
    """Make a world where one transaction hangs, one is live, and a micro-batch is decided; yield what runs a command.

    What a command says with an oddity is compared with what it said in its first run: it may know less, and not find
    other things. If the world `is_offline`, the live transaction has no coordinator.
    """
    with listening(), calm_world(_plan(seed)) as world:
        acted = OddQuery(world, ())
        acted.options["transactionTimeout"] = "600000"
        failpoints.reach = acted.reach
        world.do(acted.run_once)
        world.do(lambda: _open(world, "hanging", TOPICS[1], 0))
        world.server.act(lambda cluster: _forget(world, cluster, "id-hanging"))
        world.do(lambda: _open(world, "live", TOPICS[1], 1))
        if is_offline:
            world.server.act(_take_coordinator)
        options = ClientOptions(tuple(f"broker{each}:9092" for each in world.broker_ids), api_timeout_ms=10_000)
        plain: dict[str, Said] = {}

        def run(name: str, oddity: Oddity | None) -> Played:
            odd = world.odd_answers
            odd.begin(oddity)
            stops: list[str] = []

            def work() -> Said:
                try:
                    with KafkaClient(options, world.processes.current.runtime) as client:
                        return COMMANDS[name](client)
                except EosKafkaError as error:
                    stops.append(f"{type(error).__name__}: {error}")
                    return {}

            found = world.do(work)
            known = plain.setdefault(name, found)
            right = {key for key in known | found if found.get(key) in (known.get(key), _UNKNOWN)}
            if oddity is not None and oddity.change.endswith("isr_nodes=[]"):
                right |= {key for key, words in found.items() if words.endswith("are not in sync")}
            problems = [
                f"{key}: {found.get(key)!r} instead of {known.get(key)!r}" for key in sorted({*known, *found} - right)
            ]
            return Played([] if stops else problems, stops, odd.seen or {}, odd.done)

        yield run


def _owner(world: World, name: str) -> TransactionalProducer:
    client = Client(world, name, recalled=recalled(V2, verifies=True))
    producer = TransactionalProducer(client, f"id-{name}", V2, timeout_ms=900_000)
    become_owner(producer)
    return producer


def _open(world: World, name: str, topic: str, partition: int) -> None:
    producer = _owner(world, name)
    producer.begin()
    producer.send(topic, partition, [name])


def _take_coordinator(cluster: Cluster) -> None:
    place = cluster.controller.coordinator_partition_of(TRANSACTION_STATE_TOPIC, "id-live")
    cluster.controller.lose_leader(place)


def _forget(world: World, cluster: Cluster, name: str) -> None:
    for broker in cluster.brokers.values():
        store = broker.transactions.store
        if name in broker.transactions.images():
            store.remove(store.partition_for(name), [name], world.clock.now_ms())
