"""The metrics of share groups have the documented values, and change at the documented moment."""

from copy import copy
from dataclasses import fields

import pytest
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from broker_core.broker.monitoring.metrics import take_metrics
from broker_core.errors import ErrorCode
from broker_core.features.share_groups.metrics import NAME, ROWS, ShareMetrics, SharePartitionId, SharePartitionMetrics
from broker_core.server.metrics_endpoint import families
from tests.support.broker_core.share_moves_world import GROUP, LOCK_MS, MEMBER, PLACE, ShareMovesWorld
from tests.support.share_session import ACCEPT, REJECT, RELEASE, RENEW, Range

E = ErrorCode
ID = SharePartitionId(GROUP, PLACE.topic, PLACE.partition)
NOTHING = {"Accept": 0, "Release": 0, "Reject": 0, "Renew": 0}


@pytest.fixture
def world() -> ShareMovesWorld:
    return ShareMovesWorld().join()


def shares(world: ShareMovesWorld) -> ShareMetrics:
    return take_metrics(world.cluster, world.cluster.now_ms).shares


def test_groups_are_counted_by_state(world: ShareMovesWorld):
    assert shares(ShareMovesWorld()).groups == {}
    assert shares(world).groups == {"Stable": 1}
    world.heartbeat(epoch=-1)
    assert shares(world).groups == {"Empty": 1}
    world.move(world.group_place)
    assert shares(world).groups == {"Empty": 1}


def test_records_in_flight_are_counted(world: ShareMovesWorld):
    assert shares(world).partitions == {}
    assert world.fetch().acquired == [Range(0, 4)]
    assert shares(world).partitions == {ID: SharePartitionMetrics(in_flight=5, batches=1, acquired=5)}
    assert world.acknowledge(1, 2) is E.NONE
    assert shares(world).partitions == {ID: SharePartitionMetrics(in_flight=5, batches=1, acquired=3)}
    assert world.acknowledge(0, 0) is E.NONE
    assert shares(world).partitions == {ID: SharePartitionMetrics(in_flight=2, batches=1, acquired=2)}
    assert world.acknowledge(3, 4) is E.NONE
    assert shares(world).partitions == {ID: SharePartitionMetrics()}


def test_old_leader_counts_nothing(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    old, _ = world.move(PLACE)
    assert shares(world).partitions == {}
    assert world.in_memory(old) is not None, "a reading changes nothing"
    assert world.fetch().acquired == [Range(0, 4)]
    assert shares(world).partitions == {ID: SharePartitionMetrics(in_flight=5, batches=1, acquired=5)}


def test_acknowledged_records_are_counted_by_type(world: ShareMovesWorld):
    assert shares(world).acknowledgments == NOTHING
    assert world.fetch().acquired == [Range(0, 4)]
    assert world.acknowledge(0, 1, ACCEPT) is E.NONE
    assert world.acknowledge(2, 2, REJECT) is E.NONE
    assert world.acknowledge(3, 3, RENEW) is E.NONE
    assert world.acknowledge(3, 4, RELEASE) is E.NONE
    expected = {"Accept": 2, "Release": 2, "Reject": 1, "Renew": 1}
    assert shares(world).acknowledgments == expected
    assert world.acknowledge(4, 4, ACCEPT) is E.INVALID_RECORD_STATE
    assert shares(world).acknowledgments == expected, "a refused acknowledgment does not count"


def test_ended_locks_are_counted_by_record(world: ShareMovesWorld):
    assert world.fetch().acquired == [Range(0, 4)]
    assert world.acknowledge(2, 2) is E.NONE
    world.pass_ms(LOCK_MS - 1)
    assert shares(world).lock_timeouts == {}
    world.pass_ms(1)
    assert shares(world).lock_timeouts == {ID: 4}
    assert world.fetch().acquired == [Range(0, 1, 2), Range(3, 4, 2)]
    world.pass_ms(LOCK_MS)
    assert shares(world).lock_timeouts == {ID: 8}


def test_prometheus_has_kafkas_names(world: ShareMovesWorld):
    assert world.fetch(MEMBER).acquired == [Range(0, 4)]
    assert world.acknowledge(0, 0, REJECT) is E.NONE
    world.pass_ms(LOCK_MS)
    registry = CollectorRegistry(auto_describe=False)

    class Page:
        def collect(self):
            return families(take_metrics(world.cluster, world.cluster.now_ms))

    registry.register(Page())
    lines = generate_latest(registry).decode().splitlines()
    labels = '{group="group",partition="0",topic="t"}'
    for line in (
        'kafka_server_group_coordinator_metrics_share_group_count{state="Stable"} 1.0',
        f"kafka_server_sharepartitionmetrics_inflightmessagecount{labels} 4.0",
        f"kafka_server_sharepartitionmetrics_inflightbatchcount{labels} 1.0",
        f"kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total{labels} 4.0",
        f"broker_core_share_acquired_records{labels} 0.0",
        'kafka_server_sharegroupmetrics_recordacknowledgements_total{ackType="Reject"} 1.0',
    ):
        assert line in {_sorted_labels(each) for each in lines}, line
    assert any(line.startswith("kafka_server_share_coordinator_metrics_partition_load_time_max ") for line in lines)


def _sorted_labels(line: str) -> str:
    name, opened, rest = line.partition("{")
    labels, closed, value = rest.partition("}")
    return f"{name}{opened}{','.join(sorted(labels.split(',')))}{closed}{value}"


def test_rows_name_attributes_of_the_metrics_of_share_groups():
    assert {row.attribute for row in ROWS} == {f"{NAME}.{each.name}" for each in fields(ShareMetrics)}


def test_metrics_of_a_feature_that_is_missing_are_no_attribute(world):
    metrics = take_metrics(world.cluster, world.cluster.now_ms)
    assert copy(metrics) == metrics
    with pytest.raises(AttributeError, match="'BrokerMetrics' object has no attribute 'teleports'"):
        _ = metrics.teleports
