"""Transaction requests in a cluster of several brokers: which broker answers, its response, and the effect of a crash.

The behavior of a single broker is compared with Apache Kafka in `tests/conformance`; these tests need two brokers or a
crash.
"""

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.broker.controller import Controller
from broker_core.errors import ErrorCode
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, coordinator_partition, java_string_hash
from broker_core.wire import messages as m
from tests.support.broker_core.moves_world import PARTITIONS, MovesWorld
from tests.support.broker_core.requests import (
    described_state,
    end_transaction,
    init_producer,
    of,
    produced,
    transactional,
)
from tests.support.direct import DirectClient, direct_cluster
from tests.support.messages import filled
from tests.support.raw_session import Identity

E = ErrorCode
P0 = PARTITIONS[0]


@pytest.fixture
def world() -> MovesWorld:
    world = MovesWorld()
    assert world.init() is E.NONE
    return world


# Hashing (rules B.2)


# Rules B.2/1, B.2/2 and B.2/3.
@pytest.mark.parametrize(
    ("text", "hashed", "of_50"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("my-txn", -1061187895, 45),
        ("transfer-1", -1727369521, 21),
        ("group-1", 293427299, 49),
        ("\N{GRINNING FACE}", 1772899, 49),
        ("polygenelubricants", -2147483648, 0),
    ],
)
def test_ids_and_groups_are_placed_by_the_java_hash(text: str, hashed: int, of_50: int) -> None:
    assert java_string_hash(text) == hashed
    assert coordinator_partition(text, 50) == of_50


# Rules A.4/5 and B.2/4.
def test_coordinator_found_is_the_one_that_answers(world: MovesWorld) -> None:
    for key_type, partition in ((1, world.state_partition), (0, world.offsets_partition)):
        key = "id" if key_type else "group"
        for _ in range(3):
            found = world.clients[1].ask(m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
            [coordinator] = found.coordinators
            assert (coordinator.error_code, coordinator.node_id) == (E.NONE, world.leader(partition))
            assert coordinator.port == world.cluster.controller.addresses[coordinator.node_id].port
            world.move(partition)


# Rule B.1/9.
def test_state_topic_has_kafka_settings() -> None:
    cluster = direct_cluster()
    topic = cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    assert len(topic.partitions) == 50
    resource = {"resource_type": 2, "resource_name": TRANSACTION_STATE_TOPIC, "configuration_keys": None}
    [described] = DirectClient(cluster).ask(filled(m.DescribeConfigsRequest, resources=[resource]), 4).results
    assert {(entry.name, entry.value) for entry in described.configs} >= {
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        ("segment.bytes", str(100 * 1024 * 1024)),
        ("unclean.leader.election.enable", "false"),
    }


# Which broker answers


# Rules F.3/3 and F.3/6.
@pytest.mark.parametrize(
    ("version", "fields", "kept"),
    [
        (0, {}, True),
        (1, {}, True),
        (1, {"duration_ms": 10_000}, False),
        (2, {"duration_ms": 4_999}, True),
        (2, {"duration_ms": 5_000}, False),
        (2, {"pattern": "i.*"}, True),
        (2, {"pattern": "x.*"}, False),
    ],
)
def test_list_transactions_version_supports_its_own_filters(
    world: MovesWorld, version: int, fields: dict[str, Any], kept: bool
) -> None:
    world.write()
    world.cluster.advance(world.cluster.now_ms + 5_000)
    assert list(world.session().list(version=version, **fields)) == (["id"] if kept else [])


# Rules A.13 receiver/4, A.13 receiver/5 and C.6/1.
def test_marker_is_refused_by_a_broker_that_does_not_lead_the_partition(world: MovesWorld) -> None:
    assert world.commit_offset(3) is E.NONE
    world.write(P0)
    # A broker that hosts the partition but does not lead it refuses the marker; errors of the group coordinator
    # become the same code.
    for topic_partition in (P0, world.offsets_partition):
        session, identity = world.sessions[3 - world.leader(topic_partition)], Identity(world.identity.producer_id, 5)
        topic, partition = topic_partition
        code = session.write_marker(topic, identity, commit=True, coordinator_epoch=9, partition=partition)
        assert code == E.NOT_LEADER_OR_FOLLOWER
    assert world.outcome(P0) == (False, 0)
    assert world.committed()[0] is E.UNSTABLE_OFFSET_COMMIT


# Deleted topics, coordinator epochs, expiry


def _leader(controller: Controller) -> int:
    return controller.metadata.leadership(P0).leader


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda controller: None, E.NONE),
        (lambda controller: controller.delete_topic("t"), E.UNKNOWN_TOPIC_OR_PARTITION),
        (
            lambda controller: controller.move_leader(P0, 3 - controller.metadata.leadership(P0).leader),
            E.NOT_LEADER_OR_FOLLOWER,
        ),
    ],
    ids=["nothing", "deletion", "move"],
)
def test_partition_may_change_while_it_is_added_to_the_transaction(
    world: MovesWorld, change: Callable[[Controller], None], refused: ErrorCode
) -> None:
    cluster, client = world.cluster, world.clients[world.leader(P0)]
    # It runs when the coordinator's record is durable, before the batch is appended.
    cluster.brokers[1].sync_queue.put(lambda _now_ms: change(cluster.controller))
    answer = produced(client, transactional(world.identity), transactional_id="id", version=12)
    assert answer.error_code == refused


def test_tombstone_batches_fit_the_current_state_topic_limit() -> None:
    cluster = direct_cluster(
        settings={
            "transactional.id.expiration.ms": "1000",
            "transaction.state.log.num.partitions": "1",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
        }
    )
    client = DirectClient(cluster)
    cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    for number in range(30):
        assert init_producer(client, f"id-{number}").error_code == E.NONE
    limit = {"name": "max.message.bytes", "config_operation": 0, "value": "300"}
    resource = {"resource_type": 2, "resource_name": TRANSACTION_STATE_TOPIC, "configs": [limit]}
    altered = client.ask(filled(m.IncrementalAlterConfigsRequest, validate_only=False, resources=[resource]), 1)
    assert altered.responses[0].error_code == E.NONE
    cluster.advance(cluster.now_ms + 10_000)
    assert cluster.brokers[1].transactions.images() == {}


# Producer ids (rules A.14)


# Rules A.14/1 and A.14/2.
def test_producer_ids_are_never_reused_after_a_crash() -> None:
    storage, given = MemoryStorage(), []
    for _ in range(4):
        cluster = direct_cluster(storage, brokers=2, settings={"log.flush.before.ack": "false"})
        for broker in cluster.brokers:
            given += [init_producer(DirectClient(cluster, broker), None).producer_id for _ in range(3)]
        storage.crash()
    assert len(set(given)) == len(given) == 24


# Rule A.7/4.
def test_offsets_may_be_added_before_the_group_exists() -> None:
    cluster = direct_cluster()
    client = DirectClient(cluster)
    cluster.controller.ensure_topic(TRANSACTION_STATE_TOPIC)
    identity = init_producer(client)
    assert CONSUMER_OFFSETS_TOPIC not in cluster.metadata.topics
    for version in range(5):
        added = m.AddOffsetsToTxnRequest(transactional_id="id", group_id="new", **of(identity))
        assert client.ask(added, version).error_code == E.NONE
    assert end_transaction(client, identity, commit=True, version=4).error_code == E.NONE
    assert described_state(client) == "CompleteCommit"
