"""Ordinary acts of users, operators and clusters around the real sink, drawn from a seed.

People change an option, restore an older checkpoint, make a topic again, delete offsets, end a transaction; brokers
lose power. Whatever they do, and whenever: each row is visible once in the end, or the query has stopped with its
reason.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from broker_core.broker.cluster import Cluster
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TransactionState
from spark_eos import failpoints
from spark_eos.admin.decision_operator import DecisionOperator
from spark_eos.errors import EosKafkaError
from spark_eos.options.sink import sink_options
from spark_eos.sink.decision import OperatorAction, Restart
from spark_eos.sink.factory import cluster_of
from spark_eos.sink.naming import group_id
from spark_eos.sink.performing import perform
from spark_eos.sink.protocol.decision_log import DecisionLog
from tests.simulation.acted_query import (
    DECISION_TOPICS,
    JOB,
    PARTITIONS,
    PREFIXES,
    QUERY,
    TOPICS,
    USERS_ACTS,
    ActedQuery,
)
from tests.simulation.plan import calm
from tests.simulation.world import REST_US, Outcome, calm_world, listening
from tests.support.partition_logs import truncate
from tests.support.simulated.scheduler import US_PER_MS

_LIMIT_US: Final = 3_000_000 * US_PER_MS
_GONE: Final = "are gone|does not have offset|deleted and created"
_LOST: Final = "was decided, but"
_ENDED: Final = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
Act = Callable[[ActedQuery, Cluster], None]


def _recreate(topics: Callable[[ActedQuery], str], query: ActedQuery, cluster: Cluster) -> None:
    """Delete a topic, and create it again at once or later."""
    topic = topics(query)
    for log in query.logs_of(topic):
        query.note_deletion(log, log.log_end_offset)
    if topic in cluster.metadata.topics:
        cluster.controller.delete_topic(topic)

    def create(cluster: Cluster) -> None:
        if topic not in cluster.metadata.topics:
            is_output = topic in TOPICS
            config = {} if is_output else {"cleanup.policy": "compact"}
            cluster.controller.create_topic(topic, PARTITIONS if is_output else 1, config)

    _later(query, query.random.choice((1, 1, 300, 3_000)), create)


def _delete_records(query: ActedQuery, _: Cluster) -> None:
    for log in query.logs_of(_output(query)):
        end = query.random.randint(log.log_start_offset, log.high_watermark)
        query.note_deletion(log, end)
        log.delete_records_before(end)


def _delete_groups(query: ActedQuery, cluster: Cluster) -> None:
    names = (QUERY, JOB, *(query.name_of(write) for write in range(len(query.writes))))
    groups = [group_id(prefix, name) for prefix in PREFIXES for name in names]
    for broker in cluster.brokers.values():
        broker.groups.delete_groups(groups, query.world.clock.now_ms())


def _forget_ids(query: ActedQuery, cluster: Cluster) -> None:
    """Let the ids expire that have no open transaction."""
    for broker in cluster.brokers.values():
        for name, image in list(broker.transactions.images().items()):
            if image.state in _ENDED:
                store = broker.transactions.store
                store.remove(store.partition_for(name), [name], query.world.clock.now_ms())


def _end_transaction(query: ActedQuery, cluster: Cluster) -> None:
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
    names = (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, TOPICS[0], query.options["decisionTopic"])
    found = [topic for name in names if (topic := cluster.metadata.topics.get(name)) is not None]
    place = query.random.choice([each for topic in found for each in topic.topic_partitions()])
    query.world.outages.take_away(cluster, place, query.random.choice((500, 5_000, 20_000)))


def _lose_decisions(query: ActedQuery, _: Cluster) -> None:
    """Lose the newest records of the decision topic, as an unclean election does."""
    for log in query.logs_of(query.options["decisionTopic"]):
        truncate(log, max(log.log_start_offset, log.log_end_offset - query.random.randint(1, 4)))


def _change_level(query: ActedQuery, cluster: Cluster) -> None:
    cluster.metadata.set_feature("transaction.version", query.random.choice((1, 2)))


def _grow(query: ActedQuery, cluster: Cluster) -> None:
    topic = cluster.metadata.topics.get(_output(query))
    if topic is not None:
        cluster.controller.add_partitions(topic.name, len(list(topic.topic_partitions())) + 1)


def _output(query: ActedQuery) -> str:
    return query.random.choice(query.writes)[0]


def _later(query: ActedQuery, delay_ms: int, action: Callable[[Cluster], None]) -> None:
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


def _at_once(act: Act) -> Callable[[ActedQuery], None]:
    return lambda query: query.world.server.act(lambda cluster: act(query, cluster))


# Each with the words of an error that it explains.
_CLUSTERS_ACTS: Final[dict[str, tuple[Callable[[ActedQuery], None], str]]] = {
    "recreate output": (_at_once(partial(_recreate, _output)), f"{_GONE}|{_LOST}"),
    "recreate decisions": (_at_once(partial(_recreate, lambda query: query.options["decisionTopic"])), _GONE),
    "delete records": (_at_once(_delete_records), _LOST),
    "delete group": (_at_once(_delete_groups), _GONE),
    "forget ids": (_at_once(_forget_ids), _LOST),
    "end transaction": (_at_once(_end_transaction), _LOST),
    "lose leader": (_at_once(_lose_leader), _LOST),
    "lose decisions": (_at_once(_lose_decisions), f"{_GONE}|already decided"),
    "change level": (_at_once(_change_level), _LOST),
    "grow": (_at_once(_grow), _LOST),
    "operator": (_operate, _LOST),
    "power": (lambda query: query.world.server.kill(power=query.random.random() < 0.5), _LOST),
}
_EXPLAINED: Final = USERS_ACTS | {kind: words for kind, (_, words) in _CLUSTERS_ACTS.items()}
# Together these are not noticed, or not always, as the guarantees say: only the first one happens.
_NOT_TOGETHER: Final = (
    *(("recreate decisions", other) for other in ("forget ids", "prefix", "topic", "name")),
    *(("lose decisions", other) for other in ("delete group", "prefix", "topic", "name")),
    *(("decision topic", other) for other in ("forget ids", "delete group")),
)


def play(seed: int, only: Collection[str] = (), *, keep_trace: bool = False) -> Outcome:
    """Play the world of a seed to its end, and judge it; with `only`, no other acts happen."""
    random = Random(f"acts/{seed}/kinds")
    kinds = dict.fromkeys(["death", *random.sample(sorted(_EXPLAINED), random.randint(2, 5))])
    kinds = dict.fromkeys(only) or kinds
    for kept, other in _NOT_TOGETHER:
        if kept in kinds:
            kinds.pop(other, None)
    settings = {"transaction.version": random.choice(("1", "2", "2"))}
    plan = calm(TOPICS[0], PARTITIONS, DECISION_TOPICS[0], group_id(PREFIXES[0], QUERY), settings)
    topics = {topic: (PARTITIONS, {}) for topic in TOPICS}
    plan = replace(plan, seed=seed, brokers=random.choice((1, 2, 3)), topics=topics, journals={})
    with listening() as complaints, calm_world(plan, keep_trace=keep_trace) as world:
        query = ActedQuery(world, kinds)
        failpoints.reach = query.reach
        fibers = [world.fibers.spawn("query", query.run), world.fibers.spawn("acts", lambda: _act(query))]
        limit_us = world.scheduler.now_us + _LIMIT_US
        while not all(each.is_done for each in fibers) and world.scheduler.step(limit_us):
            pass
        world.problems += [f"{each.name} did not end" for each in fibers if not each.is_done]
        world.scheduler.run(world.scheduler.now_us + 2 * REST_US)
        world.note_failures()
        if not world.problems:
            world.problems += query.judge(_EXPLAINED)
    world.problems += complaints
    if world.problems:
        world.problems += [f"    {each}" for each in (query.mode, *query.journal.acts)]
    return world.outcome()


def _act(query: ActedQuery) -> None:
    """Act on the cluster, some times."""
    kinds = [each for each in query.kinds if each in _CLUSTERS_ACTS]
    for _ in range(query.random.randint(1, 4) if kinds else 0):
        query.world.fibers.sleep_ms(query.random.choice((200, 1_000, 4_000, 15_000)) * query.random.random() + 1)
        kind = query.random.choice(kinds)
        query.note(kind)
        _CLUSTERS_ACTS[kind][0](query)
