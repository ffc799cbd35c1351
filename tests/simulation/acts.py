"""Ordinary acts of users, operators and clusters around the real sink, drawn from a seed.

People change an option, restore an older checkpoint, make a topic again, delete offsets, end a transaction; brokers
lose power. Whatever they do, and whenever: each row is visible once in the end, or the query has stopped with its
reason.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter, methodcaller
from random import Random
from typing import Any, Final, NamedTuple

from broker_core.broker.cluster import Cluster
from broker_core.config import STANDARD_AUTHORIZER
from broker_core.security.acls import (
    ANY_USER,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TransactionState
from spark_eos import failpoints
from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.client.kafka_client import KafkaClient
from spark_eos.client.transaction_admin import all_topics, partitions_of, write_end_marker
from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import sink_options
from spark_eos.options.source import batch_options
from spark_eos.sink.decision import OperatorAction, Restart
from spark_eos.sink.factory import cluster_of
from spark_eos.sink.naming import group_id
from spark_eos.sink.performing import perform
from spark_eos.sink.protocol.decision_log import DecisionLog
from spark_eos.transactions.findings import HangingVerdict
from spark_eos.transactions.judge import find_open
from tests.simulation.acted import NOTHING, Acted
from tests.simulation.acted_neighbour import QueryWithNeighbour
from tests.simulation.acted_pipe import COPIED, OTHER_ROWS, PIPES_ACTS, ActedPipe
from tests.simulation.acted_query import (
    DECISION_TOPICS,
    ENDED,
    JOB,
    NEWER_USERS_ACTS,
    PARTITIONS,
    PREFIXES,
    QUERY,
    TOPICS,
    USERS_ACTS,
    ActedQuery,
)
from tests.simulation.acted_reader import READERS_ACTS, ActedReader
from tests.simulation.plan import calm
from tests.simulation.world import Outcome, calm_world, listening
from tests.support.partition_logs import truncate
from tests.support.simulated.scheduler import US_PER_MS

_LIMIT_US: Final = 3_000_000 * US_PER_MS
_GONE: Final = "are gone|does not have offset|deleted and created|which does not exist"
_LOST: Final = "was decided, but"
# A coordinator may wait for a marker that a partition refuses.
_STATE_LOST: Final = f"{_LOST}|has not ended|hang|fate unknown|did not complete in time"
_ODD: Final = "odd answers"
_DENIED: Final = "rights"
_AUTHORIZED: Final = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
_RIGHTS: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (Operation.IDEMPOTENT_WRITE, Operation.DESCRIBE),
}
_ODD_SHARE: Final = 0.4
_SHORT_SEGMENTS: Final = {"segment.bytes": "600"}
_CLEANED: Final = {**_SHORT_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
Act = Callable[[Any, Cluster], None]
_output: Final = methodcaller("any_topic")
_decisions: Final = attrgetter("decision_topic")


def _recreate(topics: Callable[[Acted], str], query: Acted, cluster: Cluster, counts: Sequence[int] = ()) -> None:
    """Delete a topic, and create it again at once or later, perhaps with fewer or more partitions."""
    topic = topics(query)
    for log in query.logs_of(topic):
        query.note_deletion(log, log.log_end_offset)
    if topic in cluster.metadata.topics:
        cluster.controller.delete_topic(topic)

    def create(cluster: Cluster) -> None:
        if topic not in cluster.metadata.topics:
            is_output = topic in TOPICS
            config = {} if is_output else {"cleanup.policy": "compact"}
            count = query.random.choice(counts) if counts else PARTITIONS if is_output else 1
            cluster.controller.create_topic(topic, count, config)

    _later(query, query.random.choice((1, 1, 300, 3_000)), create)


def _delete_records(query: Acted, _: Cluster) -> None:
    for log in query.logs_of(query.any_topic()):
        end = query.random.randint(log.log_start_offset, log.high_watermark)
        query.note_deletion(log, end)
        log.delete_records_before(end)


def _configure_decisions(query: ActedQuery, cluster: Cluster, settings: dict[str, str]) -> None:
    topic = cluster.metadata.topics.get(query.decision_topic)
    if topic is not None:
        cluster.logs.reconfigure(cluster.metadata.configure_topic(topic.name, settings))


def _compact_decisions(query: ActedQuery, cluster: Cluster) -> None:
    """Let a segment have few records, and clean all but the last one, now and again."""
    _configure_decisions(query, cluster, _CLEANED)
    for log in query.logs_of(query.decision_topic):
        log.compact(query.world.clock.now_ms())


def _expire_decisions(query: ActedQuery, cluster: Cluster) -> None:
    """Let retention delete decisions, until an operator finds the setting that does."""
    _configure_decisions(query, cluster, {"cleanup.policy": "delete"})
    for log in query.logs_of(query.decision_topic):
        log.delete_records_before(query.random.randint(log.log_start_offset, log.high_watermark))
    back = query.random.choice((100, 5_000, 40_000))
    _later(query, back, lambda cluster: _configure_decisions(query, cluster, {"cleanup.policy": "compact"}))


def _lower_limit(query: ActedQuery) -> None:
    """Start the brokers again with a shorter limit of timeouts, and later as before."""
    server = query.world.server

    def start_again(limit_ms: int) -> None:
        server._config = server._config.override({"transaction.max.timeout.ms": str(limit_ms)})
        server.kill(power=False)

    start_again(query.random.choice((3_000, 10_000, 20_000)))
    query.world.scheduler.after(query.random.choice((5_000, 40_000)) * US_PER_MS, partial(start_again, 900_000))


def _delete_groups(query: Any, cluster: Cluster) -> None:
    names = (QUERY, JOB, *query.names)
    groups = [group_id(prefix, name) for prefix in PREFIXES for name in names]
    for broker in cluster.brokers.values():
        broker.groups.delete_groups(groups, query.world.clock.now_ms())


def _forget_ids(query: Acted, cluster: Cluster) -> None:
    """Let the ids expire that have no open transaction."""
    for broker in cluster.brokers.values():
        for name, image in list(broker.transactions.images().items()):
            if image.state in ENDED:
                store = broker.transactions.store
                store.remove(store.partition_for(name), [name], query.world.clock.now_ms())


def _end_transaction(query: Acted, cluster: Cluster) -> None:
    """End a transaction, as `transactions force-terminate` or a timeout does."""
    ongoing = [
        (broker, name)
        for broker in cluster.brokers.values()
        for name, image in sorted(broker.transactions.images().items())
        if image.state is TransactionState.ONGOING
    ]
    if ongoing:
        broker, name = query.random.choice(ongoing)
        query.note(f"ends the transaction of {name}")
        entry = broker.transactions.store.find(name)
        broker.transactions.completion.abort_ongoing(entry, query.world.clock.now_ms())


def _lose_leader(query: ActedQuery, cluster: Cluster) -> None:
    names = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, TOPICS[0], query.decision_topic)
    found = [topic for name in names if (topic := cluster.metadata.topics.get(name)) is not None]
    place = query.random.choice([each for topic in found for each in topic.topic_partitions()])
    query.world.outages.take_away(cluster, place, query.random.choice((500, 5_000, 20_000, 90_000)))


def _lose_read_leader(query: Acted, cluster: Cluster) -> None:
    for log in list(query.logs_of(query.any_topic()))[:1]:
        query.world.outages.take_away(cluster, log.topic_partition, query.random.choice((500, 5_000, 20_000)))


def _lose_records(topics: Callable[[Acted], str], query: Acted, cluster: Cluster) -> None:
    """Lose the newest records of a partition: an election of a replica without them."""
    for log in list(query.logs_of(topics(query)))[-1:]:
        owner = cluster.controller.leader_of(log.topic_partition)
        if owner is None:
            continue
        is_users = log.topic_partition.topic in TOPICS
        if is_users:
            query.note_deletion(log, log.log_end_offset)
        cluster.controller.lose_leader(log.topic_partition)
        truncate(log, max(log.log_start_offset, log.log_end_offset - query.random.randint(1, 9)))
        if is_users:
            query.note_kept(log)
        cluster.controller.elect(log.topic_partition, owner.broker_id)


def _lose_state(query: Acted, cluster: Cluster) -> None:
    """Lose the newest records of the coordinators' transactions: what is open may hang from then on."""
    _lose_records(lambda _: TRANSACTION_STATE_TOPIC, query, cluster)
    query.note_hanging()


def _compact(query: Acted, cluster: Cluster) -> None:
    """Clean the closed segments: the records have no keys, so all of them go."""
    topic = cluster.metadata.topics.get(query.any_topic())
    if topic is None:
        return
    cluster.logs.reconfigure(cluster.metadata.configure_topic(topic.name, _CLEANED))
    for log in query.logs_of(topic.name):
        query.note_deletion(log, log.log_end_offset)
        log.compact(query.world.clock.now_ms())
        query.note_kept(log)
    cluster.logs.reconfigure(cluster.metadata.configure_topic(topic.name, _SHORT_SEGMENTS))


def _cut_off(query: Acted) -> None:
    """Cut a broker off from the others for some time; clients still reach it."""
    broker_id = query.random.choice(query.world.broker_ids)
    query.world.server.cut_off(broker_id)
    delay_us = query.random.choice((1_000, 8_000, 40_000)) * US_PER_MS
    query.world.scheduler.after(delay_us, lambda: query.world.server.rejoin(broker_id))


def _lose_decisions(query: ActedQuery, _: Cluster) -> None:
    """Lose the newest records of the decision topic, as an unclean election does."""
    for log in query.logs_of(query.decision_topic):
        truncate(log, max(log.log_start_offset, log.log_end_offset - query.random.randint(1, 4)))


def _answer_oddly(query: Acted) -> None:
    """Let answers be changed for some time; see `odd_answers`."""
    odd, random = query.world.odd_answers, query.random
    chance = random.choice((0.03, 0.1, 0.3))
    odd.choose = lambda changes: random.choice(list(changes)) if changes and random.random() < chance else None
    delay_us = random.choice((500, 5_000, 20_000)) * US_PER_MS
    query.world.scheduler.after(delay_us, lambda: setattr(odd, "choose", None))


def _change_level(query: Acted, cluster: Cluster) -> None:
    cluster.metadata.set_feature("transaction.version", query.random.choice((1, 2)))


def _grow(topics: Callable[[Acted], str], query: Acted, cluster: Cluster) -> None:
    topic = cluster.metadata.topics.get(topics(query))
    if topic is not None:
        cluster.controller.add_partitions(topic.name, len(list(topic.topic_partitions())) + 1)


def _limit_messages(query: ActedQuery, cluster: Cluster) -> None:
    """Let a topic refuse batches, until an operator finds the setting that does."""
    name = query.random.choice((query.any_topic(), query.decision_topic))

    def configure(limit: int, cluster: Cluster) -> None:
        topic = cluster.metadata.topics.get(name)
        if topic is not None:
            settings = {**topic.config, "max.message.bytes": str(limit)}
            cluster.logs.reconfigure(cluster.metadata.configure_topic(name, settings))

    configure(query.random.choice((1, 90, 300)), cluster)
    _later(query, query.random.choice((500, 5_000, 40_000)), partial(configure, 1_048_588))


def _deny(query: Acted, cluster: Cluster) -> None:
    """Take a right away from all users, and give it back later."""
    kind = query.random.choice(list(_RIGHTS))
    name = WILDCARD
    if kind is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    elif kind is ResourceType.TOPIC:
        name = query.random.choice((query.any_topic(), _decisions(query), WILDCARD))
    everything = ResourcePattern(kind, PatternType.LITERAL, CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD)
    cluster.metadata.create_acl(Acl(everything, ANY_USER, WILDCARD, Operation.ALL, Permission.ALLOW))
    operation = query.random.choice(_RIGHTS[kind])
    denied = Acl(everything._replace(name=name), ANY_USER, WILDCARD, operation, Permission.DENY)
    query.note(f"{operation.name} on {kind.name} {name} is denied")
    cluster.metadata.create_acl(denied)

    def give_back(cluster: Cluster) -> None:
        if denied in cluster.metadata.acls:
            cluster.metadata.delete_acl(denied)

    _later(query, query.random.choice((500, 5_000, 40_000)), give_back)


def _set_clocks(query: Acted) -> None:
    """Let the clock of a running client jump, as after a resumed machine or a late NTP answer."""
    running = [each for each in query.world.fibers.all if not each.is_done and "/" in each.name]
    for each in query.random.sample(running, min(len(running), query.random.randint(1, 3))):
        each.clock_offset_ms += query.random.choice((-3_600_000, -20_000, -2_000, 2_000, 20_000, 3_600_000))


def _abort_hanging(query: Acted) -> None:
    """Abort all that hangs, as an operator's script does with `transactions find-hanging` and `abort`."""
    query.world.fibers.current.process_id = query.world.new_process_id()
    process = query.world.processes.current
    settings = {name: value for name, value in query.options.items() if name.startswith("kafka.")}
    options = batch_options({**settings, "startingOffsets": "earliest", "subscribe": TOPICS[0]}).client
    try:
        with KafkaClient(options, process.runtime) as client:
            for found in find_open(client, partitions_of(client, all_topics(client)), unreadable={}):
                place, producer = found.transaction.topic_partition, found.transaction.producer
                if found.verdict is HangingVerdict.HANGING:
                    query.note(f"aborts {producer.producer_id} in {place}")
                    marker = producer.producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0)
                    write_end_marker(client, place, *marker, commit=False)
    except EosKafkaError as error:
        query.note(f"abort of what hangs: {type(error).__name__}: {error}")


def _later(query: Acted, delay_ms: int, action: Callable[[Cluster], None]) -> None:
    query.world.scheduler.after(delay_ms * US_PER_MS, lambda: query.world.server.act(action))


def _operate(query: ActedQuery) -> None:
    """Intervene in the newest decision as `eos-kafka decisions` does, beside the driver if it is alive."""
    options = sink_options({**query.options, "topic": TOPICS[0]})
    action = query.random.choice((OperatorAction.COMPLETE, OperatorAction.ABORT))
    restart = Restart.REWRITE if action is OperatorAction.ABORT else None
    query.world.fibers.current.process_id = query.world.new_process_id()
    try:
        cluster = cluster_of(query.world.processes.current, options)
        log = DecisionLog(options.prefix, query.name_of(0), options.decision_topic)
        decision = perform(cluster, log.newest())
        if decision is not None:
            operator = DecisionOperator(cluster, options.decision_topic, "operator", audit_id="a")
            query.note(f"{action.name}: {operator.carry_out(operator.plan(decision, action, restart))}")
    except EosKafkaError as error:
        query.note(f"{action.name}: {type(error).__name__}: {error}")


def _at_once(act: Act) -> Callable[[Any], None]:
    return lambda query: query.world.server.act(lambda cluster: act(query, cluster))


# Each with the words of an error that it explains.
_CLUSTERS_ACTS: Final[dict[str, tuple[Callable[[ActedQuery], None], str]]] = {
    "recreate output": (_at_once(partial(_recreate, _output)), f"{_GONE}|{_LOST}|does not exist"),
    "recreate decisions": (
        _at_once(partial(_recreate, _decisions)),
        f"{_GONE}|DescribeConfigs for topic",
    ),
    "delete records": (_at_once(_delete_records), _LOST),
    "delete group": (_at_once(_delete_groups), _GONE),
    "forget ids": (_at_once(_forget_ids), _LOST),
    "end transaction": (_at_once(_end_transaction), _LOST),
    "lose leader": (_at_once(_lose_leader), f"{_LOST}|COORDINATOR_NOT_AVAILABLE"),
    "lose decisions": (_at_once(_lose_decisions), f"{_GONE}|already decided"),
    "lose records": (_at_once(partial(_lose_records, _output)), f"{_LOST}|does not have"),
    "compact decisions": (_at_once(_compact_decisions), "segment.bytes"),
    "expire decisions": (_at_once(_expire_decisions), f"{_GONE}|cleanup.policy"),
    "grow decisions": (_at_once(partial(_grow, _decisions)), NOTHING),
    "lower limit": (_lower_limit, f"{_LOST}|transaction.max.timeout.ms"),
    "brokers' clock": (lambda query: query.world.server.jump(query.random.choice((2_000, 20_000, 90_000))), _LOST),
    "change level": (_at_once(_change_level), _LOST),
    "grow": (_at_once(partial(_grow, _output)), _LOST),
    "operator": (_operate, _LOST),
    # Of a write, this code ends the query, as it ends Java's producer.
    _ODD: (_answer_oddly, f"{_LOST}|UNKNOWN_SERVER_ERROR"),
    "power": (lambda query: query.world.server.kill(power=query.random.random() < 0.5), _LOST),
}
# Drawn apart, see `play`.
_NEWER_CLUSTERS_ACTS: Final[dict[str, tuple[Callable[[Any], None], str]]] = {
    "resize output": (
        _at_once(partial(_recreate, _output, counts=(1, 3))),
        f"{_GONE}|{_LOST}|does not exist|which has",
    ),
    "resize decisions": (
        _at_once(partial(_recreate, _decisions, counts=(2, 3))),
        f"{_GONE}|DescribeConfigs for topic",
    ),
    "cut off": (_cut_off, _LOST),
    "lose state": (_at_once(_lose_state), _STATE_LOST),
    "lose pointers": (_at_once(partial(_lose_records, lambda _: CONSUMER_OFFSETS_TOPIC)), "has not ended"),
    "limit messages": (_at_once(_limit_messages), f"{_LOST}|max.message.bytes"),
    "clocks": (_set_clocks, f"{_LOST}|clock"),
    "abort hanging": (_abort_hanging, NOTHING),
    _DENIED: (_at_once(_deny), f"{_LOST}|AUTHORIZATION_FAILED|right"),
}
_LOSS: Final = "KAFKA_DATA_LOSS"
_READERS_CLUSTERS_ACTS: Final[dict[str, tuple[Callable[[Any], None], str]]] = {
    "recreate output": (_at_once(partial(_recreate, _output)), _LOSS),
    "delete records": (_at_once(_delete_records), _LOSS),
    "lose records": (_at_once(partial(_lose_records, _output)), _LOSS),
    "compact": (_at_once(_compact), NOTHING),
    "end transaction": (_at_once(_end_transaction), NOTHING),
    "lose leader": (_at_once(_lose_read_leader), NOTHING),
    "cut off": (_cut_off, NOTHING),
    "change level": (_at_once(_change_level), NOTHING),
    "grow": (_at_once(partial(_grow, _output)), NOTHING),
    _ODD: (_answer_oddly, NOTHING),
    "power": (lambda query: query.world.server.kill(power=query.random.random() < 0.5), NOTHING),
}
_NEWER_READERS_CLUSTERS_ACTS: Final[dict[str, tuple[Callable[[Any], None], str]]] = {
    "resize output": (_at_once(partial(_recreate, _output, counts=(1, 3))), _LOSS),
    "lose state": (_at_once(_lose_state), NOTHING),
    "clocks": (_set_clocks, NOTHING),
    "abort hanging": (_abort_hanging, NOTHING),
}
# Together these are not noticed, or not always, as the guarantees say: only the first one happens.
_MADE_AGAIN: Final = ("recreate decisions", "resize decisions")
_NOT_TOGETHER: Final = (
    *((kind, each) for kind in _MADE_AGAIN for each in ("forget ids", "prefix", "older checkpoint")),
    *(("expire decisions", other) for other in ("forget ids", "delete group", "prefix")),
    *(("older cluster", other) for other in ("zombie", "copy", "neighbour")),
    *(("mirror", "neighbour"),),
    *(("mirror", other) for other in ("zombie", "copy", "older cluster", "older checkpoint", "decision topic")),
    *(("mirror", other) for other in (*_MADE_AGAIN, "expire decisions", "lose decisions")),
    *(("lose decisions", other) for other in ("delete group", "prefix")),
    *(("decision topic", other) for other in ("forget ids", "delete group")),
)


class Scene(NamedTuple):
    """A kind of worlds: what is acted upon, the acts of users and of the cluster, and what is not done together."""

    subject: Callable[[Any, Collection[str]], Acted]
    users_acts: dict[str, str]
    clusters_acts: dict[str, tuple[Callable[[Any], None], str]]
    not_together: Collection[tuple[str, str]] = ()
    # Acts that came later, and the share of worlds that have some.
    newer: Collection[str] = ()
    newer_share: float = 0.7
    topics: Sequence[str] = TOPICS

    @property
    def explained(self) -> dict[str, str]:
        """Return the words of an error that each kind of act explains."""
        return self.users_acts | {kind: words for kind, (_, words) in self.clusters_acts.items()}


WRITING: Final = Scene(
    QueryWithNeighbour,
    USERS_ACTS | NEWER_USERS_ACTS,
    _CLUSTERS_ACTS | _NEWER_CLUSTERS_ACTS,
    _NOT_TOGETHER,
    NEWER_USERS_ACTS.keys() | _NEWER_CLUSTERS_ACTS.keys(),
)
_READERS_NOT_TOGETHER: Final = tuple(
    ("Spark's source", other) for other in ("recreate output", "resize output", "lose records")
)
READING: Final = Scene(
    ActedReader,
    READERS_ACTS,
    _READERS_CLUSTERS_ACTS | _NEWER_READERS_CLUSTERS_ACTS,
    _READERS_NOT_TOGETHER,
    _NEWER_READERS_CLUSTERS_ACTS.keys(),
)
# Where it runs again with other rows, the sink may stop it.
_PIPES_CLUSTERS_ACTS: Final = {
    kind: (act, f"{words}|{OTHER_ROWS}") for kind, (act, words) in READING.clusters_acts.items()
} | {
    kind: (act, f"{words}|{OTHER_ROWS}")
    for kind, (act, words) in WRITING.clusters_acts.items()
    if kind not in READING.clusters_acts and kind not in ("operator", "limit messages", _DENIED)
}
COPYING: Final = Scene(
    ActedPipe,
    PIPES_ACTS,
    _PIPES_CLUSTERS_ACTS,
    (*_READERS_NOT_TOGETHER, *_NOT_TOGETHER, ("lose decisions", "lose pointers")),
    topics=(*TOPICS, COPIED),
)


def play(seed: int, only: Collection[str] = (), *, scene: Scene = WRITING, keep_trace: bool = False) -> Outcome:
    """Play the world of a seed to its end, and judge it; with `only`, no other acts happen."""
    random = Random(f"acts/{seed}/kinds")
    # Nothing is drawn for `only`: its worlds stay as they are when there are other acts.
    kinds = dict.fromkeys(only)
    if not only:
        count = random.randint(2, 6)
        kinds = dict.fromkeys(["death", *random.sample(sorted(scene.explained.keys() - {_ODD, *scene.newer}), count)])
        newer = Random(f"acts/{seed}/newer")
        if scene.newer and newer.random() < scene.newer_share:
            kinds.update(dict.fromkeys(newer.sample(sorted(scene.newer), newer.randint(1, 3))))
        if Random(f"acts/{seed}/odd").random() < _ODD_SHARE:
            kinds[_ODD] = None
    for kept, other in scene.not_together:
        if kept in kinds:
            kinds.pop(other, None)
    settings = {"transaction.version": random.choice(("1", "2", "2"))}
    if _DENIED in kinds:
        settings |= _AUTHORIZED
    plan = calm(TOPICS[0], PARTITIONS, DECISION_TOPICS[0], group_id(PREFIXES[0], QUERY), settings)
    topics = {topic: (PARTITIONS, _SHORT_SEGMENTS if "compact" in kinds else {}) for topic in scene.topics}
    plan = replace(plan, seed=seed, brokers=random.choice((1, 2, 3)), topics=topics, journals={})
    with listening() as complaints, calm_world(plan, keep_trace=keep_trace) as world:
        acted = scene.subject(world, kinds)
        failpoints.reach = acted.reach
        acting = partial(_act, acted, scene.clusters_acts)
        fibers = [world.fibers.spawn("query", acted.run), world.fibers.spawn("acts", acting)]
        acted.play_out(fibers, _LIMIT_US, scene.explained)
    world.problems += complaints
    if world.problems:
        world.problems += [f"    {each}" for each in (*kinds, *acted.acts)]
    return world.outcome()


def _act(acted: Acted, clusters_acts: dict[str, tuple[Callable[[Any], None], str]]) -> None:
    """Act on the cluster, some times."""
    kinds = [each for each in acted.kinds if each in clusters_acts]
    for _ in range(acted.random.randint(1, 4) if kinds else 0):
        acted.world.fibers.sleep_ms(acted.random.choice((200, 1_000, 4_000, 15_000)) * acted.random.random() + 1)
        kind = acted.random.choice(kinds)
        acted.note(kind)
        clusters_acts[kind][0](acted)
