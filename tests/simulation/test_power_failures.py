"""Power fails at every disk operation, and disks are full: bugs of the broker that the simulation found, without it."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker_core.broker.cluster import Cluster
from broker_core.errors import ErrorCode
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    IsolationLevel,
    TopicPartition,
    TransactionState,
)
from broker_core.wire import messages as m
from tests.simulation.logs import batches_in
from tests.support.broker_core.requests import offset_commit
from tests.support.direct import DirectClient, direct_cluster
from tests.support.raw_session import Identity, record_batch
from tests.support.simulated.disk import PowerLoss, SimulatedDisk
from tests.support.simulated.faults import FaultCounts

TOPIC, GROUP, ID = "t", "group", "id"
_SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
_MOST_OPERATIONS = 40
Survivors = Callable[[str], bool]
# The files whose unsynced bytes survive: a disk guarantees no order between files.
_SURVIVORS: dict[str, Survivors] = {
    "data only": lambda path: path.startswith((f"{TOPIC}-", CONSUMER_OFFSETS_TOPIC)),
    "coordinator only": lambda path: path.startswith(TRANSACTION_STATE_TOPIC),
    "all but the cluster's metadata": lambda path: not path.startswith("__cluster_metadata"),
    "all": lambda path: bool(path),
}


class Prepared:
    """A cluster that knows one producer, with everything durable, and a client."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(1), FaultCounts())
        self.cluster = direct_cluster(self.disk, brokers=2, settings=_SETTINGS)
        self.cluster.controller.create_topic(TOPIC, 1, replicas=[[1, 2]])
        for name in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            self.cluster.controller.ensure_topic(name)
        self.cluster.settle(self.cluster.now_ms)
        self.identity = self.init(ID)

    def client_of(self, name: str) -> DirectClient:
        return DirectClient(self.cluster, self.cluster.metadata.leadership(TopicPartition(name, 0)).leader)

    def init(self, transactional_id: str) -> Identity:
        answer = self.client_of(TRANSACTION_STATE_TOPIC).ask(
            m.InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            ),
            4,
        )
        assert answer.error_code == 0
        return Identity(answer.producer_id, answer.producer_epoch)

    def produce_next(self) -> Any:
        return self.produce(sequence=1)

    def produce(self, sequence: int = 0) -> Any:
        form = m.ProduceRequest.TopicProduceData
        batch = record_batch([b"x"], self.identity, sequence, timestamp_ms=self.cluster.now_ms)
        return self.client_of(TOPIC).ask(
            m.ProduceRequest(
                transactional_id=ID,
                acks=-1,
                timeout_ms=1_000,
                topic_data=[form(name=TOPIC, partition_data=[form.PartitionProduceData(index=0, records=batch)])],
            ),
            12,
        )

    def commit_offset(self) -> Any:
        return self.client_of(CONSUMER_OFFSETS_TOPIC).ask(offset_commit(self.identity, 7), 5)

    def recreate_topic(self) -> None:
        self.cluster.controller.delete_topic(TOPIC)
        self.cluster.controller.create_topic(TOPIC, 1, replicas=[[1, 2]])

    def lose_power_during(
        self, action: Callable[[], Any], operations: int, survivors: Survivors, *, names_survive: bool = True
    ) -> bool:
        """Let the power fail after so many disk operations; return whether it did before the action ended."""
        self.disk.fuse = operations
        try:
            action()
        except PowerLoss:
            failed = True
        else:
            failed = False
        self.disk.fuse = None
        self.disk.crash(survives=lambda path, unsynced: unsynced if survivors(path) else 0, names_survive=names_survive)
        self.cluster = direct_cluster(self.disk, brokers=2, settings=_SETTINGS, now_ms=self.cluster.now_ms)
        return failed


def unknown_transactions(cluster: Cluster) -> list[str]:
    """Return the open transactions of a log that no coordinator knows and will end."""
    known = {
        (image.producer_id, partition)
        for broker in cluster.brokers.values()
        for image in broker.transactions.images().values()
        if image.state is not TransactionState.EMPTY
        for partition in image.partitions
    }
    return [
        f"{log.topic_partition}: {each}"
        for log in [cluster.logs.get(each, cluster.now_ms) for each in cluster.logs.with_files()]
        for each in log.producer_state.open_transactions
        if (each.producer_id, log.topic_partition) not in known
    ]


def at_every_operation(action: Callable[[Prepared], Any], survivors: Survivors) -> list[Prepared]:
    """Let power fail at each disk operation of an action, each time in another world."""
    worlds = []
    for operations in range(_MOST_OPERATIONS):
        world = Prepared()
        worlds.append(world)
        if not world.lose_power_during(lambda world=world: action(world), operations, survivors):
            assert operations > 1, "the action did not touch the disk"
            return worlds
    raise AssertionError("the action has more operations than are tried")


@pytest.mark.parametrize("survivors", _SURVIVORS.values(), ids=_SURVIVORS)
@pytest.mark.parametrize("action", [Prepared.produce, Prepared.commit_offset])
def test_data_is_never_durable_without_its_transaction_record(
    action: Callable[[Prepared], Any], survivors: Survivors
) -> None:
    """Kafka adds a partition durably before the leader appends; otherwise no abort or commit reaches the records."""
    for world in at_every_operation(action, survivors):
        assert unknown_transactions(world.cluster) == []


@pytest.mark.parametrize("names_survive", [True, False])
def test_topic_that_was_created_again_has_nothing_of_the_one_before(names_survive: bool) -> None:
    place = TopicPartition(TOPIC, 0)
    for operations in range(_MOST_OPERATIONS):
        world = Prepared()
        world.produce()
        before = world.cluster.metadata.topic(TOPIC).topic_id
        failed = world.lose_power_during(
            world.recreate_topic, operations, _SURVIVORS["all"], names_survive=names_survive
        )
        topic = world.cluster.metadata.topics.get(TOPIC)
        has_records = topic is not None and world.cluster.logs.get(place, world.cluster.now_ms).log_end_offset > 0
        assert has_records == (topic is not None and topic.topic_id == before)
        if not failed:
            return
    raise AssertionError("the action has more operations than are tried")


@pytest.mark.parametrize("survivors", _SURVIVORS.values(), ids=_SURVIVORS)
def test_producer_id_is_never_reused(survivors: Survivors) -> None:
    for operations in range(8):
        world = Prepared()
        # The next id is the first of a block, and the block is recorded with it.
        for _ in range(999):
            world.cluster.brokers[1].next_producer_id()
        world.lose_power_during(lambda world=world: world.init("second"), operations, survivors)
        owners = [
            image.producer_id
            for broker in world.cluster.brokers.values()
            for image in broker.transactions.images().values()
        ]
        assert world.init("third").producer_id not in owners


@pytest.mark.parametrize("survivors", _SURVIVORS.values(), ids=_SURVIVORS)
def test_leader_epoch_is_never_reused(survivors: Survivors) -> None:
    """After a reused epoch, markers of the forgotten leader would make the next coordinator look like a zombie."""
    state = TopicPartition(TRANSACTION_STATE_TOPIC, 0)

    def move_twice_and_use(world: Prepared) -> None:
        for broker_id in (2, 1):
            world.cluster.controller.move_leader(state, broker_id)
        world.produce()

    for world in at_every_operation(move_twice_and_use, survivors):
        leadership = world.cluster.metadata.leadership(state)
        log = world.cluster.logs.get(state, world.cluster.now_ms)
        assert leadership.leader_epoch >= log.leader_epochs.latest


def test_full_disk_refuses_writes_and_loses_nothing() -> None:
    """A write to a full disk is refused with a retriable error; acknowledged records stay."""
    world = Prepared()
    assert world.produce().responses[0].partition_responses[0].error_code == 0
    world.disk.is_full = True
    refused = world.produce_next().responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.is_full = False
    taken = world.produce_next().responses[0].partition_responses[0]
    assert (taken.error_code, taken.base_offset) == (0, 1)


def test_coordinator_on_a_full_disk_returns_a_retriable_error() -> None:
    world = Prepared()
    world.disk.is_full = True
    refused = world.produce().responses[0].partition_responses[0]
    assert refused.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS)
    world.disk.is_full = False
    assert world.produce().responses[0].partition_responses[0].error_code == 0
    assert unknown_transactions(world.cluster) == []


def test_fetch_ends_at_a_segment_boundary_and_the_reader_continues_to_the_end() -> None:
    """Seed 15: the end of one fetch response is not the end of the log."""
    world = Prepared()
    small = world.cluster.controller.create_topic("small", 1, {"segment.bytes": "400"}).topic_partitions()[0]
    log = world.cluster.logs.get(small, world.cluster.now_ms)
    for number in range(12):
        batch = record_batch([b"x" * 50], Identity(-1, -1), -1, transactional=False, timestamp_ms=world.cluster.now_ms)
        assert log.append_as_leader(batch, now_ms=world.cluster.now_ms, leader_epoch=0).base_offset == number
    first = log.read(0, 1 << 20, IsolationLevel.READ_UNCOMMITTED).records
    assert 0 < len(first) <= 400
    assert [batch.base_offset for batch in batches_in(log)] == list(range(12))
