"""The state that a cluster restores from its files: offsets of logs, transactions, producers, group offsets."""

from collections.abc import Iterator
from typing import Any, Protocol

from broker_core.log.producer_entry import ProducerStateEntry
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TransactionState

_OPEN = {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}


class OpenCluster(Protocol):
    """A running cluster with its server and clock, and the groups whose offsets are compared."""

    server: Any
    clock: Any
    plan: Any


def check_marks(world: OpenCluster, *, at_rest: bool = False) -> Iterator[str]:
    """Check log start offset <= LSO <= HW <= log end offset, and that no transaction is open at rest."""
    cluster = world.server.cluster
    for log in cluster.logs.opened():
        marks = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset)
        if list(marks) != sorted(marks):
            yield f"the marks of {log.topic_partition} are not in order: {marks}"
        if at_rest and log.last_stable_offset != log.high_watermark:
            yield f"{log.topic_partition} is not stable at rest: {marks}, open {log.producer_state.open_transactions}"
    if at_rest:
        for broker in cluster.brokers.values():
            for name, image in broker.transactions.images().items():
                if image.state in _OPEN:
                    yield f"transaction {name} is {image.state.label} at rest"


def check_replay(world: OpenCluster) -> Iterator[str]:
    """Restart the cluster from its files and compare its state before and after."""
    before = state_of(world)
    world.server.kill(power=False)
    world.server.start()
    if not world.server.is_running:
        yield "the cluster did not come up again at the end"
        return
    after = state_of(world)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"{name} was {before.get(name)}, after a restart it is {after.get(name)}"


def state_of(world: OpenCluster) -> dict[str, Any]:
    """Return all state that must survive a restart, by name."""
    cluster = world.server.cluster
    state: dict[str, Any] = {}
    for log in [cluster.logs.get(each, world.clock.now_ms()) for each in cluster.logs.with_files()]:
        state[f"log {log.topic_partition}"] = (
            log.log_start_offset,
            log.last_stable_offset,
            log.log_end_offset,
            log.aborted_transactions(),
            log.producer_state.open_transactions,
            [_lasting(each) for each in log.producer_state.entries],
        )
    for broker in cluster.brokers.values():
        for name, image in broker.transactions.images().items():
            state[f"transactional id {name}"] = image
    for group in world.plan.groups:
        place = cluster.controller.coordinator_partition_of(CONSUMER_OFFSETS_TOPIC, group)
        coordinator = cluster.brokers[cluster.metadata.leadership(place).leader].groups
        state[f"offsets of {group}"] = coordinator.fetch_offsets(group, None, require_stable=True)
    return state


def _lasting(entry: ProducerStateEntry) -> tuple[Any, ...]:
    """Return what a snapshot keeps of a producer: as in Kafka, the last batch, at the producer's last timestamp."""
    last = [(each.last_sequence, each.last_offset, each.offset_delta) for each in entry.batches[-1:]]
    return (
        entry.producer_id,
        entry.producer_epoch,
        entry.coordinator_epoch,
        entry.last_timestamp_ms,
        entry.current_txn_first_offset,
        last,
    )
