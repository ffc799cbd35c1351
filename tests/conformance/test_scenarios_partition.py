"""The scenarios of rules L.1 that a partition leader decides, by single requests."""

import itertools
import struct
import time
from pathlib import Path

import pytest

from broker_core.errors import ErrorCode
from broker_core.records.batch import NewRecord, build_batch
from broker_core.types import MAX_SEQUENCE
from tests.support.clients import (
    DEADLINE_S,
    READ_UNCOMMITTED,
    Kafka,
    make_producer,
    make_topic,
    make_transactional_producer,
    send,
    unique,
    values_soon,
    values_to_end,
)
from tests.support.protocols import COMMITTED, UNCOMMITTED, V2, bumped, headers, markers, wait_for_state, write
from tests.support.raw_client import RawClient
from tests.support.raw_session import NOBODY, Identity, RawSession, record_batch
from tests.support.restartable import Restartable
from tests.support.waiting import wait_until

NONE = ErrorCode.NONE
# A segment lasts a second and batches are stamped two seconds apart, so each is in its own segment.
ROLLING = {"segment.ms": "1000"}
STEP_MS = 2_000
DAY_MS = 24 * 60 * 60 * 1000
ABORTED_ENTRY = struct.Struct(">hqqqq")


def plain(identity: Identity, sequence: int, count: int = 1) -> bytes:
    """Build a batch outside any transaction."""
    return record_batch([b"%d" % number for number in range(count)], identity, sequence, transactional=False)


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (8, ErrorCode.INVALID_TXN_STATE),
        (9, ErrorCode.INVALID_TXN_STATE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (12, NONE),
    ],
)
# Rules L.1/8, A.15/3, C.1/28, C.3 ask/6 and C.3 mode/1
def test_scenario_08_a_batch_without_an_add(kafka: Kafka, session: RawSession, version: int, error: int):
    """The first batch of a partition that was not added: the error depends on the version.

    INVALID_TXN_STATE up to Produce 10, TRANSACTION_ABORTABLE in 11; from 12 on the leader adds the partition.
    """
    topic = make_topic(kafka)
    identity = session.init()[1]
    batch = record_batch([b"x"], identity, 0)
    assert session.produce(topic, batch, version=version)[0] == error
    if error:
        refused = session.produce_once(topic, batch, version=version)
        text = "Partition was not added to the transaction" if error == ErrorCode.INVALID_TXN_STATE else None
        assert (refused.error_code, refused.error_message) == (error, text)
        assert session.describe().transaction_state == "Empty"
        assert session.add(identity, topic) == {NONE}
        assert session.produce(topic, batch, version=version) == (NONE, 0)
    assert [(entry.topic, entry.partitions) for entry in session.describe().topics] == [(topic, [0])]


# Rules L.1/9 and C.1/25
def test_scenario_09_a_batch_with_an_old_epoch(kafka: Kafka, session: RawSession):
    """Produce with an epoch below the partition's returns INVALID_PRODUCER_EPOCH in every version.

    Only the marker makes the old epoch stale there; before it, the partition accepts a late batch.
    """
    topic = make_topic(kafka)
    first = session.init()[1]
    assert session.produce(topic, record_batch([b"a"], first, 0), version=12)[0] == NONE
    assert session.end(first, commit=True, version=5)[1] == bumped(first)
    values_soon(kafka, topic, [b"a"])
    for version in (9, 11, 12):
        late = record_batch([b"late"], first, 1)
        assert session.produce(topic, late, version=version)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    values_soon(kafka, topic, [b"a"])


# Rule L.1/10
def test_scenario_10_the_last_five_batches_sent_again(kafka: Kafka, idempotent: RawSession):
    """Each of the last five batches, repeated, gets its original offset; an older one OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic = make_topic(kafka)
    identity = idempotent.init()[1]
    batches = [plain(identity, 2 * number, 2) for number in range(6)]
    for number, batch in enumerate(batches):
        assert idempotent.produce(topic, batch, version=9) == (NONE, 2 * number)
    for number in range(1, 6):
        assert idempotent.produce(topic, batches[number], version=9) == (NONE, 2 * number)
    assert idempotent.produce(topic, batches[0], version=9)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert idempotent.fetch(topic, 0, isolation=UNCOMMITTED).high_watermark == 12


# Rules L.1/11 and C.1/26
def test_scenario_11_the_sequence_wraps_to_zero(kafka: Kafka, idempotent: RawSession):
    """After sequence 2^31-1 comes 0, and no other."""
    topic = make_topic(kafka)
    identity = idempotent.init()[1]
    assert idempotent.produce(topic, plain(identity, MAX_SEQUENCE), version=9) == (NONE, 0)
    refused = idempotent.produce(topic, plain(identity, 1), version=9)[0]
    assert refused == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert idempotent.produce(topic, plain(identity, 0), version=9) == (NONE, 1)


# Rule L.1/12
@pytest.mark.parametrize("transaction_version", [0, 2])
def test_scenario_12_a_late_marker_of_an_older_coordinator(kafka: Kafka, session: RawSession, transaction_version: int):
    """A marker with an older coordinator epoch gets TRANSACTION_COORDINATOR_FENCED and is not written."""
    topic = make_topic(kafka)
    first = session.init()[1]
    write(session, first, topic, V2)
    fenced = session.init_until_done()
    wait_until(lambda: markers(session, topic), "the fence's marker")
    [known] = session.producers(topic).active_producers
    end = session.fetch(topic, 0, isolation=COMMITTED).high_watermark
    zombie = session.write_marker(
        topic,
        fenced,
        commit=True,
        coordinator_epoch=known.coordinator_epoch - 1,
        transaction_version=transaction_version,
    )
    assert zombie == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert session.fetch(topic, 0, isolation=COMMITTED).high_watermark == end


# Rules L.1/13, D.1/2 and D.1/3
def test_scenario_13_a_reader_of_committed_records_stops_at_an_open_transaction(kafka: Kafka, idempotent: RawSession):
    """With an open transaction from offset o, read_committed returns nothing at or after o, read_uncommitted all."""
    topic = make_topic(kafka)
    send(make_producer(kafka), topic, [b"before"])
    producer = make_transactional_producer(kafka, unique("id"))
    producer.begin_transaction()
    send(producer, topic, [b"open"])
    send(make_producer(kafka), topic, [b"after"])
    held = idempotent.fetch(topic, 1, isolation=COMMITTED)
    assert (held.last_stable_offset, held.high_watermark, bytes(held.records or b"")) == (1, 3, b"")
    assert values_to_end(kafka, topic) == [b"before"]
    assert values_to_end(kafka, topic, isolation=READ_UNCOMMITTED) == [b"before", b"open", b"after"]
    producer.commit_transaction(DEADLINE_S)
    values_soon(kafka, topic, [b"before", b"open", b"after"])
    assert idempotent.fetch(topic, 4, isolation=COMMITTED).last_stable_offset == 4


def stamped(identity: Identity, sequence: int, step: int, key: bytes = b"k") -> bytes:
    """Build a batch of one record with a timestamp so many steps from now, transactional if it has a producer."""
    return build_batch(
        [NewRecord(key, b"value", (), int(time.time() * 1000) + step * STEP_MS)],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=sequence,
        is_transactional=identity != NOBODY,
    )


def aborted_entries(folder: Path, topic: str) -> dict[str, list[tuple[int, ...]]]:
    """Return the non-empty aborted-transaction indexes of the topic's segments."""
    found = {}
    for path in sorted((folder / f"{topic}-0").glob("*.txnindex")):
        entries = list(ABORTED_ENTRY.iter_unpack(path.read_bytes()))
        if entries:
            found[path.stem] = entries
    return found


# Rule L.1/14
def test_scenario_14_aborted_transaction_that_spans_segments(durable_kafka: Restartable):
    """The index of the segment with the marker lists the abort, whose first offset is in an earlier segment."""
    topic = make_topic(durable_kafka, config=ROLLING)
    with RawClient(durable_kafka.bootstrap_servers) as client:
        session = RawSession(client, unique("id"))
        identity = session.init()[1]
        for number in range(3):
            assert session.produce(topic, stamped(identity, number, number), version=12) == (NONE, number)
        assert session.end(identity, commit=False, version=5)[0] == NONE
        wait_until(lambda: session.fetch(topic, 0, isolation=COMMITTED).last_stable_offset == 4, "the marker")
        for offset in range(4):
            aborted = session.fetch(topic, offset, isolation=COMMITTED).aborted_transactions
            assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(identity.producer_id, 0)]
        # An index may be in memory until its segment is full.
        assert session.produce(topic, stamped(NOBODY, -1, 4), version=9) == (NONE, 4)
    assert aborted_entries(durable_kafka.data_folder, topic) == {f"{2:020}": [(0, identity.producer_id, 0, 3, 4)]}


# Rule L.1/15
@pytest.mark.parametrize(("retention_ms", "is_kept"), [(0, False), (DAY_MS, True)])
def test_scenario_15_marker_without_its_data_is_compacted_away(
    durable_kafka: Restartable, retention_ms: int, is_kept: bool
):
    """Compaction drops the aborted data, gives the marker a delete horizon, and drops it in a later pass.

    That pass must come after `delete.retention.ms`; until then the marker stays for readers that need it.
    """
    topic = make_topic(
        durable_kafka,
        config=ROLLING
        | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": str(retention_ms)},
    )
    with RawClient(durable_kafka.bootstrap_servers) as client:
        session = RawSession(client, unique("id"))
        identity = session.init()[1]
        assert session.produce(topic, stamped(identity, 0, 0, b"aborted"), version=12) == (NONE, 0)
        next_identity = session.end(identity, commit=False, version=5)[1]
        wait_for_state(session, "CompleteAbort")
        # The last batch of a known producer is kept for its sequence, so the producer must write again.
        write(session, next_identity, make_topic(durable_kafka), V2)
        assert session.produce(topic, stamped(next_identity, 0, 1, b"kept"), version=12) == (NONE, 2)
        assert session.end(next_identity, commit=True, version=5)[0] == NONE
        wait_for_state(session, "CompleteCommit")
        steps = itertools.count(2)

        def compacted_once_more() -> bool:
            assert session.produce(topic, stamped(NOBODY, -1, next(steps), b"k"), version=9)[0] == NONE
            front = [header for header in headers(session, topic) if header.base_offset < 2]
            if not is_kept:
                return front == []
            return [(header.base_offset, header.has_delete_horizon) for header in front] == [(1, True)]

        wait_until(compacted_once_more, "the cleaner has been through", pause_s=0.2)
        assert next(header.base_offset for header in markers(session, topic)) == (1 if is_kept else 3)
