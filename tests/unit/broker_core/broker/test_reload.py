"""Damage found when a cluster reopens its storage affects only the ids concerned; no history is lost."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.transactions.records import PERSISTED, TransactionImage, encode_key, encode_value
from broker_core.errors import ErrorCode, InvalidBatch
from broker_core.log.partition_log import PartitionLog
from broker_core.log.producer_state import AppendOrigin
from broker_core.records.batch import NewRecord, build_batch
from broker_core.simulation.disk import MemoryStorage
from broker_core.types import (
    CONSUMER_OFFSETS_TOPIC,
    FENCING_EPOCH,
    LAST_CLIENT_EPOCH,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    TransactionState,
    coordinator_partition,
)
from broker_core.wire import messages as m
from tests.support.broker_core.requests import TOPIC, fetch_request, init_producer, plain_commit, produced, records
from tests.support.direct import DirectClient, direct_cluster
from tests.support.examples import examples
from tests.support.messages import epoch_end_request

PARTITIONS = 5
SETTINGS = {"transaction.state.log.num.partitions": str(PARTITIONS), "offsets.topic.num.partitions": str(PARTITIONS)}
REPAIRER = "__admin_client"


def name_in(partition):
    return next(name for name in map(str, range(10_000)) if coordinator_partition(name, PARTITIONS) == partition)


def opened(storage):
    cluster = direct_cluster(storage, settings=SETTINGS)
    for name in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
        cluster.controller.ensure_topic(name)
    return cluster


def write_garbage(cluster, topic, partition, key, value):
    client = DirectClient(cluster)
    client.client_id = REPAIRER
    data = build_batch([NewRecord(key, value, (), 1000)])
    assert produced(client, data, topic=topic, partition=partition).error_code == ErrorCode.NONE


def committed(client, group):
    return client.ask(plain_commit(1, group=group), 8).topics[0].partitions[0].error_code


@examples(30)
@given(
    key=st.binary(max_size=30)
    | st.sampled_from([b"\0\1", b"\0\2", b"\0\0\0\1x", b"\0\3\0\1g", b"\0\5\0\1g\0\1m", b"\0\10\0\1g\0\1m"]),
    value=st.none() | st.binary(max_size=60),
    topic=st.sampled_from([CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC]),
)
def test_damaged_partition_of_an_internal_topic_does_not_block_others(key, value, topic):
    storage = MemoryStorage()
    cluster = opened(storage)
    cluster.controller.create_topic(TOPIC, 1)
    write_garbage(cluster, topic, 1, key, value)
    cluster.close(cluster.now_ms)
    client = DirectClient(opened(storage))
    assert [committed(client, name_in(partition)) for partition in (0, 2, 3, 4)] == [ErrorCode.NONE] * 4
    assert committed(client, name_in(1)) in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
    assert [init_producer(client, name_in(partition)).error_code for partition in range(PARTITIONS)] == [
        ErrorCode.NONE
    ] * PARTITIONS


numbers = st.sampled_from([-(2**31), -7, -1, 0, 1, 5, 1000, 1_000_000, 2**31 - 1])
epochs = st.sampled_from([-(2**15), -1, 0, 1, LAST_CLIENT_EPOCH, FENCING_EPOCH])
places = st.builds(
    TopicPartition, st.sampled_from([TOPIC, "gone", CONSUMER_OFFSETS_TOPIC]), st.sampled_from([-1, 0, 3])
)


# Rule A.12/12.
@examples(60)
@given(data=st.data())
def test_transaction_never_written_by_a_coordinator_does_not_block_readers(data):
    """Readable but impossible states: the next step at load or at a timeout could be an illegal transition."""
    state = data.draw(st.sampled_from(sorted(PERSISTED)))
    partitions = frozenset() if state is TransactionState.EMPTY else data.draw(st.frozensets(places, max_size=2))
    image = TransactionImage(
        data.draw(numbers),
        data.draw(epochs),
        data.draw(numbers),
        state,
        partitions,
        *(data.draw(numbers) for _ in range(4)),
        client_transaction_version=data.draw(st.integers(-1, 3)),
    )
    storage = MemoryStorage()
    cluster = opened(storage)
    cluster.controller.create_topic(TOPIC, 1)
    write_garbage(cluster, TRANSACTION_STATE_TOPIC, 1, encode_key(name_in(1)), encode_value(image, 2))
    cluster.close(cluster.now_ms)
    cluster = opened(storage)
    for _ in range(3):
        cluster.advance(cluster.now_ms + 20_000)
    assert init_producer(DirectClient(cluster), name_in(3)).error_code == ErrorCode.NONE
    DirectClient(cluster).post(
        m.InitProducerIdRequest(
            transactional_id=name_in(1), transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        ),
        4,
    )
    assert init_producer(DirectClient(cluster), name_in(4)).error_code == ErrorCode.NONE


def answers_by_partition(client, topic):
    """Return the error code that the coordinator of each partition answers."""
    return [
        committed(client, name_in(partition))
        if topic == CONSUMER_OFFSETS_TOPIC
        else init_producer(client, name_in(partition)).error_code
        for partition in range(PARTITIONS)
    ]


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
def test_unreadable_log_keeps_only_its_own_ids_loading(monkeypatch, caplog, topic, storage: MemoryStorage):
    cluster = opened(storage)
    cluster.controller.create_topic(TOPIC, 1)
    client = DirectClient(cluster)
    for partition in range(PARTITIONS):
        assert committed(client, name_in(partition)) == init_producer(client, name_in(partition)).error_code == 0
    cluster.close(cluster.now_ms)
    read = PartitionLog.read_journal

    def damaged(log):
        if log.topic_partition == TopicPartition(topic, 1):
            raise InvalidBatch("magic 7 at byte 0")
        return read(log)

    monkeypatch.setattr(PartitionLog, "read_journal", damaged)
    client = DirectClient(opened(storage))
    assert answers_by_partition(client, topic) == [
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        *[ErrorCode.NONE] * 3,
    ]
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"{topic}-1 cannot be read: magic 7 at byte 0. The " in line
    assert f"Inspect the folder {topic}-1 with" in line
    assert ("groups then begin without" in line) is (topic == CONSUMER_OFFSETS_TOPIC)
    assert ("ids are then unknown" in line) is (topic == TRANSACTION_STATE_TOPIC)


# Rule A.12/13.
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CONSUMER_OFFSETS_TOPIC, ErrorCode.NOT_COORDINATOR),
        (TRANSACTION_STATE_TOPIC, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_partition_whose_leader_epoch_goes_down_has_no_coordinator(caplog, topic, code, storage: MemoryStorage):
    """The newest record of an id counts, so a batch of an earlier leader behind a later one's would undo its work."""
    cluster = opened(storage)
    cluster.controller.create_topic(TOPIC, 1)
    later = build_batch([NewRecord(b"\0\x7f", b"", (), 1000)])
    log = cluster.logs.get(TopicPartition(topic, 1), cluster.now_ms)
    log.append_as_leader(later, now_ms=cluster.now_ms, leader_epoch=7, origin=AppendOrigin.COORDINATOR)
    client = DirectClient(cluster)
    for partition in range(PARTITIONS):
        assert committed(client, name_in(partition)) == init_producer(client, name_in(partition)).error_code == 0
    cluster.close(cluster.now_ms)
    client = DirectClient(opened(storage))
    assert answers_by_partition(client, topic) == [ErrorCode.NONE, code, *[ErrorCode.NONE] * 3]
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line.startswith(f"{topic}-1 ")
    assert "the batch at offset 1 is of leader epoch 0, the batch before it of 7" in line


def epoch_end(client, leader_epoch):
    answer = client.ask(epoch_end_request(TOPIC, leader_epoch), 4)
    found = answer.topics[0].partitions[0]
    return found.leader_epoch, found.end_offset


def fetched_with(client, offset, last_epoch):
    request = fetch_request(TOPIC, {"fetch_offset": offset, "last_fetched_epoch": last_epoch})
    found = client.ask(request, 12).responses[0].partitions[0]
    parts = found.diverging_epoch
    return found.error_code, parts and (parts.epoch, parts.end_offset)


@pytest.mark.parametrize("restarts", [False, True])
def test_leader_epoch_without_records_is_known_to_fetch_and_offset_for_leader_epoch(restarts, storage: MemoryStorage):
    cluster = direct_cluster(storage)
    cluster.controller.create_topic(TOPIC, 1)
    assert produced(DirectClient(cluster), records(3)).error_code == 0
    partition = TopicPartition(TOPIC, 0)
    for _ in range(2):
        if restarts:
            cluster.close(cluster.now_ms)
            cluster = direct_cluster(storage)
        else:
            cluster.controller.move_leader(partition, 1)
    client = DirectClient(cluster)
    assert [epoch_end(client, epoch) for epoch in range(4)] == [(0, 3), (0, 3), (2, 3), (-1, -1)]
    assert fetched_with(client, 3, 2) == (ErrorCode.NONE, None)
    assert fetched_with(client, 3, 1) == (ErrorCode.NONE, (0, 3))
    assert fetched_with(client, 3, 0) == (ErrorCode.NONE, None)
    assert fetched_with(client, 3, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    assert produced(client, records(1)).error_code == 0
    assert [epoch_end(client, epoch) for epoch in range(3)] == [(0, 3), (0, 3), (2, 4)]


def test_leader_epoch_without_records_is_not_a_recovery_finding(storage: MemoryStorage):
    cluster = direct_cluster(storage)
    cluster.controller.create_topic(TOPIC, 1)
    partition = TopicPartition(TOPIC, 0)
    cluster.controller.move_leader(partition, 1)
    assert produced(DirectClient(cluster), records(3)).error_code == 0
    cluster.controller.move_leader(partition, 1)
    cluster.close(cluster.now_ms)
    assert b"\n2 3\n" in dict(storage.files())[f"{TOPIC}-0/leader-epoch-checkpoint"]
    log = direct_cluster(storage).logs.get(partition, 1_000_000)
    assert log.findings == []
    assert log.leader_epochs.latest == 3
