"""What a restart keeps, and the effect of corrupt records in an internal topic, in one restart for all tests."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, coordinator_partition
from broker_core.wire import messages as m
from tests.support.both_brokers import SETTINGS
from tests.support.clients import make_topic, unique
from tests.support.messages import epoch_end_request, offsets_request
from tests.support.protocols import REPAIRER, UNCOMMITTED
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, RawSession, record_batch
from tests.support.restartable import Restartable, restartable
from tests.support.version_answers import SAFE, update
from tests.support.waiting import wait_until

E = ErrorCode
PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
SPOILT, SOUND = 1, 3
# Each partition of __consumer_offsets gets one malformed record; keys of unknown types are ignored.
GARBAGE = {
    0: (b"\0\1\0\1g", b""),
    1: (b"x", b"x"),
    2: (b"\0\2\0\1g", b"\0\3\0"),
    4: (b"\x7f\1garbage", b"x"),
}


@dataclass
class Restarted:
    """The broker after its restart, and what was prepared before it."""

    kafka: Restartable
    topic: str
    leader_epochs: list[int] = field(default_factory=list)


def name_in(partition: int) -> str:
    """Return a group or transactional id that belongs to this partition."""
    return next(name for _ in range(10_000) if coordinator_partition(name := unique("id"), PARTITIONS) == partition)


def leader_epoch(client: RawClient, topic: str) -> int:
    """Return the partition's leader epoch."""
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])
    found = client.send(request, 9).topics[0].partitions[0]
    return int(found.leader_epoch) if found.error_code == E.NONE else -1


def finalized(client: RawClient) -> dict[str, int]:
    """Return the finalized feature levels."""
    answer = client.send(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def committed(client: RawClient, group: str, topic: str) -> int:
    """Commit an offset outside any generation; return the error code."""
    return int(RawSession(client, None).commit_plainly(group, topic, 1))


def write_garbage(kafka: Restartable, topic: str, partition: int, key: bytes, value: bytes) -> None:
    """Write a record to an internal topic, as an operator's tool may."""
    with RawClient(kafka.bootstrap_servers, client_id=REPAIRER) as client:
        batch = build_batch([NewRecord(key, value)])
        assert RawSession(client, None).produce(topic, batch, version=9, partition=partition)[0] == E.NONE


@pytest.fixture(scope="module")
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    """Prepare everything that the restart must load or tolerate, and restart."""
    with restartable(request.param, tmp_path_factory.mktemp("restarted"), SETTINGS) as kafka:
        topic = make_topic(kafka)
        with RawClient(kafka.bootstrap_servers) as client:
            batch = record_batch([b"x"] * 3, NOBODY, -1, transactional=False)
            assert RawSession(client, None).produce(topic, batch, version=9) == (E.NONE, 0)
            state = Restarted(kafka, topic, [leader_epoch(client, topic)])
            for key_type in (0, 1):
                client.send(m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4)
            for partition in range(PARTITIONS):
                wait_until(lambda p=partition: committed(client, name_in(p), topic) == E.NONE, "a coordinator")
                RawSession(client, name_in(partition)).init()
            updates = [("transaction.version", 1, SAFE), ("group.version", 0, SAFE)]
            assert update(client, 2, *updates) == (E.NONE, None, [])
            wait_until(lambda: finalized(client).get("transaction.version") == 1, "the downgrade")
        for partition, (key, value) in GARBAGE.items():
            write_garbage(kafka, CONSUMER_OFFSETS_TOPIC, partition, key, value)
        write_garbage(kafka, TRANSACTION_STATE_TOPIC, SPOILT, b"x", b"x")
        kafka.restart()
        with RawClient(kafka.bootstrap_servers) as client:
            wait_until(lambda: leader_epoch(client, topic) > state.leader_epochs[0], "the new leader")
            state.leader_epochs.append(leader_epoch(client, topic))
        yield state


def epoch_end(client: RawClient, topic: str, epoch: int) -> tuple[int, int, int]:
    """Return the end offset of a leader epoch."""
    answer = client.send(epoch_end_request(topic, epoch), 4)
    found = answer.topics[0].partitions[0]
    return found.error_code, found.leader_epoch, found.end_offset


def test_leader_epoch_without_records_is_part_of_the_history(restarted: Restarted):
    first, now = restarted.leader_epochs
    with RawClient(restarted.kafka.bootstrap_servers) as client:
        assert epoch_end(client, restarted.topic, first) == (E.NONE, first, 3)
        assert epoch_end(client, restarted.topic, now) == (E.NONE, now, 3)
        assert epoch_end(client, restarted.topic, now + 1) == (E.NONE, -1, -1)
        session = RawSession(client, None)

        def fetched(epoch: int) -> tuple[int, Any]:
            found = session.fetch(restarted.topic, 3, isolation=UNCOMMITTED, last_epoch=epoch)
            parts = found.diverging_epoch
            return found.error_code, parts and (parts.epoch, parts.end_offset)

        assert fetched(first) == (E.NONE, None)
        assert fetched(now) == (E.NONE, None)
        assert fetched(now + 1) == (E.OFFSET_OUT_OF_RANGE, None)


def test_log_ends_have_the_leader_epochs_they_were_written_in(restarted: Restarted):
    first, now = restarted.leader_epochs
    with RawClient(restarted.kafka.bootstrap_servers) as client:
        for timestamp, wanted in ((-2, (0, first)), (-4, (0, first)), (-1, (3, now)), (0, (0, first))):
            found = client.send(offsets_request(restarted.topic, timestamp=timestamp), 8).topics[0].partitions[0]
            assert (found.error_code, found.offset, found.leader_epoch) == (E.NONE, *wanted), timestamp


def test_feature_levels_changed_at_run_time_are_kept(restarted: Restarted):
    with RawClient(restarted.kafka.bootstrap_servers) as client:
        levels = finalized(client)
        assert levels.get("transaction.version") == 1
        assert levels.get("group.version", 0) == 0


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_groups_of_a_partition_that_cannot_be_loaded_have_no_coordinator(restarted: Restarted, partition: int):
    wanted = E.NOT_COORDINATOR if partition in (0, 1, 2) else E.NONE
    with RawClient(restarted.kafka.bootstrap_servers) as client:
        wait_until(lambda: committed(client, name_in(partition), restarted.topic) == wanted, f"the answer {wanted}")


@pytest.mark.parametrize("partition", [SPOILT, SOUND])
def test_transactional_ids_after_a_damaged_record_are_unknown_and_can_begin(restarted: Restarted, partition: int):
    with RawClient(restarted.kafka.bootstrap_servers) as client:
        session = RawSession(client, name_in(partition))
        assert session.init()[0] == E.NONE
